"""The weighted top-k hinge loss: its special cases, its envelopes, and training with it."""

import numpy as np
import pytest
import scipy.sparse

from topkopt import losses, solve
from topkopt.losses import Hinge, TopKHinge, WeightedTopKHinge

SPECIAL_CASES = [
    (WeightedTopKHinge("flat", 3), TopKHinge(3)),
    (WeightedTopKHinge("flat", 3, label=True), TopKHinge(3, kind="label")),
    (WeightedTopKHinge("flat", 3, smoothing=0.4), TopKHinge(3, smoothing=0.4)),
    (
        WeightedTopKHinge("flat", 3, label=True, smoothing=0.4),
        TopKHinge(3, kind="label", smoothing=0.4),
    ),
    (WeightedTopKHinge("exp", 1), Hinge()),
    (WeightedTopKHinge("linear", 1, label=True), Hinge()),
    (WeightedTopKHinge([1.0], smoothing=2.0), Hinge(smoothing=2.0)),
    (WeightedTopKHinge([0.5, 0.5, 0.0, 0.0]), TopKHinge(2)),
]
VARIANTS = [
    WeightedTopKHinge(weights, k, label=label, smoothing=smoothing, envelope=envelope)
    for weights, k in (("exp", 3), ("linear", 4), ([3.0, 1.0, 1.0], None))
    for label in (False, True)
    for smoothing, envelope in ((0.0, "others"), (0.3, "others"), (0.3, "all"))
]

special_cases = pytest.mark.parametrize(("weighted", "plain"), SPECIAL_CASES)
variants = pytest.mark.parametrize("loss", VARIANTS, ids=repr)


def scores_of(n=40, m=7, seed=1):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((n, m)) * np.repeat([0.1, 1.0, 10.0, 1.0], n // 4)[:, None]
    scores[-n // 4 :] = scores[-n // 4 :].round()  # ties
    return scores, rng.integers(0, m, n)


def data_of(n=40, d=9, m=7):
    rng = np.random.default_rng(2)
    y = np.append(rng.integers(0, m, n - 1), m - 1)
    return rng.standard_normal((n, d)) + rng.standard_normal((m, d))[y], y


@special_cases
def test_special_values(weighted, plain):
    scores, y = scores_of()
    np.testing.assert_allclose(weighted.value(scores, y), plain.value(scores, y), atol=1e-13)
    gradient = weighted.gradient(scores, y)
    np.testing.assert_allclose(gradient, plain.gradient(scores, y), atol=1e-12)
    for v in (gradient, 0.5 * gradient, 1.1 * gradient):
        np.testing.assert_allclose(weighted.conjugate(v, y), plain.conjugate(v, y), atol=1e-12)


@special_cases
def test_special_training(weighted, plain):
    X, y = data_of()
    options = {"C": 0.3, "tol": 1e-8, "random_state": 0}
    ours, theirs = solve(X, y, weighted, **options), solve(X, y, plain, **options)
    assert ours.primal == pytest.approx(theirs.primal, rel=2e-8)
    np.testing.assert_allclose(ours.coef, theirs.coef, atol=1e-3)


def test_profiles():
    """The weights of the paper, each of sum 1."""
    assert WeightedTopKHinge("flat", 4).weights == (0.25,) * 4
    np.testing.assert_allclose(WeightedTopKHinge("linear", 3).weights, [3 / 6, 2 / 6, 1 / 6])
    falling = np.exp([-1 / 3, -2 / 3, -1.0])
    np.testing.assert_allclose(WeightedTopKHinge("exp", 3).weights, falling / falling.sum())
    assert losses.get("weighted_topk_hinge", weights="exp", k=3) == WeightedTopKHinge("exp", 3)


@pytest.mark.parametrize("label", [False, True])
def test_the_definition(label):
    """max(0, <w, sorted h>), the label's slot 0 sorted in or not."""
    scores, y = scores_of()
    w = np.array([0.6, 0.3, 0.1])
    for s, j, value in zip(
        scores, y, WeightedTopKHinge(w, label=label).value(scores, y), strict=True
    ):
        h = np.delete(s - s[j] + 1.0, j)
        slots = np.append(h, 0.0) if label else h
        assert value == pytest.approx(max(0.0, np.sort(slots)[::-1][:3] @ w))


@variants
def test_fenchel_equality(loss):
    scores, y = scores_of()
    v = loss.gradient(scores, y)
    np.testing.assert_allclose(v.sum(axis=1), 0.0, atol=1e-12)
    inner = np.einsum("ij,ij->i", scores, v)
    np.testing.assert_allclose(
        loss.value(scores, y) + loss.conjugate(v, y), inner, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("label", [False, True])
def test_moreau_envelope(label):
    """envelope="all" is min_z value(z) + |s - z|^2/(2 gamma), attained at s - gamma v."""
    scores, y = scores_of()
    gamma = 0.7
    hard = WeightedTopKHinge("exp", 3, label=label)
    soft = WeightedTopKHinge("exp", 3, label=label, smoothing=gamma, envelope="all")
    v = soft.gradient(scores, y)
    at_best = hard.value(scores - gamma * v, y) + gamma / 2 * (v**2).sum(axis=1)
    np.testing.assert_allclose(soft.value(scores, y), at_best, atol=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = scores - gamma * v + 0.1 * rng.standard_normal(scores.shape)
        other = hard.value(z, y) + ((scores - z) ** 2).sum(axis=1) / (2 * gamma)
        assert (soft.value(scores, y) <= other + 1e-12).all()


@variants
def test_training(loss):
    """The exact step closes the gap, for dense and sparse examples and for kernels."""
    X, y = data_of()
    X[np.abs(X) < 0.5] = 0.0
    options = {"C": 0.2, "tol": 1e-9, "method": "sdca", "random_state": 0}
    dense = solve(X, y, loss, **options)
    sparse = solve(scipy.sparse.csr_array(X), y, loss, **options)
    kernel = solve(X @ X.T, y, loss, kernel=True, **options)
    assert dense.converged
    assert sparse.converged
    assert kernel.converged
    assert sparse.primal == pytest.approx(dense.primal, rel=2e-9)
    assert kernel.primal == pytest.approx(dense.primal, rel=2e-9)
    assert np.diff(dense.history["dual"]).min() >= -1e-12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "weights must be .*non-increasing"),
        (([1.0, -1.0],), "weights must be .*non-negative"),
        (("exp",), "k must be given"),
        (("cubic", 3), "weights must be"),
        (([1.0], None, False, -1.0), "smoothing must be"),
        (([1.0], None, False, 0.0, "none"), "envelope must be"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        WeightedTopKHinge(*arguments)


def test_too_many_weights():
    scores, y = scores_of(m=3)
    assert WeightedTopKHinge("exp", 3, label=True).value(scores, y).shape == y.shape
    with pytest.raises(ValueError, match="weights"):
        WeightedTopKHinge("exp", 3).value(scores, y)
