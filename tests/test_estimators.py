"""The estimators: scikit-learn's conventions, equal optima, weights, kernels, errors."""

import logging
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
import sklearn
from matplotlib import pyplot as plt
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, check_scoring, log_loss, make_scorer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import topkopt
from topkopt import ConvergenceWarning, MultilabelClassifier, TopKClassifier, TopKClassifierCV
from topkopt.losses import Softmax, TopKHinge, WeightedTopKHinge
from topkopt.metrics import THRESHOLDS, topk_accuracy_curve
from topkopt.plotting import TopKAccuracyDisplay

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
        # A smooth loss: the optimum of a hinge has classes of equal score, and which of them is
        # predicted is a matter of rounding, where the checks ask for the same class.
        TopKClassifierCV([0.01, 0.1], loss="softmax", cv=2, **{**TIGHT, "max_epochs": 2000}),
        MultilabelClassifier(cv=3, **TIGHT),
        MultilabelClassifier("ova_logistic", C=1e-3, threshold=0.0, **TIGHT),
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
    options = {"tol": 1e-8, "C": 0.1, "random_state": 0, "max_epochs": 20000}
    for loss, single in (("multilabel_softmax", "softmax"), ("multilabel_hinge", "hinge")):
        multi = MultilabelClassifier(loss, **options).fit(X, names)
        np.testing.assert_allclose(
            multi.coef_, TopKClassifier(single, **options).fit(X, names).coef_, atol=1e-4
        )
        assert multi.predict(X[:1]) == ["a"]


# Every loss ----------------------------------------------------------------------------------


@multiclass
def test_losses(loss, params):
    model = TopKClassifier(loss, C=0.1, method="sdca", keep_dual=True, random_state=0, **params)
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


TWELVE = np.arange(150) % 12


@pytest.mark.parametrize(
    ("params", "k"),
    [
        ({"loss": WeightedTopKHinge("exp", 5)}, 5),
        ({"loss": WeightedTopKHinge([3.0, 2.0, 1.0, 0.0])}, 3),
        ({"loss": "weighted_topk_hinge", "weights": [3.0, 2.0]}, 2),
        ({"loss": "weighted_topk_hinge", "weights": "linear", "k": 4}, 4),
        ({"loss": "weighted_topk_hinge_label", "weights": np.ones(3)}, 3),
        ({"loss": TopKHinge(7), "k": 2}, 7),
        ({"loss": "topk_entropy", "k": 6}, 6),
        ({"loss": Softmax(), "k": 2}, 2),
    ],
)
def test_default_k(params, k):
    """As many classes are named as the loss has places, whoever says how many."""
    options = {"tol": 0.5, "random_state": 0}
    model = TopKClassifier(C=0.1, **options, **params).fit(X, TWELVE)
    assert model.predict_topk(X).shape == topkopt.predict_topk(model, X).shape == (150, k)
    ks = [params.pop("k", 1)]
    search = TopKClassifierCV([0.1], ks, cv=2, **options, **params).fit(X, TWELVE)
    assert search.k_ == search.ks_ == k
    assert search.predict_topk(X).shape == (150, k)


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


# The k best of any classifier ----------------------------------------------------------------

NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


@pytest.mark.parametrize(
    "model",
    [
        TopKClassifier("softmax", random_state=0),
        LogisticRegression(),
        SVC(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [1.0, 10.0]}, cv=2),
        make_pipeline(StandardScaler(), GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2)),
        KNeighborsClassifier(),  # has probabilities only, and many ties
    ],
    ids=lambda model: type(model).__name__,
)
def test_predict_topk_of_any_classifier(model):
    model = clone(model).fit(X, NAMES)
    score = getattr(model, "decision_function", None) or model.predict_proba
    best = topkopt.predict_topk(model, X, k=2)
    order = np.argsort(-score(X), axis=1, kind="stable")  # ties by the order of the classes
    np.testing.assert_array_equal(best, model.classes_[order[:, :2]])
    assert topkopt.predict_topk(model, X, 3).shape == (150, 3)


@pytest.mark.parametrize("model", [LogisticRegression(), TopKClassifier("softmax")])
def test_predict_topk_of_two_classes(model):
    two = Y < 2
    model = clone(model).fit(X[two], NAMES[two])
    best = topkopt.predict_topk(model, X[two], k=2)
    np.testing.assert_array_equal(best[:, 0], model.predict(X[two]))
    assert (best[:, 0] != best[:, 1]).all()


