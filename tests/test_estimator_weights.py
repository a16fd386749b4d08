"""Weights of examples, classes and labels, and the threshold they move."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
)
from sklearn.utils.class_weight import compute_sample_weight

import topkopt
from topkopt import MultilabelClassifier, TopKClassifier

from .classifiers import XM, YM, X, Y


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
