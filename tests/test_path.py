"""The regularisation path: the same optima as one by one, in fewer epochs."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_iris

import topkopt
from topkopt import losses
from topkopt.datasets import make_circle
from topkopt.metrics import topk_accuracy
from topkopt.solvers import path as path_module

from .expect import raises

IRIS = load_iris()
X, Y = IRIS.data - IRIS.data.mean(axis=0), IRIS.target
CS = [1.0, 0.01, 0.1]


@pytest.mark.parametrize(
    ("loss", "params"),
    [("hinge", {}), ("topk_hinge", {"k": 2, "smoothing": 1.0}), ("topk_entropy", {"k": 2})],
)
def test_the_same_optima(loss, params):
    path = topkopt.path(X, Y, loss, Cs=CS, tol=1e-9, max_epochs=5000, random_state=0, **params)
    np.testing.assert_array_equal(path.Cs, sorted(CS))
    assert len(path) == 3
    for C, solution in zip(path.Cs, path.solutions, strict=True):
        alone = topkopt.solve(
            X, Y, losses.get(loss, **params), C=C, tol=1e-9, max_epochs=5000, random_state=0
        )
        np.testing.assert_allclose(solution.coef, alone.coef, atol=1e-4)
        assert solution.C == C


def test_fewer_epochs_than_cold():
    grid = np.logspace(-1, 1, 8)
    path = topkopt.path(X, Y, "hinge", Cs=grid, random_state=0)
    cold = [topkopt.solve(X, Y, "hinge", C=C, random_state=0).n_epochs for C in grid]
    assert path.n_epochs.sum() < sum(cold)
    assert (path.gaps <= 1e-3).all()


def test_scores():
    path = topkopt.path(X, Y, "softmax", Cs=CS, random_state=0)
    assert path.coefs.shape == (3, 4, 3)
    np.testing.assert_allclose(path.scores(X)[1], X @ path[1].coef)
    np.testing.assert_allclose(path.scores(scipy.sparse.csr_array(X)), path.scores(X))
    kernel = topkopt.path(X @ X.T, Y, "softmax", Cs=CS, kernel=True, tol=1e-9, random_state=0)
    exact = topkopt.path(X, Y, "softmax", Cs=CS, tol=1e-9, random_state=0)
    assert kernel.coefs is None
    np.testing.assert_allclose(kernel.scores(X @ X.T), exact.scores(X), atol=1e-3)


def test_a_loss_that_is_not_convex_starts_at_softmax():
    path = topkopt.path(X, Y, "truncated_topk_entropy", k=2, Cs=CS, random_state=0)
    softmax = topkopt.path(X, Y, "softmax", Cs=CS, random_state=0)
    loss = losses.TruncatedTopKEntropy(2)
    for begin, end in zip(softmax.solutions, path.solutions, strict=True):
        by_hand = topkopt.solve(X, Y, loss, C=begin.C, warm_start=begin)
        np.testing.assert_allclose(end.coef, by_hand.coef, atol=1e-8)
    assert np.isnan(path.gaps).all()


def test_weights_and_multilabel():
    weight = np.random.default_rng(0).integers(0, 3, 150)
    indicator = np.eye(3, dtype=int)[Y]
    weighted = topkopt.path(
        X, indicator, "multilabel_softmax", Cs=CS, sample_weight=weight, tol=1e-10, random_state=0
    )
    repeated = topkopt.path(
        X.repeat(weight, axis=0), Y.repeat(weight), "softmax", Cs=CS, tol=1e-10, random_state=0
    )
    np.testing.assert_allclose(weighted.coefs, repeated.coefs, atol=1e-4)


def test_the_circle():
    """The papers' experiment, one draw: what a top-2 loss wins where softmax fails."""
    train, validation, test = make_circle(200, 0), make_circle(200, 1), make_circle(20_000, 2)

    def top2(loss):
        path = topkopt.path(*train, loss, Cs=2.0 ** np.arange(-6, 7, 2), k=2, random_state=0)
        tuned = [topk_accuracy(validation[1], s, 2) for s in path.scores(validation[0])]
        return topk_accuracy(test[1], test[0] @ path[int(np.argmax(tuned))].coef, 2)

    truncated, softmax = top2("truncated_topk_entropy"), top2("softmax")
    assert truncated > 0.93
    assert softmax < truncated - 0.07


