"""Training: the iterates of the reference, the optima of others, and an honest certificate."""

from functools import cache

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import topkopt
from topkopt import losses, reference, solve

from .loss_cases import CASES
from .trainings import (
    assert_same_optimum,
    convex,
    objectives,
    problem,
    quietly,
    radius,
    sharp,
    smooth,
    some,
)

# The iterates ---------------------------------------------------------------------------------


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
    options = {"method": "sdca", "tol": 0.0, "max_epochs": 2, "random_state": 3}
    expected = quietly(X, y, case.loss, block_size=1, **options)
    for block_size in (5, 64, 90):
        solution = quietly(X, y, case.loss, block_size=block_size, **options)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-10)
        np.testing.assert_allclose(solution.coef, X.T @ solution.dual, atol=1e-12)
    for other in (scipy.sparse.csr_array(X), X @ X.T):
        solution = quietly(other, y, case.loss, kernel=other.shape[1] == 90, **options)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-10)


# The optimum ----------------------------------------------------------------------------------


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


# Weights and starts ---------------------------------------------------------------------------


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
