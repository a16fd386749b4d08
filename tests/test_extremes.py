"""The ends of the range: numbers near the largest and the smallest, and what rounding does there.

Each case is a defect that the fuzzer of operators, or a user, has found.
"""

import numpy as np
import pytest
from topkopt.reference import oracles

from topkopt.projections import (
    project_bipartite_simplex,
    project_capped_simplex,
    project_simplex,
    project_topk_cone,
    project_topk_simplex,
    project_weighted_topk,
)
from topkopt.prox import prox_entropy_simplex, prox_topk_entropy

from .cases import PROJECTIONS
from .test_arrays import SIMPLE, rows
from .test_errors import raises

EPS = np.finfo(np.float64).eps
MAX = np.finfo(np.float64).max
LENGTHS = ("radius", "lower", "upper", "total")
WEIGHTS = [0.7, 0.3]

projections = pytest.mark.parametrize("op", PROJECTIONS, ids=lambda op: op.name)


# Large numbers ------------------------------------------------------------------------------


@projections
@pytest.mark.parametrize("power", [1010, 1020, -1000])
def test_scaled_to_the_ends(op, power):
    """Powers of two scale without rounding, up to the largest number and down to small ones."""
    x = rows(40, 6)
    factor = 2.0**power
    params = {"radius": 1.0} | SIMPLE[op.name]
    for name in {"project_topk_cone", "project_capped_simplex"} & {op.name}:
        params = SIMPLE[name]
    scaled = {name: value * factor if name in LENGTHS else value for name, value in params.items()}
    expected = op(x, **params) * factor
    np.testing.assert_array_equal(op(x * factor, **scaled), expected)


@projections
def test_a_huge_row_among_others(op):
    x = rows(3, 6)
    huge = x.copy()
    huge[1] *= 2.0**1010
    params = {**SIMPLE[op.name]}
    result = op(huge, **params)
    np.testing.assert_array_equal(result[::2], op(x[::2], **params))
    assert np.isfinite(result).all()


PULLS_OUT = [  # how far down the sets let entries matter: these do not look at the smallest ones
    lambda x: project_simplex(x),
    lambda x: project_capped_simplex(x, 0.0, 0.4, 1.0),
    lambda x: project_capped_simplex(x, np.zeros(x.shape[-1]), 0.4, 1.0),
    lambda x: project_topk_cone(x, 2),
    *(lambda x, kind=kind: project_topk_simplex(x, 2, kind=kind) for kind in ("alpha", "beta")),
    lambda x: project_topk_simplex(x, 3, kind="label", bias=0.5),
    lambda x: project_weighted_topk(x, WEIGHTS),
    lambda x: project_weighted_topk(x, WEIGHTS, label=True, bias=1.0),
    lambda x: np.concatenate(project_bipartite_simplex(x, x), axis=-1),
    lambda x: prox_entropy_simplex(x, 1.0),
    lambda x: prox_entropy_simplex(x, 0.0, upper=0.4),
    lambda x: prox_topk_entropy(x, 1.0, 2),
]


