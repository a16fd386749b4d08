"""Training: the iterates of the reference, the optima of others, and an honest certificate."""

import logging
import re
import sys
import tracemalloc
import warnings
from functools import cache
from io import StringIO
from itertools import product

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import topkopt
from topkopt import ConvergenceWarning, losses, reference, solve
from topkopt.solvers import epochs

from .test_losses import CASES, CONVEX, over, raises

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


# The iterates -------------------------------------------------------------------------------

EPOCHS = (1, 2, 3)
WEIGHT = np.random.default_rng(4).uniform(0.2, 2.0, 20)


def examples_of(case):
    X, y = problem(case.loss)
    X[3] = 0.0  # a step without curvature
    X[7] *= 30.0
    return X, y


@cache
def trajectory(name, arguments):
    """Return the dual variables of the reference after some epochs."""
    case = next(c for c in CASES if (c.name, str(c.arguments)) == (name, arguments))
    X, y = examples_of(case)
    return [
        reference.solve(
            X, y, case.twin, C=1.7, sample_weight=WEIGHT, tol=0.0, max_epochs=e, random_state=5
        )
        for e in EPOCHS
    ]


def assert_same_path(case, X, **options):
    y = examples_of(case)[1]
    options = {"C": 1.7, "sample_weight": WEIGHT, "tol": 0.0, "random_state": 5, **options}
    options.update(method="sdca", check_every=1)
    for n_epochs, expected in zip(EPOCHS, trajectory(case.name, str(case.arguments)), strict=True):
        solution = quietly(X, y, case.loss, max_epochs=n_epochs, **options)
        assert solution.n_epochs == n_epochs
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-10)
        if not options.get("kernel"):
            np.testing.assert_allclose(solution.coef, expected.coef, atol=1e-9)
        assert solution.primal == pytest.approx(expected.primal, rel=1e-10)
        assert solution.dual_value == pytest.approx(expected.dual_value, rel=1e-10)
        assert solution.gap == pytest.approx(expected.gap, abs=1e-10)


@convex
@pytest.mark.parametrize("block_size", [1, 2, 7, 20, 1000, "auto"])
def test_dense_iterates(case, block_size):
    assert_same_path(case, examples_of(case)[0], block_size=block_size)


@convex
@pytest.mark.parametrize("block_size", [1, 7, 1000, "auto"])
def test_kernel_iterates(case, block_size):
    X = examples_of(case)[0]
    assert_same_path(case, X @ X.T, kernel=True, block_size=block_size)


@convex
def test_sparse_iterates(case):
    assert_same_path(case, scipy.sparse.csr_array(examples_of(case)[0]))


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dia"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_formats(kind, form, index):
    loss = losses.TopKHinge(2, smoothing=0.5)
    X, y = problem(loss, n=40, d=12)
    X[np.abs(X) < 0.2] = 0.0
    X[5] = 0.0
    sparse = getattr(scipy.sparse, f"{form}_{kind}")(X)
    for part in ("indices", "indptr", "row", "col"):
        if hasattr(sparse, part) and form in ("csr", "csc"):
            setattr(sparse, part, getattr(sparse, part).astype(index))
    before = sparse.toarray()
    results = [quietly(A, y, loss, max_epochs=3, tol=0.0, random_state=1) for A in (X, sparse)]
    np.testing.assert_allclose(results[1].dual, results[0].dual, atol=1e-12)
    np.testing.assert_array_equal(sparse.toarray(), before)


def test_sparse_duplicates_and_disorder():
    loss = losses.Softmax()
    data, indices, indptr = [1.0, 2.0, 0.5, 0.25, 0.0, 1.0], [2, 0, 2, 1, 0, 1], [0, 3, 5, 5, 6]
    messy = scipy.sparse.csr_array((np.array(data), indices, indptr), shape=(4, 3))
    y = [0, 1, 2, 0]
    expected = solve(messy.toarray(), y, loss, tol=1e-9, random_state=0)
    solution = solve(messy, y, loss, tol=1e-9, random_state=0)
    np.testing.assert_allclose(solution.coef, expected.coef, atol=1e-9)
    np.testing.assert_array_equal(messy.data, data)
    np.testing.assert_array_equal(messy.indices, indices)


@convex
@pytest.mark.parametrize("m", [40, 150])
def test_many_classes(case, m):
    """Sparse changes, several runs to a block: all ways of one epoch agree with the simplest."""
    X, y = problem(case.loss, n=90, d=30, m=m)
    options = {"tol": 0.0, "max_epochs": 2, "random_state": 3}
    expected = quietly(X, y, case.loss, block_size=1, **options)
    for block_size in (5, 64, 90):
        solution = quietly(X, y, case.loss, block_size=block_size, **options)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-10)
        np.testing.assert_allclose(solution.coef, X.T @ solution.dual, atol=1e-12)
    for other in (scipy.sparse.csr_array(X), X @ X.T):
        solution = quietly(other, y, case.loss, kernel=other.shape[1] == 90, **options)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-10)


# The optimum --------------------------------------------------------------------------------


