"""Newton's method: the derivatives of all losses, and training to ten digits on any data."""

import numpy as np
import pytest
import scipy.sparse

from topkopt import losses, reference, solve
from topkopt.solvers import newton_systems
from topkopt.solvers.curvature import Curvature
from topkopt.solvers.newton import Newton
from topkopt.solvers.problem import as_problem

from .expect import raises
from .loss_cases import CONVEX, over
from .trainings import SOME, problem

convex = over(CONVEX)
some = pytest.mark.parametrize("loss", SOME, ids=repr)
TOL = 1e-10


def train(X, y, loss, **options):
    """Train, and fail where the warning that it did not converge would be."""
    settings = {"C": 1.0, "tol": TOL, "max_epochs": 10_000, "random_state": 0}
    return solve(X, y, loss, method="newton", **{**settings, **options})


# The derivatives ----------------------------------------------------------------------------


def labels_for(loss, rng, n, m):
    return rng.random((n, m)) < 0.4 if loss.multilabel else rng.integers(0, m, n)


def slopes(loss, q, y, alpha, h):
    """Return differences of the prox in all coordinates."""
    columns = [
        (loss.prox(q + h * e, y, alpha) - loss.prox(q - h * e, y, alpha)) / (2 * h)
        for e in np.eye(q.shape[1])
    ]
    return np.stack(columns, axis=2)


def compare_with_slopes(loss, q, y, alpha):
    """Compare where the prox has no kink nearby, and return in how many rows that is."""
    h = 1e-5 * max(alpha, 0.1)
    first, second = slopes(loss, q, y, alpha, h), slopes(loss, q, y, alpha, h / 2)
    size = 1 / (alpha + getattr(loss, "smoothing", 0.0) + 0.1)
    smooth_here = np.abs(first - second).max(axis=(1, 2)) <= 1e-4 * size
    found = loss.prox_derivative(q, y, alpha)
    np.testing.assert_allclose(found[smooth_here], second[smooth_here], rtol=0, atol=1e-3 * size)
    return np.count_nonzero(smooth_here)


@convex
@pytest.mark.parametrize("m", [4, 9])
def test_the_derivative_is_that_of_the_prox(case, m):
    loss, rng, seen = case.loss, np.random.default_rng(m), 0
    for alpha in (0.0, 0.004, 0.05, 0.5, 3.0):
        if alpha == 0 and not loss.smooth:
            continue
        q = rng.standard_normal((40, m)) * rng.choice([0.3, 1.0, 3.0], (40, 1))
        seen += compare_with_slopes(loss, q, labels_for(loss, rng, 40, m), alpha)
    assert seen >= 100


@pytest.mark.parametrize("envelope", ["others", "all"])
@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_the_derivative_where_classes_share_the_price_of_the_label(envelope, alpha):
    """They and the scale of the weights move together, which steep weights bring about."""
    weights = [1.0, 0.5, 0.25, 0.1, 0.05]
    loss = losses.WeightedTopKHinge(weights, label=True, smoothing=0.7, envelope=envelope)
    rng = np.random.default_rng(3)
    q, y = rng.standard_normal((300, 7)), rng.integers(0, 7, 300)
    assert compare_with_slopes(loss, q, y, alpha) >= 200


@convex
@pytest.mark.parametrize("m", [5, 9])
def test_the_derivative_of_the_reference(case, m):
    loss, twin, rng = case.loss, case.twin, np.random.default_rng([1, m])
    for alpha in (0.01, 0.5, 3.0):
        q = rng.standard_normal((15, m))
        y = labels_for(loss, rng, 15, m)
        expected = np.array([twin.prox_derivative(*row, alpha) for row in zip(q, y, strict=True)])
        np.testing.assert_allclose(
            loss.prox_derivative(q, y, alpha), expected, rtol=1e-8, atol=1e-9 / alpha
        )


