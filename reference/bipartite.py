r"""Projection onto the bipartite simplex, the dual set of the multilabel hinge loss.

Solve, for given b, b' and r,

    min_{x,y}  1/2 ||x - b||^2 + 1/2 ||y - b'||^2    s.t.  <1,x> = <1,y> <= r,  x, y >= 0.

The solution is  x = max(0, b - t),  y = max(0, b' + t)  with t such that the sums agree; if
their common value exceeds r, it is r and the two problems separate into two projections onto
simplices.

The t of the first case needs no new search.  Put y' = -y: then (x, y') solves the knapsack
problem with sum 0, where x >= 0 has no upper and y' <= 0 no lower bound.  ([A] section 5.3
finds the same t by variable fixing.)

By hand: b = (3, 0), b' = (1,): t = 1 gives x = (2, 0), y = (2,).

>>> p, q = project_bipartite_simplex([3.0, 0.0], [1.0], 5.0)
>>> p.tolist(), q.tolist()
([2.0, 0.0], [2.0])
>>> p, q = project_bipartite_simplex([3.0, 0.0], [1.0], 1.5)
>>> p.tolist(), q.tolist()
([1.5, 0.0], [1.5])

References
----------
[A] Lapin, Hein, Schiele. Analysis and Optimization of Loss Functions for Multiclass, Top-k
    and Multilabel Classification. TPAMI 2018, section 5.3.
"""

import numpy as np

from ._checks import as_row, at_least
from .knapsack import project_simplex, threshold


def project_bipartite_simplex(x, y, radius=1.0):
    """Project onto ``{(p, q) >= 0, sum(p) = sum(q) <= radius}``.

    Parameters
    ----------
    x, y : array_like, shapes (p,) and (q,)
        The rows b and b' to project; entries -inf get mass 0.  If one of the rows has no
        finite entry, both projections are 0.
    radius : float, default=1.0
        The largest common sum r >= 0.

    Returns
    -------
    p, q : ndarray, shapes (p,) and (q,)
        The projection.
    """
    b, c = as_row(x, "x", allow_empty=True), as_row(y, "y", allow_empty=True)
    radius = at_least(radius, 0, "radius")
    finite_b, finite_c = b[np.isfinite(b)], c[np.isfinite(c)]
    if finite_b.size == 0 or finite_c.size == 0:
        return np.zeros_like(b), np.zeros_like(c)

    both = np.concatenate([finite_b, -finite_c])
    left = np.arange(both.size) < finite_b.size
    anchor = finite_b.max()                # both sides only see b - t and c + t
    t = threshold(both - anchor, np.where(left, 0.0, -np.inf), np.where(left, np.inf, 0.0), 0.0)
    p = np.maximum((b - anchor) - t, 0)
    q = np.maximum((c + anchor) + t, 0)
    if max(p.sum(), q.sum()) > radius:
        return project_simplex(b, radius), project_simplex(c, radius)
    return p, q