def smooth_optimum(X, y, twin, C):
    """Return min P by a quasi-Newton method on the primal problem."""
    n, (d, m) = len(X), (X.shape[1], 4)

    def primal(flat):
        W = flat.reshape(d, m)
        rows = list(zip(X @ W, y, strict=True))
        slopes = np.array([twin.gradient(s, label) for s, label in rows])
        value = C * sum(twin.value(s, label) for s, label in rows) + 0.5 * (W**2).sum()
        return value / (C * n), (C * X.T @ slopes + W).ravel() / (C * n)

    options = {"maxiter": 5000, "ftol": 0.0, "gtol": 1e-9, "maxcor": 30}
    return scipy.optimize.minimize(
        primal, np.zeros(d * m), jac=True, method="L-BFGS-B", options=options
    ).fun


def sharp_optimum(X, y, twin, C):
    """Return min P as a quadratic program: a loss is the largest of <s,v> - L*(v), v a vertex."""
    n, (d, m) = len(X), (X.shape[1], 4)
    rng = np.random.default_rng(0)
    rows, floors = [], []
    for i in range(n):
        places = np.vstack([3 * rng.standard_normal((150, m)), [np.zeros(m)]])
        vertices = np.unique([twin.gradient(s, y[i]).round(12) for s in places], axis=0)
        for v in vertices:  # xi_i - <W, x_i v'> >= -L*(v)
            rows.append(np.concatenate([-np.outer(X[i], v).ravel(), np.arange(n) == i]))
            floors.append(-twin.conjugate(v, y[i]))
    rows, floors = np.array(rows), np.array(floors)
    cost = np.concatenate([np.zeros(d * m), np.full(n, C)])

    def primal(z):
        return 0.5 * (z[: d * m] ** 2).sum() + cost @ z

    def slope(z):
        return np.concatenate([z[: d * m], np.zeros(n)]) + cost

    start = np.concatenate([np.zeros(d * m), np.full(n, float(m))])
    result = scipy.optimize.minimize(
        primal,
        start,
        jac=slope,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda z: rows @ z - floors, "jac": lambda z: rows},
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    W = result.x[: d * m].reshape(d, m)
    losses_sum = sum(twin.value(s, label) for s, label in zip(X @ W, y, strict=True))
    return (C * losses_sum + 0.5 * (W**2).sum()) / (C * n)


@smooth
@pytest.mark.parametrize("C", [0.1, 3.0])
def test_smooth_optimum(case, C):
    X, y = problem(case.loss, n=8, d=3, m=4)
    best = smooth_optimum(X, y, case.twin, C)
    for options in ({}, {"kernel": True}):
        data = X @ X.T if options else X
        solution = solve(
            data, y, case.loss, C=C, tol=1e-9, max_epochs=20000, random_state=0, **options
        )
        assert solution.converged
        assert solution.gap <= 1e-9
        assert solution.primal >= best - 1e-12
        assert solution.dual_value <= best + 1e-12
        assert objectives(data, y, case.twin, solution, **options) == pytest.approx(
            (solution.primal, solution.dual_value, solution.gap), rel=1e-9, abs=1e-12
        )


@sharp
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_sharp_optimum(case, C):
    X, y = problem(case.loss, n=8, d=2, m=4)
    best = sharp_optimum(X, y, case.twin, C)
    solution = solve(X, y, case.loss, C=C, tol=1e-5, max_epochs=100000, random_state=0)
    assert solution.converged
    assert solution.gap <= 1e-5
    assert solution.primal >= best * (1 - 1e-6)
    assert solution.dual_value <= best + 1e-12
    assert objectives(X, y, case.twin, solution) == pytest.approx(
        (solution.primal, solution.dual_value, solution.gap), rel=1e-9, abs=1e-10
    )


@convex
def test_what_a_solution_holds(case):
    X, y = problem(case.loss)
    # Only coordinate ascent keeps W = X'A; "auto" may go on with Newton's method, which does not.
    solution = solve(X, y, case.loss, C=0.5, tol=1e-2, method="sdca")
    assert isinstance(solution, topkopt.Solution)
    assert solution.coef.shape == (4, 5)
    assert solution.dual.shape == (20, 5)
    np.testing.assert_allclose(solution.coef, X.T @ solution.dual, atol=1e-12)
    assert solution.primal >= solution.dual_value
    assert (solution.loss, solution.C, solution.tol) == (case.loss, 0.5, 1e-2)
    expected = objectives(X, y, case.twin, solution)
    assert (solution.primal, solution.dual_value) == pytest.approx(expected[:2], rel=1e-12)


@convex
def test_kernel_is_linear(case):
    X, y = problem(case.loss)
    tol = 1e-9 if case.smooth else 1e-5
    options = {"tol": tol, "max_epochs": 100000, "random_state": 0}
    linear = solve(X, y, case.loss, **options)
    kernel = solve(X @ X.T, y, case.loss, kernel=True, **options)
    assert kernel.coef is None
    distance = np.linalg.norm(linear.coef - X.T @ kernel.dual)
    assert distance <= radius(linear) + radius(kernel)


@convex
def test_zero_rows_do_not_hold_the_gap_open(case):
    X, y = problem(case.loss)
    X[::4] = 0.0
    tol = 1e-8 if case.smooth else 1e-5
    for data in (X, scipy.sparse.csr_array(X)):
        assert solve(data, y, case.loss, tol=tol, max_epochs=100000, random_state=0).converged
    for data in (0 * X, scipy.sparse.csr_array(0 * X)):
        assert solve(data, y, case.loss, tol=1e-12, max_epochs=2).gap <= 1e-12