@convex
def test_the_forms_of_a_derivative_agree(case):
    """Products, factors, pairs of classes and diagonals are those of the matrices."""
    X, y = problem(case.loss, n=30)
    held = as_problem(X, y, case.loss, 2.0, None, False, None)
    s = 2 * np.random.default_rng(0).standard_normal((30, held.n_classes))
    v = case.loss.prox(s, y, 0.3)
    rows, m = np.arange(30), held.n_classes
    curvature = Curvature(held.examples(), s, np.zeros_like(s), 0.3, v, rows)
    D = case.loss.prox_derivative(s, y, 0.3)
    moving = np.abs(D).max(axis=(1, 2)) > 0
    np.testing.assert_array_equal(curvature.rows, np.flatnonzero(moving))
    D = D[moving]
    assert curvature.rank == sum(np.linalg.matrix_rank(d, tol=1e-9) for d in D)
    u = np.random.default_rng(1).standard_normal((len(D), m))
    near = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(curvature.apply(u), np.einsum("iab,ib->ia", D, u), **near)
    np.testing.assert_allclose(curvature.diagonals(), np.einsum("iaa->ia", D), **near)
    first, second = np.triu_indices(m)
    np.testing.assert_allclose(curvature.pairs(0, len(D)), D[:, first, second].T, **near)
    F, owner = curvature.factors()
    again = np.zeros_like(D)
    np.add.at(again, owner, F[:, :, None] * F[:, None, :])
    np.testing.assert_allclose(again, D, **near)


def test_arguments_of_the_prox():
    loss = losses.Softmax()
    assert loss.prox_derivative([0.0, 1.0, 2.0], 0, 1.0).shape == (3, 3)
    np.testing.assert_array_equal(loss.prox([[0.0, 1.0]], [0], 0.0), loss.gradient([[0, 1.0]], [0]))
    with raises(ValueError, "alpha"):
        loss.prox([0.0, 1.0], 0, -1.0)
    with raises(ValueError, "not convex"):
        losses.TruncatedTopKEntropy(1).prox([0.0, 1.0], 0, 1.0)


# Training -----------------------------------------------------------------------------------


@convex
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_every_convex_loss_reaches_ten_digits(case, C):
    X, y = problem(case.loss, n=50)
    dense = train(X, y, case.loss, C=C)
    sparse = train(scipy.sparse.csr_array(X), y, case.loss, C=C)
    kernel = train(X @ X.T, y, case.loss, C=C, kernel=True)
    for found in (dense, sparse, kernel):
        assert found.converged
        assert found.gap <= TOL
        assert found.primal == pytest.approx(dense.primal, rel=1e-9)
    assert_certified(X, y, case, dense)


def assert_certified(X, y, case, found, weight=None):
    """P(W) and D(A) are what they are said to be, from the values of the reference."""
    weight, n = np.ones(len(X)) if weight is None else weight, len(X)
    value = sum(
        w * case.twin.value(*row) for w, *row in zip(weight, X @ found.coef, y, strict=True)
    )
    blocks = zip(weight, found.dual, y, strict=True)
    conjugate = sum(w * case.twin.conjugate(-a / (found.C * w), b) for w, a, b in blocks if w)
    penalty = [np.sum(W**2) / (2 * found.C * n) for W in (found.coef, X.T @ found.dual)]
    assert found.primal == pytest.approx(value / n + penalty[0], rel=1e-11, abs=1e-13)
    assert found.dual_value == pytest.approx(-conjugate / n - penalty[1], rel=1e-11, abs=1e-13)
    assert found.primal >= found.dual_value - 1e-13


@some
def test_the_optimum_of_other_methods(loss):
    X, y = problem(loss)
    found, ascent = train(X, y, loss, C=3.0), solve(X, y, loss, C=3.0, tol=1e-6, random_state=0)
    assert ascent.dual_value <= found.primal + 1e-12
    assert found.dual_value <= ascent.primal + 1e-12


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("Hinge", {}), ("TopKHinge", {"k": 2, "kind": "beta"}), ("TopKEntropy", {"k": 2})],
)
def test_the_readable_solver(name, arguments):
    loss, twin = getattr(losses, name)(**arguments), getattr(reference, name)(**arguments)
    X, y = problem(loss)
    weight = np.linspace(0.0, 2.0, len(X))
    found = train(X, y, loss, C=2.0, sample_weight=weight)
    slow = reference.solve_newton(X, y, twin, C=2.0, sample_weight=weight)
    assert slow.gap <= TOL
    assert found.primal == pytest.approx(slow.primal, rel=1e-9)
    np.testing.assert_allclose(found.coef, slow.coef, atol=1e-4)


