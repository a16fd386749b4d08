"""The data of the estimators: precisions, sparse, intercepts, kernels."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import estimator_checks_generator

import topkopt
from topkopt import MultilabelClassifier, TopKClassifier

from .classifiers import XM, YM, X, Y
from .expect import raises


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(
    "estimator", [TopKClassifier("softmax"), MultilabelClassifier("ova_logistic")]
)
def test_float32_stays(estimator, kernel):
    model = clone(estimator).set_params(kernel=kernel, keep_dual=True, random_state=0)
    model.fit(X.astype(np.float32), Y)
    fitted = [model.dual_coef_, model.intercept_, model.decision_function(X.astype(np.float32))]
    assert {a.dtype for a in fitted} == {np.dtype(np.float32)}
    assert kernel == "rbf" or model.coef_.dtype == np.float32


@pytest.mark.parametrize("container", [scipy.sparse.csr_array, scipy.sparse.csc_matrix])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"kernel": "rbf"}])
def test_sparse_equals_dense(container, options):
    model = TopKClassifier("softmax", tol=1e-13, random_state=0, **options)
    dense = clone(model).fit(X, Y).decision_function(X)
    sparse = clone(model).fit(container(X), Y).decision_function(container(X))
    np.testing.assert_allclose(sparse, dense, atol=1e-5)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok"])
@pytest.mark.parametrize("holder", ["matrix", "array"])
@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_labels_sparse_equals_dense(kind, holder, dtype):
    model = MultilabelClassifier(smoothing=1.0, C=0.1, random_state=0, cv=3)
    labels = getattr(scipy.sparse, f"{kind}_{holder}")(YM.astype(dtype))
    dense, sparse = clone(model).fit(XM, YM), clone(model).fit(XM, labels)
    assert sparse.multilabel_
    assert sparse.threshold_ == dense.threshold_
    np.testing.assert_array_equal(sparse.coef_, dense.coef_)
    np.testing.assert_array_equal(sparse.predict(XM), dense.predict(XM))


def test_labels_with_stored_zeros():
    labels = scipy.sparse.csr_array(np.ones_like(YM))
    labels.data[:] = YM.ravel()
    assert labels.nnz == YM.size
    model = MultilabelClassifier(smoothing=1.0, C=0.1, random_state=0, threshold=0.0)
    expected = clone(model).fit(XM, YM.tolist()).coef_
    np.testing.assert_array_equal(model.fit(XM, labels).coef_, expected)


def test_no_intercept_trains_on_X_itself():
    model = TopKClassifier(fit_intercept=False)
    assert model._features(X, model._constant()) is X


def test_intercept_is_a_constant_feature():
    model = TopKClassifier("softmax", intercept_scaling=2.0, tol=1e-10, random_state=0)
    by_hand = TopKClassifier("softmax", fit_intercept=False, tol=1e-10, random_state=0)
    by_hand.fit(np.hstack([X, np.full((150, 1), 2.0)]), Y)
    model.fit(X, Y)
    np.testing.assert_allclose(model.coef_, by_hand.coef_[:, :-1], atol=1e-6)
    np.testing.assert_allclose(model.intercept_, 2 * by_hand.coef_[:, -1], atol=1e-6)


@pytest.mark.parametrize(
    "estimator", [TopKClassifier("softmax"), MultilabelClassifier("ova_logistic")]
)
def test_kernels_agree_with_features(estimator):
    """A linear kernel by every door gives the scores of the linear classifier."""
    exact = clone(estimator).set_params(tol=1e-11, random_state=0)
    linear = clone(exact).fit(X, Y).decision_function(X)
    gram = X @ X.T
    doors = [
        (clone(exact).set_params(kernel=lambda A, B: A @ B.T), X),
        (clone(exact).set_params(kernel="precomputed"), gram),
        (clone(exact).set_params(kernel="poly", degree=1, gamma=1.0, coef0=0.0), X),
    ]
    for model, data in doors:
        np.testing.assert_allclose(model.fit(data, Y).decision_function(data), linear, atol=1e-4)
        assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("gamma", "value"), [("scale", 1 / (4 * X.var())), ("auto", 0.25), (2.0, 2.0)]
)
def test_gamma(gamma, value):
    options = {"tol": 1e-12, "random_state": 0, "fit_intercept": False}
    for data in (X, scipy.sparse.csr_array(X)):
        model = TopKClassifier("softmax", kernel="rbf", gamma=gamma, **options).fit(data, Y)
        assert model.gamma_ == pytest.approx(value)
    given = TopKClassifier("softmax", kernel="precomputed", **options)
    given.fit(rbf_kernel(X, gamma=value), Y)
    np.testing.assert_allclose(
        model.decision_function(X), given.decision_function(rbf_kernel(X, gamma=value)), atol=1e-5
    )


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("estimator", [TopKClassifier("softmax"), MultilabelClassifier()])
def test_gamma_counts_weights_as_repetitions(estimator, container):
    weight = np.arange(len(Y)) % 3
    repeated, classes = np.repeat(X, weight, axis=0), np.repeat(Y, weight)
    model = clone(estimator).set_params(kernel="rbf", C=0.1).fit(container(X), Y, weight)
    assert model.gamma_ == pytest.approx(1 / (4 * repeated.var()), rel=1e-12)
    assert model.gamma_ == pytest.approx(
        clone(model).fit(container(repeated), classes).gamma_, rel=1e-12
    )


def test_a_gap_of_1e_10_makes_weights_equal_to_repetitions():
    """The check compares scores to seven digits; at the default tolerance they have three."""
    for kernel in ("linear", "rbf"):
        model = TopKClassifier(kernel=kernel, tol=1e-10, max_epochs=10**5)
        checks = [
            check
            for _, check in estimator_checks_generator(model, mark=None)
            if "sample_weight_equivalence" in check.func.__name__
        ]
        assert checks
        for check in checks:
            check(clone(model))


def test_gamma_of_constant_features():
    model = TopKClassifier("softmax", kernel="rbf").fit(np.zeros((4, 2)), [0, 1, 0, 1])
    assert model.gamma_ == 1.0


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array, pd.DataFrame])
@pytest.mark.parametrize("estimator", [TopKClassifier("softmax"), MultilabelClassifier()])
def test_kernel_models_own_their_examples(estimator, container):
    """What becomes of the caller's X after training is the caller's business."""
    data = container(X.copy())
    model = clone(estimator).set_params(kernel="rbf", C=0.1, random_state=0).fit(data, Y)
    before = model.decision_function(X)
    if container is pd.DataFrame:
        data.iloc[:, :] = 7.0
    else:
        (data.data if scipy.sparse.issparse(data) else data)[:] = 7.0
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_a_precomputed_kernel_keeps_no_examples():
    model = TopKClassifier("softmax", kernel="precomputed", random_state=0).fit(X @ X.T, Y)
    assert not hasattr(model, "X_fit_")
    assert max(np.size(v) for v in vars(model).values() if isinstance(v, np.ndarray)) < 150


@pytest.mark.parametrize(
    ("params", "promise"),
    [
        ({"kernel": "linear"}, False),
        ({"kernel": "rbf"}, "psd"),
        ({"kernel": "rbf", "gamma": 0.0}, "psd"),
        ({"kernel": "poly"}, "psd"),
        ({"kernel": "poly", "coef0": 0.0}, "psd"),
        ({"kernel": "poly", "coef0": -1e-9, "degree": 2}, True),
        ({"kernel": "sigmoid", "gamma": 0.01, "coef0": 0.0}, True),
        ({"kernel": "precomputed"}, True),
        ({"kernel": lambda A, B: A @ B.T}, True),
    ],
)
def test_what_theory_promises_of_kernels(monkeypatch, params, promise):
    """Only kernels that cannot be indefinite are spared the check."""
    asked = []

    def solve(*args, kernel, **options):
        asked.append(kernel)
        return topkopt.solve(*args, kernel=bool(kernel) and "psd", **options)

    monkeypatch.setattr("topkopt.estimators.base.solve", solve)
    data = X @ X.T if params["kernel"] == "precomputed" else X
    TopKClassifier("softmax", tol=0.1, **params).fit(data, Y)
    assert asked == [promise]


def test_sigmoid_kernel_that_is_not_positive_raises():
    model = TopKClassifier(
        "softmax", kernel="sigmoid", gamma=1.0, coef0=-100.0, fit_intercept=False
    )
    with raises(ValueError, "Gram matrix", "diagonal", "positive semi-definite"):
        model.fit(X, Y)


def test_multilabel_with_a_precomputed_kernel_tunes_its_threshold():
    options = {"smoothing": 1.0, "C": 0.1, "random_state": 0, "cv": 3, "tol": 1e-6}
    given = MultilabelClassifier(kernel="precomputed", **options).fit(XM @ XM.T, YM)
    linear = MultilabelClassifier(**options).fit(XM, YM)
    assert given.threshold_ == linear.threshold_
    np.testing.assert_array_equal(given.predict(XM @ XM.T), linear.predict(XM))