@some
@pytest.mark.parametrize("block_size", [1, 8])
def test_no_features(loss, block_size):
    X, y = problem(loss)
    for data in (X[:, :0], scipy.sparse.csr_array(X[:, :0])):
        solution = solve(data, y, loss, tol=1e-12, max_epochs=2, block_size=block_size)
        assert solution.gap <= 1e-12
        assert solution.coef.shape == (0, 5)


def test_label_sets_without_a_choice():
    """Of no label, or of all of them: nothing to rank and nothing to learn."""
    X, y = problem(losses.MultilabelHinge())
    for loss in (losses.MultilabelHinge(), losses.MultilabelHinge(0.5), losses.MultilabelSoftmax()):
        marks = y.copy()
        marks[0], marks[1] = False, True
        solution = solve(X, marks, loss, random_state=0)
        np.testing.assert_array_equal(solution.dual[:2], 0.0)
        nothing = solve(X, np.zeros_like(y), loss)
        assert nothing.gap == 0.0
        np.testing.assert_array_equal(nothing.coef, 0.0)


def test_labels_and_indicators():
    X, y = problem(losses.Softmax())
    marks = y[:, None] == np.arange(5)
    for loss in (losses.MultilabelHinge(), losses.MultilabelSoftmax(), losses.OneVsAllLogistic()):
        expected = solve(X, y, loss, random_state=0)
        for other in (marks, marks.astype(int), scipy.sparse.csr_array(marks), y.astype(np.uint64)):
            solution = solve(X, other, loss, random_state=0)
            np.testing.assert_array_equal(solution.dual, expected.dual)
    for kind in (np.uint8, np.uint64, np.int32):
        expected = solve(X, y, losses.Softmax(), random_state=0)
        solution = solve(X, y.astype(kind), losses.Softmax(), random_state=0)
        np.testing.assert_array_equal(solution.dual, expected.dual)


def test_registry_names():
    X, y = problem(losses.Softmax())
    by_name = solve(X, y, "softmax", random_state=0)
    np.testing.assert_array_equal(by_name.coef, solve(X, y, losses.Softmax(), random_state=0).coef)
    assert by_name.loss == losses.Softmax()


# Weights and starts -------------------------------------------------------------------------


@convex
def test_weights_are_repetitions(case):
    X, y = problem(case.loss)
    count = np.arange(20) % 3
    options = {"tol": 1e-10 if case.smooth else 1e-6, "max_epochs": 100000, "random_state": 0}
    repeated = solve(np.repeat(X, count, axis=0), np.repeat(y, count, axis=0), case.loss, **options)
    for data in (X, scipy.sparse.csr_array(X)):
        weighted = solve(data, y, case.loss, sample_weight=count, **options)
        assert_same_optimum(weighted, repeated)
        np.testing.assert_array_equal(weighted.dual[count == 0], 0.0)
        expected = objectives(X, y, case.twin, weighted, count.astype(float))
        assert (weighted.primal, weighted.dual_value) == pytest.approx(expected[:2], rel=1e-9)
    kernel = solve(X @ X.T, y, case.loss, kernel=True, sample_weight=count, **options)
    assert np.linalg.norm(X.T @ kernel.dual - repeated.coef) <= radius(kernel) + radius(repeated)


@some
def test_weight_zero_is_absence(loss):
    X, y = problem(loss)
    kept = np.arange(20) != 4
    wild = X.copy()
    wild[4] = 1e6
    options = {"tol": 1e-6, "max_epochs": 10000, "random_state": 0}
    without = solve(X[kept], y[kept], loss, **options)
    weighted = solve(wild, y, loss, sample_weight=kept, **options)
    assert_same_optimum(weighted, without)
    unweighted = solve(X, y, loss, sample_weight=np.ones(20), **options)
    np.testing.assert_array_equal(unweighted.dual, solve(X, y, loss, **options).dual)


@convex
def test_warm_start(case):
    X, y = problem(case.loss)
    tol = 1e-8 if case.smooth else 1e-4
    options = {"tol": tol, "max_epochs": 100000, "random_state": 0}
    cold = solve(X, y, case.loss, **options)
    before = cold.dual.copy()
    again = solve(X, y, case.loss, warm_start=cold, **options)
    assert again.n_epochs == 0
    np.testing.assert_array_equal(again.dual, cold.dual)
    assert again.dual is not cold.dual
    for C, weight in ((1.1, None), (0.01, None), (100.0, None), (1.0, np.arange(20) % 3)):
        states = []
        warm = quietly(
            X,
            y,
            case.loss,
            C=C,
            sample_weight=weight,
            warm_start=cold,
            callback=states.append,
            **{**options, "max_epochs": 1},
        )
        start = states[0]
        assert start.epoch == 0
        assert np.isfinite(start.dual_value)
        assert start.dual_value <= warm.primal + 1e-12
        cost = C * (np.ones(20) if weight is None else weight)
        used = cost > 0
        v = -states[0].dual[used] / cost[used, None]
        assert np.isfinite(case.loss.conjugate(v, y[used])).all()
    np.testing.assert_array_equal(cold.dual, before)


