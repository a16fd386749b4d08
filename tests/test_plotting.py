"""The displays: what is drawn where, and what they refuse."""

import subprocess
import sys
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import topkopt
from topkopt import TopKClassifier, TopKClassifierCV
from topkopt.losses import TopKEntropy
from topkopt.plotting import (
    ConvergenceDisplay,
    PathDisplay,
    ProjectionDisplay,
    TopKAccuracyDisplay,
)
from topkopt.projections import project_simplex

from .expect import raises

mpl.use("Agg")
X, Y = load_iris(return_X_y=True)
X = X - X.mean(axis=0)
MODEL = TopKClassifier("topk_entropy", k=2, random_state=0).fit(X, Y)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


# Convergence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("against", ["epoch", "seconds"])
def test_gap(against):
    display = ConvergenceDisplay.from_estimator(MODEL, against=against)
    (line,) = display.lines_
    np.testing.assert_array_equal(line.get_xdata(), MODEL.history_[against])
    np.testing.assert_array_equal(line.get_ydata(), MODEL.history_["gap"])
    assert display.ax_.get_yscale() == "log"
    assert display.ax_.get_ylabel() == "relative duality gap"
    assert line.get_label() == "topk entropy, k = 2"
    assert display.figure_ is display.ax_.figure


def test_objectives():
    display = ConvergenceDisplay.from_estimator(MODEL, quantity="objective", name="mine")
    primal, dual = display.lines_
    np.testing.assert_array_equal(primal.get_ydata(), MODEL.history_["primal"])
    np.testing.assert_array_equal(dual.get_ydata(), MODEL.history_["dual"])
    assert dual.get_color() == primal.get_color()
    assert [t.get_text() for t in display.ax_.get_legend().get_texts()] == ["mine"]


def test_several_runs_on_given_axes():
    _, ax = plt.subplots()
    runs = {f"C = {C}": topkopt.solve(X, Y, "softmax", C=C) for C in (0.1, 1.0)}
    display = ConvergenceDisplay.from_solutions(runs, ax=ax, linewidth=3)
    assert display.ax_ is ax
    assert [line.get_linewidth() for line in display.lines_] == [3, 3]


def test_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), TopKClassifier("softmax")).fit(X, Y)
    assert ConvergenceDisplay.from_estimator(pipeline).lines_[0].get_label() == "softmax"


def test_a_variant_keeps_its_name():
    model = TopKClassifier("topk_hinge_beta", k=2, C=0.1, smoothing=1.0).fit(X, Y)
    line = ConvergenceDisplay.from_estimator(model).lines_[0]
    assert line.get_label() == "topk hinge beta, k = 2"


def test_convergence_errors():
    with raises(ValueError, "estimator must be a fitted classifier", "call fit"):
        ConvergenceDisplay.from_estimator(TopKClassifier())
    with raises(ValueError, "against must be one of epoch, seconds, got 'hours'"):
        ConvergenceDisplay.from_estimator(MODEL, against="hours")
    with raises(ValueError, "quantity must be one of gap, objective, got 'loss'"):
        ConvergenceDisplay.from_estimator(MODEL, quantity="loss")
    with raises(ValueError, "runs must hold at least one history"):
        ConvergenceDisplay({})


# Accuracy ------------------------------------------------------------------------------------


def test_accuracy():
    display = TopKAccuracyDisplay.from_estimator(MODEL, X, Y)
    np.testing.assert_array_equal(display.line_.get_xdata(), [1, 2, 3])
    assert display.accuracy[0] == MODEL.score(X, Y)
    again = display.plot(display.ax_, name="again", most=2, color="k")
    assert len(again.line_.get_xdata()) == 2
    assert again.line_.get_label() == "again"


def test_accuracy_of_another_library():
    model = LogisticRegression().fit(X, Y)
    display = TopKAccuracyDisplay.from_estimator(model, X, Y, sample_weight=np.ones(150))
    assert display.line_.get_label() == "LogisticRegression"


