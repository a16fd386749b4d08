"""The score above which a label is predicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._extras import require
from topkopt._validation import as_floating, check_scalar
from topkopt.metrics.inputs import as_multilabel

__all__ = ["THRESHOLDS", "check_metric", "tune_threshold"]

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
    relevant, scores, weight = as_multilabel(y_true, y_score, sample_weight)
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


def check_metric(metric: Any) -> None:
    """Raise unless it is a metric of predicted labels, or the name of one."""
    named = isinstance(metric, str) and metric in _PREDICTION_METRICS
    if not (named or callable(metric)):
        raise ValueError(
            f"metric must be a function or one of {', '.join(_PREDICTION_METRICS)}, got {metric!r}."
        )


def _prediction_metric(
    metric: str | Callable[[NDArray, NDArray], float], weight: NDArray | None
) -> tuple[Callable[[NDArray, NDArray], float], float]:
    check_metric(metric)
    if callable(metric):
        return metric, 1.0
    name, parameters, sign = _PREDICTION_METRICS[metric]
    function = getattr(require("sklearn.metrics"), name)
    return lambda truth, guess: function(truth, guess, sample_weight=weight, **parameters), sign