@some
def test_warm_start_saves_epochs(loss):
    X, y = problem(loss, n=60, d=10)
    options = {"tol": 1e-5, "max_epochs": 10000, "random_state": 0}
    rough = solve(X, y, loss, **{**options, "tol": 1e-3})
    cold = solve(X, y, loss, **options)
    assert solve(X, y, loss, warm_start=rough, **options).n_epochs < cold.n_epochs
    nearby = solve(X, y, loss, C=1.02, warm_start=cold, **options)
    assert nearby.history["gap"][0] < 0.1
    assert nearby.n_epochs <= solve(X, y, loss, C=1.02, **options).n_epochs
    assert_same_optimum(nearby, solve(X, y, loss, C=1.02, **options))


def test_warm_start_between_kinds_of_data():
    X, y = problem(losses.Softmax())
    dense = solve(X, y, losses.Softmax(), tol=1e-8)
    for data in (scipy.sparse.csr_array(X), X.astype(np.float32), X @ X.T):
        kernel = data.shape[1] == 20
        warm = solve(data, y, losses.Softmax(), tol=1e-3, kernel=kernel, warm_start=dense)
        assert warm.n_epochs == 0
        assert warm.dual.dtype == data.dtype


# Repeatable, interruptible, talkative --------------------------------------------------------


@some
def test_same_seed_same_bits(loss):
    X, y = problem(loss, n=60)
    results = [
        solve(X, y, loss, random_state=seed, tol=1e-5, max_epochs=10000)
        for seed in (7, 7, np.random.default_rng(7), np.random.RandomState(7), 8)
    ]
    for name in ("coef", "dual"):
        first = getattr(results[0], name)
        for same in results[1:3]:
            np.testing.assert_array_equal(getattr(same, name), first)
        assert not np.array_equal(getattr(results[4], name), first)
    for other in results:
        assert_same_optimum(results[0], other)
    assert results[0].primal == results[1].primal
    assert results[0].gap == results[1].gap


def test_history():
    loss = losses.Softmax()
    X, y = problem(loss)
    solution = solve(X, y, loss, tol=1e-8, random_state=0)
    history = solution.history
    assert list(history) == ["epoch", "seconds", "primal", "dual", "gap", "method"]
    assert all(
        isinstance(a, np.ndarray) and a.shape == history["gap"].shape for a in history.values()
    )
    np.testing.assert_array_equal(history["epoch"], np.arange(solution.n_epochs + 1))
    assert (np.diff(history["seconds"]) >= 0).all()
    assert (np.diff(history["dual"]) >= -1e-12).all()
    assert (history["gap"][:-1] > 1e-8).all()
    last = history["primal"][-1], history["dual"][-1], history["gap"][-1]
    assert last == (solution.primal, solution.dual_value, solution.gap)
    size = np.maximum(np.abs(history["primal"]), np.abs(history["dual"]))
    np.testing.assert_allclose(history["gap"], (history["primal"] - history["dual"]) / size)


@pytest.mark.parametrize(("every", "epochs"), [(1, [0, 1, 2, 3, 4]), (3, [0, 3, 4]), (9, [0, 4])])
def test_check_every_and_max_epochs(every, epochs):
    loss = losses.Softmax()
    X, y = problem(loss)
    solution = quietly(X, y, loss, tol=0.0, max_epochs=4, check_every=every, random_state=0)
    assert solution.history["epoch"].tolist() == epochs
    assert solution.n_epochs == 4
    every_epoch = quietly(X, y, loss, tol=0.0, max_epochs=4, random_state=0)
    np.testing.assert_array_equal(solution.dual, every_epoch.dual)


def test_not_converged_warns_with_both_figures():
    loss = losses.Softmax()
    X, y = problem(loss)
    with pytest.warns(ConvergenceWarning) as caught:
        solution = solve(X, y, loss, tol=1e-13, max_epochs=2)
    message = str(caught[0].message)
    assert len(caught) == 1
    assert f"{solution.gap:.3e}" in message
    assert "1.000e-13" in message
    assert "max_epochs" in message
    assert caught[0].filename == __file__
    assert not solution.converged
    assert solution.n_epochs == 2


@some
def test_report(loss):
    X, y = problem(loss)
    solution = solve(X, y, loss, C=2.0, tol=1e-4, max_epochs=10000)
    report = solution.report()
    for fact in (
        repr(loss),
        "C = 2",
        "20 examples",
        "5 classes",
        f"{solution.n_epochs} epochs",
        f"{solution.gap:.2e}",
        "1.00e-04",
        f"{solution.primal:.10g}",
        f"{solution.dual_value:.10g}",
    ):
        assert fact in report
    assert len(repr(solution)) < 1000


@some
@pytest.mark.parametrize("kernel", [False, True])
def test_callback(loss, kernel):
    X, y = problem(loss)
    states, copies = [], []

    def callback(state):
        states.append(state)
        copies.append(state.dual.copy())
        return state.epoch == 2

    with pytest.warns(ConvergenceWarning, match="stopped"):
        solution = solve(
            X @ X.T if kernel else X,
            y,
            loss,
            tol=0.0,
            method="sdca",
            kernel=kernel,
            check_every=1,
            callback=callback,
        )
    assert [state.epoch for state in states] == [0, 1, 2]
    assert solution.n_epochs == 2
    np.testing.assert_array_equal(copies[-1], solution.dual)
    for name in ("primal", "dual_value", "gap"):
        assert getattr(states[-1], name) == getattr(solution, name)
    assert (states[-1].coef is None) == kernel
    with pytest.raises(AttributeError):
        states[-1].epoch = 3


