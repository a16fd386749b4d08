import dask.array as da
import numpy as np
import pytest
import scipy.sparse

from topkopt import TopKClassifier

from .test_distributed_solve import examples

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*socket")


def named(y):
    return np.array(["ape", "bee", "cat"])[y]


@pytest.mark.parametrize("sparse", [False, True])
def test_fit_and_predict(client, sparse):
    X, y = examples()
    y = named(y)
    dX, dy = da.from_array(X, chunks=(30, 2)), da.from_array(y, chunks=45)
    if sparse:
        dX = da.from_array(X, chunks=(30, -1)).map_blocks(
            scipy.sparse.csr_array, meta=scipy.sparse.csr_array((0, 0))
        )
    model = TopKClassifier("softmax", C=0.1, tol=1e-6).fit(dX, dy)
    here = TopKClassifier("softmax", C=0.1, tol=1e-9).fit(X, y)
    assert list(model.classes_) == ["ape", "bee", "cat"]
    assert model.n_features_in_ == 4
    assert model.coef_ == pytest.approx(here.coef_, abs=1e-3)
    assert model.intercept_ == pytest.approx(here.intercept_, abs=1e-3)
    for method in ("decision_function", "predict", "predict_proba", "predict_topk"):
        lazy = getattr(model, method)(dX)
        assert isinstance(lazy, da.Array)
        expected = getattr(model, method)(X)
        assert lazy.shape == expected.shape
        assert lazy.dtype == expected.dtype
        got = lazy.compute()
        if expected.dtype.kind == "f":
            assert got == pytest.approx(expected)
        else:
            assert np.array_equal(got, expected)


def test_two_classes_hinge_and_weights(client):
    X, y = examples(m=2)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    dX, dy = da.from_array(X, chunks=(30, -1)), da.from_array(y, chunks=30)
    options = {"loss": "hinge", "C": 0.1, "class_weight": "balanced", "random_state": 0}
    model = TopKClassifier(tol=1e-4, **options).fit(dX, dy, da.from_array(weight, chunks=30))
    here = TopKClassifier(tol=1e-7, **options).fit(X, y, weight)
    assert model.solution_.primal == pytest.approx(here.solution_.primal, rel=1e-4)
    scores = model.decision_function(dX)
    assert scores.ndim == 1
    assert scores.compute() == pytest.approx(model.decision_function(X))


def test_what_cannot_be_done(client):
    X, y = examples()
    dX, dy = da.from_array(X, chunks=(30, -1)), da.from_array(y, chunks=30)
    with pytest.raises(ValueError, match="kernel must be 'linear'"):
        TopKClassifier(kernel="rbf").fit(dX, dy)
    with pytest.raises(ValueError, match="warm_start must be False"):
        TopKClassifier(warm_start=True).fit(dX, dy)
    with pytest.raises(ValueError, match="at least two classes"):
        TopKClassifier().fit(dX, da.zeros(90, dtype=int, chunks=30))
    with pytest.raises(ValueError, match="X must be a matrix"):
        TopKClassifier().fit(dX[:, 0], dy)
    model = TopKClassifier("softmax").fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(dX[:, :2])
