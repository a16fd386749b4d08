"""The estimators: scikit-learn's conventions, equal optima, weights, kernels, errors."""

import pickle
import re
import subprocess
import sys
from collections import Counter
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import topkopt
from topkopt import ConvergenceWarning, MultilabelClassifier, TopKClassifier, TopKClassifierCV
from topkopt.losses import TopKHinge, WeightedTopKHinge
from topkopt.metrics import THRESHOLDS

IRIS = load_iris(return_X_y=True)
X, Y = IRIS[0] - IRIS[0].mean(axis=0), IRIS[1]
MULTILABEL = make_multilabel_classification(
    n_samples=80, n_features=8, n_classes=4, random_state=0, allow_unlabeled=True
)
# Centred, so that hinge losses train quickly.
XM, YM = (MULTILABEL[0] - MULTILABEL[0].mean(axis=0)) / 4, MULTILABEL[1]

MULTICLASS = [
    ("hinge", {}),
    ("topk_hinge", {"k": 2}),
    ("topk_hinge", {"k": 2, "smoothing": 1.0}),
    ("topk_hinge_beta", {"k": 2}),
    ("topk_hinge_label", {"k": 2}),
    ("weighted_topk_hinge", {"k": 2, "weights": "linear"}),
    ("weighted_topk_hinge_label", {"k": 2, "weights": "linear"}),
    ("softmax", {}),
    ("topk_entropy", {"k": 2}),
    ("truncated_topk_entropy", {"k": 2}),
    ("ova_hinge", {}),
    ("ova_logistic", {}),
]
multiclass = pytest.mark.parametrize(
    ("loss", "params"), MULTICLASS, ids=lambda v: v if isinstance(v, str) else "-".join(v)
)
ESTIMATORS = [TopKClassifier, TopKClassifierCV, MultilabelClassifier]