@some
@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("kernel", [False, True])
def test_interrupt(loss, once, kernel):
    """Ctrl-C, once or again and again, returns what is certified so far, if that is asked for."""
    X, y = problem(loss)
    seen = []

    def callback(state):
        seen.append(state.epoch)
        if state.epoch == 2 and (not once or seen.count(2) == 1):
            raise KeyboardInterrupt

    data = X @ X.T if kernel else X
    with pytest.warns(ConvergenceWarning, match=r"interrupted.*tol=1.000e-14"):
        solution = uninterrupted(
            data,
            y,
            loss,
            tol=1e-14,
            method="sdca",
            kernel=kernel,
            check_every=1,
            callback=callback,
        )
    assert not solution.converged
    assert solution.n_epochs == 2
    assert solution.history["epoch"][-1] == 2
    twin = next(case.twin for case in CASES if type(case.loss) is type(loss))
    twin = type(twin)(**dict(loss._parameters()))
    assert objectives(data, y, twin, solution, kernel=kernel) == pytest.approx(
        (solution.primal, solution.dual_value, solution.gap), rel=1e-10
    )


LINE = r"epoch \d+ +gap \d\.\d+e[+-]\d+ .*\d s"


def test_verbose_lines(capsys):
    loss = losses.Softmax()
    X, y = problem(loss)
    solution = solve(X, y, loss, tol=1e-6, verbose=2)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert len(lines) == solution.n_epochs + 1
    assert all(re.fullmatch(LINE + ".*", line) for line in lines)
    assert any("left" in line for line in lines)


@pytest.mark.parametrize("verbose", [0, 1])
def test_quiet_without_a_terminal(capsys, verbose):
    X, y = problem(losses.Softmax())
    solve(X, y, losses.Softmax(), verbose=verbose)
    assert capsys.readouterr() == ("", "")


def test_one_line_on_a_terminal(monkeypatch):
    class Terminal(StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    X, y = problem(losses.Softmax())
    solution = solve(X, y, losses.Softmax(), verbose=1)
    shown = terminal.getvalue()
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    lines = shown.strip().split("\r")
    assert len(lines) == solution.n_epochs + 1
    assert all(re.match(LINE, line) for line in lines)


def test_logger(caplog):
    X, y = problem(losses.Softmax())
    with caplog.at_level(logging.INFO, logger="topkopt"):
        solution = solve(X, y, losses.Softmax())
    assert [record.name for record in caplog.records] == ["topkopt"] * (solution.n_epochs + 1)
    assert f"{solution.gap:.2e}" in caplog.messages[-1]


# Memory and layouts -------------------------------------------------------------------------


def peak(call):
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def layouts(X, folder):
    path = folder / "X.npy"
    np.save(path, X)
    frozen = X.copy()
    frozen.flags.writeable = False
    return {
        "C": X,
        "Fortran": np.asfortranarray(X),
        "rows": np.repeat(X, 2, axis=0)[::2],
        "columns": np.repeat(X, 2, axis=1)[:, ::2],
        "part": np.hstack([X, X])[:, : X.shape[1]],
        "reversed": X[::-1, ::-1].copy()[::-1, ::-1],
        "frozen": frozen,
        "mapped": np.load(path, mmap_mode="r"),
    }


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layouts_without_a_copy(tmp_path, dtype):
    loss = losses.TopKHinge(2, smoothing=1.0)
    X, y = problem(loss, n=1500, d=1000)
    X = X.astype(dtype)
    options = {"tol": 0.0, "max_epochs": 2, "random_state": 0, "block_size": 32}
    expected = quietly(X, y, loss, **options)
    for name, other in layouts(X, tmp_path).items():
        solution, memory = peak(lambda other=other: quietly(other, y, loss, **options))
        np.testing.assert_allclose(solution.coef, expected.coef, atol=30 * np.finfo(dtype).eps)
        assert solution.coef.dtype == solution.dual.dtype == dtype
        assert memory < X.nbytes / 2, f"{name}: {memory} of {X.nbytes} bytes"


@pytest.mark.parametrize("kernel", [False, True])
def test_unusual_strides(kernel):
    """Rows that overlap, stand still or run backwards in memory."""
    loss, y = losses.Softmax(), np.arange(12) % 3
    values = np.cos(np.arange(30.0))
    views = [
        np.lib.stride_tricks.sliding_window_view(values, 5)[:12],
        np.broadcast_to(values[:5], (12, 5)),
        values[:12, None][:, [0] * 5][::-1],
    ]
    if kernel:
        views = [np.broadcast_to(np.ones(12), (12, 12)), np.eye(12)[::-1, ::-1]]
    for X in views:
        options = {"kernel": kernel, "tol": 1e-8, "random_state": 0}
        expected = solve(X.copy(), y, loss, **options)
        solution = solve(X, y, loss, **options)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-9)
        assert solution.primal == pytest.approx(expected.primal, rel=1e-7)