def test_the_circle_is_as_described():
    points, labels = make_circle(50_000, 0)
    np.testing.assert_allclose((points**2).sum(axis=1), 1.0)
    place = (np.arctan2(points[:, 1], points[:, 0]) % (2 * np.pi)) * 7 / (2 * np.pi)
    expected = {0.5: [0, 1, 0], 1.5: [1, 0, 0], 2.5: [0.4, 0.1, 0.5], 6.5: [0, 0, 1]}
    expected |= {3.5: [0.3, 0.7, 0], 4.5: [0.3, 0.7, 0], 5.5: [0.3, 0.7, 0]}
    for centre, probability in expected.items():
        here = labels[np.abs(place - centre) < 0.5]
        assert len(here) == pytest.approx(50_000 / 7, rel=0.05)
        np.testing.assert_allclose(
            np.bincount(here, minlength=3) / len(here), probability, atol=0.02
        )


def test_every_loss_has_its_flat_parameters():
    for name in losses.names():
        weights = "linear" if name.startswith("weighted") else None
        loss = losses.from_flat(name, k=2, smoothing=0.5, weights=weights)
        declared = losses.declaration_of(name)
        assert loss.declaration is declared
        implied = declared.variants.get(name, {})
        assert all(getattr(loss, key) == value for key, value in implied.items())
        if "smoothing" in declared.parameters:
            assert loss.smoothing == 0.5
        if "k" in declared.parameters:
            assert loss.places == 2
    for name in ("weighted_topk_hinge", "weighted_topk_hinge_label"):
        assert losses.from_flat(name, k=1, weights=[2, 1]).weights == (2.0, 1.0)


@pytest.mark.parametrize("kind", ["beta", "label"])
def test_kinds_by_name(kind):
    options = {"Cs": [0.1, 1.0], "random_state": 0}
    named = topkopt.path(X, Y, f"topk_hinge_{kind}", k=2, smoothing=0.5, **options)
    given = topkopt.path(X, Y, losses.TopKHinge(2, kind, 0.5), **options)
    np.testing.assert_array_equal(named.coefs, given.coefs)


@pytest.mark.parametrize(
    ("Cs", "fragments"),
    [
        ([], ["Cs must be an integer or a list of positive numbers, got []"]),
        ([1.0, -1.0], ["Cs must be", "positive", "[1.0, -1.0]"]),
        ([np.nan], ["Cs must be", "positive"]),
        (0, ["Cs must be at least 1", "got 0"]),
    ],
)
def test_bad_Cs(Cs, fragments):
    with raises(ValueError, *fragments):
        topkopt.path(X, Y, Cs=Cs)


def test_other_errors():
    with raises(TypeError, "Cs must be an integer, got 1.5"):
        topkopt.path(X, Y, Cs=1.5)
    with raises(ValueError, "loss must be one of", "'squared'"):
        topkopt.path(X, Y, "squared", Cs=[1.0])
    with raises(ValueError, "k must be between 1", "(2)", "got 3"):
        topkopt.path(X, Y, Cs=[1.0], k=3)


def test_a_smooth_path_without_dual_variables_goes_by_lbfgs():
    """From one W to the next; with them, or where an epoch is nothing, coordinate ascent begins."""
    rng = np.random.default_rng(0)
    y = np.arange(1000) % 10
    X = rng.standard_normal((10, 600))[y] + 3 * rng.standard_normal((1000, 600))
    options = {"Cs": [1e-4, 1e-3, 1e-2], "tol": 1e-4, "random_state": 0}

    def methods(A, labels, **more):
        solutions = topkopt.path(A, labels, losses.Softmax(), **options, **more).solutions
        return {str(name) for one in solutions for name in one.history["method"]}, solutions

    used, without = methods(X, y)
    assert used == {"lbfgs"}
    used, kept = methods(X, y, keep_dual=True)
    assert "sdca" in used
    for one, other in zip(without, kept, strict=True):
        assert one.dual is None
        assert other.dual is not None
        assert one.primal == pytest.approx(other.primal, rel=2e-4)
    assert "sdca" in methods(X[:60, :4], y[:60])[0]


def test_a_path_without_dual_variables_goes_on_along_a_line(monkeypatch):
    """On a grid of equal steps that saves evaluations; on any other it is no worse than no line."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 10
    X = rng.standard_normal((10, 60))[y] + 3 * rng.standard_normal((2000, 60))

    def epochs(Cs):
        found = topkopt.path(X, y, losses.Softmax(), Cs=Cs, tol=1e-4, random_state=0)
        assert (found.gaps <= 1e-4).all()
        return found.n_epochs.sum()

    even, uneven = np.logspace(-4, 0, 17), [1e-4, 1.0001e-4, 1.0, 1e2]
    along = epochs(even), epochs(uneven)
    monkeypatch.setattr(path_module, "_led_on", lambda before, last, C: last)
    without = epochs(even), epochs(uneven)
    assert along[0] < 0.9 * without[0]
    assert along[1] <= without[1] + 2