def test_predict_topk_takes_the_k_of_the_last_step():
    model = TopKClassifier("topk_entropy", k=2, random_state=0)
    for wrapped in (
        make_pipeline(StandardScaler(), model),
        GridSearchCV(model, {"C": [0.1, 1.0]}, cv=2),
        GridSearchCV(make_pipeline(StandardScaler(), model), {"topkclassifier__k": [1, 2]}, cv=2),
    ):
        fitted = wrapped.fit(X, Y)
        k = fitted.best_params_.get("topkclassifier__k", 2) if hasattr(fitted, "cv") else 2
        assert topkopt.predict_topk(fitted, X).shape == (150, k)
        np.testing.assert_array_equal(topkopt.predict_topk(fitted, X, 1)[:, 0], fitted.predict(X))


def test_predict_topk_of_several_labels():
    model = MultilabelClassifier(smoothing=1.0, C=0.1, cv=3, random_state=0).fit(XM, YM)
    best = topkopt.predict_topk(model, XM, 2)
    np.testing.assert_array_equal(best[:, 0], model.decision_function(XM).argmax(axis=1))


def test_predict_topk_errors_of_any_classifier():
    model = LogisticRegression().fit(X, Y)
    for k in (0, 4):
        with raises(ValueError, "k must be between 1 and the number of classes (3)", f"got {k}"):
            topkopt.predict_topk(model, X, k)
    with raises(ValueError, "k must be given with LogisticRegression"):
        topkopt.predict_topk(model, X)
    for estimator in (LogisticRegression, LinearRegression(), None, StandardScaler()):
        with raises(TypeError, "estimator must be a fitted classifier with decision_function"):
            topkopt.predict_topk(estimator, X, 1)
    for unfitted in (TopKClassifier(), TopKClassifierCV(), LogisticRegression()):
        with pytest.raises(NotFittedError):
            topkopt.predict_topk(unfitted, X, 1)
    for unfitted in (TopKClassifier(), TopKClassifierCV()):
        with pytest.raises(NotFittedError):
            topkopt.predict_topk(unfitted, X)
    with raises(ValueError, "estimator must score classes", "ovo", "'ovr'"):
        topkopt.predict_topk(SVC(decision_function_shape="ovo").fit(X, Y), X, 1)
    several = MultiOutputClassifier(LogisticRegression()).fit(X, np.stack([Y, Y], axis=1))
    with raises(ValueError, "estimator must score each of its classes"):
        topkopt.predict_topk(several, X, 1)


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
    options = {"tol": 1e-10, "random_state": 0, "fit_intercept": False}
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
    fitted = model.set_params(random_state=0, keep_dual=True).fit(XM, container(labels))
    assert np.isfinite(fitted.coef_).all()
    assert fitted.solution_.cost.min() > 0


@pytest.fixture
def tuned(monkeypatch):
    """Return the list of what thresholds are chosen by: labels, scores and weights."""
    calls = []

    def tune_threshold(y_true, y_score, metric, *, sample_weight):
        calls.append((y_true, y_score, sample_weight))
        return 0.25, 1.0

    monkeypatch.setattr(topkopt.estimators.multilabel, "tune_threshold", tune_threshold)
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


GRAM = rbf_kernel(X, gamma=0.5)


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


# What is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "estimator",
    [TopKClassifier("softmax"), TopKClassifierCV([0.1], cv=2), MultilabelClassifier(smoothing=1.0)],
)
def test_the_dual_is_kept_if_asked_for(estimator, keep):
    model = clone(estimator).set_params(keep_dual=keep, method="sdca", random_state=0).fit(X, Y)
    assert hasattr(model, "dual_coef_") == keep
    assert (model.solution_.dual is not None) == keep
    assert f"{Y.size} examples" in model.solution_.report()
    if keep:
        np.testing.assert_allclose(model.dual_coef_ @ X, model.coef_, atol=1e-10)
    else:
        with raises(AttributeError, type(model).__name__, "keep_dual=True"):
            _ = model.dual_coef_
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert hasattr(again, "dual_coef_") == keep


