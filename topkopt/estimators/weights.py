"""Weights of examples from weights of classes, and what they count in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from topkopt._validation import check_scalar

__all__ = ["class_weights", "weighted_variance"]


def class_weights(class_weight: Any, classes: NDArray, labels: NDArray, weight: NDArray) -> NDArray:
    """Return the weight of each example's class, or the mean over its labels, 1 without any."""
    indicator = labels.ndim == 2
    if isinstance(class_weight, str) and class_weight == "balanced":
        count = weight @ labels if indicator else np.bincount(labels, weight, len(classes))
        # No example of positive weight has a class that is not counted.
        of_class = weight.sum() / (len(classes) * np.where(count > 0, count, np.inf))
    else:
        of_class = _listed_weights(class_weight, classes, every_key=indicator)
    if not indicator:
        return of_class[labels]
    size = labels.sum(axis=1)
    return np.where(size > 0, labels @ of_class / np.maximum(size, 1), 1.0)


def _listed_weights(class_weight: Any, classes: NDArray, *, every_key: bool) -> NDArray:
    """Return the weights of a dict, 1 for a class it does not name.

    A key that is no class is an error if `every_key`, or if a class is not named: then it may be
    misspelt. Otherwise the class may be missing in y only because y is part of the data.
    """
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}.")
    names = classes.tolist()
    known = set(names)
    unknown = [key for key in class_weight if key not in known]
    if unknown and (every_key or not class_weight.keys() >= known):
        shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
        raise ValueError(
            f"class_weight must name classes of y ({shown}), got {unknown[0]!r}; drop that key."
        )
    for key, value in class_weight.items():
        check_scalar(value, f"class_weight[{key!r}]")
    return np.array([class_weight.get(name, 1.0) for name in names], dtype=np.float64)


def weighted_variance(X: Any, weight: NDArray) -> float:
    """Return the variance of the entries of X, where a row of weight 2 counts as two rows."""
    share = weight / (weight.sum() * X.shape[1])
    if scipy.sparse.issparse(X):
        squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
        return float(share @ squares - (share @ X).sum() ** 2)
    mean = (share @ X).sum()
    return float(share @ ((X - mean) ** 2).sum(axis=1))
