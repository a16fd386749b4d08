r"""The Frank-Wolfe family: training hinge losses with vertices instead of projections.

Solve the dual problem of `sdca.py` for a hinge loss.  In v_i = -a_i/C_i it is, up to a factor,

    max  F(v) = sum_i C_i (-v_iy - gamma/2 <v_i,v_i>) - ||W||^2/2,     W = -sum_i C_i x_i v_i',

over the product of the polytopes of the examples (gamma leaves out v_iy unless all slots count).
The gradient in v_i is C_i (z_i - e_y) with z_i = s_i - gamma v_i.  A linear function on a polytope
is largest in a vertex, and here no projection is needed to find it: sort z, give the largest weight
to the largest entry, and so on.  All that is ever computed are such vertices and parabolas.

The solution is approached along directions d_i:

    frank_wolfe        to the best vertex,  best - v_i, all examples at once, one step length
    block_frank_wolfe  the same, one example after the other in random order
    away_step          v_i is a mix of vertices; to the best one, or away from the worst one of
                       the mix, v_i - worst, whichever climbs faster
    pairwise           share is moved from the worst vertex of the mix to the best,  best - worst

Along d the objective is gain t - bend t^2/2, with its peak at gain/bend.  The last two methods are
limited: no vertex can lose more than its share.  With one step length for all, the example with the
smallest share would stop everybody.  So each example proposes `factor` of the way to its own peak,
but no further than its limit, where it drops the vertex; the line search is along the sum of all
proposals, up to the whole of it.  Then factor is multiplied by the peak of the sum, so that the
next sum is about right as it is.  F never falls, and the gap of `sdca.py` tells when to stop.

By hand: x_1 = (1, 0), x_2 = (0, 1), labels 0 and 1, C = 1.  The best vertices are a = +-(1, -1),
and half the way is the solution: a full step gives each margin 2 where 1 is enough.

>>> from reference.losses import Hinge
>>> solution = solve_frank_wolfe([[1.0, 0.0], [0.0, 1.0]], [0, 1], Hinge(), method="frank_wolfe")
>>> solution.coef.tolist(), solution.gap, solution.n_epochs
([[0.5, -0.5], [-0.5, 0.5]], 0.0, 1)

References
----------
[W] Hirohashi, Kato. Learning Weighted Top-k Support Vector Machine. ACML 2019, sections 5 and 6.
Lacoste-Julien, Jaggi. On the global linear convergence of Frank-Wolfe optimization variants.
    NIPS 2015.
Lacoste-Julien, Jaggi, Schmidt, Pletscher. Block-coordinate Frank-Wolfe optimization for structural
    SVMs. ICML 2013.
"""

import numpy as np

from ._checks import at_least
from .losses.base import margins, with_label
from .sdca import Solution, certificate

METHODS = ("frank_wolfe", "away_step", "pairwise", "block_frank_wolfe")
SLIM = 1e-8               # what is left of a mix when v - worst is too inexact to be followed


