"""The estimators: scikit-learn's conventions, equal optima, weights, kernels, errors."""

import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import topkopt
from topkopt import ConvergenceWarning, MultilabelClassifier, TopKClassifier, TopKClassifierCV
from topkopt.losses import TopKHinge
from topkopt.metrics import THRESHOLDS

IRIS = load_iris(return_X_y=True)
X, Y = IRIS[0] - IRIS[0].mean(axis=0), IRIS[1]
MULTILABEL = make_multilabel_classification(
    n_samples=80, n_features=8, n_classes=4, random_state=0, allow_unlabeled=True
)
# Centred, so that hinge losses train quickly.
XM, YM = (MULTILABEL[0] - MULTILABEL[0].mean(axis=0)) / 4, MULTILABEL[1]

MULTICLASS = [
    ("hinge", {}),
    ("topk_hinge", {"k": 2}),
    ("topk_hinge", {"k": 2, "smoothing": 1.0}),
    ("weighted_topk_hinge", {"k": 2, "weights": "linear"}),
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


def raises(error, *fragments):
    """Expect an error whose message holds the fragments in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(str(f)) for f in fragments))


# scikit-learn's own checks -------------------------------------------------------------------


class SparseLabels(MultilabelClassifier):
    """Trains on a sparse indicator matrix wherever a dense one is given."""

    def fit(self, X, y, sample_weight=None):
        if isinstance(y, np.ndarray) and y.ndim == 2:
            y = scipy.sparse.csr_array(y)
        return super().fit(X, y, sample_weight)


# Tight: the checks compare trainings on weighted and on repeated examples to seven digits. The gap
# of a hinge is of the order of the error of W, that of a smooth loss of its square: a small C helps.
TIGHT = {"tol": 0.0, "max_epochs": 500}


@pytest.mark.filterwarnings("ignore::topkopt.ConvergenceWarning")
@parametrize_with_checks(
    [
        TopKClassifier(**TIGHT),
        TopKClassifier("softmax", C=1e-3, **TIGHT),
        TopKClassifier(kernel="rbf", gamma=1.0, **TIGHT),
        TopKClassifierCV([0.01, 0.1], cv=2, **TIGHT),
        MultilabelClassifier(cv=3, **TIGHT),
        MultilabelClassifier("ova_logistic", C=1e-3, threshold=0.0, **TIGHT),
        SparseLabels(cv=3, **TIGHT),
    ]
)
def test_conventions(estimator, check):
    check(estimator)