@some
def test_weights_count_like_repetition(loss):
    X, y = problem(loss)
    weight = np.arange(20) % 3
    repeated = train(np.repeat(X, weight, axis=0), np.repeat(y, weight, axis=0), loss, n_classes=5)
    weighted = train(X, y, loss, sample_weight=weight)
    np.testing.assert_allclose(weighted.coef, repeated.coef, atol=1e-4)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-9)
    assert not weighted.dual[weight == 0].any()


@some
@pytest.mark.parametrize(
    "change",
    [
        "ties",
        "zero rows",
        "one feature",
        "two classes",
        "strided",
        "read-only",
        "large C",
        "scaled",
    ],
)
def test_unusual_data(loss, change):
    two = change == "two classes" and loss.places in (None, 1)
    X, y = problem(loss, m=2 if two else 5)
    options = {}
    if change == "ties":
        X = np.round(X)
    elif change == "zero rows":
        X[::4] = 0.0
    elif change == "one feature":
        X = X[:, :1].copy()
    elif change == "strided":
        X = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif change == "read-only":
        X = np.asfortranarray(X)
        X.flags.writeable = False
    elif change == "large C":
        options["C"] = 1e4
    elif change == "scaled":
        X *= 30.0
    assert train(X, y, loss, **options).gap <= TOL


@some
def test_single_precision(loss):
    X, y = problem(loss)
    found = train(X.astype(np.float32), y, loss, tol=1e-5)
    assert found.coef.dtype == found.dual.dtype == np.float32
    assert found.gap <= 1e-5
    assert found.primal == pytest.approx(train(X, y, loss).primal, rel=1e-4)


@some
@pytest.mark.parametrize("kernel", [False, True])
def test_conjugate_gradients(loss, kernel, monkeypatch):
    """Where no factorisation is allowed the same optimum is found."""
    X, y = problem(loss, n=40)
    X = X @ X.T if kernel else X
    expected = train(X, y, loss, kernel=kernel)
    monkeypatch.setattr(newton_systems, "LARGEST", 0)
    found = train(X, y, loss, kernel=kernel, tol=1e-6)
    assert found.primal == pytest.approx(expected.primal, rel=1e-5)


@some
@pytest.mark.parametrize(("n", "d"), [(12, 60), (60, 3)])
def test_both_factorisations(loss, n, d, monkeypatch):
    """More features than ranks, and the reverse; many features and few."""
    X, y = problem(loss, n=n, d=d)
    found = train(X, y, loss)
    monkeypatch.setattr(newton_systems, "FEW", 0)
    assert train(X, y, loss).primal == pytest.approx(found.primal, rel=1e-9)


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize(("n", "d"), [(12, 60), (60, 3)])
@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_a_system_for_each_class(n, d, smoothing, kernel):
    """Where losses are sums over the classes the small systems solve the large one."""
    loss, rng = losses.OneVsAllHinge(smoothing), np.random.default_rng(n)
    X, y = problem(loss, n=n, d=d)
    held = as_problem(X @ X.T if kernel else X, y, loss, 2.0, None, kernel, None)
    gradient = rng.standard_normal((n if kernel else d, held.n_classes))
    scores, centre = rng.standard_normal((2, n, held.n_classes))
    v = loss.prox(scores + 0.5 * centre, y, 0.5)
    curvature = Curvature(held.examples(), scores, centre, 0.5, v, np.arange(n))
    seen = held.data.scores(gradient) if kernel else None
    arguments = held.data, curvature, held.cost, gradient, seen
    assert loss.separable
    np.testing.assert_allclose(
        newton_systems.solve_system(*arguments, separable=True),
        newton_systems.solve_system(*arguments),
        atol=1e-9,
    )


def test_the_same_seed_gives_the_same_bits():
    X, y = problem(losses.Hinge())
    first, second = (train(X, y, losses.Hinge(), random_state=3) for _ in range(2))
    assert first.coef.tobytes() == second.coef.tobytes()
    assert first.history["method"][-1] == "newton"


def test_from_blocks_of_another_method():
    X, y = problem(losses.Hinge())
    start = solve(X, y, losses.Hinge(), tol=0.05, random_state=0)
    held = as_problem(X, y, losses.Hinge(), 1.0, None, False, None)
    method = Newton(held, start.dual)
    assert method.certificate().gap == pytest.approx(start.gap, rel=1e-9)
    for _ in range(20):
        assert method.advance(np.inf) > 0
        method.settle()
    assert method.certificate().gap <= TOL
