"""scikit-learn's own checks."""

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV


class SparseLabels(MultilabelClassifier):
    """Trains on a sparse indicator matrix wherever a dense one is given, and counts that."""

    container = scipy.sparse.csr_array
    fits: ClassVar = Counter()

    def fit(self, X, y, sample_weight=None):
        if not scipy.sparse.issparse(y) and np.asarray(y).ndim == 2:
            y = self.container(y)
            self.fits[self.container] += 1
        return super().fit(X, y, sample_weight)


class SparseMatrixLabels(SparseLabels):
    container = scipy.sparse.csr_matrix


# Tight: the checks compare trainings on weighted and on repeated examples to seven digits. The gap
# of a hinge is of the order of the error of W, that of a smooth loss of its square: so a small C.
TIGHT = {"tol": 0.0, "max_epochs": 500}


@pytest.mark.filterwarnings("ignore::topkopt.ConvergenceWarning")
@parametrize_with_checks(
    [
        TopKClassifier(**TIGHT),
        TopKClassifier("softmax", C=1e-3, **TIGHT),
        TopKClassifier(kernel="rbf", gamma=1.0, **TIGHT),
        # A smooth loss: the optimum of a hinge has classes of equal score, and which of them is
        # predicted is a matter of rounding, where the checks ask for the same class.
        TopKClassifierCV([1e-4, 1e-3], loss="softmax", cv=2, **TIGHT),
        MultilabelClassifier(cv=3, **TIGHT),
        MultilabelClassifier("ova_logistic", C=1e-3, threshold=0.0, **TIGHT),
    ]
)
def test_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [SparseLabels(cv=3), SparseMatrixLabels(cv=3)])
def test_the_checks_train_on_sparse_labels(estimator):
    """Four checks have several labels per example; a fit has three more inside, one per fold."""
    trained = {}
    for _, check in estimator_checks_generator(estimator.set_params(C=1e-3), mark=None):
        name = check.func.__name__
        if ("multilabel" in name or "multioutput" in name) and "proba" not in name:
            before = estimator.fits[estimator.container]
            check(clone(estimator))
            trained[name] = estimator.fits[estimator.container] - before
    assert len(trained) >= 4
    assert min(trained.values()) >= 4
