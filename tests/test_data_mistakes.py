"""Data that estimators cannot train or predict on: what users are told."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array
from sklearn.exceptions import NotFittedError

from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV

from .expect import raises
from .mistakes import NAN, RAGGED, XM, YM, N, X, Y, table, with_nan

ESTIMATORS = [
    TopKClassifier(C=0.1),
    TopKClassifierCV([0.1], cv=2),
    MultilabelClassifier(C=0.1, smoothing=1.0, cv=2),
]


@pytest.fixture(scope="module")
def model():
    return TopKClassifier("softmax", random_state=0).fit(X, Y)


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