def test_accuracy_from_predictions_has_no_legend():
    display = TopKAccuracyDisplay.from_predictions(Y, MODEL.decision_function(X))
    assert display.ax_.get_legend() is None


# Paths ---------------------------------------------------------------------------------------


def test_path():
    path = topkopt.path(X, Y, "softmax", Cs=[0.1, 1.0], random_state=0)
    display = PathDisplay.from_path(path, X, Y, ks=[1, 2])
    assert [line.get_label() for line in display.lines_] == ["top-1", "top-2"]
    np.testing.assert_array_equal(display.gap_line_.get_ydata(), path.gaps)
    assert display.ax_.get_xscale() == display.gap_ax_.get_yscale() == "log"
    assert display.ax_.get_ylabel() == "accuracy"
    assert display.gap_ax_.get_xlabel() == "C"


def test_path_of_a_search():
    search = TopKClassifierCV(
        [0.1, 1.0], [1, 2], loss="topk_entropy", scoring="top2", random_state=0
    ).fit(X, Y)
    display = PathDisplay.from_estimator(search)
    column = list(search.ks_).index(search.k_)
    np.testing.assert_array_equal(display.accuracy["top-2"], search.scores_[:, column])
    assert len(PathDisplay.from_estimator(search, ks=[1, 2, 3]).lines_) == 3
    search.set_params(loss=TopKEntropy(2), ks=[1]).fit(X, Y)
    np.testing.assert_array_equal(
        PathDisplay.from_estimator(search).accuracy["top-2"], search.scores_[:, 0]
    )
    search.set_params(scoring="neg_log_loss").fit(X, Y)
    display = PathDisplay.from_estimator(search)
    np.testing.assert_array_equal(display.accuracy["neg log loss"], search.scores_[:, 0])
    assert display.ax_.get_ylabel() == "score"
    search.set_params(scoring=lambda model, X, y: 0.5).fit(X, Y)
    np.testing.assert_array_equal(PathDisplay.from_estimator(search).accuracy["score"], [0.5, 0.5])
    with raises(ValueError, "estimator must be a fitted TopKClassifierCV", "from_path"):
        PathDisplay.from_estimator(MODEL)


PATH = topkopt.path(X, Y, "softmax", Cs=np.logspace(-4, 3, 8), random_state=0)


def boxes(display):
    """Return where a display draws: all of it, with its labels, in pixels."""
    renderer = display.figure_.canvas.get_renderer()
    return [ax.get_tightbbox(renderer) for ax in (display.ax_, display.gap_ax_)]


def overlap(one, other):
    return min(one.x1, other.x1) > max(one.x0, other.x0) and min(one.y1, other.y1) > max(
        one.y0, other.y0
    )


@pytest.mark.parametrize("layout", [None, "constrained", "tight"])
def test_paths_side_by_side(layout):
    """Neither panels nor labels of one path reach into another, in a figure of the usual size."""
    figure, axes = plt.subplots(2, 2, layout=layout)
    drawn = [PathDisplay.from_path(PATH, X, Y, ax=ax) for ax in axes.flat]
    figure.canvas.draw()
    for one, other in combinations(drawn, 2):
        for mine in boxes(one):
            assert not any(overlap(mine, theirs) for theirs in boxes(other))
    for display in drawn:  # a path has the place of its axes, and no more
        accuracies, gap = display.ax_.get_position(), display.gap_ax_.get_position()
        assert accuracies.x0 == pytest.approx(gap.x0)
        assert accuracies.x1 == pytest.approx(gap.x1)
        assert gap.y1 < accuracies.y0


