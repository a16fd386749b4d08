"""L-BFGS: the optimum of SDCA, a certificate of exactly what is returned, and no large arrays."""

import tracemalloc
import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse
import scipy.special

import topkopt
from topkopt import ConvergenceWarning, losses, reference, solve
from topkopt.solvers.epochs import Examples
from topkopt.solvers.matrices import as_data
from topkopt.solvers.quasi_newton import Memory

from .loss_cases import CASES, CONVEX, FAMILIES, labels_of, over, row_by_row, scores_of
from .trainings import problem, quietly, uninterrupted

SMOOTH = [case for case in CONVEX if case.smooth]
smooth = over(SMOOTH)
FORMS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "csr": scipy.sparse.csr_array,
    "float32": lambda X: X.astype(np.float32),
    "csr32": lambda X: scipy.sparse.csr_array(X.astype(np.float32)),
}


def objectives(X, y, loss, solution, weight=None):
    """Return P of the weights and D of the dual variables, each from itself alone."""
    n, C = len(y), solution.C
    cost = C * (np.ones(n) if weight is None else weight)
    used = cost > 0
    values = loss.value(X @ solution.coef, y)
    primal = cost @ values + 0.5 * (solution.coef.astype(np.float64) ** 2).sum()
    blocks = -solution.dual[used] / cost[used, None]
    conjugates = cost[used] @ loss.conjugate(blocks, y[used])
    dual = -conjugates - 0.5 * (np.asarray(X.T @ solution.dual, np.float64) ** 2).sum()
    return primal / (C * n), dual / (C * n)


def assert_certified(X, y, loss, found, weight=None):
    """The certificate is that of the pair that is returned."""
    primal, dual = objectives(X, y, loss, found, weight)
    assert found.primal == pytest.approx(primal, rel=1e-11, abs=1e-13)
    assert found.dual_value == pytest.approx(dual, rel=1e-11, abs=1e-13)


def gram(X):
    return X @ X.T + 0.1 * np.eye(len(X))


# Value and gradient in one pass ---------------------------------------------------------------


@over(CASES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("m", [5, 40])
def test_value_and_gradient(case, family, m):
    loss, scores = case.loss, scores_of(family, n=70, m=m)
    y, size = labels_of(loss, n=70, m=m), max(1.0, np.abs(scores).max())
    values, gradients = loss.value_and_gradient(scores, y)
    np.testing.assert_allclose(values, loss.value(scores, y), rtol=1e-12, atol=1e-13 * size)
    np.testing.assert_allclose(gradients, loss.gradient(scores, y), rtol=1e-10, atol=1e-12)
    expected = row_by_row(case.twin.value, scores, y)
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-13 * size)
    single = loss.value_and_gradient(scores.astype(np.float32), y)
    assert [part.dtype for part in single] == [np.float32, np.float32]
    value, gradient = loss.value_and_gradient(scores[3], y[3])
    assert (value, *gradient) == (values[3], *gradients[3])


def test_the_gradient_of_softmax_keeps_small_digits():
    value, gradient = losses.Softmax().value_and_gradient([0.0, -50.0, -60.0], 0)
    others = np.exp([-50.0, -60.0])
    np.testing.assert_allclose(value, others.sum(), rtol=1e-15)
    np.testing.assert_allclose(gradient, [-others.sum(), *others], rtol=1e-14)


@over([case for case in SMOOTH if "TopKHinge" not in case.name and case.name != "Hinge"])
def test_curvature_bounds_the_second_derivative(case):
    loss, rng = case.loss, np.random.default_rng(0)
    first = rng.standard_normal((500, 6))
    second = first + 1e-3 * rng.standard_normal((500, 6))
    y = labels_of(loss, 500)
    change = loss.gradient(second, y) - loss.gradient(first, y)
    ratio = np.linalg.norm(change, axis=1) / np.linalg.norm(second - first, axis=1)
    assert ratio.max() <= loss.curvature * (1 + 1e-6)


# The optimum and its certificate --------------------------------------------------------------


