r"""The top-k cone by jumps: from a guess of the solution, without following the path to it.

The path of topk.py starts at zeta = 0 and passes every event on its way.  In training, the row to
project is nearly the row of the last epoch, and so is its solution: start there.

Let u = s/k be the cap of {0 <= x_j <= s/k, s <= r}, and give the condition s = k u a price t:

    g(t, u) = min_{0 <= x_j <= u}  1/2 ||x - b||^2 + rho/2 (k u)^2 + t (<1,x> - k u)

is attained at x = clip(b - t, 0, u), concave in t and convex in u.  The projection is at the
saddle, highest in t and lowest in u <= r/k: two numbers have to be found.  They place the entries,

    U = {b_j - t >= u},     M = {0 < b_j - t < u},     L = {b_j - t <= 0}.

Let S_U, S_M be the sums of b over U and M, n_U, n_M the counts, and d = k - n_U how many caps M
has to fill.  Then dg/dt = <1,x> - k u = 0 and dg/du = rho k^2 u - k t - sum_U (b_j - t - u) = 0 are

    (1)     d u + n_M t = S_M,
    (2)     (rho k^2 + n_U) u - d t = S_U        (<= if u = r/k: then s would like to grow).

As long as no entry changes its place the two are linear.  Eliminate t:

    (3)     u = min{ (n_M S_U + d S_M) / (n_M (rho k^2 + n_U) + d^2),  r/k },
    (4)     t = (S_M - d u) / n_M.

So solve on the piece where (t, u) is, move there, look at the places again.  If they have not
changed, (1) and (2) hold as they stand and x is the projection: where it rests there is a proof.
By (1) a solution has either n_M > 0 and n_U < k, or the plateau n_M = 0 and n_U = k, on which (1)
is void, u comes from (2) and t may lie anywhere between L and the least of U minus u.  On a piece
of any other kind u is kept and t is moved towards (1).  x = 0 needs no piece: for every t,

    (5)     k t + sum_j max{b_j - t, 0}  >=  the sum of the k largest entries,

with equality at the k-th largest, so if the left side is <= 0 for one t, s = 0 is best.

Does it end?  This is Newton's method for a piecewise linear system: on the solution's piece one
jump is exact.  But at a saddle there is no quantity that falls from jump to jump, and because a
jump depends only on the piece (and on a kept u), whoever comes back to a piece goes in a circle.
Every fourth jump goes only halfway, which leaves most circles.  After 12 jumps the answer is
None, and the caller follows the path instead.  On random rows of 5 to 60 entries, changed by 5 %
since they were solved, most needed one or two jumps, a circle five, and all came to rest.  With
no good start (t = max b - 2u, u = r/k) rows of 10 entries take three or four jumps, and of those
of 60 a fifth gives up.

By hand: b = (3, 1, 0), k = 2.  From (t, u) = (-1/2, 2) the places are U = {3}, M = {1, 0}, so (3)
says u = (2*3 + 1) / (2 + 1) = 7/3 and (4) says t = (1 - 7/3) / 2 = -2/3.  There b - t is
(11/3, 5/3, 2/3), the places are the same: x = (7/3, 5/3, 2/3).  From (0, 2), U = {3}, M = {1}
lead to (-1, 2), where U = {3, 1}, M = {0} lead back to (0, 2): a circle.  Half of it is (-1/2, 2).

>>> b = np.array([3.0, 1.0, 0.0])
>>> jump(b, 2, 0.0, 2.0)[:2], jump(b, 2, -1.0, 2.0)[:2]
((-1.0, 2.0), (0.0, 2.0))
>>> t, u = jump_to_topk_cone(b, 2, 0.0, 2.0)
>>> np.clip(b - t, 0, u).round(4).tolist()
[2.3333, 1.6667, 0.6667]
"""

import numpy as np

# Three halfway jumps are three chances to leave a circle.
JUMPS = 12
# Sums taken from a t this many times max(x) away have lost digits of x: jump once more from nearby.
FAR = 16


def jump_to_topk_cone(b, k, t, u, *, radius=np.inf, bias=0.0):
    """Find (t, u) of the projection ``clip(b - t, 0, u)`` onto the top-k cone or simplex alpha.

    Parameters
    ----------
    b : ndarray, shape (p,)
        The row to project; entries -inf get mass 0.
    k : int
        How many entries share the sum at least, 1 <= k <= p.
    t, u : float
        The guess, u > 0.
    radius, bias : float
        The largest sum r > 0 and the weight rho, see topk.py.

    Returns
    -------
    (float, float) or None
        t and u of the projection; None if the jumps did not come to rest, or a far-off piece asks
        for a cap below 0.
    """
    b = b[np.isfinite(b)]
    if b.size < k:                                          # too few to share s/k: x = 0
        return None
    for i in range(JUMPS):
        if k * t + np.maximum(b - t, 0).sum() <= 0:         # (5)
            return t, 0.0
        new_t, new_u, rests = jump(b, k, t, u, radius=radius, bias=bias)
        if not (new_u > 0 and np.isfinite(new_t)):          # such a piece leads nowhere
            return None
        if rests:
            return new_t, new_u
        step = 0.5 if i % 4 == 3 else 1.0                   # halfway leaves a circle
        t, u = t + step * (new_t - t), u + step * (new_u - u)
    return None


def jump(b, k, t, u, *, radius=np.inf, bias=0.0):
    """Solve on the piece of (t, u); return the new t and u, and whether they solve the problem."""
    v = b - t                                               # sums near t keep their digits
    upper, lower = v >= u, v <= 0
    middle = ~upper & ~lower
    n_u, n_m, d = upper.sum(), middle.sum(), k - upper.sum()
    # With sums of v = b - t in place of sums of b, n_M S_U + d S_M in (3) lacks n_M (n_U + d) t.
    s_u, s_m = v[upper].sum() + k * t, v[middle].sum()
    least_u, most_l = v[upper].min(initial=np.inf), v[lower].max(initial=-np.inf)
    solvable = d > 0 if n_m > 0 else d == 0
    if solvable:
        n = max(n_m, 1)                                     # on a plateau (3) is (2) for every n
        u = min((n * s_u + d * s_m) / (n * (bias * k**2 + n_u) + d**2), radius / k)     # (3)
    if n_m > 0:
        move = (s_m - d * u) / n_m                          # (4), relative to t
    elif solvable:                                         # a plateau: keep away from its edges
        edge = least_u - u
        inside = edge - 0.5 * max(min(u, edge - most_l), 0)
        move = inside if edge < 0 else max(inside, 0)
    elif d > 0:                                             # (1), with M = {the largest of L}
        move = most_l - d * u
    else:
        # Too many are at the cap.  Were they u apart, t at the (n_U - k)th from below would leave
        # k of them; were they equal, each would get k u / n_U: the largest gets that in any case.
        share = k * u / n_u
        move = max(least_u - share, min(least_u - (d + 1) * u, v.max() - share))
    # Entries on an edge between two places count for both, up to rounding.
    slack = 2 * np.finfo(float).eps * (abs(v.max()) + abs(move) + abs(u))
    stays = (
        np.all(v[upper] - move >= u - slack) and np.all(v[lower] - move <= slack)
        and np.all(v[middle] - move >= -slack) and np.all(v[middle] - move <= u + slack)
    )
    near = abs(move) <= FAR * min(u, abs(v.max() - move)) + slack
    return float(t + move), float(u), bool(solvable and stays and near)
