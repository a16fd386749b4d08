r"""Projections onto the simplex and the capped simplex (continuous quadratic knapsack).

Solve, for given b, bounds lo <= hi, a total r and a bias rho >= 0,

    min_x  1/2 ||x - b||^2 + rho/2 <1,x>^2     s.t.  <1,x> = r  (or <= r),  lo <= x <= hi.

The solution is  x = clip(b - t, lo, hi)  for one number t, the threshold:

    <1,x> = r    : t is the root of  S(t) = r,      S(t) = sum_j clip(b_j - t, lo_j, hi_j);
    <1,x> <= r   : t is the root of  t = rho S(t)   if that sum is at most r, else as above.

S is piecewise linear and non-increasing.  Its kinks are the numbers b_j - hi_j, where entry j
leaves its upper bound, and b_j - lo_j, where it reaches its lower bound.  So: sort the kinks,
find by bisection the two between which the root lies, and solve the linear equation there.
[K] reaches the same t without sorting, by guessing it and fixing variables for good.

By hand: b = (3, 1, 0), r = 2 on the simplex gives t = 1 and x = (2, 0, 0); with the cap
x <= 1 the first entry stops at 1 and the others share the rest with t = 0.

>>> project_simplex([3.0, 1.0, 0.0], 2.0).tolist()
[2.0, 0.0, 0.0]
>>> project_capped_simplex([3.0, 1.0, 0.0], 0.0, 1.0, 2.0).tolist()
[1.0, 1.0, 0.0]

References
----------
[K] Kiwiel. Variable fixing algorithms for the continuous quadratic knapsack problem.
    JOTA 2008.
"""

from bisect import bisect_left

import numpy as np

from ._checks import as_row, at_least


def project_simplex(x, radius=1.0):
    """Euclidean projection onto ``{p >= 0, sum(p) = radius}``.

    The threshold is t = (b_[1] + ... + b_[j] - r)/j, with j the last index for which the j-th
    largest entry b_[j] is still above it.

    Parameters
    ----------
    x : array_like, shape (p,)
        The row b to project; entries -inf get mass 0.
    radius : float, default=1.0
        The sum r >= 0 of the projection.

    Returns
    -------
    ndarray, shape (p,)
        The projection.
    """
    b = as_row(x)
    radius = at_least(radius, 0, "radius")
    d = b - b.max()                        # the projection does not see a common shift
    u = np.sort(d[np.isfinite(d)])[::-1]
    t = (np.cumsum(u) - radius) / np.arange(1, u.size + 1)
    last = max(np.count_nonzero(u > t), 1) - 1
    return np.maximum(d - t[last], 0)


def project_capped_simplex(x, lower, upper, total, *, equality=True, bias=0.0):
    """Project onto ``{lower <= p <= upper, sum(p) = total}`` or ``sum(p) <= total``.

    Parameters
    ----------
    x : array_like, shape (p,)
        The row b to project; entries -inf go to their lower bound.
    lower, upper : float or array_like of shape (p,)
        The bounds lo and hi; they may be infinite.
    total : float
        The right-hand side r of the sum constraint.
    equality : bool, default=True
        Whether the sum must equal `total` or may stay below it.
    bias : float, default=0.0
        The weight rho of ``bias/2 * sum(p)**2`` in the objective.  It changes nothing when the
        sum is fixed.

    Returns
    -------
    ndarray, shape (p,)
        The projection.
    """
    b = as_row(x)
    bias = at_least(bias, 0, "bias")
    lower = np.broadcast_to(np.asarray(lower, dtype=np.float64), b.shape)
    upper = np.broadcast_to(np.asarray(upper, dtype=np.float64), b.shape)
    upper = np.where(np.isneginf(b), lower, upper)
    _check_feasible(b, lower, upper, total, equality)

    anchor = b.max()
    d = b - anchor                         # 1e6 + small: keep the digits of what is small
    if not equality and np.clip(b - bias * total, lower, upper).sum() < total:
        if bias == 0:
            return np.clip(b, lower, upper)
        t = biased_threshold(d, lower, upper, bias, anchor)
    else:
        t = threshold(d, lower, upper, total)
    return np.clip(d - t, lower, upper)


def threshold(b, lower, upper, total):
    """Return the root t of ``sum(clip(b - t, lower, upper)) = total``."""
    return _root(b, lower, upper, 1.0, 0.0, total)


def biased_threshold(b, lower, upper, bias, anchor=0.0):
    """Return the root t of ``bias * sum(clip(b - t, lower, upper)) = t + anchor``."""
    return _root(b, lower, upper, bias, 1.0, anchor)


def _root(b, lower, upper, gain, slope, constant):
    """Return the root of the non-increasing function gain S(t) - slope t - constant."""
    kinks = np.concatenate([b - upper, b - lower])
    kinks = np.unique(kinks[np.isfinite(kinks)])

    def is_right_of_root(t):
        return gain * np.clip(b - t, lower, upper).sum() - slope * t < constant

    i = bisect_left(kinks, True, key=is_right_of_root)
    left = kinks[i - 1] if i > 0 else -np.inf
    right = kinks[i] if i < kinks.size else np.inf

    # For left < t < right nobody changes sides: S(t) = fixed + sum_free b - |free| t.
    at_lower, at_upper = b - lower <= left, b - upper >= right
    free = ~(at_lower | at_upper)
    fixed = lower[at_lower].sum() + upper[at_upper].sum()
    steepness = gain * np.count_nonzero(free) + slope
    if steepness == 0:                     # S is flat here: every t of the interval will do
        return left if np.isfinite(left) else right
    return min(max((gain * (fixed + b[free].sum()) - constant) / steepness, left), right)


def _check_feasible(b, lower, upper, total, equality):
    if np.isnan(total) or np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError("lower, upper and total must not be NaN.")
    if np.isneginf(lower[np.isneginf(b)]).any():
        raise ValueError("lower must be finite where x is -inf; raise lower or drop the entry.")
    if (lower > upper).any():
        raise ValueError("lower must be <= upper in every entry; swap or fix the bounds.")
    # Bounds such as total/p add up to total only up to rounding: forgive that much.
    least, most = lower.sum(), upper.sum()
    rounding = b.size * np.finfo(float).eps
    if least > total + rounding * np.abs(lower).sum():
        raise ValueError(f"sum(lower) must be <= total, got {least} > {total}; lower the bounds.")
    if equality and most < total - rounding * max(np.abs(upper).sum(), abs(total)):
        raise ValueError(f"sum(upper) must be >= total, got {most} < {total} (entries of x that "
                         "are -inf count with their lower bound); raise upper or lower total.")
