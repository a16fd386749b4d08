"""The digits of losses, against a hundred of them."""

from itertools import product

import numpy as np
import pytest

from tests.exact_losses import (
    conjugate_rounding,
    distance,
    exact_conjugate,
    exact_value,
    rounding,
)
from topkopt import losses, solve

from .loss_cases import convex, everything


def rows_that_cost_digits(m):
    """Return scores, and a label that is 0 in each row: its differences are exact."""
    rng = np.random.default_rng(m)
    rows = [scale * rng.standard_normal(m) for scale in 10.0 ** np.arange(-8, 9, 2)]
    rows += [-gap * (1 + rng.random(m)) for gap in (1.0, 10.0, 36.0, 100.0, 300.0)]
    rows += [-1 + sign * 10.0 ** rng.uniform(-9, -2, m) for sign in (1, -1)]
    rows += [-1 + rng.choice([-1, 1], m) * 10.0 ** rng.uniform(-9, 0, m) for _ in range(4)]
    rows = np.array(rows)
    y = rng.integers(0, m, len(rows))
    rows[np.arange(len(rows)), y] = 0.0
    return rows, y


def units_off(loss, s, y):
    """Return the error of a value in units of what rounding the margins can do to it."""
    value, v = loss.value(s, y), loss.gradient(s, y)
    return distance(value, exact_value(loss, s, y)) / rounding(loss, s, y, v, value)


@everything
@pytest.mark.parametrize("m", [5, 8])
def test_values_keep_their_digits(case, m):
    scores, y = rows_that_cost_digits(m)
    assert max(map(units_off, [case.loss] * len(y), scores, y)) <= 8


@pytest.mark.parametrize("m", [20, 64, 300])
@pytest.mark.parametrize("name", ["topk_hinge", "topk_hinge_beta", "topk_hinge_label"])
def test_many_entries_that_share_the_rounding_of_a_threshold(name, m):
    """A few far above are at the cap; the others, nearly equal, share what they leave."""
    rng = np.random.default_rng(m)
    for few, gap, base in product((1, 3), (1.0, 5.0, 14.0), (0.0, 10.0, 1000.0)):
        scores = base + 1e-3 * rng.random(m)
        scores[0] = 0.0
        scores[1 : 1 + few] += gap
        loss = losses.get(name, k=few + 1, smoothing=1.0)
        assert units_off(loss, scores, 0) <= 16 + m / 8


@everything
@pytest.mark.parametrize("m", [5, 8])
def test_values_of_the_twin_keep_their_digits(case, m):
    scores, y = rows_that_cost_digits(m)
    for s, label in zip(scores, y, strict=True):
        value, v = case.twin.value(s, label), case.twin.gradient(s, label)
        unit = rounding(case.loss, s, label, v, value)
        assert distance(value, exact_value(case.loss, s, label)) <= 16 * unit


@convex
def test_conjugates_keep_their_digits(case):
    loss, (scores, y) = case.loss, rows_that_cost_digits(6)
    gradients = loss.gradient(scores, y)
    for share in (1.0, 1e-3, 1e-12, 1e-100, 1e-290):
        for v, label in zip(share * gradients, y, strict=True):
            error = distance(loss.conjugate(v, label), exact_conjugate(loss, v, label))
            assert error <= 4 * conjugate_rounding(loss, v, label)


@pytest.mark.parametrize("gap", [1.0, 30.0, 40.0, 300.0, 700.0])
def test_tails_of_entropies(gap):
    """log(1 + e^-gap) is e^-gap next to nothing; it used to be 0 from 37 on."""
    tail = np.log1p(np.exp(-gap))
    for loss in (losses.Softmax(), losses.TruncatedTopKEntropy(1), losses.MultilabelSoftmax()):
        for name in ("value", "gradient"):
            result = getattr(loss, name)([0.0, gap], 1)
            share = tail if name == "value" else [1 / (1 + np.exp(gap)), -1 / (1 + np.exp(gap))]
            np.testing.assert_allclose(result, share, rtol=1e-15)
    np.testing.assert_allclose(
        losses.OneVsAllLogistic().value([-gap, gap], 1), 2 * tail, rtol=1e-15
    )
    scores = [gap, 0.0, 0.0, -1e3]
    np.testing.assert_allclose(  # two at the cap of 1/2
        losses.TopKEntropy(2).value(scores, 0), np.log1p(2 * np.exp(-gap)), rtol=1e-13
    )
    assert losses.Softmax().value([40.0, 0.0], 0) == 4.248354255291589e-18


