"""How good a ranking of classes is: top-k, multilabel ranking, and the choice of a threshold.

Every function takes the truth first and the scores second, so that
``sklearn.metrics.make_scorer(metric, response_method="decision_function")`` works. What is missing
here (F1, Hamming, Jaccard, ...) is scikit-learn's.

Equal scores rank nothing. With ``ties="average"``, the default, they get the mean over all ways to
order them, so that constant scores are as good as a guess; "optimistic" orders them as suits the
scores best, "pessimistic" as suits them worst. The papers' figures are the optimistic top-k error
and the pessimistic rank loss.
"""

from topkopt.metrics.multiclass import topk_accuracy, topk_accuracy_curve, topk_error
from topkopt.metrics.multilabel import (
    mean_average_precision,
    precision_at_k,
    rank_loss,
    recall_at_k,
)
from topkopt.metrics.threshold import THRESHOLDS, tune_threshold

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