def raises(error, *fragments):
    """Expect an error whose message holds the fragments in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(str(f)) for f in fragments))


# scikit-learn's own checks -------------------------------------------------------------------


class SparseLabels(MultilabelClassifier):
    """Trains on a sparse indicator matrix wherever a dense one is given, and counts that."""

    container = scipy.sparse.csr_array
    fits: ClassVar = Counter()

    def fit(self, X, y, sample_weight=None):
        if not scipy.sparse.issparse(y) and np.asarray(y).ndim == 2:
            y = self.container(y)
            self.fits[self.container] += 1
        return super().fit(X, y, sample_weight)


class SparseMatrixLabels(SparseLabels):
    container = scipy.sparse.csr_matrix


# Tight: the checks compare trainings on weighted and on repeated examples to seven digits. The gap
# of a hinge is of the order of the error of W, that of a smooth loss of its square: so a small C.
TIGHT = {"tol": 0.0, "max_epochs": 500}


@pytest.mark.filterwarnings("ignore::topkopt.ConvergenceWarning")
@parametrize_with_checks(
    [
        TopKClassifier(**TIGHT),
        TopKClassifier("softmax", C=1e-3, **TIGHT),
        TopKClassifier(kernel="rbf", gamma=1.0, **TIGHT),
        TopKClassifierCV([0.01, 0.1], cv=2, **TIGHT),
        MultilabelClassifier(cv=3, **TIGHT),
        MultilabelClassifier("ova_logistic", C=1e-3, threshold=0.0, **TIGHT),
        SparseLabels(cv=3, **TIGHT),
        SparseMatrixLabels(cv=3, **TIGHT),
    ]
)
def test_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [SparseLabels(cv=3), SparseMatrixLabels(cv=3)])
def test_the_checks_train_on_sparse_labels(estimator):
    """Four checks have several labels per example; a fit has three more inside, one per fold."""
    trained = {}
    for _, check in estimator_checks_generator(estimator.set_params(C=1e-3), mark=None):
        name = check.func.__name__
        if ("multilabel" in name or "multioutput" in name) and "proba" not in name:
            before = estimator.fits[estimator.container]
            check(clone(estimator))
            trained[name] = estimator.fits[estimator.container] - before
    assert len(trained) >= 4
    assert min(trained.values()) >= 4


# Equal optima --------------------------------------------------------------------------------


def test_hinge_is_crammer_singer():
    mine = TopKClassifier("hinge", C=0.1, fit_intercept=False, tol=1e-8, max_epochs=20000)
    theirs = LinearSVC(
        multi_class="crammer_singer", C=0.1, fit_intercept=False, tol=1e-8, max_iter=10**6
    )
    mine.set_params(random_state=0).fit(X, Y)
    theirs.set_params(random_state=0).fit(X, Y)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)


def test_softmax_is_logistic_regression():
    mine = TopKClassifier("softmax", fit_intercept=False, tol=1e-8, random_state=0).fit(X, Y)
    theirs = LogisticRegression(fit_intercept=False, tol=1e-8, max_iter=10**4).fit(X, Y)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(mine.predict_log_proba(X), theirs.predict_log_proba(X), atol=1e-3)


def test_two_classes_are_logistic_regression_with_twice_the_C():
    two = Y < 2
    mine = TopKClassifier("softmax", fit_intercept=False, tol=1e-10, random_state=0)
    theirs = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10)
    mine.fit(X[two], Y[two])
    theirs.fit(X[two], Y[two])
    assert mine.coef_.shape == (1, 4)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=1e-4)


def test_one_label_per_example_is_multiclass():
    names = np.array(["a", "b", "c"])[Y]
    options = {"tol": 1e-8, "C": 0.1, "random_state": 0, "max_epochs": 5000}
    for loss, single in (("multilabel_softmax", "softmax"), ("multilabel_hinge", "hinge")):
        multi = MultilabelClassifier(loss, **options).fit(X, names)
        np.testing.assert_allclose(
            multi.coef_, TopKClassifier(single, **options).fit(X, names).coef_, atol=1e-4
        )
        assert multi.predict(X[:1]) == ["a"]


# Every loss ----------------------------------------------------------------------------------


@multiclass
def test_losses(loss, params):
    model = TopKClassifier(loss, C=0.1, keep_dual=True, random_state=0, **params)
    model.fit(X, np.array(list("xyz"))[Y])
    assert model.duality_gap_ <= 1e-3 or loss.startswith("truncated")
    assert model.history_["epoch"][-1] == model.n_iter_
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    assert model.dual_coef_.shape == (3, 150)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores)
    assert (model.predict(X) == model.predict_topk(X, 1)[:, 0]).all()
    assert model.predict_topk(X, 3).shape == (150, 3)
    if loss.startswith("truncated"):
        return
    np.testing.assert_allclose(model.dual_coef_ @ X, model.coef_, atol=1e-10)
    assert model.score(X, np.array(list("xyz"))[Y]) > 0.5


@multiclass
def test_probabilities(loss, params):
    model = TopKClassifier(loss, C=0.1, random_state=0, **params)
    if "hinge" in loss:
        with raises(AttributeError, "predict_proba"):
            _ = model.predict_proba
        assert not hasattr(model, "predict_proba")
        return
    scores = model.fit(X, Y).decision_function(X)
    expected = softmax(scores, axis=1)
    if loss == "ova_logistic":
        expected = expit(scores) / expit(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-12)


def test_a_loss_object_is_a_loss():
    model = TopKClassifier(TopKHinge(2, kind="beta"), C=0.1, random_state=0)
    assert clone(model).fit(X, Y).solution_.loss == TopKHinge(2, kind="beta")
    flat = TopKClassifier("topk_hinge", k=2, C=0.1, random_state=0).fit(X, Y)
    by_object = TopKClassifier(TopKHinge(2), C=0.1, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(flat.coef_, by_object.coef_)


@pytest.mark.parametrize(
    ("name", "params", "loss"),
    [
        ("topk_hinge_beta", {"k": 2}, TopKHinge(2, "beta")),
        ("topk_hinge_label", {"k": 2, "smoothing": 0.5}, TopKHinge(2, "label", 0.5)),
        (
            "weighted_topk_hinge_label",
            {"k": 2, "weights": "linear"},
            WeightedTopKHinge("linear", 2, label=True),
        ),
    ],
)
def test_variants_by_name(name, params, loss):
    options = {"C": 0.1, "random_state": 0}
    named = TopKClassifier(name, **params, **options).fit(X, Y)
    assert named.solution_.loss == loss
    given = TopKClassifier(loss, **options).fit(X, Y)
    np.testing.assert_array_equal(named.coef_, given.coef_)


def test_variants_by_name_in_a_search():
    grid = {"loss": ["topk_hinge", "topk_hinge_beta"], "k": [1, 2]}
    search = GridSearchCV(TopKClassifier(C=0.1, smoothing=1.0), grid, cv=2).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    mine = TopKClassifierCV([0.1], [1, 2], loss="topk_hinge_beta", smoothing=1.0, cv=2).fit(X, Y)
    assert mine.solution_.loss == TopKHinge(mine.k_, "beta", 1.0)


def test_predict_topk_of_a_loss_object_has_its_k():
    model = TopKClassifier(TopKHinge(2), C=0.1, random_state=0).fit(X, Y)
    assert model.predict_topk(X).shape == (150, 2)
    search = TopKClassifierCV([0.1], loss=TopKHinge(2), cv=2, random_state=0).fit(X, Y)
    assert search.k_ == search.ks_ == 2
    assert search.predict_topk(X).shape == (150, 2)


def test_predict_topk_defaults_to_k_and_orders_by_score():
    model = TopKClassifier("softmax", k=2, random_state=0).fit(X, Y)
    top = model.predict_topk(X)
    scores = model.decision_function(X)
    rows = np.arange(len(X))
    assert top.shape == (150, 2)
    assert (scores[rows, top[:, 0]] >= scores[rows, top[:, 1]]).all()


@pytest.mark.parametrize(
    "loss", ["multilabel_hinge", "multilabel_softmax", "ova_hinge", "ova_logistic"]
)
def test_multilabel_losses(loss):
    model = MultilabelClassifier(loss, C=0.1, random_state=0, cv=3).fit(XM, YM)
    assert model.multilabel_
    assert model.threshold_ in THRESHOLDS
    assert model.duality_gap_ <= 1e-3
    predicted = model.predict(XM)
    assert set(np.unique(predicted)) <= {0, 1}
    assert (predicted == YM).mean() > 0.7
    scores = XM @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(predicted, (scores - model.threshold_ > 0).astype(int))


# Data ----------------------------------------------------------------------------------------


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
    model = TopKClassifier("softmax", tol=1e-10, random_state=0, **options)
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
    options = {"tol": 1e-10, "random_state": 0, "fit_intercept": False}
    for data in (X, scipy.sparse.csr_array(X)):
        model = TopKClassifier("softmax", kernel="rbf", gamma=gamma, **options).fit(data, Y)
        assert model.gamma_ == pytest.approx(value)
    given = TopKClassifier("softmax", kernel="precomputed", **options)
    given.fit(rbf_kernel(X, gamma=value), Y)
    np.testing.assert_allclose(
        model.decision_function(X), given.decision_function(rbf_kernel(X, gamma=value)), atol=1e-5
    )


def test_gamma_of_constant_features():
    model = TopKClassifier("softmax", kernel="rbf").fit(np.zeros((4, 2)), [0, 1, 0, 1])
    assert model.gamma_ == 1.0


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


# Weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_weights_are_repetitions(loss):
    count = np.random.default_rng(0).integers(0, 3, len(X))
    model = TopKClassifier(loss, C=0.1, tol=1e-12, max_epochs=5000, random_state=0)
    weighted = clone(model).fit(X, Y, sample_weight=count)
    repeated = clone(model).fit(X.repeat(count, axis=0), Y.repeat(count))
    removed = clone(model).fit(X[count > 0], Y[count > 0], sample_weight=count[count > 0])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    np.testing.assert_allclose(weighted.coef_, removed.coef_, atol=1e-6)


def test_one_weight_for_all():
    model = TopKClassifier("softmax", random_state=0)
    many = clone(model).fit(X, Y, np.full(len(X), 2.0))
    np.testing.assert_array_equal(model.fit(X, Y, 2.0).coef_, many.coef_)


@pytest.mark.parametrize("class_weight", ["balanced", {"a": 2.0, "b": 0.5, "c": 1.0}])
def test_class_weight(class_weight):
    some = np.r_[0:50, 50:70, 100:110]
    names = np.array(list("abc"))[Y[some]]
    model = TopKClassifier("softmax", tol=1e-12, random_state=0)
    by_class = clone(model).set_params(class_weight=class_weight).fit(X[some], names)
    weight = compute_sample_weight(class_weight, names)
    by_sample = clone(model).fit(X[some], names, sample_weight=weight)
    np.testing.assert_allclose(by_class.coef_, by_sample.coef_, atol=1e-6)


def test_balanced_counts_sample_weight():
    weight = np.where(Y == 0, 3.0, 1.0)
    model = TopKClassifier("softmax", class_weight="balanced", tol=1e-12, random_state=0)
    plain = TopKClassifier("softmax", tol=1e-12, random_state=0).fit(X, Y)
    scaled = model.fit(X, Y, sample_weight=weight)  # each class has the same total again
    ratio = 250 / 150
    again = TopKClassifier("softmax", C=ratio, tol=1e-12, random_state=0).fit(X, Y)
    assert np.abs(scaled.coef_ - plain.coef_).max() > 1e-3
    np.testing.assert_allclose(scaled.coef_, again.coef_, atol=1e-6)


# The labels' weights, exact in binary: so are their means over one, two or four labels.
LABEL_WEIGHT = {0: 0.5, 2: 3.0, 3: 0.0}


def mean_label_weight(labels):
    of_label = np.array([LABEL_WEIGHT.get(j, 1.0) for j in range(labels.shape[1])])
    return np.array([of_label[row == 1].mean() if row.any() else 1.0 for row in labels])


@pytest.mark.parametrize("loss", ["multilabel_softmax", "ova_logistic"])
@pytest.mark.parametrize("class_weight", ["balanced", {"a": 2.0, "c": 0.5}])
def test_label_weight_of_one_label_per_example(loss, class_weight):
    some = np.r_[0:50, 50:70, 100:110]
    names = np.array(list("abc"))[Y[some]]
    sample_weight = 1.0 + np.arange(80) % 3
    # What TopKClassifier's weights are, too, see test_class_weight.
    codes, of_class = Y[some], np.array([2.0, 1.0, 0.5])
    if class_weight == "balanced":
        of_class = sample_weight.sum() / (3 * np.bincount(codes, sample_weight))
    model = MultilabelClassifier(loss, C=0.1, threshold=0.0, tol=1e-12, random_state=0)
    expected = clone(model).fit(X[some], names, sample_weight * of_class[codes])
    model.set_params(class_weight=class_weight)
    by_name = clone(model).fit(X[some], names, sample_weight)
    np.testing.assert_allclose(by_name.coef_, expected.coef_, atol=1e-6)
    if class_weight != "balanced":
        model.set_params(class_weight={0: 2.0, 2: 0.5})
    by_column = clone(model).fit(X[some], np.eye(3, dtype=int)[codes], sample_weight)
    np.testing.assert_allclose(by_column.coef_, expected.coef_, atol=1e-6)


@pytest.mark.parametrize("sample_weight", [None, np.arange(80) % 4])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array, scipy.sparse.coo_matrix])
def test_label_weight_is_a_sample_weight(kernel, container, sample_weight):
    data = rbf_kernel(XM, gamma=0.1) if kernel == "precomputed" else XM
    model = MultilabelClassifier(
        smoothing=1.0,
        C=0.1,
        kernel=kernel,
        threshold=0.0,
        max_epochs=30,
        tol=0.05,
        keep_dual=True,
        random_state=0,
    )
    labels = YM * (np.arange(80) % 9 > 0)[:, None]  # some examples without any
    weight = mean_label_weight(labels) * (1.0 if sample_weight is None else sample_weight)
    expected = clone(model).fit(data, labels, weight)
    model.set_params(class_weight=LABEL_WEIGHT).fit(data, container(labels), sample_weight)
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
    np.testing.assert_array_equal(model.solution_.cost, 0.1 * weight)
    plain = clone(model).set_params(class_weight=None).fit(data, labels, sample_weight)
    assert np.abs(plain.dual_coef_ - expected.dual_coef_).max() > 1e-3


def test_balanced_labels_count_sample_weight():
    count = np.arange(80) % 3
    labels = YM.copy()
    labels[:, 3] = count == 0  # a label that only examples of weight 0 have
    model = MultilabelClassifier(
        "ova_logistic", C=0.1, class_weight="balanced", threshold=0.0, tol=1e-12, random_state=0
    )
    weighted = clone(model).fit(XM, labels, count)
    repeated = clone(model).fit(XM.repeat(count, axis=0), labels.repeat(count, axis=0))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    held = (count @ labels)[:3]
    of_label = np.append(count.sum() / (4 * held), 1.0)
    size = labels.sum(axis=1)
    mean = np.where(size > 0, labels @ of_label / np.maximum(size, 1), 1.0)
    by_hand = clone(model).set_params(class_weight=None).fit(XM, labels, count * mean)
    np.testing.assert_allclose(weighted.coef_, by_hand.coef_, atol=1e-6)


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_a_balanced_label_that_no_example_has(container):
    labels = YM * [1, 1, 1, 0]
    model = MultilabelClassifier(smoothing=1.0, C=0.1, class_weight="balanced", cv=3)
    fitted = model.set_params(random_state=0).fit(XM, container(labels))
    assert np.isfinite(fitted.coef_).all()
    assert fitted.solution_.cost.min() > 0


@pytest.fixture
def tuned(monkeypatch):
    """Return the list of what thresholds are chosen by: labels, scores and weights."""
    calls = []

    def tune_threshold(y_true, y_score, metric, *, sample_weight):
        calls.append((y_true, y_score, sample_weight))
        return 0.25, 1.0

    monkeypatch.setattr(topkopt.estimators, "tune_threshold", tune_threshold)
    return calls


def held_out_scores(folds, weight=None, **options):
    scores = np.full(YM.shape, np.nan)
    for train, test in folds:
        model = MultilabelClassifier(threshold=0.0, **options)
        model.fit(XM[train], YM[train], None if weight is None else weight[train])
        scores[test] = model.decision_function(XM[test])
    return scores


def test_label_weight_and_the_threshold(tuned):
    """Label weights train the models whose held-out scores choose the threshold, no more."""
    folds = list(KFold(3).split(XM))
    options = {"smoothing": 1.0, "C": 0.1, "random_state": 0}
    sample_weight = 1.0 + np.arange(80) % 2
    weight = mean_label_weight(YM) * sample_weight
    model = MultilabelClassifier(class_weight=LABEL_WEIGHT, cv=folds, **options)
    assert model.fit(XM, YM, sample_weight).threshold_ == 0.25
    ((_, scores, scored_weight),) = tuned
    np.testing.assert_array_equal(scores, held_out_scores(folds, weight, **options))
    np.testing.assert_array_equal(scored_weight, sample_weight)
    expected = MultilabelClassifier(threshold=0.0, **options).fit(XM, YM, weight)
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_label_weight_in_a_search():
    grid = {"class_weight": [None, "balanced", {0: 2.0}], "C": [0.01, 0.1]}
    model = MultilabelClassifier(smoothing=1.0, threshold=0.0, random_state=0)
    search = GridSearchCV(model, grid, cv=2).fit(XM, YM)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert clone(search.best_estimator_).class_weight == search.best_params_["class_weight"]


def test_a_class_weight_may_name_classes_that_a_part_of_the_data_lacks():
    weights = {0: 1.0, 1: 2.0, 2: 3.0}
    two = Y < 2
    model = TopKClassifier("softmax", class_weight=weights, random_state=0).fit(X[two], Y[two])
    again = TopKClassifier("softmax", class_weight={1: 2.0}, random_state=0).fit(X[two], Y[two])
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_threshold_by_folds_that_leave_examples_out(tuned):
    options = {"smoothing": 1.0, "C": 0.1, "random_state": 0}
    cv = ShuffleSplit(2, test_size=0.2, random_state=0)
    expected = held_out_scores(cv.split(XM), **options)
    seen = np.isfinite(expected).all(axis=1)
    assert not seen.all()
    MultilabelClassifier(cv=cv, **options).fit(XM, YM, np.arange(80.0))
    MultilabelClassifier(cv=cv, **options).fit(XM, YM)
    (_, _, weight), (labels, scores, none) = tuned
    np.testing.assert_array_equal(labels, YM[seen])
    np.testing.assert_array_equal(scores, expected[seen])
    np.testing.assert_array_equal(weight, np.flatnonzero(seen))
    assert none is None


def test_threshold_by_a_number_of_folds_of_any_type(tuned):
    for cv in (3, np.int64(3)):
        MultilabelClassifier(smoothing=1.0, C=0.1, cv=cv, random_state=0).fit(XM, YM)
    np.testing.assert_array_equal(tuned[0][1], tuned[1][1])


# Starting again -------------------------------------------------------------------------------


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


# Tools of scikit-learn -----------------------------------------------------------------------


def test_pipeline_grid_search_and_pickle():
    names = np.array(["setosa", "versicolor", "virginica"])[Y]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), TopKClassifier(random_state=0)),
        {"topkclassifier__loss": ["softmax", "topk_hinge"], "topkclassifier__k": [1, 2]},
        cv=2,
    ).fit(X, names)
    assert search.best_score_ > 0.9
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict(X), search.predict(X))


def test_feature_names():
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = TopKClassifier("softmax").fit(frame, Y)
    assert model.feature_names_in_.tolist() == list("abcd")
    with raises(ValueError, "feature names"):
        model.predict(frame[list("dcba")])


# Cross-validation ----------------------------------------------------------------------------


def test_cv_finds_what_a_loop_finds():
    data = load_digits(n_class=6)
    digits, labels = data.data[:300] / 16, data.target[:300]
    folds = [(np.arange(300) % 3 != i, np.arange(300) % 3 == i) for i in range(3)]
    folds = [(np.flatnonzero(train), np.flatnonzero(test)) for train, test in folds]
    search = TopKClassifierCV(
        [0.001, 0.1],
        [1, 2],
        loss="topk_entropy",
        scoring="top2",
        cv=folds,
        tol=1e-6,
        random_state=0,
    ).fit(digits, labels)
    assert search.cv_accuracy_.shape == (3, 2, 2, 6)
    for i, C in enumerate(search.Cs_):
        for j, k in enumerate(search.ks_):
            model = TopKClassifier("topk_entropy", C=C, k=k, tol=1e-6, random_state=0)
            for f, (train, test) in enumerate(folds):
                top = clone(model).fit(digits[train], labels[train]).predict_topk(digits[test], 2)
                accuracy = (top == labels[test][:, None]).any(axis=1).mean()
                assert search.cv_accuracy_[f, i, j, 1] == pytest.approx(accuracy, abs=0.011)
    assert search.best_score_ == search.scores_.max()
    assert (search.cv_gap_ <= 1e-6).all()
    assert search.solution_.C == search.C_
    assert search.predict_topk(digits[:2]).shape == (2, search.k_)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
def test_cv_in_parallel_is_the_same(kernel):
    data = rbf_kernel(X) if kernel == "precomputed" else X
    model = TopKClassifierCV([0.1, 1.0], cv=3, kernel=kernel, smoothing=1.0, random_state=0)
    model.set_params(keep_dual=True)
    alone = clone(model).fit(data, Y)
    together = clone(model).set_params(n_jobs=2).fit(data, Y)
    np.testing.assert_array_equal(alone.cv_accuracy_, together.cv_accuracy_)
    np.testing.assert_array_equal(alone.dual_coef_, together.dual_coef_)


def test_cv_of_a_fold_without_a_class():
    folds = [(np.flatnonzero(Y != 1), np.flatnonzero(Y == 1)), (np.arange(150), np.arange(150))]
    model = TopKClassifierCV([0.1], cv=folds, loss="softmax", random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.cv_accuracy_[0, 0, 0], [0.0, 0.0, 1.0])


# Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "fragments"),
    [
        ({"loss": "squared"}, ["loss must be one of", "topk_hinge", "'squared'"]),
        ({"loss": "multilabel_hinge"}, ["loss must be one of", "'multilabel_hinge'"]),
        ({"loss": None}, ["loss must be one of", "None"]),
        ({"k": 3}, ["k must be less than the number of classes (3), got 3", "from 1 to 2"]),
        ({"k": 0}, ["k must be at least 1", "got 0"]),
        ({"C": 0.0}, ["C must be a finite positive number", "0.0"]),
        ({"C": -1}, ["C must be", "-1"]),
        ({"smoothing": -1.0}, ["smoothing must be", "-1.0"]),
        ({"tol": -1.0}, ["tol must be", "-1.0"]),
        ({"max_epochs": 0}, ["max_epochs must be at least 1", "got 0"]),
        ({"loss": "weighted_topk_hinge"}, ["weights must be given", "flat, linear, exp"]),
        ({"loss": "weighted_topk_hinge", "weights": "cubic"}, ["weights must be", "'cubic'"]),
        ({"loss": "weighted_topk_hinge", "weights": [1, 2]}, ["weights must be", "descending"]),
        ({"kernel": "cosine"}, ["kernel must be", "rbf", "'cosine'"]),
        ({"kernel": "rbf", "gamma": "wide"}, ["gamma must be scale, auto or a number", "'wide'"]),
        ({"kernel": "rbf", "gamma": -1.0}, ["gamma must be", "-1.0"]),
        (
            {"kernel": lambda A, B: A},
            ["kernel must return an array of shape (150, 150)", "(150, 4)"],
        ),
        ({"kernel": "precomputed"}, ["X must be a square matrix", "precomputed", "(150, 4)"]),
        ({"intercept_scaling": 0.0}, ["intercept_scaling must be", "0.0"]),
        ({"class_weight": "fair"}, ["class_weight must be", "balanced", "'fair'"]),
        ({"class_weight": {0: -1.0}}, ["class_weight[0] must be", "non-negative", "-1.0"]),
    ],
)
def test_parameters_out_of_range(params, fragments):
    with raises(ValueError, *fragments):
        TopKClassifier(**params).fit(X, Y)


@pytest.mark.parametrize(
    ("params", "fragments"),
    [
        ({"loss": "softmax"}, ["loss must be one of", "multilabel_hinge", "'softmax'"]),
        ({"threshold": "auto"}, ["threshold must be 'cv' or a finite number", "'auto'"]),
        ({"threshold": np.inf}, ["threshold must be", "inf"]),
        ({"threshold": None}, ["threshold must be", "None"]),
        ({"metric": "auc"}, ["metric must be", "f1_micro", "'auc'"]),
        ({"cv": 1}, ["cv must be", "got 1", "n_splits=1"]),
    ],
)
def test_multilabel_parameters_out_of_range(params, fragments):
    with raises(ValueError, *fragments):
        MultilabelClassifier(**{"smoothing": 1.0, "C": 0.1, **params}).fit(XM, YM)


@pytest.mark.parametrize(
    ("params", "fragments"),
    [
        ({"Cs": [0.0, 1.0]}, ["Cs must be", "positive", "[0.0, 1.0]"]),
        ({"Cs": []}, ["Cs must be"]),
        ({"Cs": 0}, ["Cs must be at least 1", "got 0"]),
        ({"ks": []}, ["ks must be a non-empty list of integers", "[]"]),
        ({"ks": 2}, ["ks must be a non-empty list of integers", "2"]),
        ({"ks": [1, 3]}, ["k must be less than the number of classes (3), got 3"]),
        ({"ks": [1, 2], "loss": "softmax"}, ["ks must hold one value", "'softmax'"]),
        ({"scoring": "top5"}, ["scoring must be one of top1, ..., top3", "'top5'"]),
        ({"scoring": "f1"}, ["scoring must suit the classes", "f1_score", "multiclass"]),
        ({"scoring": "f2"}, ["scoring must be one of top1, ..., top3", "scikit-learn", "'f2'"]),
        ({"scoring": accuracy_score}, ["scoring must be", "a function of a classifier"]),
        ({"scoring": ["accuracy", "top1"]}, ["scoring must be", "['accuracy', 'top1']"]),
        ({"scoring": lambda *_: np.nan}, ["what scoring returns must be a finite number", "nan"]),
        ({"scoring": None}, ["scoring must be", "None"]),
    ],
)
def test_cv_parameters_out_of_range(params, fragments):
    with raises(ValueError, *fragments):
        TopKClassifierCV(**{"Cs": [0.1], **params}).fit(X, Y)


def test_predict_topk_errors():
    model = TopKClassifier("softmax").fit(X, Y)
    with raises(ValueError, "k must be between 1 and the number of classes (3), got 4"):
        model.predict_topk(X, 4)
    with raises(TypeError, "k must be an integer, got 1.5"):
        model.predict_topk(X, 1.5)
    with pytest.raises(NotFittedError):
        TopKClassifier().predict_topk(X, 1)


def test_y_errors():
    with raises(ValueError, "y must hold at least two classes", "one class", "0", "add examples"):
        TopKClassifier().fit(X, np.zeros(150))
    with raises(ValueError, "y must hold classes", "Unknown label type", "continuous"):
        TopKClassifier().fit(X, np.linspace(0, 1, 150))
    with raises(ValueError, "y must be an indicator matrix of 0 and 1", "MultiLabelBinarizer"):
        MultilabelClassifier().fit(XM, YM + 1)
    with raises(ValueError, "y must be an indicator matrix of 0 and 1", "MultiLabelBinarizer"):
        MultilabelClassifier().fit(XM, YM * np.arange(4))


def test_weight_errors():
    with raises(ValueError, "sample_weight must be", "non-negative", "-1.0"):
        TopKClassifier().fit(X, Y, sample_weight=-np.ones(150))
    with raises(ValueError, "sample_weight must be", "not all zero", "only zeros"):
        TopKClassifier().fit(X, Y, sample_weight=np.zeros(150))
    with raises(ValueError, "sample_weight must have one entry per example (150)", "(3,)"):
        TopKClassifier().fit(X, Y, sample_weight=np.ones(3))


def test_not_converging_warns():
    with pytest.warns(ConvergenceWarning, match="max_epochs=1 reached.*raise max_epochs or tol"):
        TopKClassifier("hinge", max_epochs=1, tol=1e-9).fit(X, Y)


# Imports -------------------------------------------------------------------------------------


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_core_imports_neither_scikit_learn_nor_matplotlib():
    code = (
        "import sys, topkopt, topkopt.plotting; "
        "print([m for m in ('sklearn', 'matplotlib', 'joblib') if m in sys.modules])"
    )
    assert run_python(code) == "[]"


@pytest.mark.parametrize("name", [cls.__name__ for cls in ESTIMATORS])
def test_without_scikit_learn(name):
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import topkopt\n"
        f"try: topkopt.{name}\n"
        "except ImportError as error: print(error)"
    )
    assert 'pip install "topkopt[sklearn]"' in run_python(code)


def test_unknown_attribute():
    with raises(AttributeError, "module 'topkopt' has no attribute 'nothing'"):
        _ = topkopt.nothing
    assert {cls.__name__ for cls in ESTIMATORS} <= set(dir(topkopt))
