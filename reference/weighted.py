r"""Projection onto the weighted top-k set.

Solve, for given b, weights w_1 >= w_2 >= ... >= 0, a radius r and a bias rho >= 0,

    min_x  1/2 ||x - b||^2 + rho/2 <1,x>^2     s.t.  x in zeta Perm(w),  0 <= zeta <= r,

where Perm(w) is the convex hull of the permutations of w.  The weights (1/k, ..., 1/k, 0, ...)
give the top-k simplex alpha.

The solution is, for b sorted in descending order,

    x = b - v,    v = iso(b - zeta w),

where iso is the closest non-increasing sequence: adjacent pools whose means are out of order
merge and share the mean (PAV).  zeta is r or the root of

    phi'(zeta) = -<v,w> + rho zeta <1,w>^2,

which is increasing, and concave because pools only merge as zeta grows.  Newton's method
started at zeta = 0 therefore never overshoots, and a step that merges nothing was exact.

With ``label=True`` the label's own slot counts: the set is {x : (x, z) in zeta Perm(w) for
some z}, with one weight more than x has entries.  Then every entry is squeezed between two
isotonic regressions,

    A = iso(b - zeta (w_1..w_p))  <=  v = clip(mu, A, B)  <=  B = iso(b - zeta (w_2..w_{p+1})),

mu is the price of the bias, <1,x> = mu/rho (0 if rho = 0), that is, x is the projection of b
onto the box [b - B, b - A]; and zeta is r or the root of the increasing function
-<max(A - mu, 0), w_1..w_p> - <min(B - mu, 0), w_2..w_{p+1}>.

By hand: w = (2, 1), b = (5, 1), r = 1: the entries of b - w = (3, 0) are in order, nothing
merges, x = w.  For b = (5, 4.5), b - w = (3, 3.5) merges to (3.25, 3.25), x = (1.75, 1.25).

>>> project_weighted_topk([5.0, 1.0], [2.0, 1.0]).tolist()
[2.0, 1.0]
>>> project_weighted_topk([5.0, 4.5], [2.0, 1.0]).tolist()
[1.75, 1.25]

References
----------
[W] Hirohashi, Kato. Learning Weighted Top-k Support Vector Machine. ACML 2019.
"""

import numpy as np

from ._checks import as_row, at_least
from .knapsack import biased_threshold


def project_weighted_topk(x, weights, radius=1.0, *, label=False, bias=0.0):
    """Project onto ``zeta * Perm(weights)``, ``0 <= zeta <= radius``.

    Parameters
    ----------
    x : array_like, shape (p,)
        The row b to project; entries -inf get mass 0, so with fewer finite entries than
        positive weights the projection is 0.
    weights : array_like, shape (q,)
        Non-increasing and non-negative, q <= p (q <= p + 1 if `label`); zeros are appended.
    radius : float, default=1.0
        The largest scale r >= 0.
    label : bool, default=False
        Whether one of the weights may be taken by the label's own slot.
    bias : float, default=0.0
        The weight rho of ``bias/2 * sum(p)**2`` in the objective.

    Returns
    -------
    ndarray, shape (p,)
        The projection.
    """
    b = as_row(x)
    w = _pad(weights, b.size + label)
    radius, bias = at_least(radius, 0, "radius"), at_least(bias, 0, "bias")
    p = np.zeros_like(b)
    order = np.argsort(-b, kind="stable")[:np.count_nonzero(np.isfinite(b))]
    slots = order.size + label
    if w[0] > 0 and radius > 0 and not w[slots:].any():
        # Only the product zeta w matters: scale w to (1, ...) and no square can underflow.
        solve = _project_label if label else _project
        p[order] = solve(b[order], w[:slots] / w[0], radius * w[0], bias)
    return p


def _project(b, w, radius, bias):
    """Newton's method on phi', merging pools on the way; b descending."""
    anchor = b[0]
    pools = [(d, wj, 1) for d, wj in zip(b - anchor, w, strict=True)]
    total = w.sum()
    while True:
        # phi'(zeta) = slope zeta - gain while the pools stay as they are
        gain = anchor * total + sum(d * wp / n for d, wp, n in _resum(pools, b - anchor))
        slope = sum(wp * wp / n for _, wp, n in pools) + bias * total**2
        zeta = min(max(gain / slope, 0.0), radius)
        merged = _merge(pools, zeta)
        if len(merged) == len(pools):
            return np.maximum(_shares(b - anchor, pools, zeta)[0], 0)
        pools = merged