def test_a_path_keeps_to_its_axes():
    _, (left, right) = plt.subplots(1, 2)
    places = [ax.get_position() for ax in (left, right)]
    display = PathDisplay.from_path(PATH, X, Y, ax=left)
    assert right.get_position().bounds == places[1].bounds
    accuracies, gap = left.get_position(), display.gap_ax_.get_position()
    assert (gap.y0, accuracies.y1) == pytest.approx((places[0].y0, places[0].y1))
    assert len(display.figure_.axes) == 3
    by_hand = plt.figure().add_axes([0.2, 0.2, 0.5, 0.6])
    display = PathDisplay.from_path(PATH, X, Y, ax=by_hand)
    assert display.gap_ax_.get_position().bounds == pytest.approx((0.2, 0.2, 0.5, 0.15))
    assert by_hand.get_position().y1 == pytest.approx(0.8)


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_several_paths_on_the_same_axes(layout):
    figure, ax = plt.subplots(layout=layout)
    one = PathDisplay.from_path(PATH, X, Y, ax=ax)
    wide = PathDisplay(PATH.Cs, {"mine": np.ones(8)}, np.full(8, 0.5), tol=1e-9).plot(ax)
    assert one.gap_ax_ is wide.gap_ax_
    assert len(figure.axes) == 2
    low, high = one.gap_ax_.get_ylim()
    assert low <= 1e-11
    assert high >= 0.5
    assert len(ax.get_legend().get_texts()) == 2
    assert len(one.gap_ax_.texts) == (2 if layout is None else 0)
    figure.canvas.draw()


@pytest.mark.parametrize(
    ("gaps", "tol", "low", "high"),
    [
        ([9.1e-4, 9.3e-4, 9.2e-4, 9.9e-4], 1e-3, 1e-5, 1e-2),  # chance, when they stopped
        ([9.1e-4, 9.3e-4, 9.2e-4, 9.9e-4], None, 1e-6, 1e-2),
        ([3e-17, -1e-16, 0.0, 2e-16], None, 1e-16, 1e-12),  # rounding
        ([1e-17, -1e-16, 0.0, 1e-4], 1e-3, 1e-5, 1e-2),
        ([1e-4, 1e-3, 0.3, 0.9], 1e-3, 1e-5, 1.0),
        ([0.0, 0.0, 0.0, 0.0], 0.0, 1e-16, 1e-12),
        ([np.nan] * 4, 1e-3, 1e-5, 1e-2),
        ([-1.0, np.inf, 1e-3, 1e-4], 1e-3, 1e-5, 1e-2),
    ],
)
def test_the_axis_of_the_gap(gaps, tol, low, high):
    """It spans decades and ends above rounding: what is noise looks like noise."""
    display = PathDisplay([0.1, 1, 10, 100], {"top-1": np.ones(4)}, gaps, tol=tol).plot()
    assert display.gap_ax_.get_ylim() == pytest.approx((low, high))
    drawn = display.gap_line_.get_ydata()
    np.testing.assert_array_equal(np.isnan(drawn), np.isnan(gaps))
    assert np.nanmin(drawn, initial=1.0) >= low * (1 - 1e-12)
    np.testing.assert_array_equal(display.gaps, gaps)
    display.figure_.canvas.draw()


def test_a_gap_of_zero_is_drawn():
    exact = topkopt.solve(np.eye(2), [0, 1], "hinge")
    assert exact.gap == 0.0
    line = ConvergenceDisplay.from_solutions({"exact": exact}).lines_[0]
    assert line.get_ydata()[-1] == np.finfo(float).eps
    low, _ = line.axes.get_ylim()
    assert low > 1e-18


# Projections ---------------------------------------------------------------------------------


def test_projection():
    display = ProjectionDisplay.from_function(project_simplex, vertices=np.eye(3), name="simplex")
    assert display.ax_.get_title() == "simplex"
    inside = np.linalg.lstsq(
        np.vstack([display.CORNERS.T, np.ones(3)]),
        np.vstack([display.images.T, np.ones(len(display.images))]),
        rcond=None,
    )[0]
    assert inside.min() > -1e-3  # the images are in the triangle
    display.plot(plt.subplots()[1])
    with raises(ValueError, "function must return rows of three numbers", "(120, 3)", "(120, 2)"):
        ProjectionDisplay.from_function(lambda x: x[:, :2])


def test_without_matplotlib():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from topkopt.plotting import TopKAccuracyDisplay\n"
        "try: TopKAccuracyDisplay([0.5, 1.0]).plot()\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "topkopt[plot]"' in said.stdout