@some
def test_float32(loss):
    X, y = problem(loss, n=60, d=10)
    options = {"tol": 1e-4, "max_epochs": 2000, "random_state": 0}
    exact = solve(X, y, loss, **options)
    single = X.astype(np.float32)
    for data in (single, scipy.sparse.csr_array(single)):
        solution = solve(data, y, loss, **options)
        assert solution.coef.dtype == solution.dual.dtype == np.float32
        assert_same_optimum(solution, exact, more=1.01)
    kernel = solve(single @ single.T, y, loss, kernel=True, **options)
    assert kernel.dual.dtype == np.float32
    for other in (X.astype(np.float16), (4 * X).astype(int)):
        assert solve(other, y, loss, tol=1e-2, max_epochs=2000).converged
    assert solve(X.tolist(), y.tolist(), loss, **options).primal == exact.primal


MEGABYTE = 1 << 20


def bytes_beyond(call, block=0):
    """Return what a training needs beyond X, W, the duals and one block."""
    solution, memory = peak(call)
    return memory - solution.coef.nbytes - solution.dual.nbytes - block


def test_memory_of_many_examples():
    loss = losses.TopKHinge(5)
    X, y = problem(loss, n=30000, d=64, m=100)
    block = 256 * (64 + 2 * 100 + 256) * 8
    beyond = bytes_beyond(lambda: quietly(X, y, loss, tol=0.0, max_epochs=1), block)
    assert beyond < 8 * MEGABYTE


def test_memory_of_many_coefficients():
    loss = losses.TopKHinge(5)
    X, y = problem(loss, n=50, d=25000, m=400)
    block = 50 * (25000 + 2 * 400 + 50) * 8
    beyond = bytes_beyond(lambda: solve(X, y, loss, tol=0.5, n_classes=400), block)
    assert beyond < 64 * MEGABYTE


def test_sparse_stays_sparse():
    loss = losses.TopKHinge(2)
    places = np.random.default_rng(1).integers(0, 100000, 20000)
    parts = np.cos(places), places, np.arange(0, 20001, 10)
    X, y = scipy.sparse.csr_array(parts, shape=(2000, 100000)), np.arange(2000) % 5
    X.sum_duplicates()
    beyond = bytes_beyond(lambda: quietly(X, y, loss, tol=0.0, max_epochs=2))
    assert beyond < 16 * MEGABYTE


# The loss without a certificate --------------------------------------------------------------


def truncated_objective(X, y, k, C, coef):
    value = reference.TruncatedTopKEntropy(k).value
    total = sum(value(s, label) for s, label in zip(X @ coef, y, strict=True))
    return (C * total + 0.5 * (coef**2).sum()) / (C * len(X))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("data", ["dense", "sparse", "kernel"])
def test_truncated(k, data):
    loss = losses.TruncatedTopKEntropy(k)
    X, y = problem(loss, n=40)
    form = {"dense": X, "sparse": scipy.sparse.csr_array(X), "kernel": X @ X.T}[data]
    options = {"C": 3.0, "kernel": data == "kernel", "tol": 1e-8, "random_state": 0}
    states = []
    solution = solve(form, y, loss, callback=states.append, **options)
    softmax = solve(X, y, losses.Softmax(), **{**options, "kernel": False})
    coef = X.T @ solution.dual if data == "kernel" else solution.coef
    start, end = (truncated_objective(X, y, k, 3.0, W) for W in (softmax.coef, coef))
    assert states[0].primal == pytest.approx(start, rel=1e-4)
    assert solution.primal == pytest.approx(end, rel=1e-10)
    assert end < start - 1e-4 if k > 1 else end <= start + 1e-9
    assert np.isnan(solution.gap)
    assert np.isnan(solution.dual_value)
    assert solution.converged
    assert "no certificate" in solution.report()
    assert "not convex" in solution.report()
    assert solution.dual.shape == (40, 5)
    assert (solution.coef is None) == (data == "kernel")
    assert np.isnan(solution.history["gap"]).all()
    assert (np.diff(solution.history["primal"]) <= 1e-12).all()
    again = solve(form, y, loss, **options)
    np.testing.assert_array_equal(again.dual, solution.dual)
    warm = solve(form, y, loss, warm_start=solution, **options)
    assert warm.primal <= solution.primal + 1e-12


def test_truncated_stops_and_says_so(capsys):
    loss = losses.TruncatedTopKEntropy(2)
    X, y = problem(loss, n=40)
    with pytest.warns(ConvergenceWarning, match="max_epochs=2 reached"):
        solve(X, y, loss, tol=1e-9, max_epochs=2, warm_start=solve(X, y, losses.Softmax()))
    with pytest.warns(ConvergenceWarning):
        solution = solve(X, y, loss, tol=1e-4, callback=lambda state: state.epoch == 1, verbose=2)
    assert solution.n_epochs == 1
    assert "objective" in capsys.readouterr().out
    single = solve(X.astype(np.float32), y, loss)
    assert single.coef.dtype == single.dual.dtype == np.float32


@pytest.mark.parametrize("at", [0, 1])
def test_truncated_interrupt(at):
    loss = losses.TruncatedTopKEntropy(2)
    X, y = problem(loss, n=40)

    def callback(state):
        if state.epoch == at:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        solution = uninterrupted(X, y, loss, tol=1e-6, callback=callback)
    assert solution.primal == pytest.approx(
        truncated_objective(X, y, 2, 1.0, solution.coef), rel=1e-10
    )


# Errors -------------------------------------------------------------------------------------

X0 = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.0]])
Y0 = np.array([0, 1, 2, 0])
KIND = losses.Softmax()


def with_nan(value=np.nan):
    X = X0.copy()
    X[2, 1] = value
    return X