def weighted_problem(loss):
    weight = np.random.default_rng(1).uniform(0.0, 2.0, 60)
    weight[:4] = 0.0
    return *problem(loss, n=60, d=4), weight


@cache
def best_of_sdca(loss, C):
    X, y, weight = weighted_problem(loss)
    options = {"C": C, "sample_weight": weight, "tol": 1e-9}
    return solve(X, y, loss, method="sdca", max_epochs=20000, **options)


@smooth
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("C", [0.1, 30.0])
def test_agrees_with_sdca(case, form, C):
    X, y, weight = weighted_problem(case.loss)
    data, tol = FORMS[form](X), 1e-4 if form.endswith("32") else 1e-8
    options = {"C": C, "sample_weight": weight, "tol": tol}
    found = solve(data, y, case.loss, method="lbfgs", **options)
    assert found.converged
    assert (found.history["method"] == "lbfgs").all()
    rounding = 1e-6 if form.endswith("32") else 1e-12
    if form.endswith("32"):  # the dual blocks are feasible but for their rounding
        assert found.primal == pytest.approx(
            objectives(X, y, case.loss, found, weight)[0], rel=1e-5, abs=1e-6
        )
    else:
        assert_certified(data, y, case.loss, found, weight)
    assert found.gap <= tol
    best = best_of_sdca(case.loss, C)
    assert found.primal >= best.dual_value - rounding
    assert found.dual_value <= best.primal + rounding


@smooth
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernels(case, dtype):
    X, y = problem(case.loss, n=40)
    K = gram(X).astype(dtype)
    tol = 1e-7 if dtype is np.float64 else 1e-4
    found = solve(K, y, case.loss, C=3.0, kernel=True, method="lbfgs", tol=tol)
    assert found.converged
    assert found.coef is None
    assert found.dual.dtype == dtype
    primal, dual, _ = reference.sdca.certificate(
        K.astype(float) @ found.dual, found.dual, y, case.twin, 3.0, np.ones(40)
    )
    assert found.primal == pytest.approx(primal, rel=1e-5 if dtype is np.float32 else 1e-10)
    if dtype is np.float64:
        assert found.dual_value == pytest.approx(dual, rel=1e-10)
    best = solve(K, y, case.loss, C=3.0, kernel=True, method="sdca", tol=tol)
    assert max(found.dual_value, best.dual_value) <= min(found.primal, best.primal) * (1 + 1e-6)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("d", [3, 20, 150])
def test_many_C(C, d):
    X, y = problem(losses.Softmax(), n=400, d=d, m=7)
    found = solve(X, y, "softmax", C=C, method="lbfgs", tol=1e-9)
    assert found.converged
    assert -1e-12 <= found.gap <= 1e-9
    scores = X @ found.coef
    gradient = found.coef + C * X.T @ (scipy.special.softmax(scores, axis=1) - np.eye(7)[y])
    assert np.square(gradient).sum() / 2 <= 2e-9 * found.objective


def test_a_tolerance_of_zero_ends_where_nothing_moves():
    X, y = problem(losses.Softmax(), n=100)
    found = quietly(X, y, "softmax", method="lbfgs", tol=0.0, max_epochs=500)
    assert found.n_epochs < 100
    assert abs(found.gap) <= 1e-13


def test_max_epochs():
    X, y = problem(losses.Softmax(), n=100)
    with pytest.warns(ConvergenceWarning, match=r"max_epochs=3 reached.*gap \d.*tol=1.0"):
        found = solve(X, y, "softmax", C=100.0, method="lbfgs", tol=1e-9, max_epochs=3)
    assert not found.converged
    assert_certified(X, y, losses.Softmax(), found)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_bits(form):
    X, y = problem(losses.TopKEntropy(2), n=200)
    data = FORMS[form](X)
    first, second = (solve(data, y, losses.TopKEntropy(2), method="lbfgs") for _ in range(2))
    np.testing.assert_array_equal(first.coef, second.coef)
    np.testing.assert_array_equal(first.dual, second.dual)