def test_large_scores_keep_the_digits_of_their_differences():
    scores = 1e8 + np.array([0.25, 1.0, 0.5, -3.0])
    for loss in (losses.MultilabelSoftmax(), losses.MultilabelHinge(0.5)):
        for y in ([True, False, True, False], [False, True, False, False]):
            expected = loss.value(scores - 1e8, y)
            np.testing.assert_allclose(loss.value(scores, y), expected, rtol=4e-16)
    same = np.full(26, 3.2972779928237662e35)
    value = losses.MultilabelSoftmax().value(same, np.arange(26) < 5)
    np.testing.assert_allclose(value, np.log(26), rtol=4e-16)
    truncated = losses.TruncatedTopKEntropy(2)
    slopes = truncated.gradient([1e8 + 1, -1e8, 1e8, 3e8], 1)
    np.testing.assert_allclose(slopes, truncated.gradient([1.0, -700.0, 0.0, 900.0], 1), rtol=1e-15)


def test_sums_of_largest_margins_keep_their_digits():
    """The k largest are near 0, and the search for them begins far below."""
    near = np.array([0.0, -1 + 9.3e-12, -1 - 3.3e-12])
    scores = np.append(near, [-1.0000018636385695, -1.0005507902318314, -1.0016470047869408])
    for kind in ("alpha", "label"):
        loss = losses.TopKHinge(2, kind)
        assert loss.value(scores, 0) == loss.value(near, 0)
        assert units_off(loss, scores, 0) <= 1


@pytest.mark.parametrize(
    ("loss", "scores", "y"),
    [
        (
            losses.WeightedTopKHinge(
                [0.6696889771141877, 0.496448492379297], None, True, 1e6, "all"
            ),
            [0.0, -0.9999999999387618, -1.0000000019738098],
            0,
        ),
        (losses.MultilabelHinge(30.0), [0.0, 4.7e133, 4.7e133], [False, True, False]),
        (losses.TopKHinge(5, "label", 1e6), 1.5e291 * np.array([0, 1, 1, -1, 1, 2]), 2),
    ],
    ids=lambda x: type(x).__name__,
)
def test_values_are_never_negative(loss, scores, y):
    assert loss.value(scores, y) >= 0


def test_classes_far_below_change_nothing():
    """They used to make the smoothing look too small to matter."""
    for far in (-1e9, -1e30, -1e300):
        scores, near = [0.0, -1 + 1e-10, far], [0.0, -1 + 1e-10, -5.0]
        for loss in (losses.Hinge(1e-8), losses.TopKHinge(1, "beta", 1e-8)):
            assert loss.value(scores, 0) == loss.value(near, 0)
        for loss in (losses.Hinge(1e-8), losses.MultilabelHinge(1e-8)):
            np.testing.assert_array_equal(loss.gradient(scores, 0), loss.gradient(near, 0))
        assert losses.MultilabelHinge(1e-8).value(scores, 0) == pytest.approx(
            losses.WeightedTopKHinge([1.0], smoothing=1e-8, envelope="all").value(near, 0),
            rel=1e-15,
        )


@pytest.mark.parametrize("smoothing", [1e-3, 1.0, 30.0])
def test_margins_that_overflow_below(smoothing):
    """-1e308 - 1e308 is as far below as can be, and changes nothing either."""
    for kind in ("alpha", "beta", "label"):
        loss = losses.TopKHinge(1, kind, smoothing)
        value = loss.value([1e308, 1e308, -1e308], 0)
        assert value == loss.value([0.0, 0.0, -5.0], 0) > 0
    loss = losses.MultilabelHinge(smoothing)
    assert loss.value([1e308, 1e308, -1e308], 0) == loss.value([0.0, 0.0, -5.0], 0) > 0


