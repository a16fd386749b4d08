"""The classes of the highest scores, of any fitted classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt._validation import as_array, as_floating, check_k

__all__ = ["best_classes", "final_step", "predict_topk", "scores_of"]


def predict_topk(estimator: Any, X: Any, k: int | None = None) -> NDArray:
    """Return the k classes of the highest scores, the best one first, of any classifier.

    Parameters
    ----------
    estimator : classifier, pipeline or search
        Fitted, with `decision_function` or `predict_proba`; of topkopt, scikit-learn or others.
    X : array_like or sparse matrix of shape (n, d)
        The examples as `estimator` takes them.
    k : int, optional
        How many, up to the number of classes. By default the k of the classifier itself, or of the
        last step of a pipeline, if it has one as topkopt's have.

    Returns
    -------
    ndarray of shape (n, k)
        Entries of ``estimator.classes_``; those of equal score are in its order.

    See Also
    --------
    topkopt.metrics.topk_accuracy : how often the right class is among them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from topkopt import predict_topk
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    >>> predict_topk(model, X[:2], k=2)
    array([[0, 1],
           [0, 1]])
    """
    if k is None:
        k = _own_k(estimator)
    scores, classes = scores_of(estimator, X)
    return best_classes(scores, classes, k)


def scores_of(estimator: Any, X: Any) -> tuple[NDArray, NDArray]:
    """Return the scores of a fitted classifier, one column per class, and the classes."""
    score = getattr(estimator, "decision_function", None)
    score = score or getattr(estimator, "predict_proba", None)
    if isinstance(estimator, type) or score is None:
        raise TypeError(
            "estimator must be a fitted classifier with decision_function or predict_proba, "
            f"got {estimator!r}."
        )
    if getattr(final_step(estimator), "decision_function_shape", None) == "ovo":
        raise ValueError(
            "estimator must score classes, but decision_function_shape='ovo' scores pairs of them; "
            "set it to 'ovr'."
        )
    scores = as_floating(score(X), "what estimator returns")  # one that is not fitted says so here
    if not hasattr(estimator, "classes_"):
        raise TypeError(f"estimator must have classes_, as classifiers have, got {estimator!r}.")
    classes = as_array(estimator.classes_, "classes_ of estimator")
    if scores.ndim == 1 and len(classes) == 2:  # positive means the second class
        scores = np.stack([-scores, scores], axis=1)
    if classes.ndim != 1 or scores.ndim != 2 or scores.shape[1] != len(classes):
        raise ValueError(
            f"estimator must score each of its classes, of shape {classes.shape}, got scores of "
            f"shape {scores.shape}."
        )
    return scores, classes


def best_classes(scores: NDArray, classes: NDArray, k: int) -> NDArray:
    """Return the k classes of the highest scores in each row; equal ones stay in order."""
    k = check_k(k, len(classes), "the number of classes")
    if np.isnan(scores).any():
        raise ValueError("estimator must give scores that can be compared, got NaN.")
    return classes[np.argsort(-scores, axis=1, kind="stable")[:, :k]]


def final_step(estimator: Any) -> Any:
    """Return the classifier at the end of pipelines and searches."""
    while True:
        if hasattr(estimator, "named_steps"):
            estimator = estimator[-1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator


def _own_k(estimator: Any) -> int:
    default = getattr(final_step(estimator), "_default_k", None)
    if default is None:
        raise ValueError(
            f"k must be given with {type(estimator).__name__}, which has none of its own."
        )
    return default()