def test_the_size_of_a_pickled_model():
    """A linear model is as large as its weights, not as its data times its classes."""
    rng = np.random.default_rng(0)
    data, labels = rng.standard_normal((2000, 4)), rng.integers(0, 50, 2000)
    options = {"tol": 0.1, "random_state": 0}
    model = TopKClassifier("softmax", **options).fit(data, labels)
    small = sum(v.nbytes for v in model.history_.values())
    size = len(pickle.dumps(model))
    assert size < 3 * model.coef_.nbytes + small + 3000
    dual = data.shape[0] * 50 * 8
    assert size < dual / 20
    kept = len(pickle.dumps(clone(model).set_params(keep_dual=True).fit(data, labels)))
    kernel = clone(model).set_params(kernel="rbf").fit(data[:500], labels[:500])
    assert dual < kept < 1.1 * dual  # once
    assert dual / 4 < len(pickle.dumps(kernel)) < 1.3 * dual / 4
    assert np.shares_memory(kernel.dual_coef_, kernel.solution_.dual)


def test_the_scale_of_the_objective():
    model = TopKClassifier("softmax", C=0.3, fit_intercept=False, tol=1e-9, random_state=0)
    model.fit(X, Y)
    scores = X @ model.coef_.T
    loss = -np.log(softmax(scores, axis=1)[np.arange(150), Y]).sum()
    objective = 0.5 * (model.coef_**2).sum() + 0.3 * loss
    assert model.solution_.objective == pytest.approx(objective)
    assert model.history_["primal"][-1] * 0.3 * 150 == pytest.approx(objective)


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


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
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


def test_classes_that_a_fold_lacks_tie_at_the_end():
    """Of two unseen classes a third guess names one, which is the right one half the time."""
    labels = np.repeat(np.arange(4), 10)
    data = np.random.default_rng(0).standard_normal((40, 2))
    folds = [(np.arange(20), np.arange(20, 40))]
    search = TopKClassifierCV([0.1], cv=folds, loss="softmax", random_state=0).fit(data, labels)
    np.testing.assert_allclose(search.cv_accuracy_[0, 0, 0], [0.0, 0.0, 0.5, 1.0])
    finite = make_scorer(log_loss, response_method="predict_proba", labels=range(4))
    for scoring in ("accuracy", "f1_micro", finite):
        scored = clone(search).set_params(scoring=scoring).fit(data, labels)
        assert scored.best_score_ > 30 if scoring is finite else scored.best_score_ == 0.0


CONSTANT = np.zeros((150, 2))


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
@pytest.mark.parametrize("m", [2, 3, 5])
def test_constant_scores_are_a_guess_everywhere(m, kernel):
    """The same k/m by the score, by cross-validation, by the curves and by their display."""
    labels = np.sort(np.arange(150) % m)
    data = np.zeros((150, 150)) if kernel == "precomputed" else CONSTANT
    options = {"fit_intercept": False, "kernel": kernel, "random_state": 0}
    model = TopKClassifier(**options).fit(data, labels)
    assert np.ptp(model.decision_function(data)) == 0
    expected = np.arange(1, m + 1) / m
    assert model.score(data, labels) == pytest.approx(1 / m)
    single = MultilabelClassifier(**options).fit(data, labels)
    assert single.score(data, labels) == pytest.approx(1 / m)
    np.testing.assert_allclose(cross_val_score(model, data, labels, cv=3), 1 / m)
    search = TopKClassifierCV([0.1, 1.0], cv=3, **options).fit(data, labels)
    assert search.best_score_ == pytest.approx(1 / m)
    np.testing.assert_allclose(search.cv_accuracy_, np.broadcast_to(expected, (3, 2, 1, m)))
    assert search.set_params(scoring="top2").score(data, labels) == pytest.approx(2 / m)
    scores = model.decision_function(data)
    np.testing.assert_allclose(topk_accuracy_curve(labels, scores), expected)
    display = TopKAccuracyDisplay.from_estimator(model, data, labels)
    np.testing.assert_allclose(display.accuracy, expected)
    plt.close("all")


