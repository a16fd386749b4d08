"""Rounds of coordinate ascent: among few classes, with few certificates; starts for another C."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse

from topkopt import losses, path, solve
from topkopt.solvers.data import DenseData, KernelData, SparseData, Trail
from topkopt.solvers.epochs import Examples
from topkopt.solvers.narrow import narrow_sparse_epoch
from topkopt.solvers.problem import as_problem
from topkopt.solvers.scaling import scaled_blocks
from topkopt.solvers.sdca import ShrinkingAscent
from topkopt.solvers.solution import ConvergenceWarning
from topkopt.solvers.streams import StreamData

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
            others = np.empty_like(order)
            able = narrow_sparse_epoch(examples, *parts, W, A, order, 2, others)
            assert able == np.count_nonzero(used >= 2)
            assert others[: len(order) - able].tolist() == order[used[order] < 2].tolist()
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


class Slices:
    """An array that can only be read in blocks, of a few rows each."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.chunks = (7, array.shape[1])

    def __getitem__(self, rows):
        return self.array[rows].copy()


def blocks_of(X):
    data = StreamData(Slices(X))
    data.blocks.n_rows = 7  # so that rows are in several blocks
    return data


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["dense", "sparse", "wide", "kernel", "blocks"])
def test_w_goes_where_its_dual_blocks_lead(kind, dtype):
    """Y = A + b (A - before), W = X'Y; a row that has not changed stays."""
    rng = np.random.default_rng(0)
    n, d, m = 20, 6, 5
    X = rng.standard_normal((n, d)).astype(dtype)
    if kind == "wide":  # so many features that the few examples touch few of them
        X = np.hstack([X, np.zeros((n, 1000), dtype)])
    if kind == "kernel":
        X = X @ X.T
        data = KernelData(X, vouched=True)
    elif kind in ("wide", "sparse"):
        data = SparseData(scipy.sparse.csr_array(X))
    else:
        data = blocks_of(X) if kind == "blocks" else DenseData(X)
    blocks = rng.standard_normal((3, n, m)).astype(dtype)
    blocks[1, 4], blocks[2, :, 1] = blocks[0, 4], blocks[1, :, 1]
    blocks[2, 11] = blocks[1, 11]
    dual = data.held_dual(blocks[0].copy(), m)
    trail = Trail(data.held_dual(None, m))
    rows = np.array([0, 2, 4, 9, 11, 19])
    still = np.setdiff1d(np.arange(n), rows)
    moved = np.full(n, 7, np.uint8)
    coef = dual if kind == "kernel" else (X.T @ blocks[0]).astype(dtype)
    data.lead_on(trail, coef, dual, rows, moved)
    np.testing.assert_array_equal(np.asarray(dual), blocks[0])
    for before, now in pairwise(blocks):
        now[still] = before[still]
        if kind == "blocks":
            for at in range(0, n, 7):
                dual[slice(at, at + 7)] = now[at : at + 7].copy()
        else:
            dual[:] = now
        coef = dual if kind == "kernel" else (X.T @ now).astype(dtype)
        if trail.coef is not None:
            trail.coef = (X.T @ before).astype(dtype)
        trail.momentum = 0.5
        data.lead_on(trail, coef, dual, rows, moved)
        expected = now + 0.5 * (now - before)
        unit = 50 * np.finfo(dtype).eps
        np.testing.assert_allclose(np.asarray(dual), expected, rtol=unit, atol=unit)
        if kind != "kernel":
            np.testing.assert_allclose(coef, X.T @ expected, rtol=0, atol=unit * 10)
        changed = (now[rows] != before[rows]).any(axis=1)
        assert (moved[rows] != 0).tolist() == changed.tolist()
        assert (moved[still] == 7).all()
        assert not changed.all()


def hard_problem(n=300, d=40, m=6):
    """Return classes that overlap along features of very different scales."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % m
    X = rng.standard_normal((m, d))[y] + 2.0 * rng.standard_normal((n, d))
    return X * np.logspace(0, -2, d), y


@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel"])
def test_momentum_saves_passes(kind):
    X, y = hard_problem()
    given = {"dense": X, "sparse": scipy.sparse.csr_array(X), "kernel": X @ X.T}[kind]
    options = {"C": 100.0, "tol": 1e-5, "max_epochs": 20_000, "method": "sdca", "random_state": 0}
    found = solve(given, y, "hinge", kernel=kind == "kernel", **options)
    plain = solve(X, y, "hinge", check_every=1, **options)
    assert found.converged
    assert plain.converged
    assert found.n_epochs < plain.n_epochs / 4
    assert found.primal == pytest.approx(plain.primal, rel=2e-5)


@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel", "blocks"])
def test_a_pass_that_is_interrupted_leaves_feasible_blocks(kind, monkeypatch):
    """Momentum leads out of the dual sets, from which only the step of each row leads back."""
    X, y = hard_problem()
    given = {"sparse": scipy.sparse.csr_array(X), "kernel": X @ X.T, "blocks": Slices(X)}
    visits = []

    def visit(ascent, order):
        visits.append(len(order))
        if len(visits) == 12:
            whole(ascent, order[: len(order) // 2])
            raise KeyboardInterrupt
        whole(ascent, order)

    whole = ShrinkingAscent.visit
    monkeypatch.setattr(ShrinkingAscent, "visit", visit)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        found = solve(
            given.get(kind, X), y, "hinge", C=10.0, tol=1e-9, method="sdca", random_state=0,
            kernel=kind == "kernel", on_interrupt="return",
        )  # fmt: skip
    assert len(visits) == 12
    A = found.dual
    x = -A.copy()
    x[np.arange(len(y)), y] = 0.0
    assert x.min() >= 0.0
    assert x.sum(axis=1).max() <= 10.0 * (1 + 1e-12)
    np.testing.assert_allclose(A.sum(axis=1), 0.0, atol=1e-12)
    W = X.T @ A
    scores = X @ W
    margins = 1.0 + scores - scores[np.arange(len(y)), y][:, None]
    margins[np.arange(len(y)), y] = 0.0
    primal = 0.5 * np.sum(W**2) + 10.0 * margins.max(axis=1).sum()
    dual = x.sum() - 0.5 * np.sum(W**2)
    assert found.gap == pytest.approx((primal - dual) / primal, rel=1e-6)
