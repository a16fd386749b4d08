r"""Stochastic dual coordinate ascent (SDCA): training, with a certificate.

Solve, for examples x_i (the rows of X), labels y_i, weights omega_i >= 0 and C > 0,

    min_W  P(W) = 1/n sum_i omega_i L_i(W'x_i) + lambda/2 ||W||^2,      C = 1/(lambda n),

through its dual, which has one block a_i per example, C_i = C omega_i:

    max_A  D(A) = -1/n sum_i omega_i L_i*(-a_i/C_i) - lambda/2 ||W||^2,    W = sum_i x_i a_i'.

The solution is approached one block at a time.  With the others fixed, the best a_i is the loss's
`dual_step`, a projection or an entropic prox; then W moves by x_i (a_i_new - a_i_old)'.  Every
epoch visits all examples in a fresh random order.

P(W) >= P* = D* >= D(A) holds for every A, so the relative gap (P - D)/max(|P|, |D|) bounds how far
W is from optimal.  It is the only stopping rule.  An example x_i = 0 cannot move W, but it has a
term in D, and its step (kappa = 0) is needed for the gap to close.

With a kernel, W is never formed: the scores of all examples are K A, and ||W||^2 = <A, K A>.

By hand: x_1 = (1, 0), x_2 = (0, 1), labels 0 and 1, C = 1.  Each example meets a margin of 1 with
a_i = +-(1/2, -1/2); both losses are then 0, P = lambda/2 ||W||^2 = 1/4 and no gap is left.

>>> from reference.losses import Hinge
>>> solution = solve([[1.0, 0.0], [0.0, 1.0]], [0, 1], Hinge())
>>> solution.coef.tolist()
[[0.5, -0.5], [-0.5, 0.5]]
>>> solution.primal, solution.dual_value, solution.gap, solution.n_epochs
(0.25, 0.25, 0.0, 1)

References
----------
[T] Lapin, Hein, Schiele. Top-k Multiclass SVM. NIPS 2015, section 3.
[A] Lapin, Hein, Schiele. Analysis and Optimization of Loss Functions for Multiclass, Top-k
    and Multilabel Classification. TPAMI 2018, section 5.
Shalev-Shwartz, Zhang. Accelerated proximal stochastic dual coordinate ascent for regularized
    loss minimization. Mathematical Programming 2016.
"""

from typing import NamedTuple

import numpy as np

from ._checks import at_least


class Solution(NamedTuple):
    """What `solve` found, and how good it is."""

    coef: np.ndarray | None      # W, shape (d, m); None with a kernel
    dual: np.ndarray             # A, shape (n, m); W = X'A
    primal: float                # P(W)
    dual_value: float            # D(A)
    gap: float                   # (P - D)/max(|P|, |D|)
    n_epochs: int


def solve(X, y, loss, *, C=1.0, sample_weight=None, tol=1e-3, max_epochs=1000, random_state=None,
          kernel=False):
    """Train a linear or kernel classifier by SDCA.

    Parameters
    ----------
    X : array_like, shape (n, d) or, with `kernel`, (n, n)
        The examples as rows, or their Gram matrix K.
    y : array_like of int, shape (n,), or of bool, shape (n, m)
        The labels, counted from 0, or the label sets.
    loss : object
        One of the losses of `losses/`.
    C : float, default=1.0
        1/(lambda n), as in ``1/2 |W|^2 + C * sum(sample_weight * losses)``.
    sample_weight : array_like, shape (n,), optional
        Non-negative weights.  A weight 2 gives the W of the row repeated, a weight 0 that of the
        row removed; P and D are divided by the number of rows n all the same.
    tol : float, default=1e-3
        Stop when the relative gap is at most this.
    max_epochs : int, default=1000
        Stop after so many passes at the latest.
    random_state : int or numpy.random.Generator, optional
        The seed of the permutations.
    kernel : bool, default=False
        Whether X is a Gram matrix.

    Returns
    -------
    Solution
        The named tuple ``(coef, dual, primal, dual_value, gap, n_epochs)``.
    """
    X, y, C = np.asarray(X, dtype=np.float64), np.asarray(y), at_least(C, 0, "C")
    n = len(X)
    if X.ndim != 2 or len(y) != n or (kernel and X.shape != (n, n)):
        raise ValueError("X must be 2-D with one row per label, and square if kernel=True, got "
                         f"shapes {X.shape} and {y.shape}.")
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if C == 0 or weight.shape != (n,) or not (weight >= 0).all():
        raise ValueError(f"C must be > 0 and sample_weight {n} numbers >= 0.")
    rng = np.random.default_rng(random_state)
    m = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    A = np.zeros((n, m))
    W = None if kernel else np.zeros((X.shape[1], m))
    kappa = X.diagonal() if kernel else np.einsum("ij,ij->i", X, X)

    epoch = 0
    while True:
        scores = X @ A if kernel else X @ W
        primal, dual_value, gap = certificate(scores, A, y, loss, C, weight)
        if gap <= tol or epoch == max_epochs:
            return Solution(W, A, primal, dual_value, gap, epoch)
        for i in rng.permutation(n):
            if weight[i] == 0:
                continue
            q = X[i] @ (A if kernel else W) - kappa[i] * A[i]
            new = loss.dual_step(q, y[i], kappa[i], C * weight[i])
            if not kernel:
                W += np.outer(X[i], new - A[i])
            A[i] = new
        epoch += 1


def certificate(scores, A, y, loss, C, weight):
    """Return P, D and the relative gap, from the scores of all examples."""
    n = len(A)
    used = np.flatnonzero(weight)
    losses = sum(weight[i] * loss.value(scores[i], y[i]) for i in used)
    conjugates = sum(weight[i] * loss.conjugate(-A[i] / (C * weight[i]), y[i]) for i in used)
    penalty = np.vdot(A, scores) / (2 * C * n)             # <A, X W> = ||W||^2
    primal, dual_value = float(losses / n + penalty), float(-conjugates / n - penalty)
    size = max(abs(primal), abs(dual_value))
    return primal, dual_value, (primal - dual_value) / size if size > 0 else 0.0