@pytest.mark.parametrize(
    ("arguments", "options", "error", "fragments"),
    [
        ((X0, Y0 - 1, KIND), {}, ValueError, ("y must hold labels from 0", "-1", "encode")),
        ((X0, Y0 * 1.0, KIND), {}, ValueError, ("y must", "integers", "float64", "encode")),
        ((X0, list("abca"), KIND), {}, ValueError, ("y must", "integers", "encode")),
        ((X0, Y0 > 0, KIND), {}, ValueError, ("y must", "integers", "bool", "encode")),
        ((X0, Y0[:3], KIND), {}, ValueError, ("y must have one entry per row", "4", "(3,)")),
        ((X0, np.eye(4), KIND), {}, ValueError, ("y must be one-dimensional", "(4, 4)")),
        ((X0, 0 * Y0, KIND), {}, ValueError, ("at least 2 classes", "1", "add examples")),
        ((X0[:0], Y0[:0], KIND), {}, ValueError, ("X must have at least one row", "none")),
        ((X0[0], Y0, KIND), {}, ValueError, ("X must be a matrix", "(2,)")),
        ((with_nan(), Y0, KIND), {}, ValueError, ("X must be finite", "NaN", "clean")),
        ((with_nan(-np.inf), Y0, KIND), {}, ValueError, ("X must be finite", "clean")),
        (
            (scipy.sparse.csr_array(with_nan()), Y0, KIND),
            {},
            ValueError,
            ("X must be finite", "NaN", "clean"),
        ),
        ((X0.astype(complex), Y0, KIND), {}, TypeError, ("X must hold real numbers", "complex")),
        (
            (scipy.sparse.csr_array(X0.astype(complex)), Y0, KIND),
            {},
            TypeError,
            ("X must hold real numbers", "complex"),
        ),
        ((X0, Y0, losses.TopKHinge(3)), {}, ValueError, ("k must be", "other classes (2)", "3")),
        ((X0, Y0, losses.TopKEntropy(3)), {}, ValueError, ("k must be", "(2)", "got 3")),
        ((X0, Y0, losses.TruncatedTopKEntropy(5)), {}, ValueError, ("k must be", "(2)", "got 5")),
        (
            (X0, Y0, losses.WeightedTopKHinge("flat", 3)),
            {},
            ValueError,
            ("weights", "at most 2", "3", "drop"),
        ),
        ((X0, Y0, "margin"), {}, ValueError, ("loss must be one of", "softmax", "'margin'")),
        ((X0, Y0, None), {}, ValueError, ("loss must be one of", "None")),
        ((X0, Y0, losses.Softmax), {}, ValueError, ("loss must be one of", "Softmax")),
        ((X0, Y0, "topk_hinge"), {}, TypeError, ("topk_hinge", "k")),
        ((X0, Y0, KIND), {"C": 0}, ValueError, ("C must be", "positive", "got 0")),
        ((X0, Y0, KIND), {"C": -1.0}, ValueError, ("C must be", "positive", "-1.0")),
        ((X0, Y0, KIND), {"C": np.nan}, ValueError, ("C must be", "finite", "nan")),
        ((X0, Y0, KIND), {"C": "big"}, TypeError, ("C must be a real number", "'big'")),
        ((X0, Y0, KIND), {"tol": -1.0}, ValueError, ("tol must be", "non-negative", "-1.0", "0")),
        ((X0, Y0, KIND), {"method": "bfgs"}, ValueError, ("method must be", "sdca", "bfgs")),
        ((X0, Y0, KIND), {"max_epochs": 0}, ValueError, ("max_epochs must be", "1", "got 0")),
        ((X0, Y0, KIND), {"max_epochs": 1.5}, TypeError, ("max_epochs", "integer", "1.5")),
        ((X0, Y0, KIND), {"check_every": 0}, ValueError, ("check_every must be", "1", "got 0")),
        ((X0, Y0, KIND), {"block_size": 0}, ValueError, ("block_size must be", "1", "got 0")),
        ((X0, Y0, KIND), {"block_size": "big"}, ValueError, ("block_size", "auto", "'big'")),
        (
            (X0, Y0, KIND),
            {"kernel": True},
            ValueError,
            ("X must be a square Gram matrix", "kernel=True", "(4, 2)", "all pairs"),
        ),
        (
            (scipy.sparse.eye_array(4), Y0, KIND),
            {"kernel": True},
            ValueError,
            ("X must be dense when kernel=True", "toarray"),
        ),
        (
            (-np.eye(4), Y0, KIND),
            {"kernel": True},
            ValueError,
            ("Gram matrix", "-1", "positive semi-definite"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [1, 1, -0.5, 1]},
            ValueError,
            ("sample_weight", "non-negative", "-0.5"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [1, 1, np.nan, 1]},
            ValueError,
            ("sample_weight", "finite", "nan"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [0, 0, 0, 0]},
            ValueError,
            ("sample_weight", "not all zero"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [1, 1]},
            ValueError,
            ("sample_weight", "one entry per example (4)", "(2,)"),
        ),
        ((X0, Y0, KIND), {"warm_start": 3}, TypeError, ("warm_start", "Solution", "int")),
        (
            (X0, Y0, KIND),
            {"warm_start": solve(X0[:3], Y0[:3], KIND)},
            ValueError,
            ("warm_start", "4 examples and 3 classes", "3 and 3"),
        ),
        (
            (X0, Y0, KIND),
            {"warm_start": solve(X0, Y0, losses.Hinge())},
            ValueError,
            ("warm_start", "same loss", "Hinge", "Softmax"),
        ),
        (
            (X0, Y0, losses.TruncatedTopKEntropy(2)),
            {"warm_start": solve(X0[:, :1], Y0, KIND)},
            ValueError,
            ("warm_start",),
        ),
        (
            (X0, Y0, losses.TruncatedTopKEntropy(2)),
            {"warm_start": solve(X0 @ X0.T, Y0, KIND, kernel=True)},
            ValueError,
            ("warm_start",),
        ),
    ],
)
def test_bad_input(arguments, options, error, fragments):
    with raises(error, *fragments):
        solve(*arguments, **options)


