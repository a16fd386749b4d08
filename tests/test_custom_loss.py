"""A loss of one's own: trained and certified like others, and found out where it is wrong."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from topkopt import ConvergenceWarning, TopKClassifier, losses, path, solve
from topkopt.losses import CustomLoss

from .trainings import problem

TWIN = losses.Softmax()


def softmax(scores, y):
    return TWIN.value_and_gradient(scores, y)


def squared_hinge(scores, y):
    signs = np.where(np.arange(scores.shape[1]) == y[:, None], 1.0, -1.0)
    short = np.maximum(0.0, 1.0 - signs * scores)
    return (short**2).sum(axis=1), -2.0 * signs * short


def truncated(scores, y):
    return losses.TruncatedTopKEntropy(2).value_and_gradient(scores, y)


X, Y = problem(TWIN, n=80)


@pytest.mark.parametrize("form", ["dense", "csr", "float32", "kernel"])
def test_is_trained_as_its_compiled_twin(form):
    data = {
        "dense": X,
        "csr": scipy.sparse.csr_array(X),
        "float32": X.astype(np.float32),
        "kernel": X @ X.T + np.eye(80),
    }[form]
    tol = 1e-5 if form == "float32" else 1e-8
    options = {"C": 2.0, "tol": tol, "kernel": form == "kernel"}
    own = solve(data, Y, CustomLoss(softmax), **options)
    twin = solve(data, Y, TWIN, method="lbfgs", **options)
    assert own.converged
    assert own.gap <= tol
    assert (own.history["method"] == "lbfgs").all()
    assert own.primal == pytest.approx(twin.primal, rel=3 * tol)
    assert own.primal >= twin.dual_value * (1 - 1e-7)
    assert own.dual_value <= twin.primal * (1 + 1e-7)
    assert own.loss == CustomLoss(softmax)
    assert "CustomLoss(softmax)" in own.report()


@pytest.mark.parametrize("curvature", [None, 2.0])
def test_squared_hinge(curvature):
    found = solve(X, Y, CustomLoss(squared_hinge, curvature=curvature), C=3.0, tol=1e-10)
    values, gradients = squared_hinge(X @ found.coef, Y)
    total = 0.5 * (found.coef**2).sum() + 3.0 * values.sum()
    assert found.objective == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(found.coef, -3.0 * X.T @ gradients, atol=1e-3)
    # The conjugate of the squared hinge is p^2/4 - p, p = -signs v.
    signs = np.where(np.arange(5) == Y[:, None], 1.0, -1.0)
    p = signs * found.dual / 3.0
    dual = -3.0 * (p**2 / 4 - p).sum() - 0.5 * ((X.T @ found.dual) ** 2).sum()
    assert found.dual_value * 3.0 * 80 == pytest.approx(dual, rel=1e-10)


def test_without_convexity():
    own = solve(X, Y, CustomLoss(truncated, convex=False), tol=1e-7)
    twin = solve(X, Y, losses.TruncatedTopKEntropy(2), tol=1e-7)
    assert np.isnan(own.gap)
    assert own.converged
    assert own.primal == pytest.approx(twin.primal, rel=1e-8)


def test_in_a_path_and_an_estimator():
    loss = CustomLoss(squared_hinge)
    found = path(X, Y, loss, Cs=[0.1, 1.0])
    assert (found.gaps <= 1e-3).all()
    model = TopKClassifier(loss, C=0.5, tol=1e-6)
    assert clone(model).get_params()["loss"] == loss
    model = clone(model).fit(X, Y)
    assert model.duality_gap_ <= 1e-6
    assert model.score(X, Y) > 0.5
    assert not hasattr(model, "predict_proba")
    rbf = TopKClassifier(loss, kernel="rbf", C=0.5).fit(X, Y)
    assert rbf.duality_gap_ <= 1e-3
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_is_a_value():
    loss = CustomLoss(softmax, curvature=0.5)
    assert repr(loss) == "CustomLoss(softmax, curvature=0.5)"
    assert repr(CustomLoss(softmax, convex=False)) == "CustomLoss(softmax, convex=False)"
    assert CustomLoss(softmax, name="mine").name == "mine"
    for twin in (copy.copy(loss), copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert twin == loss
        assert hash(twin) == hash(loss)
    assert loss != CustomLoss(softmax)
    assert loss != CustomLoss(squared_hinge, curvature=0.5)
    assert loss.curvature == 0.5
    assert loss.smooth
    assert not loss.multilabel
    assert loss.places is None


def test_answers_like_a_loss():
    loss, scores = CustomLoss(softmax), np.random.default_rng(0).standard_normal((7, 4))
    y = np.arange(7) % 4
    np.testing.assert_allclose(loss.value(scores, y), TWIN.value(scores, y))
    np.testing.assert_allclose(loss.gradient(scores, y), TWIN.gradient(scores, y))
    assert loss.value(scores[0], 0) == pytest.approx(TWIN.value(scores[0], 0))
    with pytest.raises(ValueError, match="no known conjugate"):
        loss.conjugate(scores, y)
    assert "custom" not in losses.names()


def test_may_change_its_scores():
    def careless(scores, y):
        answer = TWIN.value_and_gradient(scores, y)
        scores[:] = np.nan
        return answer

    found = solve(X, Y, CustomLoss(careless))
    assert found.primal == solve(X, Y, CustomLoss(softmax)).primal


@pytest.mark.parametrize("method", ["sdca", "frank_wolfe", "pairwise", "block_frank_wolfe"])
def test_other_methods_refuse_it(method):
    with pytest.raises(ValueError, match=rf"method='{method}'.*CustomLoss.*lbfgs"):
        solve(X, Y, CustomLoss(softmax), method=method)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((3,), TypeError, "value_and_gradient must be a function"),
        ((softmax, 1), TypeError, "convex"),
        ((softmax, True, -1.0), ValueError, "curvature"),
        ((softmax, True, None, 5), TypeError, "name must be"),
    ],
)
def test_wrong_parameters(arguments, error, words):
    with pytest.raises(error, match=words):
        CustomLoss(*arguments)


def nan_for_some(scores, y):
    values, gradients = softmax(scores, y)
    values[0] = np.nan
    return values, gradients


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda s, y: softmax(s, y)[0], TypeError, "must return two arrays"),
        (lambda s, y: (0.0, softmax(s, y)[1]), ValueError, "must return arrays of shape"),
        (lambda s, y: (softmax(s, y)[0], s[:, :2]), ValueError, "must return arrays of shape"),
        (nan_for_some, ValueError, "must return finite numbers"),
        (lambda s, y: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_wrong_answers(function, error, words):
    with pytest.raises(error, match=words):
        solve(X, Y, CustomLoss(function))
    with pytest.raises(error, match=words):
        CustomLoss(function).value(np.zeros((80, 5)), Y)


@pytest.mark.parametrize("factor", [2.0, 0.7, -1.0])
def test_wrong_gradients_are_found(factor):
    def wrong(scores, y):
        values, gradients = softmax(scores, y)
        return values, factor * gradients

    for convex in (True, False):
        with pytest.raises(ValueError, match="must return the gradients of the losses"):
            solve(X, Y, CustomLoss(wrong, convex=convex))


def test_a_broken_promise_of_convexity_is_found():
    def waves(scores, y):
        return np.sin(scores).sum(axis=1), np.cos(scores)

    with pytest.raises(ValueError, match=r"must be convex.*convex=False"):
        solve(X, Y, CustomLoss(waves))
    assert np.isnan(solve(X, Y, CustomLoss(waves, convex=False)).gap)


@pytest.mark.parametrize("factor", [0.5, 2.0, -1.0])
def test_a_lie_that_the_trial_cannot_see_is_found_on_the_way(factor):
    """It tells the truth of 64 rows, as many as are tried, and of no other number."""

    def sly(scores, y):
        values, gradients = softmax(scores, y)
        return values, gradients if len(y) == 64 else factor * gradients

    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises((ValueError, ConvergenceWarning), match="gradients"):
            solve(X, Y, CustomLoss(sly), C=10.0, tol=1e-9)


def test_interrupts_pass_through():
    def interrupted(scores, y):
        if len(scores) == 80:  # all rows: no trial
            raise KeyboardInterrupt
        return softmax(scores, y)

    with pytest.raises(KeyboardInterrupt):
        solve(X, Y, CustomLoss(interrupted))