def test_best_score_is_what_cross_val_score_finds():
    data, labels = load_digits(return_X_y=True)
    data, labels = data[:300] / 16, labels[:300]
    # So small a C that the scores of untrained classes are equal, and ties decide.
    for C in (1e-30, 0.01):
        model = TopKClassifier("hinge", C=C, tol=1e-6, random_state=0)
        search = TopKClassifierCV([C], loss="hinge", tol=1e-6, random_state=0).fit(data, labels)
        expected = cross_val_score(model, data, labels, cv=5).mean()
        assert search.best_score_ == pytest.approx(expected, abs=0.01)


def test_score_of_classes_that_training_lacked():
    model = TopKClassifier("softmax", random_state=0).fit(X[Y > 0], NAMES[Y > 0])
    seen = model.score(X[Y > 0], NAMES[Y > 0])
    assert model.score(X, NAMES) == pytest.approx(seen * 2 / 3)
    assert model.score(X[:50], NAMES[:50]) == 0.0
    weight = np.where(Y > 0, 2.0, 1.0)
    assert model.score(X, NAMES, weight) == pytest.approx(seen * 4 / 5)
    with raises(ValueError, "y must hold classes like those", "'versicolor'", "got 0"):
        model.score(X, Y)
    with raises(ValueError, "y must have one entry per row of X (150), got 3"):
        model.score(X, NAMES[:3])


# Scorers, groups, metadata --------------------------------------------------------------------

GROUPS = np.arange(150) % 5


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize(
    ("scoring", "binary"),
    [
        ("accuracy", False),
        ("neg_log_loss", False),
        ("f1_macro", False),
        ("roc_auc_ovr", False),
        ("roc_auc", True),
        (make_scorer(topkopt.metrics.topk_accuracy, response_method="decision_function"), False),
        (lambda model, X, y: float(np.mean(model.predict(X) == y)), False),
    ],
)
def test_any_scorer(scoring, binary, kernel):
    """What a scorer says in the search is what it says in scikit-learn's cross-validation."""
    rows = Y > 0 if binary else Y >= 0
    data, names = X[rows], NAMES[rows]
    if kernel == "precomputed":
        data = data @ data.T
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(data, names))
    options = {"kernel": kernel, "gamma": 0.3, "tol": 1e-8, "max_epochs": 20000, "random_state": 0}
    search = TopKClassifierCV([0.01, 1.0], loss="softmax", scoring=scoring, cv=folds, **options)
    search.fit(data, names)
    assert search.cv_score_.shape == (3, 2, 1)
    assert search.cv_accuracy_.shape == (3, 2, 1, 2 if binary else 3)
    for row, C in enumerate(search.Cs_):
        model = TopKClassifier("softmax", C=C, **options)
        expected = cross_val_score(model, data, names, cv=folds, scoring=scoring)
        np.testing.assert_allclose(search.cv_score_[:, row, 0], expected, atol=1e-3)
    np.testing.assert_array_equal(search.scores_, search.cv_score_.mean(axis=0))
    assert search.best_score_ == search.scores_.max()
    scorer = check_scoring(search, scoring)
    assert search.score(data, names) == scorer(search, data, names)


def test_scorers_get_the_weights_they_take():
    weight = 1.0 + np.arange(150) % 3
    seen = []

    def weighted(model, X, y, sample_weight=None):
        seen.append(sample_weight)
        return 0.5

    folds = list(KFold(3).split(X))
    folds = [(np.sort(train), test) for train, test in folds]
    options = {"loss": "softmax", "cv": KFold(3, shuffle=True, random_state=0), "random_state": 0}
    TopKClassifierCV([0.1], scoring=weighted, **options).fit(X, Y, weight)
    tests = [test for _, test in options["cv"].split(X)]
    for found, test in zip(seen, tests, strict=True):
        np.testing.assert_array_equal(found, weight[test])
    by_name = TopKClassifierCV([0.1], scoring="accuracy", **options).fit(X, Y, weight)
    np.testing.assert_allclose(by_name.cv_score_, by_name.cv_accuracy_[..., 0])
    plain = TopKClassifierCV([0.1], scoring=lambda model, X, y: 0.5, **options).fit(X, Y, weight)
    assert plain.best_score_ == 0.5
    assert by_name.score(X, Y, weight) == pytest.approx(
        accuracy_score(Y, by_name.predict(X), sample_weight=weight)
    )


