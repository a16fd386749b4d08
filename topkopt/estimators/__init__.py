"""Classifiers for scikit-learn: pipelines, grid searches, sparse data, kernels, certificates."""

from topkopt._extras import require

require("sklearn")

from topkopt.estimators.multilabel import MultilabelClassifier  # noqa: E402
from topkopt.estimators.topk import TopKClassifier  # noqa: E402
from topkopt.estimators.topk_cv import TopKClassifierCV  # noqa: E402

__all__ = ["MultilabelClassifier", "TopKClassifier", "TopKClassifierCV"]
