"""The estimators: equal optima, every loss, what is kept, errors."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import topkopt
from topkopt import ConvergenceWarning, MultilabelClassifier, TopKClassifier, TopKClassifierCV
from topkopt.losses import Softmax, TopKHinge, WeightedTopKHinge
from topkopt.metrics import THRESHOLDS

from .classifiers import XM, YM, X, Y, multiclass
from .expect import raises

# Equal optima ---------------------------------------------------------------------------------


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


# Every loss -----------------------------------------------------------------------------------


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


# What is kept ---------------------------------------------------------------------------------


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
    data, labels = rng.standard_normal((2000, 40)), rng.integers(0, 50, 2000)
    options = {"tol": 0.1, "random_state": 0}
    model = TopKClassifier("softmax", **options).fit(data, labels)
    small = sum(v.nbytes for v in model.history_.values())
    size = len(pickle.dumps(model))
    assert size < model.solution_.coef.nbytes + small + 3000  # which holds coef_ and intercept_
    dual = data.shape[0] * 50 * 8
    assert size < dual / 20
    kept = len(pickle.dumps(clone(model).set_params(keep_dual=True).fit(data, labels)))
    kernel = clone(model).set_params(kernel="rbf").fit(data[:500], labels[:500])
    assert dual < kept < 1.1 * dual  # once
    held = dual / 4 + kernel.X_fit_.nbytes
    assert held < len(pickle.dumps(kernel)) < 1.1 * held
    assert np.shares_memory(kernel.dual_coef_, kernel.solution_.dual)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_pickle_keeps_the_weights_of_the_scores(n_classes):
    few = n_classes > Y
    model = TopKClassifier(random_state=0).fit(X[few], Y[few])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert np.shares_memory(again.coef_, again.solution_.coef) == (n_classes > 2)
    model.coef_ = np.where(np.abs(model.coef_) < 0.1, 0.0, model.coef_)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    model.coef_ = model.coef_[:1]  # of a view, too, what it shows is kept
    assert pickle.loads(pickle.dumps(model)).coef_.shape == model.coef_.shape


def test_the_scale_of_the_objective():
    model = TopKClassifier("softmax", C=0.3, fit_intercept=False, tol=1e-9, random_state=0)
    model.fit(X, Y)
    scores = X @ model.coef_.T
    loss = -np.log(softmax(scores, axis=1)[np.arange(150), Y]).sum()
    objective = 0.5 * (model.coef_**2).sum() + 0.3 * loss
    assert model.solution_.objective == pytest.approx(objective)
    assert model.history_["primal"][-1] * 0.3 * 150 == pytest.approx(objective)


# Tools of scikit-learn ------------------------------------------------------------------------


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


# Errors ---------------------------------------------------------------------------------------


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
