"""Classifiers of examples that are read in blocks: those of an array, fitted and asked."""

import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

import topkopt
from topkopt import MultilabelClassifier, TopKClassifier, TopKClassifierCV, losses
from topkopt.solvers import row_blocks

from .expect import raises
from .test_streams import Dataset
from .trainings import problem


@pytest.fixture(params=[7, 1000], autouse=True)
def rows_of_block(request, monkeypatch):
    monkeypatch.setattr(row_blocks, "_rows_of_block", lambda X, row_bytes: request.param)
    return request.param


def examples(n=60, m=5):
    X, y = problem(losses.Softmax(), n=n, m=m)
    return X + 0.5, np.array(list("abcdefgh"))[y]


ASKED = ("decision_function", "predict", "predict_proba", "predict_log_proba", "predict_topk")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("m", [2, 5])
def test_fit_and_ask(m, intercept):
    X, y = examples(m=m)
    weight = np.arange(60) % 3
    model = TopKClassifier("softmax", fit_intercept=intercept, tol=1e-7, random_state=0)
    model.set_params(class_weight="balanced")
    expected = clone(model).fit(X, y, sample_weight=weight)
    fitted = model.fit(Dataset(X), y, sample_weight=weight)
    assert fitted.n_features_in_ == 4
    assert fitted.duality_gap_ <= 1e-7
    np.testing.assert_allclose(fitted.coef_, expected.coef_, atol=1e-3)
    np.testing.assert_allclose(fitted.intercept_, expected.intercept_, atol=1e-3)
    for name in ASKED:
        np.testing.assert_array_equal(
            getattr(fitted, name)(Dataset(X)).shape, getattr(fitted, name)(X).shape
        )
        if name in ("predict", "predict_topk"):
            assert (getattr(fitted, name)(Dataset(X)) == getattr(fitted, name)(X)).all()
        else:
            found, whole = getattr(fitted, name)(Dataset(X)), getattr(fitted, name)(X)
            np.testing.assert_allclose(found, whole, atol=1e-12)
    np.testing.assert_array_equal(
        topkopt.predict_topk(fitted, Dataset(X), 2), topkopt.predict_topk(fitted, X, 2)
    )
    for weights in (None, weight, (np.arange(60) < 20) * 1.0):
        expected_score = fitted.score(X, y, weights)
        assert fitted.score(Dataset(X), y, weights) == pytest.approx(expected_score, rel=1e-12)
    assert fitted.score(Dataset(X), np.full(60, "z")) == 0.0
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_hinge_and_warm_start():
    X, y = examples()
    model = TopKClassifier("topk_hinge", k=2, tol=1e-5, max_epochs=20000, random_state=0)
    expected = clone(model).fit(X, y)
    assert model.fit(Dataset(X), y).solution_.dual is None
    assert model.solution_.primal == pytest.approx(expected.solution_.primal, rel=2e-5)
    model.set_params(warm_start=True).fit(Dataset(X), y)
    assert model.fit(Dataset(X), y).n_iter_ == 0
    assert model.fit(Dataset(X[::-1].copy()), y).n_iter_ > 0


def test_multilabel():
    X, Y = problem(losses.MultilabelHinge(), n=60)
    options = {"threshold": 0.0, "tol": 1e-5, "max_epochs": 20000, "random_state": 0}
    expected = MultilabelClassifier(**options).fit(X, Y)
    fitted = MultilabelClassifier(**options).fit(Dataset(X), Y)
    assert fitted.solution_.primal == pytest.approx(expected.solution_.primal, rel=2e-5)
    np.testing.assert_array_equal(fitted.predict(Dataset(X)), fitted.predict(X))
    assert fitted.score(Dataset(X), Y) == fitted.score(X, Y)
    with raises(ValueError, "X must be an array", "threshold='cv'", "Dataset", "asarray"):
        MultilabelClassifier().fit(Dataset(X), Y)


def test_a_large_file_is_not_copied(tmp_path, monkeypatch):
    """To add a feature for the intercept; a smaller file is, and gives the bits of an array."""
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 5
    X = (rng.standard_normal((5, 300))[y] + rng.standard_normal((3000, 300))).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = TopKClassifier("softmax", method="lbfgs", tol=1e-3, C=0.01)
    expected = clone(model).fit(X, y)
    np.testing.assert_array_equal(clone(model).fit(mapped, y).coef_, expected.coef_)
    monkeypatch.setattr(row_blocks, "LARGE_FILE", 1 << 20)
    tracemalloc.start()
    fitted = clone(model).fit(mapped, y)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert memory < 0.8 * X.nbytes + 2e6
    np.testing.assert_allclose(fitted.coef_, expected.coef_, atol=1e-3)
    frank_wolfe = TopKClassifier("hinge", method="pairwise", tol=0.1, C=0.001, max_epochs=20000)
    assert frank_wolfe.fit(mapped[:200], y[:200]).duality_gap_ <= 0.1


@pytest.mark.parametrize(
    ("model", "fragments"),
    [
        (TopKClassifier(kernel="rbf"), ("X must be an array", "kernel='rbf'", "Dataset")),
        (TopKClassifierCV(), ("X must be an array", "cross-validation", "numpy.asarray")),
        (TopKClassifier(method="newton"), ("method must be one of", "read in blocks", "newton")),
    ],
)
def test_what_needs_an_array(model, fragments):
    X, y = examples()
    with raises(ValueError, *fragments):
        model.fit(Dataset(X), y)


def test_bad_input():
    X, y = examples()
    fitted = TopKClassifier("softmax").fit(X, y)
    with raises(ValueError, "3 features", "4 features"):
        fitted.predict(Dataset(X[:, :3]))
    with raises(ValueError, "0 sample"):
        fitted.predict(Dataset(X[:0]))
    with raises(ValueError, "inconsistent", "60", "59"):
        fitted.score(Dataset(X), y[:-1])
    with raises(ValueError, "inconsistent", "60", "59"):
        TopKClassifier().fit(Dataset(X), y[:-1])
    with raises(ValueError, "X must be a matrix", "(60,)"):
        fitted.fit(Dataset(X[:, 0]), y)
    kernel = TopKClassifier(kernel="rbf").fit(X, y)
    with raises(ValueError, "X must be an array", "kernel='rbf'"):
        kernel.predict(Dataset(X))
