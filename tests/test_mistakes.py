"""What users get wrong, and what they are told: the parameter, the rule, the value."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from scipy.sparse import coo_array, csr_array
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut

import topkopt
from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV, losses, metrics
from topkopt.plotting import (
    ConvergenceDisplay,
    PathDisplay,
    ProjectionDisplay,
    TopKAccuracyDisplay,
)
from topkopt.projections import project_simplex

from .expect import raises

mpl.use("Agg")
INF, NAN = np.inf, np.nan
X, Y = load_iris(return_X_y=True)
X = X - X.mean(axis=0)
XM, YM = make_multilabel_classification(n_samples=60, n_features=6, n_classes=4, random_state=0)
XM = (XM - XM.mean(axis=0)) / 4
RAGGED = [[0, 1], [1]]


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


def table(*rows):
    """Return rows of a value, the error and its fragments as parameters of a test."""
    return [pytest.param(*row[:2], row[2:], id=f"{i}") for i, row in enumerate(rows)]


# Parameters that the estimators share --------------------------------------------------------


def fit_single(**params):
    TopKClassifier(**{"C": 0.1, **params}).fit(X, Y)


def fit_multilabel(**params):
    MultilabelClassifier(**{"C": 0.1, "smoothing": 1.0, "cv": 2, **params}).fit(XM, YM)


def fit_search(**params):
    TopKClassifierCV(**{"Cs": [0.1], "cv": 2, "smoothing": 1.0, **params}).fit(X, Y)


SHARED = table(
    ({"C": 0}, ValueError, "C must be a finite positive number, got 0"),
    ({"C": -1}, ValueError, "C must be a finite positive number, got -1"),
    ({"C": NAN}, ValueError, "C must be a finite positive number, got nan"),
    ({"C": INF}, ValueError, "C must be a finite positive number, got inf"),
    ({"C": "1"}, TypeError, "C must be a real number, got '1'"),
    ({"C": True}, TypeError, "C must be a real number, got True"),
    ({"C": None}, TypeError, "C must be a real number, got None"),
    ({"tol": -1.0}, ValueError, "tol must be a finite non-negative number, got -1.0"),
    ({"tol": NAN}, ValueError, "tol must be", "nan"),
    ({"tol": "1e-3"}, TypeError, "tol must be a real number, got '1e-3'"),
    ({"max_epochs": 0}, ValueError, "max_epochs must be at least 1, got 0"),
    ({"max_epochs": 1.5}, TypeError, "max_epochs must be an integer, got 1.5"),
    ({"max_epochs": True}, TypeError, "max_epochs must be an integer, got True"),
    ({"smoothing": -1.0}, ValueError, "smoothing must be", "-1.0"),
    ({"smoothing": "1"}, TypeError, "smoothing must be a real number, got '1'"),
    ({"kernel": "rbff"}, ValueError, "kernel must be a function or one of", "rbf", "'rbff'"),
    ({"kernel": None}, ValueError, "kernel must be", "None"),
    ({"kernel": np.array(["rbf", "poly"])}, ValueError, "kernel must be", "rbf"),
    ({"kernel": lambda A, B: A}, ValueError, "kernel must return an array of shape"),
    ({"kernel": lambda A, B: None}, ValueError, "kernel must return an array of shape", "()"),
    ({"kernel": lambda A, B: A @ B.T * NAN}, ValueError, "kernel must give finite numbers"),
    ({"kernel": lambda A, B: A @ B.T + 0j}, TypeError, "what kernel returns must", "complex128"),
    ({"kernel": lambda A, B: (A @ B.T).astype(str)}, TypeError, "what kernel returns must"),
    ({"kernel": "precomputed"}, ValueError, "X must be a square matrix", "precomputed"),
    ({"gamma": -1.0}, ValueError, "gamma must be", "-1.0"),
    ({"gamma": NAN}, ValueError, "gamma must be", "nan"),
    ({"gamma": "wide"}, ValueError, "gamma must be scale, auto or a number, got 'wide'"),
    ({"gamma": None}, TypeError, "gamma must be a real number, got None"),
    ({"gamma": np.array([1.0, 2.0])}, TypeError, "gamma must be a real number, got array"),
    ({"degree": -1}, ValueError, "degree must be at least 1, got -1"),
    ({"degree": 2.5}, TypeError, "degree must be an integer, got 2.5"),
    ({"degree": "3"}, TypeError, "degree must be an integer, got '3'"),
    ({"coef0": NAN}, ValueError, "coef0 must be a finite number, got nan"),
    ({"coef0": "1"}, TypeError, "coef0 must be a real number, got '1'"),
    ({"intercept_scaling": 0}, ValueError, "intercept_scaling must be", "positive", "0"),
    ({"intercept_scaling": "1"}, TypeError, "intercept_scaling must be a real number, got '1'"),
    ({"fit_intercept": "no"}, TypeError, "fit_intercept must be True or False, got 'no'"),
    ({"fit_intercept": None}, TypeError, "fit_intercept must be True or False, got None"),
    ({"random_state": "seed"}, ValueError, "random_state must be None, an integer", "'seed'"),
    ({"random_state": -1}, ValueError, "random_state must be None, an integer", "-1"),
    ({"random_state": 1.5}, ValueError, "random_state must be None, an integer", "1.5"),
    ({"verbose": "yes"}, TypeError, "verbose must be an integer, got 'yes'"),
    ({"verbose": None}, TypeError, "verbose must be an integer, got None"),
    ({"keep_dual": 1}, TypeError, "keep_dual must be True or False, got 1"),
    ({"class_weight": "fair"}, ValueError, "class_weight must be a dict, 'balanced'", "'fair'"),
    ({"class_weight": [1, 2, 3]}, ValueError, "class_weight must be a dict", "[1, 2, 3]"),
    ({"class_weight": {9: 1.0}}, ValueError, "class_weight must name classes of y (0, 1", "got 9"),
    ({"class_weight": {0: -1.0}}, ValueError, "class_weight[0] must be", "non-negative", "-1.0"),
    ({"class_weight": {0: NAN}}, ValueError, "class_weight[0] must be a finite", "nan"),
    ({"class_weight": {0: INF}}, ValueError, "class_weight[0] must be a finite", "inf"),
    ({"class_weight": {0: "2"}}, TypeError, "class_weight[0] must be a real number, got '2'"),
    ({"loss": "topk_hing"}, ValueError, "loss must be one of", "'topk_hing'"),
    ({"loss": losses.Hinge}, ValueError, "loss must be one of", "or an object", "Hinge"),
    ({"loss": None}, ValueError, "loss must be one of", "None"),
    ({"loss": np.array(["hinge", "softmax"])}, ValueError, "loss must be one of", "array"),
)


@pytest.mark.parametrize(("params", "error", "fragments"), SHARED)
@pytest.mark.parametrize("fit", [fit_single, fit_multilabel, fit_search])
def test_shared_parameters(fit, params, error, fragments):
    if fit is fit_search and "C" in params:  # there it is called Cs, see below
        with raises(TypeError, "unexpected keyword argument 'C'"):
            fit(**params)
        return
    with raises(error, *fragments):
        fit(**params)


# Parameters of their own ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({"k": 0}, ValueError, "k must be at least 1, got 0"),
        ({"k": 3}, ValueError, "k must be less than the number of classes (3), got 3"),
        ({"k": 1.0}, TypeError, "k must be an integer, got 1.0"),
        ({"k": True}, TypeError, "k must be an integer, got True"),
        ({"k": "2"}, TypeError, "k must be an integer, got '2'"),
        ({"k": 0, "loss": "softmax"}, ValueError, "k must be at least 1, got 0"),
        ({"k": None, "loss": "softmax"}, TypeError, "k must be an integer, got None"),
        ({"loss": losses.TopKHinge(5)}, ValueError, "k must be less than", "(3), got 5"),
        ({"loss": "multilabel_hinge"}, ValueError, "loss must be one of", "'multilabel_hinge'"),
        ({"loss": losses.MultilabelHinge()}, ValueError, "loss must be one of", "MultilabelHinge"),
        ({"weights": "linear"}, ValueError, "weights must be None with loss='topk_hinge'"),
        ({"weights": [1, 0.5], "loss": losses.Hinge()}, ValueError, "weights must be None", "[1,"),
        ({"warm_start": "yes"}, TypeError, "warm_start must be True or False, got 'yes'"),
        ({"class_weight": dict.fromkeys(range(3), 0)}, ValueError, "class_weight must leave some"),
    ),
)
def test_parameters_of_one_label(params, error, fragments):
    with raises(error, *fragments):
        fit_single(**params)


@pytest.mark.parametrize("loss", ["weighted_topk_hinge", "weighted_topk_hinge_label"])
@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({}, ValueError, "weights must be given with loss='weighted_topk_hinge", "flat, linear"),
        ({"weights": [1, 2]}, ValueError, "weights must be", "non-increasing", "descending"),
        ({"weights": []}, ValueError, "weights must be a non-empty 1-D array"),
        ({"weights": [0, 0]}, ValueError, "weights must hold a positive number"),
        ({"weights": ["a"]}, TypeError, "weights must hold real numbers"),
        ({"weights": "cubic"}, ValueError, "weights must be an array or one of flat", "'cubic'"),
        ({"weights": [1.0] * 4}, ValueError, "weights must have at most", "got 4", "drop"),
        ({"weights": "linear", "k": 3}, ValueError, "k must be less than the number of classes"),
        ({"weights": "linear", "k": "2"}, TypeError, "k must be an integer, got '2'"),
    ),
)
def test_weights(loss, params, error, fragments):
    with raises(error, *fragments):
        fit_single(loss=loss, **params)


@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({"Cs": []}, ValueError, "Cs must be an integer or a list of positive numbers, got []"),
        ({"Cs": [1.0, -1.0]}, ValueError, "Cs must be", "positive", "[1.0, -1.0]"),
        ({"Cs": [NAN]}, ValueError, "Cs must be", "nan"),
        ({"Cs": [[0.1, 1.0]]}, ValueError, "Cs must be", "list", "[[0.1, 1.0]]"),
        ({"Cs": ["a"]}, TypeError, "Cs must hold real numbers"),
        ({"Cs": [[1.0], [1.0, 2.0]]}, ValueError, "Cs must be an array, got lists of unequal"),
        ({"Cs": 0}, ValueError, "Cs must be at least 1, got 0"),
        ({"Cs": True}, TypeError, "Cs must be an integer, got True"),
        ({"Cs": "10"}, TypeError, "Cs must be an integer, got '10'"),
        ({"Cs": None}, TypeError, "Cs must be an integer, got None"),
    ),
)
@pytest.mark.parametrize("train", [fit_search, lambda Cs: topkopt.path(X, Y, Cs=Cs)])
def test_Cs(train, params, error, fragments):
    with raises(error, *fragments):
        train(**params)


@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({"ks": []}, ValueError, "ks must be a non-empty list of integers, got []"),
        ({"ks": 1}, ValueError, "ks must be a non-empty list of integers, got 1"),
        ({"ks": [1.5]}, ValueError, "ks must be a non-empty list of integers, got [1.5]"),
        ({"ks": [True]}, ValueError, "ks must be a non-empty list of integers, got [True]"),
        ({"ks": RAGGED}, ValueError, "ks must be an array, got lists of unequal lengths"),
        ({"ks": [0]}, ValueError, "k must be at least 1, got 0"),
        ({"ks": [1, 3]}, ValueError, "k must be less than the number of classes (3), got 3"),
        ({"ks": [1, 2], "loss": losses.TopKHinge(1)}, ValueError, "ks must hold one value"),
        ({"scoring": "top0"}, ValueError, "scoring must be one of top1, ..., top3", "'top0'"),
        ({"scoring": "top99"}, ValueError, "scoring must be one of top1, ..., top3", "'top99'"),
        ({"scoring": "top01"}, ValueError, "scoring must be one of", "'top01'"),
        ({"scoring": "top٢"}, ValueError, "scoring must be one of", "'top٢'"),
        ({"scoring": "acuracy"}, ValueError, "scoring must be one of", "'acuracy'"),
        ({"n_jobs": "2"}, TypeError, "n_jobs must be None or an integer, got '2'"),
        ({"n_jobs": 1.5}, TypeError, "n_jobs must be None or an integer, got 1.5"),
        ({"n_jobs": 0}, ValueError, "n_jobs == 0"),
        ({"cv": 51}, ValueError, "cv must be", "got 51", "n_splits=51"),
    ),
)
def test_parameters_of_a_search(params, error, fragments):
    with raises(error, *fragments):
        fit_search(**params)


@pytest.mark.parametrize(
    ("cv", "error", "fragments"),
    table(
        (1, ValueError, "cv must be an integer from 2 to the number of examples", "got 1"),
        (0, ValueError, "cv must be an integer from 2", "got 0"),
        (1000, ValueError, "cv must be an integer from 2", "got 1000"),
        ("5", ValueError, "cv must be an integer", "a splitter or a list", "got '5'"),
        (2.5, ValueError, "cv must be an integer", "got 2.5"),
        (LeaveOneGroupOut(), ValueError, "cv must be", "LeaveOneGroupOut", "groups"),
        ([], ValueError, "cv must give at least one fold, got none"),
        ([([0, 50, 100], [150])], ValueError, "cv must give indices of the", "got 150"),
        ([([0, 50, 100], [])], ValueError, "cv must train and test each fold on some example"),
    ),
)
@pytest.mark.parametrize("fit", [fit_multilabel, fit_search])
def test_folds(fit, cv, error, fragments):
    with raises(error, *fragments):
        fit(cv=cv)


def test_folds_without_weight():
    weight = np.arange(len(XM)) == 0
    with raises(ValueError, "cv must train each fold on an example of positive weight"):
        MultilabelClassifier(C=0.1, smoothing=1.0, cv=2).fit(XM, YM, weight)
    with raises(ValueError, "cv must train each fold on an example of positive weight"):
        TopKClassifierCV([0.1], cv=2).fit(X, Y, np.arange(len(X)) == 0)


def test_folds_that_nothing_scores():
    """Weight to train on, but none to score with."""
    first = np.arange(len(X)) < 75
    folds = [(first, ~first), (~first, first)]
    with raises(ValueError, "cv must score each fold on an example of positive weight", "fewer"):
        TopKClassifierCV([0.1], cv=folds[:1]).fit(X, Y, first)
    with raises(ValueError, "cv must score each fold on an example of positive weight"):
        TopKClassifierCV([0.1], cv=folds[:1], scoring="accuracy").fit(X, Y, first)
    half = np.arange(len(XM)) < 30
    with raises(ValueError, "cv must hold out an example of positive weight", "sample_weight"):
        MultilabelClassifier(C=0.1, smoothing=1.0, cv=[(half, ~half)]).fit(XM, YM, half)


def test_folds_as_masks():
    train = np.arange(len(X)) % 2 == 0
    masks, indices = (
        TopKClassifierCV([0.1], cv=[fold], random_state=0).fit(X, Y).cv_accuracy_
        for fold in ((train, ~train), (np.flatnonzero(train), np.flatnonzero(~train)))
    )
    np.testing.assert_array_equal(masks, indices)


@pytest.mark.parametrize(
    ("params", "error", "fragments"),
    table(
        ({"loss": "softmax"}, ValueError, "loss must be one of multilabel_hinge", "'softmax'"),
        ({"loss": losses.Softmax()}, ValueError, "loss must be one of", "Softmax()"),
        ({"threshold": "abc"}, ValueError, "threshold must be 'cv' or a finite number", "'abc'"),
        ({"threshold": "0.5"}, ValueError, "threshold must be 'cv' or a finite number", "'0.5'"),
        ({"threshold": NAN}, ValueError, "threshold must be", "nan"),
        ({"threshold": True}, ValueError, "threshold must be", "True"),
        ({"metric": "auc"}, ValueError, "metric must be a function or one of", "'auc'"),
        ({"metric": "auc", "threshold": 0.0}, ValueError, "metric must be", "'auc'"),
        ({"metric": ["f1_micro"]}, ValueError, "metric must be", "['f1_micro']"),
        ({"metric": lambda a, b: "x"}, TypeError, "what metric returns must be a real", "'x'"),
        ({"metric": lambda a, b: NAN}, ValueError, "what metric returns must be a finite", "nan"),
        ({"class_weight": {**dict.fromkeys(range(4), 1), 4: 1}}, ValueError, "class_weight", "4"),
        ({"warm_start": 1}, TypeError, "warm_start must be True or False, got 1"),
    ),
)
def test_parameters_of_several_labels(params, error, fragments):
    with raises(error, *fragments):
        fit_multilabel(**params)


# Data ----------------------------------------------------------------------------------------

ESTIMATORS = [
    TopKClassifier(C=0.1),
    TopKClassifierCV([0.1], cv=2),
    MultilabelClassifier(C=0.1, smoothing=1.0, cv=2),
]
N = len(X)


def with_nan(values):
    values = np.array(values, dtype=float)
    values.flat[7] = NAN
    return values


@pytest.mark.parametrize(
    ("data", "error", "fragments"),
    table(
        ({"X": with_nan(X)}, ValueError, "X contains NaN"),
        ({"X": csr_array(with_nan(X))}, ValueError, "X contains NaN"),
        ({"X": X[:, 0]}, ValueError, "Expected 2D array, got 1D array"),
        ({"X": X[:0], "y": Y[:0]}, ValueError, "0 sample(s)"),
        ({"X": X[:, :0]}, ValueError, "0 feature(s)"),
        ({"X": [["a"] * 4] * N}, ValueError, "X must hold numbers", "'a'"),
        ({"X": X * 1j}, ValueError, "X and y must hold real numbers"),
        ({"y": Y[:-1]}, ValueError, "y must have one entry per row of X", "149"),
        ({"y": None}, ValueError, "y", "None"),
        ({"y": 3}, ValueError, "y must hold one class per example", "shape ()"),
        ({"y": np.zeros((N, 2, 2))}, ValueError, "y must hold one class", "(150, 2, 2)"),
        ({"y": np.zeros((N, 0))}, ValueError, "y must hold one class", "(150, 0)"),
        ({"y": RAGGED * 75}, ValueError, "y must", "unequal lengths", "MultiLabelBinarizer"),
        ({"y": [{0, 1}, {1}] * 75}, ValueError, "y must hold classes", "Unknown label type"),
        ({"y": np.zeros(N)}, ValueError, "y must hold at least two classes", "one class (0.0)"),
        ({"y": np.linspace(0, 1, N)}, ValueError, "y must hold classes", "continuous"),
        ({"y": with_nan(Y)}, ValueError, "y contains NaN"),
        ({"y": ["a", "b", None] * 50}, ValueError, "y must hold classes, either numbers or str"),
        ({"sample_weight": np.ones(3)}, ValueError, "sample_weight must have one entry", "(3,)"),
        ({"sample_weight": np.ones((N, 1))}, ValueError, "sample_weight must have one entry"),
        ({"sample_weight": -2.0}, ValueError, "sample_weight must be", "-2.0"),
        ({"sample_weight": -np.ones(N)}, ValueError, "sample_weight must be", "-1.0"),
        ({"sample_weight": np.zeros(N)}, ValueError, "sample_weight must be", "only zeros"),
        ({"sample_weight": np.full(N, NAN)}, ValueError, "sample_weight must be", "nan"),
        ({"sample_weight": ["a"] * N}, TypeError, "sample_weight must hold real numbers"),
    ),
)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_data(estimator, data, error, fragments):
    with raises(error, *fragments):
        estimator.fit(**{"X": X, "y": Y, **data})


@pytest.mark.parametrize(
    ("y", "fragments"),
    [
        (YM * 2, ["y must be an indicator matrix of 0 and 1"]),
        (csr_array(YM * 2), ["y must be an indicator matrix of 0 and 1"]),
        (2 * YM - 1, ["y must be an indicator matrix of 0 and 1"]),
        (YM.astype(str), ["y must be an indicator matrix of 0 and 1"]),
        (with_nan(YM), ["y contains NaN"]),
        (csr_array(YM[:-1]), ["y must have one entry per row of X", "59"]),
    ],
)
def test_indicator_matrices(y, fragments):
    with raises(ValueError, *fragments):
        MultilabelClassifier().fit(XM, y)


def masked(values):
    return np.ma.masked_array(values, mask=np.arange(np.size(values)).reshape(np.shape(values)) < 3)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_masked_arrays(estimator, model):
    """A mask would be dropped on the way, and what it hides be trained on."""
    data = {"X": X, "y": Y, "sample_weight": np.ones(N)}
    for name, values in data.items():
        with raises(ValueError, f"{name} must", "masked"):
            estimator.fit(**{**data, name: masked(values)})
    for method in (model.predict, model.decision_function, model.predict_topk, model.predict_proba):
        with raises(ValueError, "X must", "masked"):
            method(masked(X))
    for name, values in data.items():
        with raises(ValueError, f"{name} must", "masked"):
            model.score(**{**data, name: masked(values)})


def test_masked_labels():
    with raises(ValueError, "y must", "masked"):
        MultilabelClassifier().fit(XM, masked(YM))
    several = MultilabelClassifier(smoothing=1.0, threshold=0.0, C=0.1).fit(XM, YM)
    with raises(ValueError, "y must", "masked"):
        several.score(XM, masked(YM))
    with raises(ValueError, "sample_weight must", "masked"):
        several.score(XM, YM, masked(np.ones(60)))


def broken(matrix):
    matrix = csr_array(matrix)
    matrix.indices = matrix.indices.copy()
    matrix.indices[5] = 99
    return matrix


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_broken_sparse_matrices(estimator, model):
    """An index out of range would write where nothing is."""
    for fit_on in (broken(X), broken(X).astype(np.float32)):
        with raises(ValueError, "X must have indices from 0 to 3", "99"):
            estimator.fit(fit_on, Y)
    for method in (model.predict, model.decision_function, model.predict_topk):
        with raises(ValueError, "X must have indices from 0 to 3", "99"):
            method(broken(X))
    with raises(ValueError, "y must have indices from 0 to 3", "99"):
        MultilabelClassifier().fit(XM, broken(YM))
    falling = csr_array(X)
    falling.indptr = falling.indptr[::-1].copy()
    with raises(ValueError, "X must have an indptr that grows"):
        estimator.fit(falling, Y)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_one_dimensional_sparse_arrays(estimator, model):
    row = coo_array(X[0])
    with raises(ValueError, "X must be a matrix with one row per example", "(4,)", "reshape"):
        estimator.fit(row, Y)
    with raises(ValueError, "X must be a matrix with one row per example", "(4,)", "reshape"):
        model.predict(row)


def test_one_label_takes_no_indicator_matrix():
    with raises(ValueError, "y should be a 1d array", "(150, 3)"):
        TopKClassifier().fit(X, np.eye(3, dtype=int)[Y])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_predicting_too_early(estimator):
    for method in ("predict", "decision_function", "predict_topk"):
        if hasattr(estimator, method):
            with pytest.raises(NotFittedError):
                getattr(type(estimator)(), method)(X)


def test_prediction(model):
    for k, error in ((0, ValueError), (4, ValueError), (1.5, TypeError), (True, TypeError)):
        with raises(error, "k must be", f"got {k}"):
            model.predict_topk(X, k)
    with raises(ValueError, "X has 2 features", "expecting 4"):
        model.predict(X[:, :2])
    with raises(ValueError, "X must hold numbers", "'a'"):
        model.predict([["a"] * 4])


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
