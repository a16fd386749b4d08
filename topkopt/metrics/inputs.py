"""What the metrics are given, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from topkopt._validation import as_array, as_floating, as_weight, check_csr, check_k

__all__ = ["as_multilabel", "as_scores", "by_ties", "check_ks", "columns_of"]


def check_ks(ks: Any, m: int) -> NDArray:
    """Return numbers of guesses, each from 1 to the number m of classes."""
    if as_array(ks, "ks").ndim != 1 or not np.size(ks):
        raise ValueError(f"ks must be a non-empty list of integers, got {ks!r}.")
    return np.array([check_k(k, m, "the number of classes") for k in ks])


def as_scores(y_score: ArrayLike, *, two_classes: bool = False) -> NDArray:
    """Return scores with one row per example and one column per class."""
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


def columns_of(y_true: ArrayLike, n: int, m: int, labels: ArrayLike | None) -> NDArray:
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


def as_multilabel(
    y_true: Any, y_score: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[NDArray, NDArray, NDArray]:
    """Return labels as booleans, scores and weights; scores are dense, so labels may be too."""
    scores = as_scores(y_score)
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


def by_ties(ties: str, *, average: Any, best: Any, worst: Any) -> Any:
    """Return the value asked for."""
    values = {"average": average, "optimistic": best, "pessimistic": worst}
    if not isinstance(ties, str) or ties not in values:
        raise ValueError(f"ties must be one of {', '.join(values)}, got {ties!r}.")
    return values[ties]