@pytest.mark.parametrize("cv", [GroupKFold(5), LeaveOneGroupOut()])
def test_groups(cv):
    search = TopKClassifierCV([0.1], loss="softmax", cv=cv, random_state=0)
    expected = list(cv.split(X, Y, GROUPS))
    given = clone(search).set_params(cv=expected).fit(X, Y)
    np.testing.assert_array_equal(search.fit(X, Y, groups=GROUPS).cv_accuracy_, given.cv_accuracy_)
    thresholds = MultilabelClassifier(smoothing=1.0, C=0.1, cv=cv, random_state=0)
    groups = GROUPS[:80]
    expected = list(cv.split(XM, YM, groups))
    given = clone(thresholds).set_params(cv=expected).fit(XM, YM)
    assert thresholds.fit(XM, YM, groups=groups).threshold_ == given.threshold_


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (TopKClassifierCV([0.1], cv=GroupKFold(3)), (X, Y)),
        (MultilabelClassifier(smoothing=1.0, cv=GroupKFold(3)), (X, np.eye(3, dtype=int)[Y])),
    ],
)
def test_groups_that_do_not_fit(model, data):
    with raises(ValueError, "groups must have one entry per example (150), got shape (3,)"):
        model.fit(*data, groups=[0, 1, 2])
    with raises(ValueError, "cv must be", "GroupKFold", "groups"):
        model.fit(*data)
    with raises(TypeError, "fit must get X, y, sample_weight and groups", "colour", "routing"):
        model.fit(*data, colour=GROUPS)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_metadata_is_routed():
    seen = []

    def bonus(y_true, y_pred, sample_weight=None, bonus=None):
        seen.append((sample_weight, bonus))
        return 0.5

    weight, extra = 1.0 + np.arange(150) % 3, np.arange(150)
    scorer = make_scorer(bonus).set_score_request(sample_weight=False, bonus=True)
    cv = GroupKFold(3)
    search = TopKClassifierCV([0.1], loss="softmax", cv=cv, scoring=scorer, random_state=0)
    search.set_params(keep_dual=True)
    search.fit(X, Y, sample_weight=weight, groups=GROUPS, bonus=extra)
    for (no_weight, found), (_, test) in zip(seen, cv.split(X, Y, GROUPS), strict=True):
        assert no_weight is None
        np.testing.assert_array_equal(found, test)
    assert not np.array_equal(search.solution_.cost, np.full(150, search.C_))
    scorer = make_scorer(bonus).set_score_request(sample_weight=True)
    search.set_params(scoring=scorer).fit(X, Y, sample_weight=weight, groups=GROUPS)
    np.testing.assert_array_equal(seen[-1][0], weight[test])
    assert search.score(X, Y, weight) == 0.5
    np.testing.assert_array_equal(seen[-1][0], weight)


@pytest.mark.usefixtures("routing")
def test_metadata_nobody_asked_for():
    weight = np.ones(150)
    search = TopKClassifierCV([0.1], loss="softmax", cv=3)
    assert search.fit(X, Y, weight).best_score_ > 0.5  # accuracies have the weights anyway
    with raises(TypeError, "TopKClassifierCV", "fit", "groups"):
        search.fit(X, Y, groups=GROUPS)
    search.set_params(scoring="accuracy")
    with raises(ValueError, "sample_weight", "set_score_request"):
        search.fit(X, Y, weight)
    labels = np.eye(3, dtype=int)[Y]
    with raises(TypeError, "MultilabelClassifier", "fit", "colour"):
        MultilabelClassifier(smoothing=1.0, cv=3).fit(X, labels, colour=weight)


@pytest.mark.usefixtures("routing")
def test_metadata_through_other_tools():
    search = TopKClassifierCV([0.1], loss="softmax", cv=GroupKFold(3), random_state=0)
    asking = clone(search).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    assert clone(asking).get_metadata_routing().consumes("fit", ["sample_weight", "groups"]) == {
        "sample_weight",
        "groups",
    }
    groups, both = {"groups": GROUPS}, {"groups": GROUPS, "sample_weight": 1.0 + GROUPS % 2}
    pipeline = make_pipeline(StandardScaler(), search)
    for model, params in ((search, groups), (pipeline, groups), (asking, both)):
        found = cross_validate(model, X, Y, params=params, cv=GroupKFold(5))["test_score"]
        assert found.min() > 0.7