@pytest.mark.parametrize("function", PULLS_OUT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smallest_number_excludes_like_minus_infinity(function, dtype):
    """Many mask with the smallest number of a dtype in place of -inf."""
    x = rows(50, 7, dtype=dtype)
    x[:, [1, 4]] = np.finfo(dtype).min
    expected = function(np.where(x == np.finfo(dtype).min, dtype(-np.inf), x))
    eps = np.finfo(dtype).eps  # sums are 1, or at most a few
    np.testing.assert_allclose(function(x), expected, rtol=4 * eps, atol=4 * EPS)


def test_both_ends_in_a_row():
    x = [MAX, -MAX, MAX, MAX / 2]
    half = [0.5, 0.0, 0.5, 0.0]
    np.testing.assert_array_equal(project_simplex(x), half)
    np.testing.assert_array_equal(project_capped_simplex(x, 0.0, 1.0, 1.0), half)
    for kind in ("alpha", "beta", "label"):
        np.testing.assert_array_equal(project_topk_simplex(x, 2, kind=kind, bias=0.5), half)
    np.testing.assert_array_equal(project_weighted_topk(x, WEIGHTS), half)
    np.testing.assert_allclose(project_topk_cone(x, 2), np.maximum(x, 0), rtol=2 * EPS)
    np.testing.assert_allclose(prox_entropy_simplex(x, 1.0), half, rtol=2 * EPS)
    np.testing.assert_allclose(prox_topk_entropy(x, 1.0, 2), half, rtol=2 * EPS)
    np.testing.assert_array_equal(prox_entropy_simplex(x[:2], 1.0, upper=0.5), [0.5, 0.5])


def test_a_plateau_down_to_the_smallest_number():
    """Two entries at their cap whatever the threshold: the one that is chosen must be near them."""
    result = project_topk_simplex([1.0, -MAX, 0.0], 3, 3e-57, kind="label", bias=1.0)
    np.testing.assert_allclose(result, [1e-57, 0.0, 1e-57], rtol=2 * EPS)
    result = project_topk_simplex([1.0, -1e20, 0.0], 2, 2e-5)
    np.testing.assert_allclose(result, [1e-5, 0.0, 1e-5], rtol=2 * EPS)


def test_masked_entries_among_the_k_largest_leave_nothing():
    for function in (lambda x: project_topk_cone(x, 3), lambda x: prox_topk_entropy(x, 1.0, 3)):
        np.testing.assert_array_equal(function([1.0, 2.0, -MAX, -MAX]), np.zeros(4))


def test_results_that_cannot_be_held_are_refused():
    """With sums to share, a bipartite projection can be larger than its input."""
    narrow = np.float32([3e38]), np.float32([3e38] * 9)
    with raises(ValueError, "projection that float32 can hold", "3.4e+38", "row 0", "scale"):
        project_bipartite_simplex(*narrow, 1e300)
    wide = project_bipartite_simplex(*(side.astype(np.float64) for side in narrow), 1e300)
    np.testing.assert_allclose(wide[0], 1.8 * np.float64(np.float32(3e38)), rtol=1e-15)
    with raises(ValueError, "float32", "3.4e+38"):
        project_simplex(np.float32([1.0, 2.0]), 1e39)
    with raises(ValueError, "radius must be at most 3.4e+38 for float32", "1e+39", "float64"):
        prox_entropy_simplex(np.float32([1.0, 2.0]), 0.0, 1e39)


@pytest.mark.parametrize("radius", [1e-250, 5e-324])
def test_lengths_too_different_are_refused(radius):
    x = [1.0, -MAX]
    message = ("must be 0 or at least 6e-241 next to numbers beyond 6.7e+240", "-inf")
    for call, name in (
        (lambda: project_simplex(x, radius), "radius"),
        (lambda: project_topk_simplex(x, 1, radius), "radius"),
        (lambda: project_weighted_topk(x, [1.0, 0.5], radius), "radius"),
        (lambda: project_bipartite_simplex(x, x, radius), "radius"),
        (lambda: project_capped_simplex(x, 0.0, np.inf, radius), "total"),
        (lambda: project_capped_simplex(x, 0.0, [radius, 1.0], 0.0), "upper"),
    ):
        with raises(ValueError, name, *message):
            call()
    np.testing.assert_array_equal(project_simplex([1.0, -np.inf], radius), [radius, 0.0])
    np.testing.assert_array_equal(project_simplex(x, 0.0), [0.0, 0.0])


# Bounds and biases --------------------------------------------------------------------------


def test_a_huge_bound_is_no_bound():
    x = rows(20, 6)
    for radius in (1e300, MAX):
        result = project_topk_simplex(x, 2, radius, bias=0.5)
        np.testing.assert_allclose(result, project_topk_cone(x, 2, bias=0.5), rtol=1e-14)
        np.testing.assert_allclose(
            project_weighted_topk(x, WEIGHTS, radius, label=True, bias=1.0),
            project_weighted_topk(x, WEIGHTS, 1e3, label=True, bias=1.0),
            rtol=1e-13,
        )
        np.testing.assert_array_equal(
            project_capped_simplex(x, 0.0, radius, radius, equality=False), np.maximum(x, 0)
        )


def test_a_huge_total_is_shared():
    np.testing.assert_allclose(project_simplex([1.0, 2.0], MAX), [MAX / 2] * 2, rtol=EPS)
    box = project_capped_simplex([1.0, 2.0, 3.0], [-1e308] * 3, [1e308] * 3, 1e308)
    np.testing.assert_allclose(box, [1e308 / 3] * 3, rtol=2 * EPS)
    with raises(ValueError, "total must be at least the sum of the lower bounds"):
        project_capped_simplex([1.0, 2.0, 3.0], 1e308, MAX, 1e308)


@pytest.mark.parametrize("bias", [1e10, 1e20, 1e47, 1e60])
def test_a_large_bias(bias):
    """The sum is t / bias; it was forgotten once 1 / bias was lost next to 1."""
    x = np.array([0.5, 1.25, -0.75, 0.0625])
    expected = [0.0, 1.25 / (1 + bias), 0.0, 0.0]
    for result in (
        project_capped_simplex(x, 0.0, 0.25, 8.0, equality=False, bias=bias),
        project_capped_simplex(x, np.zeros(4), 0.25, 8.0, equality=False, bias=bias),
        project_topk_simplex(x, 1, 8.0, bias=bias),
        project_topk_simplex(x, 1, 8.0, kind="beta", bias=bias),
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("bias", [1e-60, 1e-100, 5e-324])
def test_a_small_bias_is_none(bias):
    x = rows(10, 6)
    for function in (
        lambda bias: project_topk_simplex(x, 2, 10.0, bias=bias),
        lambda bias: project_topk_cone(x * 1e239, 2, bias=bias) / 1e239,
        lambda bias: project_weighted_topk(x, WEIGHTS, 10.0, label=True, bias=bias),
        lambda bias: project_capped_simplex(x, 0.0, 1.0, 9.0, equality=False, bias=bias),
    ):
        np.testing.assert_allclose(function(bias), function(0.0), rtol=1e-14, atol=1e-15)


def test_a_bias_beyond_the_range():
    with raises(ValueError, "bias must be at most 1.6e+60", "1e+61", "sum"):
        project_topk_cone([1.0, 2.0], 1, bias=1e61)


def test_a_biased_sum_far_below_the_largest_entry():
    """Next to the largest, which gets all it may, the others decide how large the sum is."""
    most = 3.4e38
    row, cap = np.array([1.0, -most, 1.0, most, -most, 1.0]), 6e-30
    options = {"radius": 3 * cap, "bias": 2e30}
    beta = project_topk_simplex(row, 3, kind="beta", **options)
    np.testing.assert_allclose(beta, [0, 0, 0, cap, 0, 0], rtol=1e-15)
    label = project_topk_simplex(row, 3, kind="label", **options)
    np.testing.assert_allclose(label, cap * np.array([1, 0, 1, 3, 0, 1]) / 3, rtol=1e-15)


@pytest.mark.parametrize("p", [50, 299, 1000])
@pytest.mark.parametrize("bias", [1.0, 10.0])
def test_many_equal_entries_share_to_the_last_digit(p, bias):
    """All x are equal and add up to mu/bias, where mu = 2 - x."""
    for options in ({}, {"label": True}):
        x = project_weighted_topk(np.full(p, 2.0), [4, 4, 2, 2, 1], bias=bias, **options)
        np.testing.assert_allclose(x, 2.0 / (1.0 + bias * p), rtol=1e-14)


def test_bounds_far_below_the_digits_of_the_entries():
    """Two lowest entries share what is left, although their cap is nothing next to them."""
    x = np.array([4.0, 4.0, -0.5, 4.0, 4.0, -0.5]) * 1e33
    cap = 0.125
    shared = [cap, cap, 0.75 * cap, cap, cap, 0.75 * cap]
    for upper in (cap, np.full(6, cap)):
        result = project_capped_simplex(x, 0.0, upper, 5.5 * cap)
        np.testing.assert_array_equal(result, shared)
        np.testing.assert_array_equal(
            project_capped_simplex(x, 0.0, upper, 6 * cap), np.full(6, cap)
        )
    np.testing.assert_array_equal(
        project_topk_simplex([1e20, 1e20, 0.0, 0.0], 4, kind="label", bias=1e-3),
        [0.25, 0.25, 0.125, 0.125],
    )


def test_a_full_simplex_keeps_its_small_entries():
    """All four positive entries reach the cap, however small: their sum is the radius."""
    x = [3e-3, 1e-17, 1e-15, 4e-22, -6e-24, -5e-10]
    np.testing.assert_array_equal(
        project_topk_simplex(x, 4, 2.0**-115, kind="beta", bias=0.5), [2.0**-117] * 4 + [0.0] * 2
    )


def test_a_root_close_to_where_a_far_step_lands():
    lower = [-9.5e-287, -8.4e-287, -2.5e-287]
    total = -2.04e-286
    result = project_capped_simplex([0.0, -2.6e100, 0.0], lower, [4e100, 1e100, 8e100], total)
    np.testing.assert_allclose(result, [-9.5e-287, -8.4e-287, -2.5e-287], rtol=1e-14)


# Weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 1e17, 1e100, 1e300])
@pytest.mark.parametrize("label", [False, True])
def test_weights_between_large_ties(size, label):
    """Weights are shared among ties, even where they are nothing next to the entries."""
    x = np.array([1.0, 1.0, 0.5]) * size
    np.testing.assert_allclose(
        project_weighted_topk(x, WEIGHTS, label=label), [0.5, 0.5, 0.0], rtol=1e-15
    )
    y = np.array([1.0, 1.0, 0.5, 0.5]) * size
    result = project_weighted_topk(y, [0.4, 0.3, 0.2, 0.1], label=label)
    np.testing.assert_allclose(result[:2], [0.35] * 2, rtol=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("label", [False, True])
def test_weights_of_any_size(size, label):
    x = rows(20, 5)
    result = project_weighted_topk(x, np.multiply(WEIGHTS, size), 1 / size, label=label, bias=1.0)
    expected = project_weighted_topk(x, WEIGHTS, label=label, bias=1.0)
    np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-15)


# Entropies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("n", [10, 1000, 10_000])
def test_caps_near_their_least(alpha, n):
    """Entries that reach their cap bend the sum; a short step across a bend is not the last."""
    rng = np.random.default_rng(n)
    for excess, spread in zip(
        10 ** rng.uniform(-12, -1, 40), 10 ** rng.uniform(-9, 3, 40), strict=True
    ):
        for b in (rng.standard_normal(n), -rng.exponential(size=n)):
            upper = (1 + excess) / n
            x = prox_entropy_simplex(b * spread, alpha, upper=upper)
            assert abs(x.sum() - 1) <= 1e-14, (excess, spread)
            assert x.max() <= upper


def test_no_rows_have_room_for_nothing():
    assert prox_entropy_simplex(np.empty((0, 3)), 1.0, upper=0.0).shape == (0, 3)


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-20])
def test_a_small_quadratic_is_none(alpha):
    b = rows(20, 6)
    for upper in (None, 0.3):
        np.testing.assert_allclose(
            prox_entropy_simplex(b, alpha, upper=upper),
            prox_entropy_simplex(b, 0.0, upper=upper),
            rtol=1e-14,
        )
    np.testing.assert_allclose(
        prox_topk_entropy(b, alpha, 2), prox_topk_entropy(b, 0.0, 2), rtol=1e-14
    )