def test_weights_are_repetitions():
    X, y = problem(losses.Softmax(), n=50)
    times = np.random.default_rng(0).integers(0, 4, 50)
    times[y == 4] = 1
    options = {"method": "lbfgs", "tol": 1e-11, "n_classes": 5}
    weighted = solve(X, y, "softmax", sample_weight=times, **options)
    repeated = solve(X.repeat(times, axis=0), y.repeat(times), "softmax", **options)
    np.testing.assert_allclose(weighted.coef, repeated.coef, atol=1e-5)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-10)


def test_no_features():
    found = solve(np.zeros((6, 0)), [0, 1, 2, 0, 1, 2], "softmax", method="lbfgs")
    assert found.primal == pytest.approx(np.log(3))


def test_zeros():
    found = solve(np.zeros((6, 2)), [0, 1, 2, 0, 1, 2], "softmax", method="lbfgs")
    assert found.gap == 0
    np.testing.assert_array_equal(found.coef, 0)


# On the way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("check_every", [1, 5])
def test_callbacks_see_what_is_certified(kernel, check_every):
    X, y = problem(losses.Softmax(), n=60)
    data = gram(X) if kernel else X
    states = []
    options = {"C": 10.0, "kernel": kernel, "method": "lbfgs", "tol": 1e-6}
    found = solve(data, y, "softmax", callback=states.append, check_every=check_every, **options)
    epochs = np.array([state.epoch for state in states])
    assert (np.diff(epochs)[:-1] >= check_every).all()
    for state in states[:: len(states) // 3]:
        scores = data @ (state.dual if kernel else state.coef)
        square = (state.dual * scores).sum() if kernel else (state.coef**2).sum()
        total = losses.Softmax().value(scores, y).mean()
        assert state.primal == pytest.approx(total + square / (2 * 10.0 * 60))
        assert state.gap == pytest.approx(
            (state.primal - state.dual_value) / max(abs(state.primal), abs(state.dual_value))
        )
        assert state.method == "lbfgs"
    np.testing.assert_array_equal(states[-1].dual, found.dual)
    again = solve(data, y, "softmax", check_every=check_every, **options)
    np.testing.assert_array_equal(again.dual, found.dual)


def test_a_callback_stops():
    X, y = problem(losses.Softmax(), n=60)
    with pytest.warns(ConvergenceWarning, match="stopped by the callback"):
        found = solve(
            X, y, "softmax", method="lbfgs", tol=1e-9, callback=lambda state: state.epoch >= 2
        )
    assert_certified(X, y, losses.Softmax(), found)


@pytest.mark.parametrize("at", [0, 3])
def test_interrupt(at):
    X, y = problem(losses.Softmax(), n=60)

    def callback(state):
        if state.epoch >= at:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        found = uninterrupted(X, y, "softmax", method="lbfgs", tol=1e-9, callback=callback)
    assert_certified(X, y, losses.Softmax(), found)


def test_warm_start():
    X, y = problem(losses.Softmax(), n=200)
    options = {"method": "lbfgs", "tol": 1e-8}
    cold = solve(X, y, "softmax", C=10.0, **options)
    for start in (cold, cold.without_dual(), solve(X, y, "softmax", C=9.0, tol=1e-6)):
        warm = solve(X, y, "softmax", C=10.0, warm_start=start, **options)
        assert warm.n_epochs < cold.n_epochs - (5 if start.C == 10.0 else 0)
        assert warm.primal == pytest.approx(cold.primal, rel=2e-8)
    other = solve(X, y, losses.TopKEntropy(2), C=10.0, warm_start=cold, **options)
    assert other.converged
    with pytest.raises(ValueError, match="warm_start must be a Solution with coef of shape"):
        solve(X[:, :3], y, "softmax", warm_start=cold, **options)
    with pytest.raises(ValueError, match="warm_start must be a Solution for 100 examples"):
        solve(X[:100], y[:100], "softmax", warm_start=cold, n_classes=5, **options)
    K = gram(X)
    kernel = solve(K, y, "softmax", kernel=True, **options)
    warm = solve(K, y, "softmax", kernel=True, warm_start=kernel, **options)
    assert warm.n_epochs < kernel.n_epochs
    with pytest.raises(ValueError, match="warm_start must be a Solution with dual variables"):
        solve(K, y, "softmax", kernel=True, warm_start=cold, **options)


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.TopKHinge(2), losses.OneVsAllHinge()])
def test_corners_are_refused(loss):
    X, y = problem(loss)
    with pytest.raises(ValueError, match=r"smooth loss.*smoothing > 0.*sdca"):
        solve(X, y, loss, method="lbfgs")


