"""Rounds of coordinate ascent: among few classes, with few certificates; starts for another C."""

import numpy as np
import pytest
import scipy.sparse

from topkopt import losses, path, solve
from topkopt.solvers.epochs import Examples
from topkopt.solvers.narrow import narrow_sparse_epoch
from topkopt.solvers.problem import as_problem
from topkopt.solvers.scaling import scaled_blocks
from topkopt.solvers.sdca import ShrinkingAscent

from .trainings import problem

M = 80  # classes, so many that rows of W are wide
FEW = [
    losses.Hinge(),
    losses.Hinge(smoothing=0.5),
    losses.TopKHinge(3),
    losses.TopKHinge(3, kind="beta"),
    losses.TopKHinge(3, kind="label"),
    losses.WeightedTopKHinge("linear", 3),
    losses.OneVsAllHinge(),
    losses.Softmax(),
    losses.MultilabelHinge(),
]


def text(n=240, d=300, words=6, seed=0):
    """Return sparse rows of length 1 around the words of their classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % M)
    X = np.zeros((n, d))
    for i in range(n):
        X[i, (3 * y[i] + rng.integers(0, 9, words)) % d] += 1.0
        X[i, rng.integers(0, d, words)] += 1.0
    return scipy.sparse.csr_array(X / np.linalg.norm(X, axis=1, keepdims=True)), y


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", FEW, ids=repr)
def test_rounds_among_few_classes_reach_the_optimum(loss, dtype):
    X, y = text()
    y = (np.arange(M) == y[:, None]) if loss.multilabel else y
    tol = 1e-7 if dtype == np.float64 else 1e-4
    options = {"C": 5.0, "tol": tol, "method": "sdca", "random_state": 0}
    few = solve(X.astype(dtype), y, loss, **options)
    all_classes = solve(X.toarray(), y, loss, check_every=1, **options)
    assert few.converged
    assert few.primal == pytest.approx(all_classes.primal, rel=2 * tol)
    again = solve(X.astype(dtype), y, loss, **options)
    assert again.coef.tobytes() == few.coef.tobytes()


@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_a_pass_among_few_classes_is_that_of_the_smaller_problem(width):
    """Classes that are not in use stay so, and the others step as if these did not exist."""
    X, y = text()
    y = y % 4  # the others are never in use
    loss = losses.Hinge()
    start = solve(X, y, loss, C=5.0, tol=0.05, method="sdca", random_state=0, n_classes=5)
    order = np.random.default_rng(1).permutation(X.shape[0]).astype(np.intp)
    results = []
    for m in (5, M):
        A = np.zeros((X.shape[0], m))
        A[:, :5] = start.dual
        W = np.ascontiguousarray(X.T @ A)
        costs, norms = np.full(len(y), 5.0), np.asarray(X.multiply(X).sum(axis=1)).ravel()
        starts = np.arange(len(y) + 1, dtype=np.intp)
        examples = Examples(loss, y.astype(np.intp), starts, costs, norms, m)
        parts = X.data, X.indices.astype(width), X.indptr.astype(width)
        if m == M:
            used = np.count_nonzero(A, axis=1)
            able = narrow_sparse_epoch(examples, *parts, W, A, order, 2)
            assert able == np.count_nonzero(used >= 2)
        else:
            for i in order:  # one by one, by the prox of the loss alone
                few = np.flatnonzero(A[i])
                if few.size < 2:
                    continue
                x = X[[i]].toarray()[0]
                q = x @ W[:, few] - norms[i] * A[i, few]
                own = int(np.flatnonzero(few == y[i])[0])
                new = -5.0 * loss.prox(q, own, norms[i] * 5.0)
                W[:, few] += np.outer(x, new - A[i, few])
                A[i, few] = new
        results.append((W[:, :5], A[:, :5]))
        assert not A[:, 5:].any()
    for ours, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_fewer_certificates_while_the_gap_falls_fast():
    X, y = problem(losses.Softmax(), n=200, d=20)
    found = solve(X, y, losses.Softmax(), tol=1e-8, method="sdca", random_state=0)
    assert found.converged
    assert len(found.history["gap"]) < found.n_epochs + 1


@pytest.mark.parametrize("loss", [losses.Softmax(), losses.Hinge(), losses.TopKEntropy(2)])
def test_blocks_for_another_C_are_the_better_of_two(loss):
    X, y = problem(loss, n=60, d=8)
    for last, C in ((1e-3, 2e-3), (50.0, 100.0), (1.0, 0.5)):
        held = as_problem(X, y, loss, C, None, False, None)
        begin = solve(X, y, loss, C=last, tol=1e-6, random_state=0)
        found = scaled_blocks(held, begin.dual, begin.cost, begin.coef)
        values = []
        for factor in {1.0, C / last} if last < C else {C / last}:
            A = factor * begin.dual
            conjugates = loss.conjugate(-A / C, y).sum() * C
            values.append((-conjugates - 0.5 * np.sum((X.T @ A) ** 2), factor))
        np.testing.assert_allclose(found, max(values)[1] * begin.dual, rtol=1e-12)


@pytest.mark.parametrize(("last", "C", "factor"), [(0.01, 0.02, 2.0), (500.0, 1000.0, 1.0)])
def test_both_starts_of_a_path_occur(last, C, factor):
    """Examples at their bound grow with C; where all margins are kept blocks stay as they are."""
    X, y, loss = np.eye(6), np.arange(6), losses.Hinge()
    held = as_problem(X, y, loss, C, None, False, None)
    begin = solve(X, y, loss, C=last, tol=1e-6, random_state=0)
    found = scaled_blocks(held, begin.dual, begin.cost, begin.coef)
    np.testing.assert_allclose(found, factor * begin.dual, rtol=1e-12)
    assert path(X, y, "hinge", Cs=[last, C], tol=1e-6).gaps.max() <= 1e-6


def test_a_gap_that_is_all_but_0_ends_a_round():
    """With tol=0 the target of a round may be 0, and the fall of a gap more than a number holds."""
    X, y = problem(losses.Softmax())[:2]
    data = as_problem(X, y, losses.Softmax(), 1.0, None, False, None)
    ascent = ShrinkingAscent(data, data.examples(), None, np.random.default_rng(0), 1, 0.0)
    ascent.note(1e300, 5e-324, 1)
    assert 1 <= ascent.visits_until(5e-324, 0.0, 10) <= 10
    assert 1 <= ascent.visits_until(1e300, 5e-324, 10) <= 10
