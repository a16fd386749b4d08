"""How good a ranking of classes is: top-k, multilabel ranking, and the choice of a threshold.

Every function takes the truth first and the scores second, so that
``sklearn.metrics.make_scorer(metric, response_method="decision_function")`` works. What is missing
here (F1, Hamming, Jaccard, ...) is scikit-learn's.

Equal scores rank nothing. With ``ties="average"``, the default, they get the mean over all ways to
order them, so that constant scores are as good as a guess; "optimistic" orders them as suits the
scores best, "pessimistic" as suits them worst. The papers' figures are the optimistic top-k error
and the pessimistic rank loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from topkopt._validation import as_array, as_floating, as_weight, check_csr, check_k, check_scalar

__all__ = [
    "THRESHOLDS",
    "mean_average_precision",
    "precision_at_k",
    "rank_loss",
    "recall_at_k",
    "topk_accuracy",
    "topk_accuracy_curve",
    "topk_error",
    "tune_threshold",
]

_POWERS = 10.0 ** (np.arange(-29, 6) / 5)  # 10 ** -5.8, -5.6, ..., 1.0
THRESHOLDS = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])  # the 71 values of the papers
THRESHOLDS.flags.writeable = False

# Named metrics of 0/1 predictions: function of sklearn.metrics, its parameters, sign.
_PREDICTION_METRICS: dict[str, tuple[str, dict[str, Any], float]] = {
    "accuracy": ("jaccard_score", {"average": "samples", "zero_division": 1.0}, 1.0),
    "f1_macro": ("f1_score", {"average": "macro", "zero_division": 0.0}, 1.0),
    "f1_micro": ("f1_score", {"average": "micro", "zero_division": 0.0}, 1.0),
    "f1_samples": ("f1_score", {"average": "samples", "zero_division": 1.0}, 1.0),
    "hamming": ("hamming_loss", {}, -1.0),
    "subset_accuracy": ("accuracy_score", {}, 1.0),
}


# Multiclass -----------------------------------------------------------------------------------


def topk_accuracy(
    y_true: ArrayLike,
    y_score: ArrayLike,
    k: int = 1,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    ties: str = "average",
) -> float:
    """Return how often fewer than k classes score higher than the right one.

    Parameters
    ----------
    y_true : array_like of shape (n,)
        The right classes.
    y_score : array_like of shape (n, m), or (n,) for two classes
        The scores of the classes, in the order of `labels`.
    k : int, default 1
        How many guesses are allowed, ``1 <= k <= m``.
    labels : array_like of shape (m,), optional
        The class of each column, such as ``classifier.classes_``. By default the sorted distinct
        values of `y_true` if there are m, otherwise 0, 1, ..., m - 1.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.
    ties : {"average", "optimistic", "pessimistic"}, default "average"
        What equal scores count: the mean over all ways to order them, or the best or the worst way.

    Returns
    -------
    float
        Between 0 and 1.

    See Also
    --------
    topk_accuracy_curve : for every k at once.

    Notes
    -----
    Of t classes with the score of the right one, below a higher ones, ``k - a`` may be named: the
    credit is ``(k - a) / t``, between 0 and 1. So constant scores over m classes have accuracy
    ``k / m``. "optimistic" gives 1 where that is positive, as in the papers, and "pessimistic" 0
    where it is below 1. ``sklearn.metrics.top_k_accuracy_score`` breaks ties by the order of the
    columns, so that permuting the classes changes its result.

    Examples
    --------
    >>> from topkopt.metrics import topk_accuracy
    >>> scores = [[3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [2.0, 1.0, 0.0]]
    >>> topk_accuracy([1, 1, 2], scores, k=1)
    0.16666666666666666
    >>> topk_accuracy([1, 1, 2], scores, k=1, ties="optimistic")
    0.3333333333333333
    >>> topk_accuracy([1, 1, 2], scores, k=2)
    0.6666666666666666
    """
    curve = topk_accuracy_curve(
        y_true, y_score, ks=[k], labels=labels, sample_weight=sample_weight, ties=ties
    )
    return float(curve[0])


def topk_error(
    y_true: ArrayLike,
    y_score: ArrayLike,
    k: int = 1,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    ties: str = "average",
) -> float:
    """Return how often k or more classes score higher than the right one.

    Parameters
    ----------
    y_true : array_like of shape (n,)
        The right classes.
    y_score : array_like of shape (n, m), or (n,) for two classes
        The scores of the classes, in the order of `labels`.
    k : int, default 1
        How many guesses are allowed, ``1 <= k <= m``.
    labels : array_like of shape (m,), optional
        The class of each column, see `topk_accuracy`.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.
    ties : {"average", "optimistic", "pessimistic"}, default "average"
        What equal scores count: the mean over all ways to order them, or the best or the worst way.

    Returns
    -------
    float
        ``1 - topk_accuracy(...)``. The papers' figure is that with ``ties="optimistic"``.

    Examples
    --------
    >>> from topkopt.metrics import topk_error
    >>> topk_error([0, 1], [[2.0, 1.0], [2.0, 1.0]])
    0.5
    """
    return 1.0 - topk_accuracy(
        y_true, y_score, k, labels=labels, sample_weight=sample_weight, ties=ties
    )


def topk_accuracy_curve(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    ks: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    ties: str = "average",
) -> NDArray:
    """Return the top-k accuracy for several k in one pass.

    Parameters
    ----------
    y_true : array_like of shape (n,)
        The right classes.
    y_score : array_like of shape (n, m), or (n,) for two classes
        The scores of the classes, in the order of `labels`.
    ks : array_like of int, optional
        The numbers of guesses; 1, 2, ..., m by default.
    labels : array_like of shape (m,), optional
        The class of each column, see `topk_accuracy`.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.
    ties : {"average", "optimistic", "pessimistic"}, default "average"
        What equal scores count: the mean over all ways to order them, or the best or the worst way.

    Returns
    -------
    ndarray
        One accuracy per k.

    Examples
    --------
    >>> from topkopt.metrics import topk_accuracy_curve
    >>> topk_accuracy_curve(["a", "c"], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], labels=["a", "b", "c"])
    array([0.5, 0.5, 1. ])
    """
    scores = _as_scores(y_score, two_classes=True)
    n, m = scores.shape
    columns = _columns_of(y_true, n, m, labels)
    weight = as_weight(sample_weight, n)
    places = np.arange(1, m + 1) if ks is None else _listed(ks, m)
    return _topk_curve(scores, columns, weight, places, ties)


# Multilabel -----------------------------------------------------------------------------------


def recall_at_k(
    y_true: Any,
    y_score: ArrayLike,
    k: int = 1,
    *,
    sample_weight: ArrayLike | None = None,
    ties: str = "average",
) -> float:
    """Return which part of an example's labels is among its k highest scores, on average.

    Parameters
    ----------
    y_true : array_like or sparse matrix of shape (n, m)
        The labels as an indicator matrix.
    y_score : array_like of shape (n, m)
        The scores.
    k : int, default 1
        How many labels are named, ``1 <= k <= m``.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.
    ties : {"average", "optimistic", "pessimistic"}, default "average"
        What equal scores count: the mean over all ways to order them, or the best or the worst way.

    Returns
    -------
    float
        The mean over the examples that have a label.

    Examples
    --------
    >>> from topkopt.metrics import recall_at_k
    >>> recall_at_k([[1, 1, 0], [0, 0, 1]], [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]], k=1)
    0.75
    """
    relevant, scores, weight = _as_multilabel(y_true, y_score, sample_weight)
    sizes = relevant.sum(axis=1)
    weight = np.where(sizes > 0, weight, 0.0)
    if not weight.any():
        raise ValueError("y_true must have a label in some example of positive weight, got none.")
    hits = _hits(relevant, scores, k, ties)
    return float(weight @ (hits / np.maximum(sizes, 1)) / weight.sum())


def precision_at_k(
    y_true: Any,
    y_score: ArrayLike,
    k: int = 1,
    *,
    sample_weight: ArrayLike | None = None,
    ties: str = "average",
) -> float:
    """Return which part of the k highest scores belongs to labels of the example, on average.

    Parameters
    ----------
    y_true : array_like or sparse matrix of shape (n, m)
        The labels as an indicator matrix.
    y_score : array_like of shape (n, m)
        The scores.
    k : int, default 1
        How many labels are named, ``1 <= k <= m``.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.
    ties : {"average", "optimistic", "pessimistic"}, default "average"
        What equal scores count: the mean over all ways to order them, or the best or the worst way.

    Returns
    -------
    float
        The mean over all examples; one without labels counts as 0.

    Examples
    --------
    >>> from topkopt.metrics import precision_at_k
    >>> precision_at_k([[1, 1, 0], [0, 0, 1]], [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]], k=2)
    0.5
    """
    relevant, scores, weight = _as_multilabel(y_true, y_score, sample_weight)
    return float(weight @ _hits(relevant, scores, k, ties) / (k * weight.sum()))


def rank_loss(
    y_true: Any,
    y_score: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    ties: str = "average",
) -> float:
    """Return which part of the (label, other label) pairs is in the wrong order, on average.

    Parameters
    ----------
    y_true : array_like or sparse matrix of shape (n, m)
        The labels as an indicator matrix.
    y_score : array_like of shape (n, m)
        The scores.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.
    ties : {"average", "optimistic", "pessimistic"}, default "average"
        What equal scores count: the mean over all ways to order them, or the best or the worst way.

    Returns
    -------
    float
        Between 0, every label above all others, and 1. A tied pair is half an error; examples with
        no label or with all of them count as 0. The papers' figure is that with
        ``ties="pessimistic"``, where a tied pair is an error.

    Examples
    --------
    >>> from topkopt.metrics import rank_loss
    >>> rank_loss([[1, 0, 0], [1, 1, 0]], [[2.0, 3.0, 1.0], [3.0, 2.0, 1.0]])
    0.25
    """
    relevant, scores, weight = _as_multilabel(y_true, y_score, sample_weight)
    order, first, last = _ranking(scores)
    labels = np.take_along_axis(relevant, order, axis=1)
    seen = np.cumsum(~labels, axis=1)
    at_or_above = np.take_along_axis(seen, last, axis=1)
    above = np.take_along_axis(seen - ~labels, first, axis=1)
    others = _by_ties(ties, average=(above + at_or_above) / 2, best=above, worst=at_or_above)
    wrong = np.where(labels, others, 0).sum(axis=1)
    pairs = labels.sum(axis=1) * (~labels).sum(axis=1)
    return float(weight @ (wrong / np.maximum(pairs, 1)) / weight.sum())


def mean_average_precision(
    y_true: Any, y_score: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the average precision of each label, ranking the examples, averaged over the labels.

    Parameters
    ----------
    y_true : array_like or sparse matrix of shape (n, m)
        The labels as an indicator matrix.
    y_score : array_like of shape (n, m)
        The scores.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.

    Returns
    -------
    float
        The mean over the labels that some example has.

    Notes
    -----
    Examples of equal score enter together, with the precision that they have as a whole: constant
    scores have the share of the label, whatever the order. There is no other way to count ties
    here; it is scikit-learn's, too.

    Examples
    --------
    >>> from topkopt.metrics import mean_average_precision
    >>> mean_average_precision([[1, 0], [0, 1], [1, 1]], [[3.0, 1.0], [2.0, 3.0], [1.0, 2.0]])
    0.9166666666666666
    """
    relevant, scores, weight = _as_multilabel(y_true, y_score, sample_weight)
    order, _, last = _ranking(scores.T)
    mass = weight[order]
    positive = np.where(np.take_along_axis(relevant.T, order, axis=1), mass, 0.0)
    totals = np.take_along_axis(np.cumsum(mass, axis=1), last, axis=1)
    precision = np.take_along_axis(np.cumsum(positive, axis=1), last, axis=1)
    precision = np.divide(precision, totals, out=np.zeros_like(totals), where=totals > 0)
    support = positive.sum(axis=1)
    seen = support > 0
    if not seen.any():
        raise ValueError("y_true must have a label in some example of positive weight, got none.")
    return float(((positive * precision).sum(axis=1)[seen] / support[seen]).mean())


