"""Examples to train on, and what the tests of training ask of a solution."""

import warnings

import numpy as np
import pytest

from topkopt import ConvergenceWarning, losses, reference, solve

from .loss_cases import CONVEX, over

convex = over(CONVEX)
smooth = over([case for case in CONVEX if case.smooth])
sharp = over([case for case in CONVEX if not case.smooth])

SOME = [
    losses.Hinge(),
    losses.TopKHinge(2, smoothing=1.0),
    losses.Softmax(),
    losses.TopKEntropy(2),
    losses.MultilabelSoftmax(),
]
some = pytest.mark.parametrize("loss", SOME, ids=repr)


def problem(loss, n=20, d=4, m=5, seed=0):
    """Return examples around the means of their classes, with labels or label sets."""
    rng = np.random.default_rng([seed, n, d, m])
    y = rng.permutation(np.arange(n) % m)
    y[0] = m - 1  # there are m classes, even if not all have examples
    X = rng.standard_normal((m, d))[y] + 0.7 * rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    if loss.multilabel:
        y = (np.arange(m) == y[:, None]) | (rng.random((n, m)) < 0.2)
    return X, y


def objectives(X, y, twin, solution, weight=None, *, kernel=False):
    """Return P and D by the reference, from the weights and the dual variables as they are."""
    weight = np.ones(len(X)) if weight is None else weight
    if kernel:
        scores = X @ solution.dual
        return reference.sdca.certificate(scores, solution.dual, y, twin, solution.C, weight)
    # W need not be X'A: L-BFGS and Newton certify a W of their own.
    n, C, A, W = len(X), solution.C, solution.dual, solution.coef
    used = np.flatnonzero(weight)
    values = sum(weight[i] * twin.value(X[i] @ W, y[i]) for i in used)
    conjugates = sum(weight[i] * twin.conjugate(-A[i] / (C * weight[i]), y[i]) for i in used)
    primal = values / n + np.vdot(W, W) / (2 * C * n)
    dual_value = -conjugates / n - (np.square(X.T @ A)).sum() / (2 * C * n)
    return primal, dual_value, (primal - dual_value) / max(abs(primal), abs(dual_value))


def quietly(*args, **kwargs):
    """Train for so many epochs and no more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(*args, **kwargs)


def uninterrupted(*args, **kwargs):
    """Train; a Ctrl-C that gets through is a failure of this test, not the end of all tests."""
    try:
        return solve(*args, on_interrupt="return", **kwargs)
    except KeyboardInterrupt:
        pytest.fail("KeyboardInterrupt was not caught")


def radius(solution):
    """Return how far the coefficients can be from the optimal ones, given the gap."""
    gap = max(solution.primal - solution.dual_value, 0.0)
    return np.sqrt(2 * gap * solution.C * len(solution.dual)) + 1e-9


def assert_same_optimum(first, second, more=1.0):
    distance = np.linalg.norm(first.coef - second.coef)
    assert distance <= more * (radius(first) + radius(second))
