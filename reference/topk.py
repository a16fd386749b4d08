r"""Projections onto the top-k cone and the top-k simplices.

Solve, for given b, k, r and a bias rho >= 0,

    min_x  1/2 ||x - b||^2 + rho/2 <1,x>^2     s.t.  x in the set,

where the set is one of

    top-k cone          {0 <= x_j <= s/k},                     s = <1,x>,
    top-k simplex alpha {0 <= x_j <= s/k,  s <= r},
    top-k simplex beta  {0 <= x_j <= r/k,  s <= r},            a capped simplex,
    label-included      {0 <= x_j <= r/k,  s <= r,  x_j <= s/(k-1)}.

The solution for the cone and for alpha is, with s = zeta ([T] section 4),

    x_j = zeta/k        on U, the largest entries of b,
    x_j = b_j - t       on M, the middle,
    x_j = 0             on L, the smallest,

and what has to be found is the partition (U, M, L).  [T] tries all of them; here we follow a
path instead.  Fix zeta and sort b in descending order.  Then x = b - v, where v is the
non-increasing sequence closest to b - zeta w, w = (1/k, ..., 1/k, 0, ..., 0): entries that
would be out of order form a pool and share their mean.  The only pool is M.  It starts as
{position k} at zeta = 0 and only grows, to the left when the last entry of U meets it, to the
right when it meets the first entry of L.  The best objective value phi(zeta) is convex, with

    phi'(zeta) = -<v,w> + rho zeta,      linear between two events,

so walk from event to event and stop at the root of phi' or at zeta = r.  That is two pointers,
O(p) after the sort.  Whoever has a guess of the solution need not walk: see jumps.py.

By hand: b = (3, 1, 0), k = 2.  The pool {1} sinks to meet the entry 0 at zeta = 2, then
M = {1, 0} and phi'(zeta) = 3/8 zeta - 7/4 vanishes at zeta = 14/3: the projection onto the cone
is (7/3, 5/3, 2/3), its first entry is half of the sum.

>>> project_topk_cone([3.0, 1.0, 0.0], 2).round(4).tolist()
[2.3333, 1.6667, 0.6667]
>>> project_topk_simplex([3.0, 1.0, 0.0], 2, 1.0).tolist()
[0.5, 0.5, 0.0]

References
----------
[T] Lapin, Hein, Schiele. Top-k Multiclass SVM. NIPS 2015, sections 3 and 4.
[A] Lapin, Hein, Schiele. Analysis and Optimization of Loss Functions for Multiclass, Top-k
    and Multilabel Classification. TPAMI 2018, section 5.
"""

import numpy as np

from ._checks import as_row, at_least, count
from .knapsack import project_capped_simplex


def project_topk_cone(x, k, *, bias=0.0):
    """Project onto the top-k cone ``{0 <= p_j <= sum(p)/k}``.

    Parameters
    ----------
    x : array_like, shape (p,)
        The row b to project; entries -inf get mass 0, so with fewer than `k` finite entries
        the projection is 0.
    k : int
        How many entries share the sum at least, 1 <= k <= p.
    bias : float, default=0.0
        The weight rho of ``bias/2 * sum(p)**2`` in the objective.

    Returns
    -------
    ndarray, shape (p,)
        The projection.
    """
    b = as_row(x)
    return _project_alpha(b, count(k, b.size), np.inf, at_least(bias, 0, "bias"))


def project_topk_simplex(x, k, radius=1.0, *, kind="alpha", bias=0.0):
    """Project onto one of the top-k simplices.

    Parameters
    ----------
    x : array_like, shape (p,)
        The row b to project; entries -inf get mass 0.
    k : int
        1 <= k <= p; for ``kind="label"``, which counts the label's own slot, k <= p + 1.
    radius : float, default=1.0
        The largest sum r >= 0.
    kind : {"alpha", "beta", "label"}, default="alpha"
        Which set, see the top of this file.
    bias : float, default=0.0
        The weight rho of ``bias/2 * sum(p)**2`` in the objective.

    Returns
    -------
    ndarray, shape (p,)
        The projection.
    """
    b = as_row(x)
    if kind not in ("alpha", "beta", "label"):
        raise ValueError(f'kind must be "alpha", "beta" or "label", got {kind!r}.')
    k = count(k, b.size + (kind == "label"))
    radius, bias = at_least(radius, 0, "radius"), at_least(bias, 0, "bias")
    if kind == "alpha":
        return _project_alpha(b, k, radius, bias)
    p = project_capped_simplex(b, 0.0, radius / k, radius, equality=False, bias=bias)
    if kind == "beta" or k == 1:
        return p
    # The label-included set is beta cut by the top-(k-1) cone.  Where s >= r(k-1)/k the cone
    # says nothing that x_j <= r/k does not say; where s is smaller it is the other way round.
    bend = radius * (k - 1) / k
    return p if p.sum() >= bend else _project_alpha(b, k - 1, bend, bias)


def _project_alpha(b, k, radius, bias):
    """Sort, follow the path, undo the sort."""
    x = np.zeros_like(b)
    order = np.argsort(-b, kind="stable")[:np.count_nonzero(np.isfinite(b))]
    if order.size >= k:                    # fewer could not carry s/k each k times
        x[order] = _follow_path(b[order], k, radius, bias)
    return x


def _follow_path(b, k, radius, bias):
    """Projection of a descending row b onto the top-k simplex alpha."""
    anchor = b[k - 1]
    d = b - anchor                         # exact for entries near the pool
    sum_above = np.concatenate([[0.0], np.cumsum(d[:k])])
    first, last = k - 1, k                 # U = d[:first], M = d[first:last], L = d[last:]
    sum_m = 0.0
    while True:
        inside = k - first                 # entries of M that are among the k largest
        size = last - first
        mean = sum_m / size
        # phi'(zeta) = slope zeta - gain while the partition stays as it is
        slope = first / k**2 + inside**2 / (k**2 * size) + bias
        gain = anchor + (sum_above[first] + inside * mean) / k
        zeta = min(max(gain / slope, 0.0), radius)
        # U sinks at speed 1/k, M at speed inside/(k size), L stands still.
        meets_u = meets_l = np.inf
        if first > 0 and size > inside:
            meets_u = k * (d[first - 1] - mean) * (size / (size - inside))
        if last < d.size:
            meets_l = k * (mean - d[last]) * (size / inside)
        if zeta <= min(meets_u, meets_l):
            break
        if meets_u <= meets_l:
            first -= 1
            sum_m += d[first]
        else:
            sum_m += d[last]
            last += 1
    # The partition is found.  Long pools were summed far from t, so solve once more close to it.
    near = mean - zeta * (inside / (k * size))
    d = d - near
    mean = d[first:last].mean()
    gain = anchor + near + (d[:first].sum() + inside * mean) / k
    zeta = min(max(gain / slope, 0.0), radius)
    x = np.zeros_like(d)
    x[:first] = zeta / k
    t = mean - zeta * (inside / (k * size))
    x[first:last] = np.clip(d[first:last] - t, 0, zeta / k)
    return x
