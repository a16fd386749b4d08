"""The metrics: by hand, against scikit-learn's, ties, weights, and errors."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    label_ranking_loss,
    make_scorer,
    top_k_accuracy_score,
)
from sklearn.model_selection import cross_val_score

from topkopt import metrics
from topkopt.metrics import (
    THRESHOLDS,
    mean_average_precision,
    precision_at_k,
    rank_loss,
    recall_at_k,
    topk_accuracy,
    topk_accuracy_curve,
    topk_error,
    tune_threshold,
)

from .expect import raises

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal((60, 5))
TIED = RNG.integers(0, 3, (60, 5)).astype(float)
LABELS = RNG.integers(0, 5, 60)
RELEVANT = (RNG.uniform(size=(60, 5)) < 0.4).astype(int)
COUNT = RNG.integers(0, 4, 60)
MULTILABEL = {
    "recall_at_k": lambda *a, **o: recall_at_k(*a, k=2, **o),
    "precision_at_k": lambda *a, **o: precision_at_k(*a, k=2, **o),
    "rank_loss": rank_loss,
    "mean_average_precision": mean_average_precision,
}
multilabel = pytest.mark.parametrize("metric", MULTILABEL.values(), ids=MULTILABEL)


# Top-k ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4])
def test_topk_accuracy_without_ties_is_scikit_learns(k):
    theirs = top_k_accuracy_score(LABELS, SCORES, k=k, labels=range(5))
    assert topk_accuracy(LABELS, SCORES, k) == pytest.approx(theirs)
    assert topk_error(LABELS, SCORES, k) == pytest.approx(1 - theirs)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_error_of_the_papers_is_optimistic(k):
    kth = -np.sort(-TIED, axis=1)[:, k - 1]
    expected = (kth > TIED[np.arange(60), LABELS]).mean()
    assert topk_error(LABELS, TIED, k, ties="optimistic") == pytest.approx(expected)


def every_order(scores):
    """Yield what the scores may mean: the classes in every order that does not contradict them."""
    for order in permutations(range(len(scores))):
        if all(scores[i] >= scores[j] for i, j in pairwise(order)):
            yield -np.argsort(order).astype(float)


TIES = {"average": np.mean, "optimistic": np.max, "pessimistic": np.min}
ties = pytest.mark.parametrize("ties", TIES)


@ties
@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_ties_by_enumeration(ties, k):
    """A tie is worth what its orders are worth: on average, at best, at worst."""
    rows = TIED[:12].copy()
    rows[0] = 0.0
    rows[1, [0, 3]] = -np.inf
    for row, label, relevant in zip(rows, LABELS, RELEVANT, strict=False):
        orders = list(every_order(row))
        assert topk_accuracy([label], [row], k, ties=ties) == pytest.approx(
            TIES[ties]([topk_accuracy([label], [order], k) for order in orders])
        )
        if not relevant.any():
            continue
        for metric in (recall_at_k, precision_at_k):
            expected = TIES[ties]([metric([relevant], [order], k) for order in orders])
            assert metric([relevant], [row], k, ties=ties) == pytest.approx(expected)
        worst_is_most = {"optimistic": "pessimistic", "pessimistic": "optimistic"}.get(ties, ties)
        expected = TIES[worst_is_most]([rank_loss([relevant], [order]) for order in orders])
        assert rank_loss([relevant], [row], ties=ties) == pytest.approx(expected)


def test_constant_scores_are_a_guess():
    constant = np.zeros((60, 5))
    np.testing.assert_allclose(topk_accuracy_curve(LABELS, constant), np.arange(1, 6) / 5)
    assert topk_error(LABELS, constant, 2) == pytest.approx(0.6)
    assert topk_accuracy([0, 1, 1], [0.0, 0.0, 0.0]) == 0.5  # a decision function of two classes
    some = RELEVANT[(RELEVANT.sum(axis=1) > 0) & (RELEVANT.sum(axis=1) < 5)]
    assert recall_at_k(some, constant[: len(some)], 2) == pytest.approx(0.4)
    assert precision_at_k(some, constant[: len(some)], 2) == pytest.approx(some.mean())
    assert rank_loss(some, constant[: len(some)]) == 0.5
    share = RELEVANT.mean(axis=0).mean()
    assert mean_average_precision(RELEVANT, constant) == pytest.approx(share)


def test_an_accuracy_is_never_above_1():
    rng = np.random.default_rng(0)
    for n in range(1, 60):
        curve = topk_accuracy_curve(
            rng.integers(0, 3, n), rng.normal(size=(n, 3)), sample_weight=rng.uniform(size=n)
        )
        assert curve.max() <= 1.0


def test_equally_good_scores_have_equal_accuracies():
    """Not only up to rounding: the best of several models is found by comparing them."""
    rng = np.random.default_rng(0)
    weight = rng.uniform(size=60)
    own = np.arange(5) == LABELS[:, None]
    curves = [
        topk_accuracy_curve(LABELS, scores + 10.0 * own, sample_weight=weight)
        for scores in (SCORES, rng.permuted(SCORES, axis=1))
    ]
    np.testing.assert_array_equal(*curves)


@ties
def test_without_ties_there_is_nothing_to_choose(ties):
    np.testing.assert_array_equal(
        topk_accuracy_curve(LABELS, SCORES, ties=ties), topk_accuracy_curve(LABELS, SCORES)
    )
    for metric in (recall_at_k, precision_at_k, rank_loss):
        assert metric(RELEVANT, SCORES, ties=ties) == pytest.approx(metric(RELEVANT, SCORES))


def test_permuting_classes_changes_nothing():
    order = np.array([3, 1, 4, 0, 2])
    np.testing.assert_array_equal(
        topk_accuracy_curve(LABELS, TIED),
        topk_accuracy_curve(LABELS, TIED[:, order], labels=order),
    )


def test_curve_is_every_k():
    curve = topk_accuracy_curve(LABELS, SCORES)
    assert curve.shape == (5,)
    assert curve[-1] == 1.0
    assert (np.diff(curve) >= 0).all()
    np.testing.assert_array_equal(
        curve[[1, 3]], [topk_accuracy(LABELS, SCORES, 2), topk_accuracy(LABELS, SCORES, 4)]
    )
    np.testing.assert_array_equal(topk_accuracy_curve(LABELS, SCORES, ks=[2, 4]), curve[[1, 3]])


def test_labels():
    names = np.array(list("edcba"))
    expected = topk_accuracy(LABELS, SCORES, 2)
    assert topk_accuracy(names[LABELS], SCORES, 2, labels=names) == expected
    assert topk_accuracy(LABELS + 10, SCORES, 2) == expected  # five distinct values
    few = LABELS < 2
    assert topk_accuracy(LABELS[few], SCORES[few]) == np.mean(
        SCORES[few].argmax(axis=1) == LABELS[few]
    )


def test_two_classes_by_a_decision_function():
    assert topk_accuracy(["no", "yes", "no"], [-1.0, 2.0, 3.0]) == pytest.approx(2 / 3)
    assert topk_accuracy([0, 1], [-1.0, 2.0], k=2) == 1.0


def test_weights_are_repetitions():
    for ties in (SCORES, TIED):
        weighted = topk_accuracy_curve(LABELS, ties, sample_weight=COUNT)
        repeated = topk_accuracy_curve(LABELS.repeat(COUNT), ties.repeat(COUNT, axis=0))
        np.testing.assert_allclose(weighted, repeated, rtol=1e-12)


def test_a_scorer():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((90, 3)), rng.integers(0, 3, 90)
    scorer = make_scorer(topk_accuracy, response_method="decision_function", k=2)
    theirs = cross_val_score(LogisticRegression(), X, y, scoring="top_k_accuracy", cv=3)
    mine = cross_val_score(LogisticRegression(), X, y, scoring=scorer, cv=3)
    np.testing.assert_allclose(mine, theirs)


# Multilabel ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [SCORES, TIED], ids=["distinct", "tied"])
def test_rank_loss(scores):
    pairs = (scores[:, None, :] >= scores[:, :, None]) & (RELEVANT[:, None, :] == 0)
    wrong = (pairs & (RELEVANT[:, :, None] == 1)).sum(axis=(1, 2))
    size = RELEVANT.sum(axis=1) * (1 - RELEVANT).sum(axis=1)
    expected = np.mean(wrong / np.maximum(size, 1))
    found = rank_loss(RELEVANT, scores, ties="pessimistic")  # as in the papers
    assert found == pytest.approx(expected)
    assert found == pytest.approx(label_ranking_loss(RELEVANT, scores))


@pytest.mark.parametrize("scores", [SCORES, TIED], ids=["distinct", "tied"])
@pytest.mark.parametrize("weight", [None, COUNT], ids=["plain", "weighted"])
def test_mean_average_precision(scores, weight):
    theirs = average_precision_score(RELEVANT, scores, sample_weight=weight)
    assert mean_average_precision(RELEVANT, scores, sample_weight=weight) == pytest.approx(theirs)


def test_a_label_nobody_has_is_left_out():
    relevant = np.column_stack([RELEVANT, np.zeros(60, int)])
    scores = np.column_stack([SCORES, SCORES[:, 0]])
    assert mean_average_precision(relevant, scores) == mean_average_precision(RELEVANT, SCORES)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_at_k(k):
    top = np.argsort(-SCORES, axis=1)[:, :k]
    hits = np.take_along_axis(RELEVANT, top, axis=1).sum(axis=1)
    sizes = RELEVANT.sum(axis=1)
    some = sizes > 0
    assert precision_at_k(RELEVANT, SCORES, k) == pytest.approx(np.mean(hits / k))
    assert recall_at_k(RELEVANT, SCORES, k) == pytest.approx(np.mean(hits[some] / sizes[some]))


def test_ties_at_k_are_averaged():
    relevant, scores = [[1, 0, 0, 1]], [[2.0, 1.0, 1.0, 1.0]]
    assert precision_at_k(relevant, scores, k=2) == pytest.approx((1 + 1 / 3) / 2)
    assert recall_at_k(relevant, scores, k=2) == pytest.approx((1 + 1 / 3) / 2)


@multilabel
def test_multilabel_weights_are_repetitions(metric):
    for scores in (SCORES, TIED):
        weighted = metric(RELEVANT, scores, sample_weight=COUNT)
        repeated = metric(RELEVANT.repeat(COUNT, axis=0), scores.repeat(COUNT, axis=0))
        assert weighted == pytest.approx(repeated)


@multilabel
@pytest.mark.parametrize("container", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, np.asarray])
def test_sparse_labels(metric, container):
    assert metric(container(RELEVANT), SCORES) == metric(RELEVANT.astype(bool), SCORES)


# Thresholds ----------------------------------------------------------------------------------


def test_the_grid_of_the_papers():
    assert THRESHOLDS.shape == (71,)
    positive = THRESHOLDS[THRESHOLDS > 0]
    np.testing.assert_allclose(np.log10(positive), np.arange(-5.8, 1.01, 0.2), atol=1e-12)
    np.testing.assert_array_equal(-THRESHOLDS[::-1], THRESHOLDS)
    assert (np.diff(THRESHOLDS) > 0).all()


@pytest.mark.parametrize(
    "metric", ["f1_micro", "f1_macro", "f1_samples", "accuracy", "subset_accuracy", "hamming"]
)
def test_the_threshold_is_the_best(metric):
    few = THRESHOLDS[::7]
    best, value = tune_threshold(RELEVANT, SCORES, metric, thresholds=few)
    others = [tune_threshold(RELEVANT, SCORES, metric, thresholds=[t])[1] for t in few]
    assert best in few
    assert value == (min(others) if metric == "hamming" else max(others))


def test_a_metric_of_ones_own():
    def by_hand(truth, guess):
        return f1_score(truth, guess, average="micro", zero_division=0.0)

    named = tune_threshold(RELEVANT, SCORES, "f1_micro")
    assert tune_threshold(scipy.sparse.csr_array(RELEVANT), SCORES, by_hand) == named


def test_threshold_weights_are_repetitions():
    weighted = tune_threshold(RELEVANT, SCORES, sample_weight=COUNT)
    repeated = tune_threshold(RELEVANT.repeat(COUNT, axis=0), SCORES.repeat(COUNT, axis=0))
    assert weighted == pytest.approx(repeated)


# Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [topk_accuracy, topk_error, precision_at_k, recall_at_k])
def test_k_out_of_range(metric):
    truth = LABELS if metric in (topk_accuracy, topk_error) else RELEVANT
    for k in (0, 6, -1):
        with raises(ValueError, "k must be between 1 and", "(5)", f"got {k}"):
            metric(truth, SCORES, k)
    with raises(TypeError, "k must be an integer, got 1.5"):
        metric(truth, SCORES, 1.5)


@pytest.mark.parametrize("ks", [[], 3, [[1]]])
def test_ks_of_wrong_shape(ks):
    with raises(ValueError, "ks must be a non-empty list of integers"):
        topk_accuracy_curve(LABELS, SCORES, ks=ks)


@multilabel
def test_no_examples(metric):
    with raises(ValueError, "y_score must have at least one row, got none"):
        metric(np.empty((0, 5)), np.empty((0, 5)))
    with raises(ValueError, "y_score must have at least one row, got none"):
        topk_accuracy([], np.empty((0, 5)))


@multilabel
def test_bad_labels(metric):
    with raises(ValueError, "y_true must be an indicator matrix", "(60, 5)", "(60,)"):
        metric(LABELS, SCORES)
    with raises(ValueError, "y_true must be an indicator matrix of 0 and 1, got other values"):
        metric(RELEVANT * 2, SCORES)


@pytest.mark.parametrize("metric", [recall_at_k, mean_average_precision])
def test_nothing_to_find(metric):
    with raises(ValueError, "y_true must have a label in some example of positive weight"):
        metric(np.zeros((60, 5)), SCORES)


def test_bad_scores():
    scores = SCORES.copy()
    scores[3, 3] = np.nan
    with raises(ValueError, "y_score must not hold NaN"):
        topk_accuracy(LABELS, scores)
    with raises(ValueError, "y_score must have one row per example", "(2, 2, 2)"):
        topk_accuracy(LABELS, np.ones((2, 2, 2)))
    with raises(ValueError, "y_score must have one row per example", "(60,)"):
        rank_loss(RELEVANT, SCORES[:, 0])


def test_bad_classes():
    with raises(ValueError, "y_true must hold one class per row of y_score (60)", "(59,)"):
        topk_accuracy(LABELS[1:], SCORES)
    with raises(ValueError, "labels must name the class of each of the 5 columns", "4", "classes_"):
        topk_accuracy(LABELS, SCORES, labels=range(4))
    with raises(ValueError, "labels must name", "classes_"):
        topk_accuracy(np.array(list("abcde"))[LABELS][LABELS > 0], SCORES[LABELS > 0])
    with raises(ValueError, "y_true must hold classes named in labels", "0", "classes_"):
        topk_accuracy(LABELS, SCORES, labels=range(1, 6))


@pytest.mark.parametrize("metric", [topk_accuracy, rank_loss])
def test_bad_weights(metric):
    truth = LABELS if metric is topk_accuracy else RELEVANT
    with raises(ValueError, "sample_weight must have one entry per example (60)", "(3,)"):
        metric(truth, SCORES, sample_weight=np.ones(3))
    for weight in (-np.ones(60), np.zeros(60), np.full(60, np.nan)):
        found = "only zeros" if weight[0] == 0 else weight[0]
        with raises(ValueError, "sample_weight must be finite, non-negative", "got", found):
            metric(truth, SCORES, sample_weight=weight)


@pytest.mark.parametrize("wrong", ["mean", None, True, ["average"], 0])
def test_bad_ties(wrong):
    for metric in (topk_accuracy, topk_error, topk_accuracy_curve):
        with raises(ValueError, "ties must be one of average, optimistic, pessimistic", wrong):
            metric(LABELS, SCORES, ties=wrong)
    for metric in (recall_at_k, precision_at_k, rank_loss):
        with raises(ValueError, "ties must be one of average, optimistic, pessimistic", wrong):
            metric(RELEVANT, SCORES, ties=wrong)


@multilabel
def test_broken_sparse_labels(metric):
    labels = scipy.sparse.csr_array(RELEVANT)
    labels.indices[3] = 7
    with raises(ValueError, "y_true must have indices from 0 to 4", "7"):
        metric(labels, SCORES)


def test_masked_arrays_are_refused():
    for place, name in enumerate(["y_true", "y_score", "sample_weight"]):
        for metric, truth in ((topk_accuracy, LABELS), (rank_loss, RELEVANT)):
            data = [truth, SCORES, np.ones(60)]
            data[place] = np.ma.masked_array(
                data[place], mask=np.zeros(np.shape(data[place]), bool)
            )
            data[place].mask[3] = True
            with raises(ValueError, name, "masked"):
                metric(*data[:2], sample_weight=data[2])


def test_bad_thresholds():
    with raises(ValueError, "metric must be a function or one of", "f1_micro", "'auc'"):
        tune_threshold(RELEVANT, SCORES, "auc")
    with raises(ValueError, "thresholds must hold at least one value"):
        tune_threshold(RELEVANT, SCORES, thresholds=[])


def test_all_is_sorted_and_documented():
    assert sorted(metrics.__all__) == list(metrics.__all__)
    for name in metrics.__all__:
        assert name == "THRESHOLDS" or "Examples" in getattr(metrics, name).__doc__