def tune_threshold(
    y_true: Any,
    y_score: ArrayLike,
    metric: str | Callable[[NDArray, NDArray], float] = "f1_micro",
    *,
    thresholds: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[float, float]:
    """Choose the score above which a label is predicted.

    Parameters
    ----------
    y_true : array_like or sparse matrix of shape (n, m)
        The labels as an indicator matrix; of examples that were not trained on.
    y_score : array_like of shape (n, m)
        Their scores.
    metric : str or callable, default "f1_micro"
        What to maximise: "f1_micro", "f1_macro", "f1_samples", "accuracy" (Jaccard, by example),
        "subset_accuracy", "hamming" (minimised), or a function of the true and the predicted
        indicator matrices of which more is better.
    thresholds : array_like, optional
        The values to try; by default `THRESHOLDS`, the papers' 71: 0 and plus or minus
        10 ** (-5.8, -5.6, ..., 1.0).
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples, for named metrics.

    Returns
    -------
    threshold : float
        The best value; of equally good ones the one in the middle.
    value : float
        The metric there; for "hamming" the loss.

    Examples
    --------
    >>> from topkopt.metrics import tune_threshold
    >>> tune_threshold([[1, 0], [1, 1]], [[3.0, 1.0], [4.0, 2.5]], thresholds=[0, 1, 2, 3])
    (2.0, 1.0)
    """
    relevant, scores, weight = _as_multilabel(y_true, y_score, sample_weight)
    grid = as_floating(THRESHOLDS if thresholds is None else thresholds, "thresholds").ravel()
    if not grid.size:
        raise ValueError("thresholds must hold at least one value, got none.")
    if np.isnan(grid).any():
        raise ValueError("thresholds must not hold NaN; leave it out.")
    quality, sign = _prediction_metric(metric, None if sample_weight is None else weight)
    truth = relevant.astype(int)
    found = [quality(truth, (scores > cut).astype(int)) for cut in grid]
    values = np.array([sign * check_scalar(v, "what metric returns", signed=True) for v in found])
    best = np.flatnonzero(values == values.max())
    chosen = best[len(best) // 2]
    return float(grid[chosen]), float(sign * values[chosen])


# What the functions share -----------------------------------------------------------------------


def _check_metric(metric: Any) -> None:
    named = isinstance(metric, str) and metric in _PREDICTION_METRICS
    if not (named or callable(metric)):
        raise ValueError(
            f"metric must be a function or one of {', '.join(_PREDICTION_METRICS)}, got {metric!r}."
        )


def _prediction_metric(
    metric: str | Callable[[NDArray, NDArray], float], weight: NDArray | None
) -> tuple[Callable[[NDArray, NDArray], float], float]:
    _check_metric(metric)
    if callable(metric):
        return metric, 1.0
    from topkopt._extras import require

    name, parameters, sign = _PREDICTION_METRICS[metric]
    function = getattr(require("sklearn.metrics"), name)
    return lambda truth, guess: function(truth, guess, sample_weight=weight, **parameters), sign


def _listed(ks: Any, m: int) -> NDArray:
    if as_array(ks, "ks").ndim != 1 or not np.size(ks):
        raise ValueError(f"ks must be a non-empty list of integers, got {ks!r}.")
    return np.array([check_k(k, m, "the number of classes") for k in ks])


def _as_scores(y_score: ArrayLike, *, two_classes: bool = False) -> NDArray:
    scores = as_floating(y_score, "y_score")
    if scores.ndim == 1 and two_classes:  # a decision function: positive means the second class
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    if scores.ndim != 2:
        raise ValueError(
            f"y_score must have one row per example and one column per class, "
            f"got shape {scores.shape}."
        )
    if not scores.shape[0]:
        raise ValueError("y_score must have at least one row, got none.")
    if not scores.shape[1]:
        raise ValueError("y_score must have at least one column, got none.")
    if np.isnan(scores).any():
        raise ValueError("y_score must not hold NaN; find out which examples have no scores.")
    return scores


def _columns_of(y_true: ArrayLike, n: int, m: int, labels: ArrayLike | None) -> NDArray:
    """Return the column of each example's class."""
    truth = as_array(y_true, "y_true")
    if truth.shape != (n,):
        raise ValueError(
            f"y_true must hold one class per row of y_score ({n}), got shape {truth.shape}."
        )
    try:
        classes = np.unique(truth) if labels is None else as_array(labels, "labels")
        order = np.argsort(classes)
    except TypeError:
        raise ValueError(
            f"{'y_true' if labels is None else 'labels'} must hold classes that can be sorted, "
            "either numbers or strings, got a mixture."
        ) from None
    if labels is None and len(classes) != m and truth.dtype.kind in "iub":
        classes = order = np.arange(m)
    if classes.shape != (m,):
        raise ValueError(
            f"labels must name the class of each of the {m} columns of y_score, got "
            f"{classes.size}; pass labels=classifier.classes_."
        )
    try:
        places = order[np.minimum(np.searchsorted(classes, truth, sorter=order), m - 1)]
    except TypeError:
        raise ValueError(
            f"y_true must hold classes named in labels, got {truth.tolist()[0]!r} where labels are "
            f"like {classes.tolist()[0]!r}; pass labels=classifier.classes_."
        ) from None
    unknown = classes[places] != truth
    if unknown.any():
        raise ValueError(
            f"y_true must hold classes named in labels, got {truth[unknown].tolist()[0]!r}; "
            "pass labels=classifier.classes_ and leave out examples of other classes."
        )
    return places


def _as_multilabel(
    y_true: Any, y_score: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[NDArray, NDArray, NDArray]:
    """Return labels as booleans, scores and weights; scores are dense, so labels may be too."""
    scores = _as_scores(y_score)
    if scipy.sparse.issparse(y_true):
        check_csr(y_true, "y_true")
        y_true = y_true.toarray()
    labels = as_array(y_true, "y_true")
    if labels.shape != scores.shape:
        raise ValueError(
            f"y_true must be an indicator matrix of the shape of y_score {scores.shape}, "
            f"got {labels.shape}."
        )
    if labels.dtype != bool and not np.isin(labels, (0, 1)).all():
        raise ValueError("y_true must be an indicator matrix of 0 and 1, got other values.")
    return labels.astype(bool), scores, as_weight(sample_weight, len(scores))


def _by_ties(ties: str, *, average: Any, best: Any, worst: Any) -> Any:
    """Return the value asked for."""
    values = {"average": average, "optimistic": best, "pessimistic": worst}
    if not isinstance(ties, str) or ties not in values:
        raise ValueError(f"ties must be one of {', '.join(values)}, got {ties!r}.")
    return values[ties]


def _topk_curve(
    scores: NDArray, columns: NDArray, weight: NDArray, places: NDArray, ties: str = "average"
) -> NDArray:
    """Return the accuracy for each number of guesses; scores may be -inf, which ties as well."""
    own = scores[np.arange(len(scores)), columns][:, None]
    above = np.count_nonzero(scores > own, axis=1)
    tied = np.count_nonzero(scores == own, axis=1)  # the right class is one of them
    above, tied = _by_ties(
        ties, average=(above, tied), best=(above, 1), worst=(above + tied - 1, 1)
    )
    reached = [(weight * np.clip((k - above) / tied, 0.0, 1.0)).sum() for k in places]
    return np.minimum(np.array(reached) / weight.sum(), 1.0)  # a sum may be rounded upwards


def _hits(relevant: NDArray, scores: NDArray, k: int, ties: str) -> NDArray:
    """Return how many labels are among the k highest scores."""
    m = scores.shape[1]
    k = check_k(k, m, "the number of classes")
    cut = np.partition(scores, m - k, axis=1)[:, m - k, None]
    above, tied = scores > cut, scores == cut
    named = k - above.sum(axis=1)  # of those tied at the k-th place
    candidates, labels = tied.sum(axis=1), (relevant & tied).sum(axis=1)
    return (relevant & above).sum(axis=1) + _by_ties(
        ties,
        average=named / candidates * labels,
        best=np.minimum(named, labels),
        worst=np.maximum(named - (candidates - labels), 0),
    )


def _ranking(scores: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return the order of each row, highest first, and for each place the ends of its tie."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    m = scores.shape[1]
    place = np.broadcast_to(np.arange(m), ranked.shape)
    falls = ranked[:, :-1] > ranked[:, 1:]
    first, last = np.zeros(ranked.shape, np.intp), np.full(ranked.shape, m - 1)
    first[:, 1:] = np.where(falls, place[:, 1:], 0)
    last[:, :-1] = np.where(falls, place[:, :-1], m - 1)
    return (
        order,
        np.maximum.accumulate(first, axis=1),
        np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1],
    )