# Progress -------------------------------------------------------------------------------------


def test_progress_of_a_search(capsys):
    options = {"loss": "topk_entropy", "cv": 2, "random_state": 0}
    TopKClassifierCV([0.1, 1.0], [1, 2], verbose=2, **options).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    places = list(dict.fromkeys(line.partition("  epoch")[0] for line in lines))
    assert places[:-1] == [
        f"fold {fold}/2  k = {k}  C = {C}" for fold in (1, 2) for k in (1, 2) for C in ("0.1", "1")
    ]
    assert re.fullmatch("all examples  k = [12]  C = (0.1|1)", places[-1])
    assert all("gap" in line for line in lines)
    TopKClassifierCV([0.1], verbose=1, **options).fit(X, Y)
    out = capsys.readouterr()
    assert out.out == out.err == ""  # there is no terminal


def test_progress_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    TopKClassifierCV([0.1, 1.0], cv=2, loss="softmax", verbose=1, random_state=0).fit(X, Y)
    said = capsys.readouterr().err
    for place in ("fold 1/2  k = 1  C = 0.1", "fold 2/2  k = 1  C = 1", "all examples"):
        assert f"\r{place}" in said
    assert said.endswith("\n")


def test_progress_of_a_loss_that_is_not_convex(capsys):
    """Its path has two trainings for each C: the softmax one, then its own."""
    TopKClassifierCV(
        [0.1, 1.0], loss="truncated_topk_entropy", cv=2, verbose=2, random_state=0
    ).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    begun = [line.partition("  epoch")[0] for line in lines if "epoch 0" in line]
    assert begun[:4] == [f"fold 1/2  k = 1  C = {C}" for C in ("0.1", "0.1", "1", "1")]


def test_progress_in_the_log(caplog):
    caplog.set_level(logging.INFO, "topkopt")
    TopKClassifierCV([0.1], cv=2, loss="softmax", random_state=0).fit(X, Y)
    assert "fold 2/2  k = 1  C = 0.1" in caplog.messages


# Interrupts -----------------------------------------------------------------------------------


class Interrupt(logging.Handler):
    """Interrupts a training at its second certificate, as Ctrl-C does, and counts trainings."""

    def __init__(self, training):
        super().__init__()
        self.training, self.begun, self.raised = training, 0, 0

    def emit(self, record):
        said = re.search(r"\b(?:epoch|iteration) (\d+)\b", record.getMessage())
        epoch = said and int(said[1])
        self.begun += epoch == 0
        if self.begun == self.training and epoch == 1:
            self.raised += 1
            raise KeyboardInterrupt


@pytest.fixture
def interrupt():
    logger = logging.getLogger("topkopt")
    added, level = [], logger.level

    def arm(training):
        added.append(Interrupt(training))
        logger.addHandler(added[-1])
        logger.setLevel(logging.INFO)
        return added[-1]

    yield arm
    for handler in added:
        logger.removeHandler(handler)
    logger.setLevel(level)


INTERRUPTED = [
    (TopKClassifier("softmax"), (X, Y), 1),
    (TopKClassifier("softmax", kernel="rbf"), (X, Y), 1),
    (TopKClassifier("softmax", kernel="precomputed"), (GRAM, Y), 1),
    (TopKClassifier("truncated_topk_entropy", k=2), (X, Y), 1),
    (TopKClassifierCV([0.1, 1.0], cv=3, loss="softmax"), (X, Y), 1),
    (TopKClassifierCV([0.1, 1.0], cv=3, loss="softmax"), (X, Y), 2),
    (TopKClassifierCV([0.1, 1.0], cv=3, loss="softmax"), (X, Y), 7),  # on all examples
    (MultilabelClassifier(smoothing=1.0, C=0.1, cv=3), (XM, YM), 2),
    (MultilabelClassifier(smoothing=1.0, C=0.1, cv=3), (XM, YM), 4),
]


