r"""Proximal-point Newton: training to as many digits as the arithmetic has.

Solve the problem of `sdca.py`,

    min_W  1/2 ||W||^2 + sum_i omega_i L_i(W'x_i),      omega_i = C times the weight of example i,

whose losses may have corners, where Newton's method has nothing to hold on to.  So round them: with
a center c_i (a guess of the gradient of L_i at the solution) and sigma > 0 let

    L_sigma(s) = max_v  <s,v> - L*(v) - sigma/2 ||v - c||^2.

The maximizer v is the loss's prox at s + sigma c, it is the gradient of L_sigma, and its derivative
D = dv/ds is the Hessian (`prox` and `prox_derivative` of the losses).  Newton's method minimizes
phi(W) = 1/2 ||W||^2 + sum omega_i L_sigma,i with

    grad phi = W + sum_i omega_i x_i v_i',        Hessian = I + sum_i omega_i (x_i x_i') (x) D_i,

and a line search.  Then the v become the centers, which makes the rounding smaller where it
matters, sigma falls, and it starts again.  Few examples have D_i != 0: those whose v_i is neither
0 nor at a corner of its set.

A = -omega v is feasible at every moment: the gap of W and A is the stopping rule, as in SDCA.

By hand: x_1 = (1, 0), x_2 = (0, 1), labels 0 and 1, C = 1.  By symmetry W = [p -p; -p p] with one
number p, and v_1 = (-p, p).  The margins are h = 1 - 2p, and v_1 solves h = 2 sigma (p - c) for a
center c.  From c = 0, sigma = 1 this gives p = 1/4; from c = 1/4, sigma = 1/4 it gives p = 9/20;
and so on, to p = 1/2, where the margins are met.

>>> from reference.losses import Hinge
>>> solution = solve_newton([[1.0, 0.0], [0.0, 1.0]], [0, 1], Hinge(), tol=1e-12)
>>> solution.coef.round(6).tolist()
[[0.5, -0.5], [-0.5, 0.5]]
>>> solution.gap <= 1e-12
True
>>> solve_newton([[1.0, 0.0], [0.0, 1.0]], [0, 1], Hinge(), max_centers=1).coef.round(6).tolist()
[[0.25, -0.25], [-0.25, 0.25]]

References
----------
Rockafellar. Augmented Lagrangians and applications of the proximal point algorithm in convex
    programming. Mathematics of Operations Research 1976.
Li, Sun, Toh. A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso
    problems. SIAM Journal on Optimization 2018.
"""

import numpy as np

from ._checks import at_least
from .sdca import Solution


def solve_newton(X, y, loss, *, C=1.0, sample_weight=None, tol=1e-10, max_centers=100):
    """Train a linear classifier by proximal-point Newton.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The examples as rows.
    y : array_like of int, shape (n,), or of bool, shape (n, m)
        The labels, counted from 0, or the label sets.
    loss : object
        One of the losses of `losses/`.
    C : float, default=1.0
        As in ``1/2 |W|^2 + C * sum(sample_weight * losses)``.
    sample_weight : array_like, shape (n,), optional
        Non-negative weights.
    tol : float, default=1e-10
        Stop when the relative gap is at most this.
    max_centers : int, default=100
        Move the centers so often at the most.

    Returns
    -------
    Solution
        As `sdca.solve` returns it; W and X'A differ by the gradient that is left.
    """
    X, y, C = np.asarray(X, dtype=np.float64), np.asarray(y), at_least(C, 0, "C")
    n, d = X.shape
    omega = C * (np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=float))
    m = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    W, v, sigma = np.zeros((d, m)), np.zeros((n, m)), 1.0

    for centers in range(max_centers + 1):
        primal, dual_value, gap = _certificate(X, W, v, y, loss, omega, C)
        if gap <= tol or centers == max_centers:
            return Solution(W, -omega[:, None] * v, primal, dual_value, gap, centers)
        W, v = _minimize(X, W, v, y, loss, omega, sigma)
        sigma = max(sigma / 4, 1e-6)


def _minimize(X, W, center, y, loss, omega, sigma):
    """Newton's method until the gradient has fallen tenfold; return W and v."""

    def gradient(W):
        s = X @ W + sigma * center
        v = np.array([loss.prox(row, label, sigma) for row, label in zip(s, y, strict=True)])
        return W + X.T @ (omega[:, None] * v), s, v

    g, s, v = gradient(W)
    goal = np.linalg.norm(g) / 10
    for _ in range(50):
        if np.linalg.norm(g) <= goal:
            break
        H = np.eye(W.size).reshape(*W.shape, *W.shape)
        for x, row, label, w in zip(X, s, y, omega, strict=True):
            H += w * np.einsum("a,b,jk->ajbk", x, x, loss.prox_derivative(row, label, sigma))
        step = -np.linalg.solve(H.reshape(W.size, W.size), g.ravel()).reshape(W.shape)
        W, (g, s, v) = _search(W, step, np.vdot(g, step), gradient)
    return W, v


def _search(W, step, slope, gradient):
    """Return a point W + t step, t <= 1, where phi rises by no more than it fell at t = 0.

    phi is convex: its slope <gradient, step> grows with t, and one bisection finds where it is 0.
    """
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(50):
        found = gradient(W + t * step)
        now = np.vdot(found[0], step)
        if abs(now) <= abs(slope) / 4 or (t == 1 and now < 0):
            break
        low, high = (low, t) if now > 0 else (t, high)
        t = (low + high) / 2
    return W + t * step, found


def _certificate(X, W, v, y, loss, omega, C):
    """Return P(W), D(A) for A = -omega v, and the relative gap."""
    used = np.flatnonzero(omega)
    losses = sum(omega[i] * loss.value(X[i] @ W, y[i]) for i in used)
    conjugates = sum(omega[i] * loss.conjugate(v[i], y[i]) for i in used)
    scale = 1 / (C * len(X))
    primal = float(scale * (losses + np.vdot(W, W) / 2))
    dual_value = float(scale * (-conjugates - np.sum((X.T @ (omega[:, None] * v)) ** 2) / 2))
    size = max(abs(primal), abs(dual_value))
    return primal, dual_value, (primal - dual_value) / size if size > 0 else 0.0
