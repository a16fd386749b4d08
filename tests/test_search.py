"""Cross-validation: scores, ties, scorers, groups, metadata."""

import numpy as np
import pytest
import sklearn
from matplotlib import pyplot as plt
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, check_scoring, log_loss, make_scorer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import topkopt
from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV
from topkopt.metrics import topk_accuracy_curve
from topkopt.plotting import TopKAccuracyDisplay

from .classifiers import NAMES, XM, YM, X, Y
from .expect import raises

# Cross-validation -----------------------------------------------------------------------------


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