@pytest.mark.parametrize(("model", "data", "training"), INTERRUPTED)
def test_one_interrupt_ends_a_fit(interrupt, model, data, training):
    """No training begins after it, and nothing of the fit is left behind."""
    fresh, fitted = clone(model), clone(model).fit(*data)
    before, scores = vars(fitted).copy(), fitted.decision_function(data[0])
    for estimator in (fresh, fitted):
        handler = interrupt(training)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(*data)
        assert (handler.begun, handler.raised) == (training, 1)
        logging.getLogger("topkopt").removeHandler(handler)
    assert vars(fresh).keys() == vars(clone(model)).keys()
    with pytest.raises(NotFittedError):
        fresh.predict(data[0])
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(fitted.decision_function(data[0]), scores)


def test_one_interrupt_ends_a_path(interrupt):
    handler = interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        topkopt.path(X, Y, "softmax", Cs=[0.1, 1.0, 10.0])
    assert (handler.begun, handler.raised) == (2, 1)


def interrupted_scorer(model, X, y):
    raise KeyboardInterrupt


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_in_a_worker_ends_the_search(n_jobs):
    search = TopKClassifierCV([0.1], cv=3, scoring=interrupted_scorer, n_jobs=n_jobs)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, Y)
    assert not hasattr(search, "classes_")


def test_a_fit_that_fails_changes_nothing():
    model = TopKClassifier("softmax", random_state=0).fit(X, NAMES)
    before = model.decision_function(X)
    with raises(ValueError, "C must be"):
        model.set_params(C=-1.0).fit(X[:100, :2], Y[:100])
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert model.classes_.tolist() == sorted(set(NAMES))


# Callbacks of scikit-learn --------------------------------------------------------------------


class Recorder:
    """Writes down what it is told, and may ask to stop."""

    def __init__(self, stop_at=None):
        self.stop_at, self.said, self.scores = stop_at, [], []

    def setup(self, estimator, context):
        self.said.append(("setup", type(estimator).__name__))

    def teardown(self, estimator, context):
        self.said.append(("teardown", type(estimator).__name__))

    def on_fit_task_begin(self, estimator, context):
        self.said.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.said.append(("end", context.task_name))
        if hasattr(fitted_estimator, "score"):
            self.scores.append(fitted_estimator.score(X, y))
        return len(self.scores) == self.stop_at

    def count(self, hook, task):
        return self.said.count((hook, task))


class PropagatedRecorder(Recorder):
    max_propagation_depth = None


@pytest.fixture
def callbacks():
    pytest.importorskip("sklearn.callback")


@pytest.mark.usefixtures("callbacks")
@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize("loss", ["hinge", "truncated_topk_entropy"])
def test_callbacks_see_epochs(loss, kernel):
    recorder = Recorder()
    data = GRAM if kernel == "precomputed" else X
    model = TopKClassifier(loss, C=0.1, kernel=kernel, random_state=0).set_callbacks(recorder)
    model.fit(data, NAMES)
    plain = TopKClassifier(loss, C=0.1, kernel=kernel, random_state=0).fit(data, NAMES)
    np.testing.assert_array_equal(model.decision_function(data), plain.decision_function(data))
    assert recorder.said[0] == ("setup", "TopKClassifier")
    assert recorder.said[1] == ("begin", "fit")
    assert recorder.said[-2:] == [("end", "fit"), ("teardown", "TopKClassifier")]
    assert recorder.count("begin", "epoch") == recorder.count("end", "epoch")
    steps = len(model.history_["epoch"]) - 1  # which may take more than one pass each, or less
    extra = recorder.count("end", "epoch") - steps
    assert extra in ((0, 1) if loss.startswith("truncated") else (0,))
    assert len(recorder.scores) == steps + 1
    assert recorder.scores[-1] == model.score(data, NAMES)


@pytest.mark.usefixtures("callbacks")
def test_a_callback_stops_the_training():
    model = TopKClassifier("hinge", C=1.0, random_state=0).set_callbacks(Recorder(stop_at=3))
    with pytest.warns(ConvergenceWarning, match="stopped"):
        model.fit(X, Y)
    assert len(model.history_["epoch"]) == 3 + 1