def test_smoothing_that_is_lost_in_rounding():
    """Of margins of 1e44 only the order counts; their projection used to be infeasible."""
    loss = losses.TopKHinge(2, smoothing=30.0)
    scores = [1.2418924218433522e45, -7.9500439974216252e43, 2.3615956259751435e44]
    np.testing.assert_array_equal(loss.gradient(scores, 1), [0.5, -1.0, 0.5])
    mean = (scores[0] + scores[2]) / 2 - scores[1]
    np.testing.assert_allclose(loss.value(scores, 1), mean, rtol=1e-15)


def test_smoothing_of_large_weights_is_not_lost():
    """Beyond margins of smoothing/eps a vertex is as good as any; its square still counts."""
    loss = losses.WeightedTopKHinge([100.0, 50.0], smoothing=1e-9, envelope="all")
    scores = np.array([0.0, 1.2e7, -2.4e7])
    assert units_off(loss, scores, 0) <= 1
    assert loss.value(scores, 0) == 150.0 - 0.5e-9 * (100.0**2 + 50.0**2 + 150.0**2)


def test_smoothing_so_large_that_squares_underflow():
    for loss in (losses.Hinge(1e200), losses.TopKHinge(1, "beta", 1e200)):
        np.testing.assert_allclose(loss.value([0.0, 1.0], 0), 2e-200, rtol=1e-15)
        v = loss.gradient([0.0, 1.0], 0)
        np.testing.assert_allclose(loss.conjugate(v, 0), -2e-200 + 2e-200, atol=1e-215)
    np.testing.assert_allclose(
        losses.MultilabelHinge(1e200).value([0.0, 1.0], 0), 1e-200, rtol=1e-15
    )


def test_differences_that_overflow():
    scores = np.array([1e308, -1e308, 0.0])
    for loss in (losses.Softmax(), losses.TopKEntropy(1), losses.MultilabelSoftmax()):
        np.testing.assert_array_equal(loss.value(np.tile(scores, (2, 1)), [0, 1]), [0.0, np.inf])
        np.testing.assert_array_equal(loss.gradient(scores, 1), [1.0, -1.0, 0.0])
    assert losses.TopKEntropy(2).gradient(scores, 1).tolist() == [0.5, -1.0, 0.5]
    assert losses.TruncatedTopKEntropy(2).gradient(scores, 1).tolist() == [0.0, -1.0, 1.0]
    assert losses.MultilabelHinge(0.5).value(scores, 1) == np.inf
    np.testing.assert_array_equal(losses.MultilabelHinge(0.5).gradient(scores, 1), [1.0, -1.0, 0.0])


def test_conjugates_near_a_vertex():
    """1 - x keeps its digits: log x is not found from 1/x there."""
    for loss in (losses.Softmax(), losses.TopKEntropy(1), losses.MultilabelSoftmax()):
        for rest in (1e-3, 2.0**-30, 2.0**-50):
            v = [-1.0, 1 - rest, rest]
            expected = (1 - rest) * np.log1p(-rest) + rest * np.log(rest)
            np.testing.assert_allclose(loss.conjugate(v, 0), expected, rtol=1e-15)
        tiny = [-1e-305, 1e-305, 0.0]
        expected = 1e-305 * (np.log(1e-305) - 1)
        np.testing.assert_allclose(loss.conjugate(tiny, 0), expected, rtol=1e-14)


@convex
@pytest.mark.filterwarnings("ignore::topkopt.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_dual_is_not_above_the_primal(case, scale):
    """Not even where both are next to 0, because the examples are far apart or C is large."""
    X, y = scale * np.eye(5), np.arange(5)
    for C in 10.0 ** np.arange(-8, 13, 4):
        solution = solve(X, y, case.loss, C=C, tol=1e-9, max_epochs=50, random_state=0)
        loss, penalty = C * case.loss.value(X @ solution.coef, y).sum(), (solution.coef**2).sum()
        size = (loss + penalty + np.abs(solution.dual).sum()) / (C * 5)
        assert solution.primal - solution.dual_value >= -1e-14 * size
        assert solution.gap >= -1e-13


def test_a_certificate_of_a_tail():
    solution = solve(1000 * np.eye(2), [0, 1], "softmax", C=1e10, tol=1e-9)
    assert 0 < solution.dual_value <= solution.primal * (1 + 1e-14)
    assert abs(solution.gap) <= 1e-9
