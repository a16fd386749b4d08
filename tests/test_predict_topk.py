"""The k best classes of any classifier."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
)
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import topkopt
from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV

from .classifiers import NAMES, XM, YM, X, Y
from .expect import raises


@pytest.mark.parametrize(
    "model",
    [
        TopKClassifier("softmax", random_state=0),
        LogisticRegression(),
        SVC(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [1.0, 10.0]}, cv=2),
        make_pipeline(StandardScaler(), GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2)),
        KNeighborsClassifier(),  # has probabilities only, and many ties
    ],
    ids=lambda model: type(model).__name__,
)
def test_predict_topk_of_any_classifier(model):
    model = clone(model).fit(X, NAMES)
    score = getattr(model, "decision_function", None) or model.predict_proba
    best = topkopt.predict_topk(model, X, k=2)
    order = np.argsort(-score(X), axis=1, kind="stable")  # ties by the order of the classes
    np.testing.assert_array_equal(best, model.classes_[order[:, :2]])
    assert topkopt.predict_topk(model, X, 3).shape == (150, 3)


@pytest.mark.parametrize("model", [LogisticRegression(), TopKClassifier("softmax")])
def test_predict_topk_of_two_classes(model):
    two = Y < 2
    model = clone(model).fit(X[two], NAMES[two])
    best = topkopt.predict_topk(model, X[two], k=2)
    np.testing.assert_array_equal(best[:, 0], model.predict(X[two]))
    assert (best[:, 0] != best[:, 1]).all()


def test_predict_topk_takes_the_k_of_the_last_step():
    model = TopKClassifier("topk_entropy", k=2, random_state=0)
    for wrapped in (
        make_pipeline(StandardScaler(), model),
        GridSearchCV(model, {"C": [0.1, 1.0]}, cv=2),
        GridSearchCV(make_pipeline(StandardScaler(), model), {"topkclassifier__k": [1, 2]}, cv=2),
    ):
        fitted = wrapped.fit(X, Y)
        k = fitted.best_params_.get("topkclassifier__k", 2) if hasattr(fitted, "cv") else 2
        assert topkopt.predict_topk(fitted, X).shape == (150, k)
        np.testing.assert_array_equal(topkopt.predict_topk(fitted, X, 1)[:, 0], fitted.predict(X))


def test_predict_topk_of_several_labels():
    model = MultilabelClassifier(smoothing=1.0, C=0.1, cv=3, random_state=0).fit(XM, YM)
    best = topkopt.predict_topk(model, XM, 2)
    np.testing.assert_array_equal(best[:, 0], model.decision_function(XM).argmax(axis=1))


def test_predict_topk_errors_of_any_classifier():
    model = LogisticRegression().fit(X, Y)
    for k in (0, 4):
        with raises(ValueError, "k must be between 1 and the number of classes (3)", f"got {k}"):
            topkopt.predict_topk(model, X, k)
    with raises(ValueError, "k must be given with LogisticRegression"):
        topkopt.predict_topk(model, X)
    for estimator in (LogisticRegression, LinearRegression(), None, StandardScaler()):
        with raises(TypeError, "estimator must be a fitted classifier with decision_function"):
            topkopt.predict_topk(estimator, X, 1)
    for unfitted in (TopKClassifier(), TopKClassifierCV(), LogisticRegression()):
        with pytest.raises(NotFittedError):
            topkopt.predict_topk(unfitted, X, 1)
    for unfitted in (TopKClassifier(), TopKClassifierCV()):
        with pytest.raises(NotFittedError):
            topkopt.predict_topk(unfitted, X)
    with raises(ValueError, "estimator must score classes", "ovo", "'ovr'"):
        topkopt.predict_topk(SVC(decision_function_shape="ovo").fit(X, Y), X, 1)
    several = MultiOutputClassifier(LogisticRegression()).fit(X, np.stack([Y, Y], axis=1))
    with raises(ValueError, "estimator must score each of its classes"):
        topkopt.predict_topk(several, X, 1)
