"""Frank-Wolfe methods: against the reference step by step, against SDCA, and by their promises."""

import warnings

import numpy as np
import pytest
import scipy.sparse

from topkopt import ConvergenceWarning, losses, reference, solve
from topkopt.solvers.choice import make_method
from topkopt.solvers.vertices import VertexExamples

FAMILY = ("frank_wolfe", "away_step", "pairwise", "block_frank_wolfe")
LINEAR_RATE = ("away_step", "pairwise")
LOSSES = [
    losses.Hinge(),
    losses.Hinge(smoothing=0.3),
    losses.TopKHinge(3),
    losses.TopKHinge(3, kind="beta"),
    losses.TopKHinge(3, kind="label"),
    losses.TopKHinge(2, kind="beta", smoothing=0.5),
    losses.WeightedTopKHinge("exp", 3),
    losses.WeightedTopKHinge("linear", 3, label=True),
    losses.WeightedTopKHinge([0.5, 0.2, 0.2, 0.1], label=True, smoothing=0.1),
    losses.WeightedTopKHinge("exp", 3, label=True, smoothing=0.5, envelope="all"),
    losses.WeightedTopKHinge([2.0, 1.0], smoothing=0.2, envelope="all"),
]

methods = pytest.mark.parametrize("method", FAMILY)
all_losses = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def data_of(n=30, d=8, m=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.append(rng.integers(0, m, n - 1), m - 1)
    return rng.standard_normal((n, d)) / np.sqrt(d) + 0.5 * rng.standard_normal((m, d))[y], y


def train(X, y, loss, **options):
    """Train, and say nothing when it takes more epochs than are given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(X, y, loss, **{"random_state": 0, **options})


def twin(loss):
    return getattr(reference, type(loss).__name__)(**dict(loss._parameters()))


@methods
@all_losses
def test_steps_of_the_reference(method, loss):
    X, y = data_of()
    for epochs in (1, 2, 7):
        options = {"C": 2.0, "method": method, "tol": 0.0, "max_epochs": epochs, "random_state": 3}
        ours = train(X, y, loss, **options)
        theirs = reference.solve_frank_wolfe(X, y, twin(loss), **options)
        np.testing.assert_allclose(ours.dual, theirs.dual, atol=1e-11)
        np.testing.assert_allclose(ours.coef, theirs.coef, atol=1e-11)
        assert ours.gap == pytest.approx(theirs.gap, abs=1e-11)


@methods
@all_losses
def test_the_optimum_of_sdca(method, loss):
    X, y = data_of()
    best = solve(X, y, loss, C=0.5, tol=1e-9, random_state=0)
    tol = 1e-7 if method in LINEAR_RATE else 0.02
    found = solve(X, y, loss, C=0.5, tol=tol, method=method, max_epochs=5000, random_state=0)
    assert found.converged
    assert found.primal >= best.dual_value >= found.dual_value - 1e-9
    assert found.primal - best.primal <= tol * found.primal
    # |W - W*|^2 <= 2 (P - P*) / lambda, lambda = 1/(C n)
    assert np.sum((found.coef - best.coef) ** 2) <= 2 * tol * found.primal * 0.5 * len(X) + 1e-8


@methods
@all_losses
def test_the_dual_never_falls(method, loss):
    X, y = data_of()
    history = train(X, y, loss, C=3.0, method=method, tol=0.0, max_epochs=60).history
    assert np.diff(history["dual"]).min() >= -1e-12
    assert (history["primal"] >= history["dual"] - 1e-12).all()


@methods
@all_losses
def test_feasible(method, loss):
    """The conjugate is finite exactly on the polytope."""
    X, y = data_of()
    solution = train(X, y, loss, C=3.0, method=method, tol=0.0, max_epochs=40)
    assert np.isfinite(loss.conjugate(-solution.dual / 3.0, y)).all()


@pytest.mark.parametrize("method", LINEAR_RATE)
@all_losses
def test_active_sets(method, loss):
    """Vertices are feasible lists, all different; shares add up to 1 and mix to the dual blocks."""
    ascent, y = ascent_of(method, loss)
    k = ascent.sets.vertices(0)[0].shape[1]
    weights = np.array(getattr(loss, "weights", None) or [1 / k] * k)
    for _ in range(30):
        ascent.advance(np.inf)
    assert ascent.sets.sizes().max() > 1
    for i, label in enumerate(y):
        places, shares = ascent.sets.vertices(i)
        assert len(np.unique(places, axis=0)) == len(places) == ascent.sets.sizes()[i]
        assert shares.min() > 0
        assert shares.sum() == pytest.approx(1.0)
        assert label not in places
        rows = np.zeros((len(places), ascent.dual.shape[1]))
        for row, classes in zip(rows, places, strict=True):
            row[classes[classes >= 0]] = weights[classes >= 0]
            row[label] = -row.sum()
        hard = type(loss)(**{**dict(loss._parameters()), "smoothing": 0.0})
        assert np.isfinite(hard.conjugate(rows, np.full(len(rows), label))).all()
        np.testing.assert_allclose(-2.0 * shares @ rows, ascent.dual[i], atol=1e-12)


def ascent_of(method, loss):
    """The engine room of `solve`, to look inside."""
    X, y = data_of()
    seen = {}

    def spy(*arguments):
        seen["ascent"] = make_method(*arguments)
        return seen["ascent"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topkopt.solvers.starts.make_method", spy)
        train(X, y, loss, C=2.0, method=method, max_epochs=1, tol=0.0)
    assert isinstance(seen["ascent"].examples, VertexExamples)
    return seen["ascent"], y


@methods
@pytest.mark.parametrize("loss", LOSSES[2::3], ids=repr)
def test_sparse_kernel_and_layouts(method, loss):
    X, y = data_of()
    X[np.abs(X) < 0.3] = 0.0
    options = {"C": 2.0, "method": method, "tol": 0.0, "max_epochs": 15}
    dense = train(X, y, loss, **options)
    sparse = train(scipy.sparse.csr_array(X), y, loss, **options)
    turned = train(np.asfortranarray(X), y, loss, block_size=7, **options)
    kernel = train(X @ X.T, y, loss, kernel=True, **options)
    for other in (sparse, turned, kernel):
        np.testing.assert_allclose(other.dual, dense.dual, atol=1e-10)
        assert other.gap == pytest.approx(dense.gap, abs=1e-10)
    assert kernel.coef is None
    np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-10)


@methods
def test_float32(method):
    X, y = data_of()
    loss = losses.WeightedTopKHinge("exp", 3, label=True)
    single = solve(X.astype(np.float32), y, loss, C=0.5, method=method, tol=0.05, random_state=0)
    double = solve(X, y, loss, C=0.5, method=method, tol=0.05, random_state=0)
    assert single.coef.dtype == single.dual.dtype == np.float32
    np.testing.assert_allclose(single.primal, double.primal, rtol=1e-3)


@methods
def test_sample_weight(method):
    """Weight 0 is removal; weight 2 is repetition, which the optimum alone can tell."""
    X, y = data_of()
    weight = np.ones(len(y))
    weight[[3, 8]] = 0.0
    loss = losses.TopKHinge(2, smoothing=0.5)
    options = {"method": method, "tol": 0.0, "max_epochs": 10}
    part = weight > 0
    whole = train(X, y, loss, sample_weight=weight, **options)
    # the factor of the proposals is bounded by 1/n, which 2 rows of 30 do not reach
    removed = train(X[part], y[part], loss, **options)
    if method != "block_frank_wolfe":  # whose orders differ
        np.testing.assert_allclose(whole.coef, removed.coef, atol=1e-12)
    assert not whole.dual[~part].any()
    weight[5] = 2.0
    weighted = train(X, y, loss, sample_weight=weight, method=method, tol=1e-3, max_epochs=9000)
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    repeated = solve(X[rows], y[rows], loss, tol=1e-8, random_state=0)
    np.testing.assert_allclose(weighted.coef, repeated.coef, atol=0.05)


@methods
def test_a_row_of_zeros_closes_its_gap(method):
    X, y = data_of()
    X[[0, 4]] = 0.0
    tol = 1e-6 if method in LINEAR_RATE else 0.02
    solution = solve(
        X, y, losses.TopKHinge(2), C=0.5, method=method, tol=tol, max_epochs=4000, random_state=0
    )
    assert solution.converged


@methods
def test_all_rows_zero(method):
    solution = solve(np.zeros((4, 2)), [0, 1, 2, 0], losses.Hinge(), method=method)
    assert solution.gap == 0.0
    assert solution.n_epochs == 1
    assert solution.primal == 1.0


@methods
@pytest.mark.parametrize("loss", LOSSES[::2], ids=repr)
def test_warm_start(method, loss):
    X, y = data_of()
    first = train(X, y, loss, method=method, tol=0.0, max_epochs=20)
    again = train(X, y, loss, method=method, tol=0.0, max_epochs=20, warm_start=first)
    assert again.history["dual"][0] == pytest.approx(first.dual_value)
    assert np.diff(again.history["dual"]).min() >= -1e-12
    assert again.dual_value > first.dual_value
    assert np.isfinite(loss.conjugate(-again.dual, y)).all()


@pytest.mark.parametrize("method", LINEAR_RATE)
def test_warm_start_for_another_C(method):
    """A start that is no vertex is mixed with vertices, and left behind in the end."""
    X, y = data_of()
    loss = losses.WeightedTopKHinge("linear", 3, label=True)
    start = solve(X, y, loss, C=0.4, tol=1e-4, random_state=0)
    options = {"C": 0.5, "tol": 1e-7, "max_epochs": 4000}
    warm = solve(X, y, loss, method=method, warm_start=start, **options)
    cold = solve(X, y, loss, method=method, **options)
    assert warm.history["gap"][0] < 0.5 < cold.history["gap"][0]
    np.testing.assert_allclose(warm.primal, cold.primal, rtol=2e-7)


@methods
def test_the_same_words_as_sdca(method, capsys):
    X, y = data_of()
    seen = []
    solution = solve(
        X,
        y,
        losses.Hinge(),
        method=method,
        tol=0.1,
        check_every=2,
        verbose=2,
        random_state=0,
        callback=lambda state: seen.append((state.epoch, state.gap)),
    )
    assert solution.converged
    assert [epoch for epoch, _ in seen] == list(solution.history["epoch"])
    assert solution.n_epochs % 2 == 0
    assert f"gap {solution.gap:.2e}" in capsys.readouterr().out
    assert "relative gap" in solution.report()
    np.testing.assert_allclose(solution.coef, X.T @ solution.dual, atol=1e-12)
    with pytest.warns(ConvergenceWarning, match="max_epochs=2 reached"):
        solve(X, y, losses.Hinge(), method=method, tol=1e-9, max_epochs=2)


@methods
def test_interrupt(method):
    X, y = data_of()

    seen = []

    def interrupt(state):
        seen.append(state.epoch)
        if seen == [0, 1, 2, 3]:
            raise KeyboardInterrupt

    options = {"method": method, "tol": 0.0, "callback": interrupt}
    with pytest.raises(KeyboardInterrupt):
        solve(X, y, losses.TopKHinge(2), **options)
    seen.clear()
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        solution = solve(X, y, losses.TopKHinge(2), on_interrupt="return", **options)
    assert solution.n_epochs == 3
    np.testing.assert_allclose(solution.coef, X.T @ solution.dual, atol=1e-12)


@methods
@pytest.mark.parametrize(
    "loss",
    [
        losses.Softmax(),
        losses.TopKEntropy(2),
        losses.TruncatedTopKEntropy(2),
        losses.OneVsAllHinge(),
        losses.MultilabelHinge(),
    ],
    ids=repr,
)
def test_losses_without_vertices(method, loss):
    X, y = data_of()
    with pytest.raises(ValueError, match=rf"method='{method}' needs .*WeightedTopKHinge.*'sdca'"):
        solve(X, y, loss, method=method)


def test_unknown_method():
    X, y = data_of()
    with pytest.raises(ValueError, match=r"method must be one of auto, sdca, .*, got 'bfgs'"):
        solve(X, y, losses.Hinge(), method="bfgs")
    with pytest.raises(ValueError, match="method must be one of frank_wolfe"):
        reference.solve_frank_wolfe(X, y, reference.Hinge(), method="sdca")


def test_memory_follows_the_vertices():
    """The pool grows when it has to, and dropped vertices make room for new ones."""
    ascent, _ = ascent_of("pairwise", losses.TopKHinge(2))
    for _ in range(400):
        ascent.advance(np.inf)
    assert ascent.sets.sizes().mean() < 20
