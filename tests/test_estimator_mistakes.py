"""Parameters of estimators that cannot be: the message names parameter, rule and value."""

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneGroupOut

import topkopt
from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV, losses

from .expect import raises
from .mistakes import INF, NAN, RAGGED, XM, YM, X, Y, table

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