@pytest.mark.usefixtures("callbacks")
def test_callbacks_see_searches():
    recorder = Recorder()
    search = TopKClassifierCV([0.1, 1.0], [1, 2], loss="topk_entropy", cv=3, random_state=0)
    search.set_callbacks(recorder).fit(X, Y)
    for fold in ("1/3", "2/3", "3/3"):
        assert recorder.count("begin", f"fold {fold}") == recorder.count("end", f"fold {fold}") == 1
        for k in (1, 2):
            for C in ("0.1", "1"):
                place = f"fold {fold}  k = {k}  C = {C}"
                assert recorder.count("begin", place) == recorder.count("end", place) == 1
    assert recorder.count("end", "epoch") == len(search.history_["epoch"]) - 1
    assert recorder.scores[-1] == search.score(X, Y)
    assert recorder.said[-1] == ("teardown", "TopKClassifierCV")


@pytest.mark.usefixtures("callbacks")
@pytest.mark.parametrize("recorder", [Recorder, PropagatedRecorder])
def test_callbacks_see_thresholds(recorder):
    recorder = recorder()
    model = MultilabelClassifier(smoothing=1.0, C=0.1, cv=3, random_state=0)
    model.set_callbacks(recorder).fit(XM, YM)
    assert recorder.count("setup", "MultilabelClassifier") == 1
    assert recorder.count("teardown", "MultilabelClassifier") == 1
    assert recorder.count("begin", "all examples") == recorder.count("end", "all examples") == 1
    if isinstance(recorder, PropagatedRecorder):  # a fold is the fit of another classifier
        assert recorder.count("begin", "fit") == recorder.count("end", "fit") == 4
        assert recorder.count("end", "epoch") > model.n_iter_
    else:
        assert recorder.count("begin", "fold 2/3") == recorder.count("end", "fold 2/3") == 1
        assert recorder.count("end", "epoch") == len(model.history_["epoch"]) - 1
    assert not hasattr(model, "_callback_fit_ctx")


@pytest.mark.usefixtures("callbacks")
def test_callbacks_through_other_tools():
    recorder = PropagatedRecorder()
    pipeline = make_pipeline(StandardScaler(), TopKClassifier("softmax", random_state=0))
    search = GridSearchCV(pipeline, {"topkclassifier__C": [0.1, 1.0]}, cv=2)
    search.set_callbacks(recorder).fit(X, Y)
    assert (
        recorder.count("setup", "GridSearchCV") == recorder.count("teardown", "GridSearchCV") == 1
    )
    assert recorder.count("end", "epoch") > 5


@pytest.mark.usefixtures("callbacks")
def test_callbacks_are_torn_down_after_an_interrupt(interrupt):
    recorder = Recorder()
    model = TopKClassifier("softmax").set_callbacks(recorder)
    interrupt(1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert recorder.said[-1] == ("teardown", "TopKClassifier")
    assert vars(model).keys() - vars(TopKClassifier()).keys() == {"_skl_callbacks"}


@pytest.mark.usefixtures("callbacks")
def test_a_monitor_of_scikit_learn_with_workers():
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="accuracy")
    search = TopKClassifierCV([0.1, 1.0], cv=2, loss="softmax", n_jobs=2, random_state=0)
    search.set_callbacks(monitor).fit(pd.DataFrame(X, columns=list("abcd")), NAMES)
    log = monitor.get_logs().data
    assert [row["accuracy"] for row in log][-1] > 0.9


def test_scikit_learn_before_callbacks():
    code = (
        "import sys, sklearn.model_selection, sklearn.pipeline, sklearn.preprocessing\n"
        "sys.modules['sklearn.callback'] = None\n"
        "import topkopt\n"
        "model = topkopt.TopKClassifierCV([0.1], cv=2).fit([[-1.0], [1.0]] * 9, [0, 1] * 9)\n"
        "print(hasattr(model, 'set_callbacks'), model.best_score_)"
    )
    assert run_python(code) == "False 1.0"


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


def test_without_scikit_learn():
    names = [cls.__name__ for cls in ESTIMATORS]
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import topkopt\n"
        f"for name in {names}:\n"
        "    try: getattr(topkopt, name)\n"
        "    except ImportError as error: print(error)"
    )
    said = run_python(code).splitlines()
    assert len(said) == len(names)
    assert all('pip install "topkopt[sklearn]"' in line for line in said)


def test_unknown_attribute():
    with raises(AttributeError, "module 'topkopt' has no attribute 'nothing'"):
        _ = topkopt.nothing
    assert {cls.__name__ for cls in ESTIMATORS} <= set(dir(topkopt))
