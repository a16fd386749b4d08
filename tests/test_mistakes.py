"""What users get wrong with paths, metrics and displays, and what they are told."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import topkopt
from topkopt import TopKClassifier, TopKClassifierCV, losses, metrics
from topkopt.plotting import (
    ConvergenceDisplay,
    PathDisplay,
    ProjectionDisplay,
    TopKAccuracyDisplay,
)
from topkopt.projections import project_simplex

from .expect import raises
from .mistakes import NAN, RAGGED, XM, YM, N, X, Y, table, with_nan

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return TopKClassifier("softmax", random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def search():
    return TopKClassifierCV([0.1], cv=2, loss="softmax", random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def path():
    return topkopt.path(X, Y, "softmax", Cs=[0.1], random_state=0)


# Paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({"loss": "x"}, ValueError, "loss must be one of", "or a Loss object, got 'x'"),
        ({"loss": ["hinge"]}, ValueError, "loss must be one of", "['hinge']"),
        ({"loss": losses.Hinge}, ValueError, "loss must be one of", "Hinge"),
        ({"loss": "hinge", "weights": [1]}, ValueError, "weights must be None", "[1]"),
        ({"loss": "weighted_topk_hinge"}, ValueError, "weights must be given"),
        ({"k": 3}, ValueError, "k must be between 1", "(2), got 3"),
        ({"k": True}, TypeError, "k must be an integer, got True"),
        ({"smoothing": "1"}, TypeError, "smoothing must be a real number, got '1'"),
        ({"kernel": "rbf"}, TypeError, "kernel must be True or False", "'rbf'", "Gram matrix"),
        ({"callback": 5}, TypeError, "callback must be a function of a State, or None, got 5"),
        ({"verbose": "yes"}, TypeError, "verbose must be an integer, got 'yes'"),
        ({"random_state": "seed"}, ValueError, "random_state must be None", "'seed'"),
        ({"random_state": -1}, ValueError, "random_state must be None", "-1"),
        ({"y": Y * 0}, ValueError, "y must hold at least 2 classes, got 1"),
        ({"y": Y.astype(float)}, ValueError, "y must be one-dimensional and hold integers"),
        ({"y": RAGGED}, ValueError, "y must be an array, got lists of unequal lengths"),
        ({"X": RAGGED}, ValueError, "X must be an array, got lists of unequal lengths"),
        ({"X": with_nan(X)}, ValueError, "X must be finite"),
        ({"X": X[:, 0]}, ValueError, "X must be a matrix", "(150,)"),
        ({"X": X.astype(str)}, TypeError, "X must hold real numbers"),
        ({"sample_weight": np.ones(3)}, ValueError, "sample_weight must have one entry", "(3,)"),
    ),
)
def test_path(params, error, fragments):
    with raises(error, *fragments):
        topkopt.path(**{"X": X, "y": Y, "Cs": [0.1], **params})


def test_scores_of_a_path(path):
    for data in (X[:, :2], csr_array(X[:, :2]), X[0], None):
        with raises(ValueError, "X must have one row per example and 4 columns", "got shape"):
            path.scores(data)
    with raises(TypeError, "X must hold real numbers"):
        path.scores(X.astype(str))


# Metrics -------------------------------------------------------------------------------------

SCORES, RANKS = X[:, :3], XM[:, :4]


@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({"labels": [0, "a", None]}, ValueError, "labels must hold classes that can be sorted"),
        ({"labels": RAGGED}, ValueError, "labels must be an array, got lists of unequal"),
        ({"labels": [1, 2, 3]}, ValueError, "y_true must hold classes named in labels, got 0;"),
        (
            {"y_true": np.array(["a"] * N, dtype=object), "labels": [1, 2, 3]},
            ValueError,
            "y_true must hold classes named in labels, got 'a' where",
        ),
        ({"y_true": ["a", None] * 75}, ValueError, "y_true must hold classes that can be sorted"),
        ({"y_true": RAGGED}, ValueError, "y_true must be an array, got lists of unequal"),
        ({"y_score": RAGGED}, ValueError, "y_score must be an array, got lists of unequal"),
        ({"y_score": None}, ValueError, "y_score must have one row per example"),
        ({"k": True}, TypeError, "k must be an integer, got True"),
        ({"sample_weight": -np.ones(N)}, ValueError, "sample_weight must be", "-1.0"),
    ),
)
def test_accuracy(params, error, fragments):
    for metric in (metrics.topk_accuracy, metrics.topk_error):
        with raises(error, *fragments):
            metric(**{"y_true": Y, "y_score": SCORES, **params})


@pytest.mark.parametrize(
    "metric",
    [
        metrics.mean_average_precision,
        metrics.precision_at_k,
        metrics.rank_loss,
        metrics.recall_at_k,
        metrics.tune_threshold,
    ],
)
def test_multilabel_metrics(metric):
    with raises(ValueError, "y_true must be an array, got lists of unequal lengths"):
        metric(RAGGED, RANKS)
    with raises(ValueError, "y_score must have at least one column, got none"):
        metric(YM[:, :0], RANKS[:, :0])
    with raises(ValueError, "y_true must be an indicator matrix", "(60, 4)", "(60,)"):
        metric([{0}, {1}] * 30, RANKS)


@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({"thresholds": [NAN]}, ValueError, "thresholds must not hold NaN"),
        ({"thresholds": ["a"]}, TypeError, "thresholds must hold real numbers"),
        ({"metric": lambda a, b: None}, TypeError, "what metric returns must be", "None"),
        ({"metric": lambda a, b: NAN}, ValueError, "what metric returns must be", "nan"),
        ({"metric": {}}, ValueError, "metric must be a function or one of", "{}"),
    ),
)
def test_thresholds(params, error, fragments):
    with raises(error, *fragments):
        metrics.tune_threshold(YM, RANKS, **params)


# Displays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [None, "x", TopKClassifier, LogisticRegression()])
def test_displays_of_something_else(estimator):
    with raises(ValueError, "estimator must be a fitted classifier of topkopt", "call fit"):
        ConvergenceDisplay.from_estimator(estimator)
    with raises(ValueError, "estimator must be a fitted TopKClassifierCV"):
        PathDisplay.from_estimator(estimator)
    expected = NotFittedError if isinstance(estimator, LogisticRegression) else TypeError
    with pytest.raises(expected, match="fitted"):
        TopKAccuracyDisplay.from_estimator(estimator, X, Y)


def test_axes(model, path):
    figure, axes = plt.subplots(2)
    for ax in (axes, figure, plt, "ax"):
        with raises(TypeError, "ax must be one matplotlib Axes or None, got", type(ax).__name__):
            ConvergenceDisplay.from_estimator(model, ax=ax)
        with raises(TypeError, "ax must be one matplotlib Axes"):
            PathDisplay.from_path(path, X, Y, ax=ax)


def test_convergence(model):
    history = model.history_
    arrays = np.zeros((2, 2))
    for runs in ([history], history, {"a": model.solution_}, {"a": {"epoch": [0]}}, "runs", arrays):
        with raises(TypeError, "runs must be a dict of the histories", "from_solutions"):
            ConvergenceDisplay(runs)
    for solutions in ([model.solution_], model.solution_, {"a": model}, {"a": history}, None):
        with raises(TypeError, "solutions must be a dict of what topkopt.solve returned"):
            ConvergenceDisplay.from_solutions(solutions)


def test_accuracies(model):
    for most, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("a", TypeError)):
        with raises(error, "most must be", f"got {most!r}"):
            TopKAccuracyDisplay.from_estimator(model, X, Y, most=most)
    for accuracy in (0.5, [], [[0.5, 1.0]]):
        with raises(ValueError, "accuracy must be a non-empty list of numbers"):
            TopKAccuracyDisplay(accuracy)
    with raises(TypeError, "accuracy must hold real numbers"):
        TopKAccuracyDisplay(["a"])
    with raises(ValueError, "y_true must hold classes named in labels, got 3;"):
        TopKAccuracyDisplay.from_estimator(model, X, Y + 1)


@pytest.mark.parametrize(
    ("ks", "error", "fragments"),
    table(
        ([], ValueError, "ks must be a non-empty list of integers, got []"),
        (2, ValueError, "ks must be a non-empty list of integers, got 2"),
        ([0], ValueError, "k must be between 1 and the number of classes (3), got 0"),
        ([-1], ValueError, "k must be between 1 and the number of classes (3), got -1"),
        ([4], ValueError, "k must be between 1 and the number of classes (3), got 4"),
        ([1.5], TypeError, "k must be an integer, got 1.5"),
        ([True], TypeError, "k must be an integer, got True"),
    ),
)
def test_ks_of_paths(search, path, ks, error, fragments):
    with raises(error, *fragments):
        PathDisplay.from_estimator(search, ks=ks)
    with raises(error, *fragments):
        PathDisplay.from_path(path, X, Y, ks=ks)


def test_paths(model, path):
    with raises(ValueError, "ks must be a non-empty list of integers, got None"):
        PathDisplay.from_path(path, X, Y, ks=None)
    for other in (None, model, model.solution_, path.solutions):
        with raises(TypeError, "path must be what topkopt.path returned", type(other).__name__):
            PathDisplay.from_path(other, X, Y)
    with raises(TypeError, "accuracy must be a dict", "list"):
        PathDisplay([1, 2], [0.5, 0.5], [0, 0])
    for Cs, accuracy, gaps in (([1, 2], [0.5], [0, 0]), ([1], [0.5], [0, 0]), ([], [], [])):
        with raises(ValueError, "Cs, accuracy and gaps must be lists of equal positive lengths"):
            PathDisplay(Cs, {"top-1": accuracy}, gaps)


def test_projections():
    for function in (None, "project_simplex"):
        with raises(TypeError, "function must be callable, got", repr(function)):
            ProjectionDisplay.from_function(function)
    with raises(TypeError, "what function returns must hold real numbers"):
        ProjectionDisplay.from_function(lambda x: x.astype(str))
    with raises(ValueError, "images must be finite"):
        ProjectionDisplay.from_function(lambda x: x * NAN)
    for vertices in (np.eye(2), [1, 2, 3]):
        with raises(ValueError, "vertices must have 3 columns, got shape"):
            ProjectionDisplay.from_function(project_simplex, vertices=vertices)
    with raises(ValueError, "points must have 2 columns, got shape (3, 3)"):
        ProjectionDisplay(np.eye(3), np.eye(3))
    with raises(ValueError, "images must have one row per point (2), got 1"):
        ProjectionDisplay(np.eye(2), np.eye(2)[:1])