@pytest.mark.parametrize("m", [10, 60, 300])
@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
def test_a_step_after_a_far_one(kind, m):
    # Where the last threshold is far from the new one, the step is that of a cold start.
    def last_step(*weights):
        examples = epochs.Examples(
            losses.TopKHinge(3, kind), np.array([0]), np.array([0, 1]), np.ones(1), np.ones(1), m
        )
        for row in weights:
            dual = np.zeros((1, m))
            epochs.dense_epoch(examples, np.ones((1, 1)), row[None].copy(), dual, np.array([0]), 1)
        return dual

    near = np.random.default_rng(m).standard_normal(m)
    near[0] = -3.0
    for own in (-1e12, 1e12):
        far = near.copy()
        far[0] = own
        np.testing.assert_allclose(last_step(far, near), last_step(near), rtol=0, atol=1e-14)


def _varied_rows(rng, m):
    # Each differs from the one before in another way: anew, slightly, rounded, equal, larger or
    # smaller, one entry far above the others.
    row = rng.standard_normal(m)
    for change in rng.integers(6, size=12):
        if change == 0:
            row = rng.standard_normal(m) * 10.0 ** rng.uniform(-6, 6)
        elif change == 1:
            row = row + 0.1 * rng.standard_normal(m)
        elif change == 2:
            row = np.round(2 * row) / 2
        elif change == 3:
            row = np.full(m, rng.standard_normal())
        elif change == 4:
            row = row * 10.0 ** rng.uniform(-3, 3)
        else:
            row = row.copy()
            row[rng.integers(m)] += 10.0 ** rng.uniform(-2, 8)
        yield row


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 34, 35, 86, 251])
@pytest.mark.parametrize("smoothing", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
def test_steps_and_values_do_not_depend_on_earlier_ones(kind, smoothing, seed):
    rng = np.random.default_rng(seed)
    for m, k in product((2, 7, 26, 65, 200), (0.0, 0.3, 1.0)):
        loss = losses.TopKHinge(1 + int(k * (m - 2)), kind, smoothing=smoothing)
        cost = 10.0 ** rng.uniform(-3, 3, 1)
        own = rng.integers(m)

        def fresh(loss=loss, cost=cost, own=own, m=m):
            return epochs.Examples(loss, np.array([own]), np.array([0, 1]), cost, np.ones(1), m)

        def step_and_value(examples, row):
            x, dual = np.ones((1, 1)), np.zeros_like(row)
            value = epochs.dense_sums(examples, x, row, dual, np.arange(1), 1)[0]
            epochs.dense_epoch(examples, x, row.copy(), dual, np.array([0]), 1)
            return dual, value

        warm = fresh()
        for scores in _varied_rows(rng, m):
            row = scores[None]
            dual, value = step_and_value(warm, row)
            cold_dual, cold_value = step_and_value(fresh(), row)
            largest = 1.0 + np.abs(row - row[0, own]).max()
            # each of m entries has its rounding
            unit = np.finfo(float).eps * cost[0] * largest / (cost[0] + smoothing)
            others = np.arange(m) != own
            np.testing.assert_allclose(
                dual[0, others], cold_dual[0, others], rtol=0, atol=min(40 + m, 100) * unit
            )
            slack = (40 + 4 * m) * np.finfo(float).eps * cost[0] * largest
            assert abs(value - cold_value) <= slack


@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
@pytest.mark.parametrize("m", [20, 50, 90])
def test_values_of_ties_far_apart_keep_their_digits(kind, m):
    # Next to such scores over the smoothing, the cap 1/k has hardly a digit.
    rng = np.random.default_rng(m)
    scores = np.round(rng.standard_normal((40, m)) * 2) * 5e7
    own = np.zeros(40, dtype=np.intp)
    for k in (1, m // 2, 2 * m // 3):
        loss = losses.TopKHinge(k, kind, smoothing=2.5e-5)
        examples = epochs.Examples(loss, own[:1], np.arange(2), np.ones(1), np.ones(1), m)
        for row, cold in zip(scores, loss.value(scores, own), strict=True):
            x, dual = np.ones((1, 1)), np.zeros((1, m))
            warm = epochs.dense_sums(examples, x, row[None].copy(), dual, np.arange(1), 1)[0]
            assert warm == pytest.approx(cold, rel=0, abs=(40 + 4 * m) * 2.3e-16 * np.ptp(row))
            if kind == "alpha":
                hard = np.sort(1 + row[1:] - row[0])[-k:].mean()
                assert warm == pytest.approx(max(0.0, hard), rel=1e-12, abs=1e-4)
