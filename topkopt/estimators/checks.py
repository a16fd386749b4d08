"""What the classifiers ask of X, y and the loss beyond what scikit-learn asks, and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from topkopt import losses
from topkopt._validation import check_csr, refuse_masked

__all__ = ["check_container", "check_loss", "check_targets", "encode_classes"]


def check_container(data: Any, name: str) -> None:
    """Raise for what scikit-learn takes: it drops masks, and broken sparse matrices crash it."""
    refuse_masked(data, name)
    if scipy.sparse.issparse(data):
        if data.ndim != 2:
            raise ValueError(
                f"{name} must be a matrix with one row per example, got shape {data.shape}; use "
                "reshape((1, -1)) for a single example."
            )
        check_csr(data, name)


def check_targets(y: Any) -> None:
    """Raise where scikit-learn would not say that it is y which has an unfit shape."""
    if y is None:
        return
    check_container(y, "y")
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:
        raise ValueError(
            "y must hold one class per example, or be an indicator matrix, got lists of unequal "
            "lengths; use sklearn.preprocessing.MultiLabelBinarizer."
        ) from None
    if len(shape) not in (1, 2) or 0 in shape[1:]:
        raise ValueError(
            f"y must hold one class per example, or be an indicator matrix, got shape {shape}."
        )


def check_loss(loss: Any, task: str) -> None:
    """Raise unless it is a loss for the task, or the name of one."""
    declared = losses.declaration_of(loss)
    if declared is None or task not in declared.tasks:
        raise ValueError(
            f"loss must be one of {', '.join(losses.names(task))}, or an object of such a loss, "
            f"got {loss!r}."
        )


def encode_classes(y: NDArray) -> tuple[NDArray, NDArray]:
    """Return the sorted classes and the number of each example's class."""
    try:
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold classes, either numbers or strings. {error}") from None
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least two classes, got one class ({classes.tolist()[0]!r}); add "
            "examples of others."
        )
    return classes, labels