def solve_frank_wolfe(X, y, loss, *, method="pairwise", C=1.0, sample_weight=None, tol=1e-3,
                      max_epochs=1000, random_state=None, kernel=False):
    """Train a linear or kernel classifier with a hinge loss by Frank-Wolfe steps.

    Parameters
    ----------
    X, y, C, sample_weight, tol, max_epochs, random_state, kernel
        As for `sdca.solve`.
    loss : Hinge, TopKHinge or WeightedTopKHinge
        A loss that has vertices.
    method : {"frank_wolfe", "away_step", "pairwise", "block_frank_wolfe"}, default="pairwise"
        Which steps; an epoch is one step of all examples together, or of each of them.

    Returns
    -------
    Solution
        The named tuple ``(coef, dual, primal, dual_value, gap, n_epochs)``.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    cost = at_least(C, 0, "C") * weight
    K = X if kernel else X @ X.T
    rng = np.random.default_rng(random_state)
    V = np.zeros((len(X), int(y.max()) + 1))
    mixes = [{tuple(v): 1.0} for v in V]                   # vertex: its share of v_i
    factor, epoch = 1.0, 0
    while True:
        A = 0.0 - cost[:, None] * V
        primal, dual_value, gap = certificate(K @ A, A, y, loss, C, weight)
        if gap <= tol or epoch == max_epochs:
            return Solution(None if kernel else X.T @ A, A, primal, dual_value, gap, epoch)
        if method == "block_frank_wolfe":
            for i in rng.permutation(np.flatnonzero(cost)):
                s = 0.0 - K[i] @ (cost[:, None] * V)
                d, gain = _toward(loss, s, V[i], y[i])
                V[i] += min(1.0, _peak(gain, _bend(loss, d, y[i], K[i, i] * cost[i]))) * d
        elif method == "frank_wolfe":
            d, gains = zip(*map(_toward, [loss] * len(X), K @ A, V, y), strict=True)
            V += min(1.0, _joint_peak(loss, np.array(d), gains, y, K, cost)) * np.array(d)
        else:
            moves = [_Move(method, loss, K[i, i] * cost[i], *row, factor)
                     for i, row in enumerate(zip(K @ A, V, y, mixes, strict=True))]
            d = np.array([move.step * move.way for move in moves])
            best = _joint_peak(loss, d, [move.step * move.gain for move in moves], y, K, cost)
            for i, move in enumerate(moves):
                mixes[i] = move.apply(mixes[i], min(1.0, best) * move.step)
                V[i] = sum(share * np.array(vertex) for vertex, share in mixes[i].items())
            factor = min(max(factor * best, 1 / len(X)), 1.0)
        epoch += 1


def _slope(loss, s, v, y):
    """Return z, the scores less the smoothing times v; the gradient in v is z - e_y."""
    z = s - loss.smoothing * v
    if not loss.all_slots:
        z[y] = s[y]
    return z


def _best_vertex(loss, z, y):
    return with_label(loss.vertex(margins(z, y)), y)


def _toward(loss, s, v, y):
    """Return the way to the best vertex, and what a unit of it gains (over C_i)."""
    z = _slope(loss, s, v, y)
    d = _best_vertex(loss, z, y) - v
    return d, z @ d - d[y]


def _bend(loss, d, y, alpha):
    """Return how fast the gain falls along d when only one example moves; alpha = kappa C_i."""
    weighed = d @ d - (0.0 if loss.all_slots else d[y] ** 2)
    return alpha * (d @ d) + loss.smoothing * weighed


def _peak(gain, bend):
    """Return where gain t - bend t^2/2 is largest, t >= 0."""
    if gain <= 0:
        return 0.0
    return gain / bend if bend > 0 else np.inf


def _joint_peak(loss, d, gains, y, K, cost):
    """Return the peak along the directions d of all examples together."""
    D = cost[:, None] * d
    bend = np.vdot(D, K @ D) + sum(c * _bend(loss, way, label, 0.0)
                                   for c, way, label in zip(cost, d, y, strict=True))
    return _peak(float(cost @ np.array(gains)), bend)


class _Move:
    """What one example proposes: a way, what it gains, a step, and whose share it changes."""

    def __init__(self, method, loss, alpha, s, v, y, mix, factor):
        z = _slope(loss, s, v, y)
        best = _best_vertex(loss, z, y)
        worth = {vertex: z @ vertex - vertex[y] for vertex in mix}
        worst = min(worth, key=worth.get)
        share = mix[worst]
        self.best, self.worst = tuple(best), worst
        if method == "pairwise":
            self.kind, self.way, self.limit = "swap", best - worst, share
        else:
            self.kind, self.way, self.limit = "toward", best - v, 1.0
            away = v - worst
            if 1 - share >= SLIM and z @ away - away[y] > z @ self.way - self.way[y]:
                self.kind, self.way, self.limit = "away", away, share / (1 - share)
        self.gain = z @ self.way - self.way[y]
        peak = _peak(self.gain, _bend(loss, self.way, y, alpha))
        self.step = min(factor * peak, self.limit)

    def apply(self, mix, t):
        """Return the mix after a step t along the way, with shares of sum 1."""
        scale = {"swap": 1.0, "toward": 1.0 - t, "away": 1.0 + t}[self.kind]
        mix = {vertex: scale * share for vertex, share in mix.items()}
        if self.kind != "away":
            mix[self.best] = mix.get(self.best, 0.0) + t
        if self.kind != "toward":
            mix[self.worst] = mix[self.worst] - t if t < self.limit else 0.0
        total = sum(mix.values())
        return {vertex: share / total for vertex, share in mix.items() if share > 0}
