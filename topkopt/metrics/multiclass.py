"""How often the right class is among the k highest scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._validation import as_weight
from topkopt.metrics.inputs import as_scores, by_ties, check_ks, columns_of

__all__ = ["topk_accuracy", "topk_accuracy_curve", "topk_curve", "topk_error"]


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
    scores = as_scores(y_score, two_classes=True)
    n, m = scores.shape
    columns = columns_of(y_true, n, m, labels)
    weight = as_weight(sample_weight, n)
    places = np.arange(1, m + 1) if ks is None else check_ks(ks, m)
    return topk_curve(scores, columns, weight, places, ties)


def topk_curve(
    scores: NDArray, columns: NDArray, weight: NDArray, places: NDArray, ties: str = "average"
) -> NDArray:
    """Return the accuracy for each number of guesses; scores may be -inf, which ties as well."""
    own = scores[np.arange(len(scores)), columns][:, None]
    above = np.count_nonzero(scores > own, axis=1)
    tied = np.count_nonzero(scores == own, axis=1)  # the right class is one of them
    above, tied = by_ties(ties, average=(above, tied), best=(above, 1), worst=(above + tied - 1, 1))
    reached = [(weight * np.clip((k - above) / tied, 0.0, 1.0)).sum() for k in places]
    return np.minimum(np.array(reached) / weight.sum(), 1.0)  # a sum may be rounded upwards