def test_overflow_is_an_error():
    X, y = problem(losses.Softmax(), n=30)
    with pytest.raises(ValueError, match="scale the features"):
        solve(X * 1e160, y, "softmax", method="lbfgs", C=1e10)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_nothing_as_large_as_the_scores_is_kept(form):
    """While it trains: examples times classes is 16 MB here, and only the result has that size."""
    rng = np.random.default_rng(0)
    n, m = 20000, 100
    X, y = rng.standard_normal((n, 4)), rng.integers(0, m, n)
    data = FORMS[form](X)
    most = []

    def callback(state):
        most.append(tracemalloc.get_traced_memory()[1])
        return len(most) > 3

    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solve(data, y, "softmax", method="lbfgs", tol=0.0, callback=callback)
    finally:
        tracemalloc.stop()
    assert most[-1] < 8e6


# The parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [1, 4, 9])
def test_memory_is_the_bfgs_update(pairs):
    """The direction is that of the inverse Hessian, updated pair by pair as in a textbook."""
    rng = np.random.default_rng(0)
    n, kept = 12, 5
    root = rng.standard_normal((n, n))
    hessian, start = root @ root.T + np.eye(n), np.diag(rng.uniform(0.5, 2.0, n))
    memory, used = Memory(kept, n), []
    x, gradient = np.zeros(n), rng.standard_normal(n)
    for _ in range(pairs):
        memory.direction(gradient, start @ gradient)
        step = rng.standard_normal(n)
        change = hessian @ step
        memory.add(step, change, start @ change, gradient)
        used.append((step, change))
        x, gradient = x + step, gradient + change
    direction = memory.direction(gradient, start @ gradient)
    step, change = used[-1]
    inverse = start * (step @ change) / (change @ start @ change)
    for step, change in used[-kept:]:
        project = np.eye(n) - np.outer(change, step) / (step @ change)
        inverse = project.T @ inverse @ project + np.outer(step, step) / (step @ change)
    np.testing.assert_allclose(direction, -inverse @ gradient, rtol=1e-9)


@over(CASES)
@pytest.mark.parametrize("form", FORMS)
def test_evaluation(case, form):
    """One pass gives the sums, the gradient and the dual variables of NumPy."""
    rng = np.random.default_rng(0)
    n, d, m = 150, 4, 6
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.7)
    y, cost = labels_of(case.loss, n, m), rng.uniform(0.5, 2.0, n)
    cost[5] = 0.0
    data = as_data(FORMS[form](X), False)
    index, start = topkopt._validation.as_labels(y, n, m, multilabel=case.loss.multilabel)[:2]
    examples = Examples(case.loss, index, start, cost, data.square_norms, m)
    W = rng.standard_normal((d, m)).astype(data.dtype)
    pull, dual = np.empty((d, m)), np.empty((n, m), data.dtype)
    total, conjugates = data.evaluate(examples, W, pull, dual)
    scores = X @ W.astype(np.float64)
    gradients = case.loss.gradient(scores, y)
    near = {"rtol": 1e-4, "atol": 1e-3} if form.endswith("32") else {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(total, cost @ case.loss.value(scores, y), **near)
    np.testing.assert_allclose(pull, X.T @ (cost[:, None] * gradients), **near)
    np.testing.assert_allclose(dual, -cost[:, None] * gradients, **near)
    if case.loss.convex:
        expected = cost @ case.loss.conjugate(gradients, y)
        np.testing.assert_allclose(conjugates, expected, **near)