def _project_label(b, w, radius, bias):
    """Bracketed Newton's method on zeta, with the box projection inside; b descending."""
    anchor = b[0]
    d = b - anchor
    mass, slack = w[:-1], w[1:]

    def solve(zeta):
        """Return x, phi'(zeta) and its slope."""
        upper, w_upper = _shares(d, _merge(list(zip(d, mass, [1] * d.size, strict=True)), zeta),
                                 zeta)                     # d - A and its slope in zeta
        lower, w_lower = _shares(d, _merge(list(zip(d, slack, [1] * d.size, strict=True)), zeta),
                                 zeta)                     # d - B and its slope in zeta
        lower = np.minimum(lower, upper)
        mu = biased_threshold(d, lower, upper, bias, anchor) if bias > 0 else -anchor
        above, below = (d - upper) - mu, (d - lower) - mu  # A - mu, B - mu
        over, under = above > 0, below < 0
        free = d.size - np.count_nonzero(over | under)
        mu_slope = bias * (w_upper[over].sum() + w_lower[under].sum()) / (1 + bias * free)
        phi = -(above[over] @ mass[over]) - below[under] @ slack[under]
        slope = mass[over] @ (w_upper[over] + mu_slope) + slack[under] @ (
            w_lower[under] + mu_slope)
        return np.clip(d - mu, lower, upper), phi, slope

    if solve(0.0)[1] >= 0:                 # ascending from the start
        return np.zeros_like(b)
    low, high = 0.0, radius
    zeta = radius
    x, phi, slope = solve(zeta)
    if phi <= 0:                           # still descending at the largest zeta allowed
        return np.maximum(x, 0)
    while True:
        low, high = (low, zeta) if phi > 0 else (zeta, high)
        step = zeta - phi / slope if slope > 0 else low
        if not low < step < high:
            if step == zeta or phi == 0:
                break
            step = low + (high - low) / 2
            if not low < step < high:
                break
        zeta = step
        x, phi, slope = solve(zeta)
    return np.maximum(x, 0)


def _merge(pools, zeta):
    """PAV: merge adjacent pools (sum of b, sum of w, size) until b - zeta w is in order."""
    stack = []
    for b, w, n in pools:
        while stack:
            b0, w0, n0 = stack[-1]
            if b0 / n0 - b / n >= zeta * (w0 / n0 - w / n):        # zeta w counts even next to 1e17
                break
            stack.pop()
            b, w, n = b + b0, w + w0, n + n0
        stack.append((b, w, n))
    return stack


def _split(d, pools):
    """Return the entries of each pool."""
    return np.split(d, np.cumsum([n for _, _, n in pools])[:-1])


def _resum(pools, d):
    """Return the pools with their sums of d anew: long ones were summed entry by entry."""
    return [(part.sum(), w, n) for part, (_, w, n) in zip(_split(d, pools), pools, strict=True)]


def _shares(d, pools, zeta):
    """Return d - iso(d - zeta w) and its derivative in zeta, entry by entry."""
    mean_w = np.repeat([w / n for _, w, n in pools], [n for _, _, n in pools])
    # Relative to the first of its pool: the entries of a pool are as close as their shares.
    more = [part - part[0] for part in _split(d, pools)]
    return zeta * mean_w + np.concatenate([part - part.mean() for part in more]), mean_w


def _pad(weights, length):
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not 1 <= w.size <= length:
        raise ValueError(f"weights must be 1-D with 1..{length} entries, got shape {w.shape}.")
    if not np.isfinite(w).all() or (w < 0).any() or (np.diff(w) > 0).any():
        raise ValueError("weights must be finite, non-negative and non-increasing; sort them in "
                         f"descending order, got {weights!r}.")
    return np.concatenate([w, np.zeros(length - w.size)])
