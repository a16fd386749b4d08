"""Estimators that start again."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV

from .classifiers import GRAM, XM, YM, X, Y


def test_another_kernel_leaves_nothing_of_the_last():
    model = TopKClassifier("softmax", random_state=0).fit(X, Y)
    model.set_params(kernel="rbf")
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model.fit(X, Y), "coef_")
    model.set_params(kernel="linear")
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model.fit(X, Y), "X_fit_")


def test_warm_start_takes_fewer_epochs():
    model = TopKClassifier("hinge", C=1.0, warm_start=True, random_state=0).fit(X, Y)
    warm = model.set_params(C=1.2).fit(X, Y).n_iter_
    cold = TopKClassifier("hinge", C=1.2, random_state=0).fit(X, Y).n_iter_
    assert warm < cold
    assert model.duality_gap_ <= 1e-3


@pytest.mark.parametrize("change", ["labels", "loss", "examples"])
def test_warm_start_is_cold_where_the_dual_does_not_fit(change):
    """Dual variables of other labels are infeasible: starting there would break the certificate."""
    model = TopKClassifier("hinge", C=0.1, warm_start=True, random_state=0).fit(X, Y)
    labels, rows = Y, slice(None)
    if change == "labels":
        labels = (Y + 1) % 3
    elif change == "loss":
        model.set_params(loss="softmax")
    else:
        rows = slice(0, 120)
    again = clone(model).fit(X[rows], labels[rows])
    model.fit(X[rows], labels[rows])
    np.testing.assert_array_equal(model.coef_, again.coef_)


@pytest.mark.parametrize(
    ("data", "others", "params", "changed"),
    [
        (X, X[:, ::-1], {}, {}),  # of the same norms
        (X, -X, {}, {}),
        (X, X[:, :3], {}, {}),
        (X, X.astype(np.float32), {}, {}),
        (scipy.sparse.csr_array(X), scipy.sparse.csr_array(2 * X), {}, {}),
        (GRAM, GRAM**2, {"kernel": "precomputed"}, {}),
        (X, X, {"kernel": "rbf"}, {"kernel": "poly"}),
        (X, X, {"kernel": "rbf", "gamma": 1.0}, {"gamma": 2.0}),
        (X, X, {"kernel": "poly"}, {"degree": 2}),
        (X, X, {"kernel": "poly"}, {"coef0": 2.0}),
        (X, X, {"kernel": "linear"}, {"kernel": "rbf"}),
        (X, X, {"kernel": lambda A, B: A @ B.T}, {"kernel": lambda A, B: 2 * A @ B.T}),
        (X, X, {}, {"fit_intercept": False}),
        (X, X, {}, {"intercept_scaling": 2.0}),
    ],
)
def test_warm_start_with_other_features_starts_afresh(data, others, params, changed):
    model = TopKClassifier("softmax", warm_start=True, random_state=0, **params).fit(data, Y)
    model.set_params(**changed).fit(others, Y)
    afresh = clone(model).fit(others, Y)
    assert model.history_["gap"][0] == afresh.history_["gap"][0] == 1.0
    np.testing.assert_array_equal(model.dual_coef_, afresh.dual_coef_)


@pytest.mark.parametrize(
    ("data", "params"),
    [
        (X, {}),
        (np.asfortranarray(X), {}),
        (X.tolist(), {}),
        (scipy.sparse.csr_array(X), {}),
        (X, {"kernel": "rbf"}),
        (X, {"kernel": rbf_kernel}),
        (GRAM, {"kernel": "precomputed"}),
    ],
)
def test_warm_start_goes_on_with_the_same_features(data, params):
    model = TopKClassifier("hinge", C=0.1, warm_start=True, random_state=0, **params).fit(data, Y)
    copy = pickle.loads(pickle.dumps(model))
    assert model.set_params(C=0.12).fit(data, Y).history_["gap"][0] < 0.5
    assert copy.set_params(C=0.12).fit(data, Y).n_iter_ == model.n_iter_


def test_warm_start_keeps_what_it_needs_and_no_features():
    model = TopKClassifier("softmax", warm_start=True, random_state=0).fit(X, Y)
    assert model.solution_.dual.shape == (150, 3)
    arrays = [value for value in vars(model).values() if isinstance(value, np.ndarray)]
    assert max(map(len, arrays)) < 150
    # A fit that did not ask to be gone on with is not.
    cold = TopKClassifier("softmax", keep_dual=True, random_state=0).fit(X, Y)
    assert cold.set_params(warm_start=True).fit(X, Y).history_["gap"][0] == 1.0
    assert cold.fit(X, Y).n_iter_ == 0


def test_warm_start_of_multilabel():
    model = MultilabelClassifier(C=0.1, threshold=0.0, warm_start=True, random_state=0).fit(XM, YM)
    first = model.n_iter_
    assert model.fit(XM, YM).n_iter_ < first


@pytest.mark.parametrize(
    "estimator", [TopKClassifier(), TopKClassifierCV([0.01, 0.1]), MultilabelClassifier(C=0.1)]
)
def test_same_seed_same_coef(estimator):
    fits = [clone(estimator).set_params(random_state=3).fit(X, Y) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
