"""How well the labels of an example are ranked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._validation import check_k
from topkopt.metrics.inputs import as_multilabel, by_ties

__all__ = ["mean_average_precision", "precision_at_k", "rank_loss", "recall_at_k"]


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
    relevant, scores, weight = as_multilabel(y_true, y_score, sample_weight)
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
    relevant, scores, weight = as_multilabel(y_true, y_score, sample_weight)
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
    relevant, scores, weight = as_multilabel(y_true, y_score, sample_weight)
    order, first, last = _ranking(scores)
    labels = np.take_along_axis(relevant, order, axis=1)
    seen = np.cumsum(~labels, axis=1)
    at_or_above = np.take_along_axis(seen, last, axis=1)
    above = np.take_along_axis(seen - ~labels, first, axis=1)
    others = by_ties(ties, average=(above + at_or_above) / 2, best=above, worst=at_or_above)
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
    relevant, scores, weight = as_multilabel(y_true, y_score, sample_weight)
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


def _hits(relevant: NDArray, scores: NDArray, k: int, ties: str) -> NDArray:
    """Return how many labels are among the k highest scores."""
    m = scores.shape[1]
    k = check_k(k, m, "the number of classes")
    cut = np.partition(scores, m - k, axis=1)[:, m - k, None]
    above, tied = scores > cut, scores == cut
    named = k - above.sum(axis=1)  # of those tied at the k-th place
    candidates, labels = tied.sum(axis=1), (relevant & tied).sum(axis=1)
    return (relevant & above).sum(axis=1) + by_ties(
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
