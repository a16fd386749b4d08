"""The data and the classifiers that the tests of the estimators share."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.metrics.pairwise import rbf_kernel

from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV

IRIS = load_iris(return_X_y=True)
X, Y = IRIS[0] - IRIS[0].mean(axis=0), IRIS[1]
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]
GRAM = rbf_kernel(X, gamma=0.5)
MULTILABEL = make_multilabel_classification(
    n_samples=80, n_features=8, n_classes=4, random_state=0, allow_unlabeled=True
)
# Centred, so that hinge losses train quickly.
XM, YM = (MULTILABEL[0] - MULTILABEL[0].mean(axis=0)) / 4, MULTILABEL[1]

MULTICLASS = [
    ("hinge", {}),
    ("topk_hinge", {"k": 2}),
    ("topk_hinge", {"k": 2, "smoothing": 1.0}),
    ("topk_hinge_beta", {"k": 2}),
    ("topk_hinge_label", {"k": 2}),
    ("weighted_topk_hinge", {"k": 2, "weights": "linear"}),
    ("weighted_topk_hinge_label", {"k": 2, "weights": "linear"}),
    ("softmax", {}),
    ("topk_entropy", {"k": 2}),
    ("truncated_topk_entropy", {"k": 2}),
    ("ova_hinge", {}),
    ("ova_logistic", {}),
]
multiclass = pytest.mark.parametrize(
    ("loss", "params"), MULTICLASS, ids=lambda v: v if isinstance(v, str) else "-".join(v)
)
ESTIMATORS = [TopKClassifier, TopKClassifierCV, MultilabelClassifier]
