"""What the tests of mistakes share: data, and tables of what is wrong and what is said of it."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_multilabel_classification

INF, NAN = np.inf, np.nan
X, Y = load_iris(return_X_y=True)
X = X - X.mean(axis=0)
XM, YM = make_multilabel_classification(n_samples=60, n_features=6, n_classes=4, random_state=0)
XM = (XM - XM.mean(axis=0)) / 4
N = len(X)
RAGGED = [[0, 1], [1]]


def table(*rows):
    """Return rows of a value, the error and its fragments as parameters of a test."""
    return [pytest.param(*row[:2], row[2:], id=f"{i}") for i, row in enumerate(rows)]


def with_nan(values):
    values = np.array(values, dtype=float)
    values.flat[7] = NAN
    return values
