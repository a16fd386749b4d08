"""Threads share rows: the same results as of one, the same bits again."""

import numpy as np
import pytest
import scipy.sparse

from topkopt import TopKClassifier, TopKClassifierCV, losses, path, solve
from topkopt._threads import Team
from topkopt.projections import project_simplex
from topkopt.solvers.epochs import Examples
from topkopt.solvers.problem import as_problem
from topkopt.solvers.vertices import VertexExamples
from topkopt.special import lambertw_exp

from .cases import OPERATORS
from .expect import raises
from .loss_cases import CASES, CONVEX, labels_of, over
from .team_cases import KINDS, D, M, N, features, problem_of, share_small_work
from .test_arrays import apply


@pytest.fixture(autouse=True)
def no_work_is_too_small(monkeypatch):
    share_small_work(monkeypatch)


# Examples in parts ----------------------------------------------------------------------------


def examples_of(problem, kind):
    if kind is Examples:
        return problem.examples()
    return problem.examples(
        VertexExamples, type(problem.loss)(*(v for _, v in _hard(problem))), False
    )


def _hard(problem):
    return [(k, 0.0 if k == "smoothing" else v) for k, v in problem.loss._parameters()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("examples_kind", [Examples, VertexExamples])
def test_parts_of_examples(kind, examples_kind):
    """The sums of parts add up to those of all, and what they learn of an example is shared."""
    problem = problem_of(losses.TopKHinge(2, smoothing=0.5), kind)
    whole, parted = (examples_of(problem, examples_kind) for _ in range(2))
    data, rows = problem.data, np.arange(N)
    dual = np.zeros((N, M))
    coef = data.coef_from(dual)
    data.epoch(whole, coef, dual, rows, 1)
    expected = data.sums(whole, coef, dual, rows)
    total = np.zeros(3)
    for part in (slice(0, 10), slice(10, 11), slice(11, N)):
        own = parted.part(part)
        assert type(own) is examples_kind
        some = np.arange(part.stop - part.start)
        total += data.range_sums(own, coef, dual[part], some, part)
    np.testing.assert_allclose(total, expected, rtol=1e-12)
    np.testing.assert_allclose(parted.row_gaps, whole.row_gaps, rtol=1e-9, atol=1e-12)
    assert parted.row_gaps.any()


@pytest.mark.parametrize("examples_kind", [Examples, VertexExamples])
def test_steps_of_parts(examples_kind):
    """A part takes the steps of its rows: those of the whole, if these rows alone are visited."""
    problem = problem_of(losses.TopKHinge(2, smoothing=0.5))
    whole, parted = (examples_of(problem, examples_kind) for _ in range(2))
    part, data = slice(8, 20), problem.data
    results = []
    for examples, X, rows in ((whole, data, np.arange(8, 20)), (parted.part(part), None, None)):
        dual, coef = np.zeros((N, M)), np.zeros((D, M))
        if X is None:
            X = as_problem(features()[part], np.zeros(12, int), losses.Hinge(), 1.0, None, False, M)
            X.data.epoch(examples, coef, dual[part], np.arange(12), 1)
        else:
            X.epoch(examples, coef, dual, rows, 1)
        results.append((coef, dual))
    assert results[0][1].any()
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(parted.moved_rows[part], whole.moved_rows[part])


# The same results -----------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 43])
def test_operators(op, dtype, n):
    """A row knows nothing of the others: all numbers of threads give the same bits."""
    x = np.random.default_rng(5).standard_normal((n, 6)).astype(dtype)
    x[0, 0] = -np.inf
    expected = apply(op, x, n_threads=1)
    for n_threads in (2, 3, 50):
        np.testing.assert_array_equal(apply(op, x, n_threads=n_threads), expected)


def test_special():
    t = np.random.default_rng(5).standard_normal((9, 7))
    np.testing.assert_array_equal(lambertw_exp(t, n_threads=3), lambertw_exp(t, n_threads=1))


def test_errors_name_the_row_whatever_thread_finds_it():
    x = np.zeros((40, 3))
    x[25, 1] = np.nan
    x[33, 1] = np.inf
    with raises(ValueError, "NaN in row 25"):
        project_simplex(x, n_threads=4)


@over(CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses(case, dtype):
    loss, y = case.loss, labels_of(case.loss, N, M)
    scores = np.random.default_rng(3).standard_normal((N, M)).astype(dtype)
    calls = {
        "value": lambda n: loss.value(scores, y, n_threads=n),
        "gradient": lambda n: loss.gradient(scores, y, n_threads=n),
        "both": lambda n: loss.value_and_gradient(scores, y, n_threads=n)[1],
    }
    if loss.convex:
        v = loss.gradient(scores.astype(np.float64), y)
        calls["conjugate"] = lambda n: loss.conjugate(v, y, n_threads=n)
        calls["prox"] = lambda n: loss.prox(scores, y, 0.5, n_threads=n)
        calls["derivative"] = lambda n: loss.prox_derivative(scores, y, 0.5, n_threads=n)
    for call in calls.values():
        expected = call(1)
        assert expected.dtype == dtype or call is calls.get("conjugate")
        for n_threads in (2, 3, 50):
            np.testing.assert_array_equal(call(n_threads), expected)


def rounding_of(dtype):
    return 2e-5 if dtype == np.float32 else 1e-12


@over(CASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_evaluations(case, kind, dtype):
    """Values, gradients, duals and the sums of a certificate, up to rounding."""
    problem = problem_of(case.loss, kind, dtype)
    rng = np.random.default_rng(4)
    size = N if kind == "kernel" else D
    coef = rng.standard_normal((size, M)).astype(dtype)
    found = []
    for n_threads in (1, 2, 3, 3):
        data, examples = problem.data.on(Team(n_threads)), problem.examples()
        dual = np.empty((N, M), dtype)
        pull = data.scores(coef).copy() if kind == "kernel" else np.empty((D, M))
        values = data.evaluate(examples, coef, pull, dual)
        parameters = dual if kind == "kernel" else coef
        sums = data.sums(examples, parameters, dual, np.arange(N))
        some = data.sums(examples, parameters, dual, np.arange(3, N - 1))
        found.append((pull, dual, *values, *sums, *some, data.scores(coef), data.coef_from(dual)))
    for others in found[1:]:
        for first, other in zip(found[0], others, strict=True):
            slack = rounding_of(dtype) * max(1.0, float(np.nan_to_num(np.abs(first)).max()))
            np.testing.assert_allclose(other, first, rtol=0, atol=slack)
    for first, again in zip(found[2], found[3], strict=True):
        np.testing.assert_array_equal(first, again)


@over(CONVEX)
@pytest.mark.parametrize("kind", ["dense", "kernel"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_epochs_in_blocks(case, kind, dtype):
    """The iterates of one thread, up to rounding; the last block is shorter."""
    problem = problem_of(case.loss, kind, dtype)
    order = np.random.default_rng(6).permutation(N).astype(np.intp)
    found = []
    for n_threads in (1, 2, 3, 5, 5):
        data, examples = problem.data.on(Team(n_threads)), problem.examples()
        dual = np.zeros((N, M), dtype)
        coef = data.coef_from(dual)
        for _ in range(2):
            data.epoch(examples, coef, dual, order, 16)
        found.append((coef, dual, examples.moved_rows.copy()))
    size = max(1.0, float(np.abs(found[0][1]).max()))
    for coef, dual, _ in found[1:]:
        np.testing.assert_allclose(dual, found[0][1], atol=100 * rounding_of(dtype) * size)
        np.testing.assert_allclose(coef, found[0][0], atol=1e3 * rounding_of(dtype) * size)
    for first, again in zip(found[3], found[4], strict=True):
        np.testing.assert_array_equal(first, again)


@over(CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_trainings(case, kind):
    """All numbers of threads reach the same optimum, certified; a fixed one repeats its bits."""
    X, y = features(kind), labels_of(case.loss, N, M)
    options = {"kernel": kind == "kernel", "tol": 1e-7, "random_state": 0, "n_classes": M}
    found = [
        solve(X, y, case.loss, n_threads=n_threads, block_size=16, **options)
        for n_threads in (1, 2, 3, 3)
    ]
    for solution in found:
        assert solution.converged
        if case.loss.convex:
            assert -1e-12 <= solution.gap <= 1e-7
            assert solution.primal == pytest.approx(found[0].primal, rel=3e-7)
    np.testing.assert_array_equal(found[2].dual, found[3].dual)
    if kind != "kernel":
        np.testing.assert_array_equal(found[2].coef, found[3].coef)


@pytest.mark.parametrize("method", ["lbfgs", "newton", "frank_wolfe", "pairwise", "sdca"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_methods(method, kind, dtype):
    X, y = features(kind, dtype), labels_of(losses.Hinge(), N, M)
    loss = losses.TopKHinge(2, smoothing=1.0)
    options = {"kernel": kind == "kernel", "tol": 1e-3, "random_state": 0, "method": method}
    found = [solve(X, y, loss, n_threads=n, max_epochs=5000, **options) for n in (1, 2, 3)]
    for solution in found:
        assert solution.gap <= 1e-3
        assert solution.primal == pytest.approx(found[0].primal, rel=2e-3)


def test_more_threads_than_rows():
    X, y = np.eye(3), [0, 1, 2]
    one, many = (solve(X, y, losses.Softmax(), tol=1e-9, n_threads=n) for n in (1, 64))
    np.testing.assert_allclose(one.coef, many.coef, atol=1e-8)


def test_estimators_and_paths():
    X, y = features(), labels_of(losses.Hinge(), N, M)
    found = [path(X, y, "softmax", Cs=[0.1, 1.0], tol=1e-11, n_threads=n) for n in (1, 3)]
    np.testing.assert_allclose(found[0].coefs, found[1].coefs, atol=1e-4)
    options = {"loss": "softmax", "tol": 1e-11}
    one, three = (TopKClassifier(n_threads=n, **options).fit(X, y) for n in (1, 3))
    np.testing.assert_allclose(one.decision_function(X), three.decision_function(X), atol=1e-3)
    rows = scipy.sparse.csr_array(X)
    np.testing.assert_allclose(
        three.decision_function(rows), three.decision_function(X), atol=1e-12
    )
    search = TopKClassifierCV([0.1, 1.0], cv=2, n_jobs=2, n_threads=2, **options).fit(X, y)
    assert search.duality_gap_ <= 1e-11
    assert (search.cv_gap_ <= 1e-11).all()