@pytest.mark.parametrize("radius", [1e-300, 1e-150, 1e150, 1e300])
def test_entropies_scale_with_the_radius(radius):
    b = rows(20, 6)
    for alpha, share in ((0.0, None), (0.5, None), (0.5, 0.3), (0.0, 0.3)):
        upper = None if share is None else share * radius
        result = prox_entropy_simplex(b, alpha / radius, radius, upper=upper) / radius
        np.testing.assert_allclose(result, prox_entropy_simplex(b, alpha, upper=share), rtol=1e-14)


@pytest.mark.parametrize("alpha", [1e40, 4.492567054108167e117, 1e144])
def test_a_large_quadratic_is_a_projection(alpha):
    b = np.array([1.2, 0.2, -0.1, 1.5, 0.6])
    np.testing.assert_allclose(prox_entropy_simplex(b, alpha), np.full(5, 0.2), rtol=1e-14)
    fifth = prox_entropy_simplex([-np.inf, 1.2, 0.2, -0.1, 1.5, -np.inf, 0.6], alpha)
    np.testing.assert_allclose(fifth, 0.2 * np.array([0, 1, 1, 1, 1, 0, 1]), rtol=1e-14)
    np.testing.assert_allclose(
        prox_entropy_simplex(alpha * b, alpha), project_simplex(b), atol=1e-15
    )
    np.testing.assert_allclose(
        prox_topk_entropy(alpha * b, alpha, 2), project_topk_simplex(b, 2, bias=1.0), atol=1e-15
    )
    x = prox_topk_entropy([1.0, 2.0, 3.0, 4.0], alpha, 2)
    assert oracles.kkt_prox_topk_entropy([1.0, 2.0, 3.0, 4.0], x, alpha, 2) <= 1e-15
    assert (np.diff(x) > 0).all()


@pytest.mark.parametrize("alpha", [1e145, 1e300, 1e308])
def test_a_quadratic_beyond_the_range(alpha):
    with raises(
        ValueError, "alpha", "at most 3.1e+144", alpha, "project_topk_simplex", "b / alpha"
    ):
        prox_topk_entropy([1.0, 2.0, 3.0, 4.0], alpha, 2)
    with raises(ValueError, "alpha", "at most 3.1e+144", alpha, "project_capped_simplex"):
        prox_entropy_simplex([1.0, 2.0, 3.0, 4.0], alpha)
    with raises(ValueError, "alpha", "1e+100", "1e+200"):
        prox_entropy_simplex([1.0, 2.0, 3.0, 4.0], 1e100, 1e200)
