"""Properties that hold for all inputs, looked for by hypothesis."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from topkopt.projections import (
    project_bipartite_simplex,
    project_capped_simplex,
    project_simplex,
    project_topk_cone,
    project_topk_simplex,
    project_weighted_topk,
)
from topkopt.prox import prox_entropy_simplex, prox_topk_entropy

from .cases import BY_NAME, OPERATORS, PROJECTIONS, assert_close, assert_feasible

operators = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
projections = pytest.mark.parametrize("op", PROJECTIONS, ids=lambda op: op.name)
EPS = np.finfo(np.float64).eps


@st.composite
def rows(draw, least=1, most=12, bound=1e3):
    """Draw a row of numbers at one of several scales, often with ties."""
    p = draw(st.integers(least, most))
    entries = st.floats(-1.0, 1.0, allow_subnormal=False) | st.integers(-2, 2).map(float)
    scale = draw(st.sampled_from([1e-6, 1e-2, 1.0, bound]))
    row = np.array(draw(st.lists(entries, min_size=p, max_size=p)))
    return scale * np.where(np.abs(row) < 1e-100, 0.0, row)


def draw_case(data, op, row):
    grid = [params for params in op.grid(row.size) if op.is_feasible(row, params)]
    return data.draw(st.sampled_from(grid))


def sides_of(op, row, params):
    """Return the places of the entries that are treated alike."""
    return np.split(np.arange(row.size), [params["cut"]] if op.paired else [])


def draw_order(data, op, row, params):
    """Draw a permutation that keeps each side to itself."""
    return np.concatenate(
        [
            np.array(data.draw(st.permutations(list(side))), dtype=int)
            for side in sides_of(op, row, params)
        ]
    )


def close(a, b, size, factor=100.0):
    return np.abs(a - b).max(initial=0.0) <= factor * EPS * size


def permute(params, order):
    return {
        name: value[order] if name in ("lower", "upper") and np.ndim(value) else value
        for name, value in params.items()
    }


# Every operator -----------------------------------------------------------------------------


@operators
@given(data=st.data(), row=rows(), single=st.booleans())
def test_feasible(op, data, row, single):
    params = draw_case(data, op, row)
    row = row.astype(np.float32) if single else row
    assert_feasible(op, row, op(row, **params), params)


@operators
@given(data=st.data(), row=rows())
def test_agrees_with_reference(op, data, row):
    params = draw_case(data, op, row)
    assert_close(op, row, op(row, **params), op.reference(row, **params), params)


@operators
@given(data=st.data(), row=rows())
def test_permutation_equivariant(op, data, row):
    params = draw_case(data, op, row)
    order = draw_order(data, op, row, params)
    result = op(row[order], **permute(params, order))
    assert_close(op, row[order], result, op(row, **params)[order], params)


@operators
@given(data=st.data(), row=rows())
def test_keeps_the_order(op, data, row):
    params = draw_case(data, op, row)
    assume(not np.ndim(params.get("lower", 0.0)))
    result = op(row, **params)
    for side in sides_of(op, row, params):
        rising = np.diff(result[side[np.argsort(-row[side], kind="stable")]])
        assert rising.max(initial=0.0) <= 4 * EPS * op.size(row, result, params)


@operators
@given(data=st.data(), row=rows(least=2))
def test_cocoercive(op, data, row):
    """<f(a) - f(b), a - b> >= |f(a) - f(b)|^2 / L, which implies |f(a) - f(b)| <= L |a - b|."""
    params = draw_case(data, op, row)
    other = row + data.draw(st.sampled_from([1e-3, 0.1, 10.0])) * np.array(
        data.draw(st.lists(st.floats(-1, 1), min_size=row.size, max_size=row.size))
    )
    moved, step = op(row, **params) - op(other, **params), row - other
    size = max(op.size(x, op(x, **params), params) for x in (row, other))
    lost = op.factor * EPS * size * (np.abs(step).sum() + np.abs(moved).sum() + size)
    assert moved @ moved <= op.lipschitz(params) * (moved @ step) + lost
    assert np.linalg.norm(moved) <= op.lipschitz(params) * np.linalg.norm(step) + lost + 1e-12


@operators
@given(data=st.data(), row=rows())
def test_minus_infinity_is_absence(op, data, row):
    """An entry of -inf gets no mass and changes nothing for the others."""
    params = draw_case(data, op, row)
    assume(np.all(params.get("lower", 0.0) == 0.0))
    place = data.draw(st.integers(0, row.size))
    more = dict(params)
    if op.paired:
        assume(0 < params["cut"] < row.size)
        more["cut"] += place < params["cut"]
    result = op(np.insert(row, place, -np.inf), **more)
    assert result[place] == 0
    assert_close(op, row, np.delete(result, place), op(row, **params), params)


# Projections --------------------------------------------------------------------------------


@projections
@given(data=st.data(), row=rows())
def test_idempotent(op, data, row):
    params = draw_case(data, op, row)
    assume(params.get("bias", 0.0) == 0.0 or params.get("equality", False))
    result = op(row, **params)
    assert_close(op, row, op(result, **params), result, params)


@projections
@given(data=st.data(), row=rows(), power=st.sampled_from([-300, -40, -1, 3, 40, 300]))
def test_scale_equivariant(op, data, row, power):
    """Powers of two scale without rounding, so every bit must be the same."""
    params = draw_case(data, op, row)
    factor = 2.0**power
    scaled = {
        name: value * factor if name in ("radius", "lower", "upper", "total") else value
        for name, value in params.items()
    }
    np.testing.assert_array_equal(op(row * factor, **scaled), op(row, **params) * factor)


@projections
@given(data=st.data(), row=rows())
def test_nearest_of_feasible_points(op, data, row):
    """No other point of the set that we happen to know is nearer (in the biased distance)."""
    params = draw_case(data, op, row)
    bias = 0.0 if params.get("equality", op.name == "project_simplex") else params.get("bias", 0.0)
    assume(not np.ndim(params.get("lower", 0.0)))
    other = op(row[draw_order(data, op, row, params)], **params)

    def objective(x):
        return 0.5 * ((x - row) @ (x - row)) + 0.5 * bias * x.sum() ** 2

    result = op(row, **params)
    size = op.size(row, result, params)
    slack = 100 * EPS * row.size**2 * size**2 * (1 + bias)
    assert objective(result) <= objective(other) + slack


topk_parameters = {
    "row": rows(least=2),
    "k": st.integers(1, 5),
    "radius": st.sampled_from([0.1, 1.0, 10.0]),
    "bias": st.sampled_from([0.0, 0.5, 3.0]),
}


@given(**topk_parameters)
def test_inclusions(row, k, radius, bias):
    """Alpha is contained in label and label in beta; the larger the set, the nearer it is."""
    k = min(k, row.size)
    inside = {
        kind: project_topk_simplex(row, k, radius, kind=kind) for kind in ("alpha", "label", "beta")
    }
    outside = BY_NAME["project_topk_simplex"].outside
    size = max(np.abs(row).max(), radius)
    for small, large in (("alpha", "label"), ("label", "beta"), ("alpha", "beta")):
        assert outside(inside[small], k, radius, large) <= 8 * row.size * EPS * size
        distances = [np.linalg.norm(inside[kind] - row) for kind in (large, small)]
        assert distances[0] <= distances[1] + 8 * row.size * EPS * size


@given(**topk_parameters)
def test_k_one_is_the_simplex(row, k, radius, bias):
    expected = project_capped_simplex(row, 0.0, np.inf, radius, equality=False, bias=bias)
    for kind in ("alpha", "beta", "label"):
        result = project_topk_simplex(row, 1, radius, kind=kind, bias=bias)
        assert close(result, expected, max(np.abs(row).max(), radius))
    assert close(project_topk_cone(row, 1), np.maximum(row, 0.0), np.abs(row).max(), 1.0)


@given(**topk_parameters)
def test_k_p_is_the_diagonal(row, k, radius, bias):
    p = row.size
    size = max(np.abs(row).max(), radius)
    level = max(row.sum() / (p + bias * p**2), 0.0)
    assert close(project_topk_cone(row, p, bias=bias), level, size)
    alpha = project_topk_simplex(row, p, radius, bias=bias)
    assert close(alpha, min(level, radius / p), size)
    label = project_topk_simplex(row, p + 1, radius, kind="label", bias=bias)
    assert close(label, min(level, radius / (p + 1)), size)


@given(**topk_parameters)
def test_beta_is_a_capped_simplex(row, k, radius, bias):
    k = min(k, row.size)
    expected = project_capped_simplex(row, 0.0, radius / k, radius, equality=False, bias=bias)
    result = project_topk_simplex(row, k, radius, kind="beta", bias=bias)
    np.testing.assert_array_equal(result, expected)


@given(**topk_parameters)
def test_label_is_beta_or_alpha(row, k, radius, bias):
    """Beta where its sum leaves the label's slot below the cap, else alpha of k - 1."""
    k = 2 + k % row.size
    rest = radius * (k - 1) / k
    beta = project_capped_simplex(row, 0.0, radius / k, radius, equality=False, bias=bias)
    alpha = project_topk_simplex(row, k - 1, rest, bias=bias)
    result = project_topk_simplex(row, k, radius, kind="label", bias=bias)
    size = max(np.abs(row).max(), radius)
    if abs(beta.sum() - rest) > 100 * EPS * size:
        assert close(result, beta if beta.sum() > rest else alpha, size)


@given(**topk_parameters)
def test_a_large_radius_does_not_bind(row, k, radius, bias):
    k = min(k, row.size)
    cone = project_topk_cone(row, k, bias=bias)
    large = project_topk_simplex(row, k, 2 * cone.sum() + radius, bias=bias)
    assert close(large, cone, np.abs(row).max(), 200.0)


@pytest.mark.parametrize(
    "name", ["project_topk_simplex", "project_weighted_topk", "project_bipartite_simplex"]
)
@given(data=st.data(), row=rows())
def test_a_huge_radius_costs_no_accuracy(name, data, row):
    op = BY_NAME[name]
    params = {**draw_case(data, op, row), "radius": 1e12}
    assert_close(op, row, op(row, **params), op.reference(row, **params), params)


@given(**topk_parameters)
def test_active_radius_hides_the_bias(row, k, radius, bias):
    """Where the sum reaches the radius with a bias, it does so without, at the same point."""
    k = min(k, row.size)
    biased = project_topk_simplex(row, k, radius, bias=bias)
    assume(biased.sum() >= radius * (1 - 1e-12))
    plain = project_topk_simplex(row, k, radius)
    assert close(biased, plain, max(np.abs(row).max(), radius))


@given(**topk_parameters, label=st.booleans(), zeros=st.integers(0, 3))
def test_flat_weights_are_topk(row, k, radius, bias, label, zeros):
    k = min(k, row.size)
    weights = np.append(np.full(k, 1.0 / k), np.zeros(zeros))
    result = project_weighted_topk(row, weights, radius, label=label, bias=bias)
    kind = "label" if label else "alpha"
    expected = project_topk_simplex(row, k, radius, kind=kind, bias=bias)
    assert close(result, expected, max(np.abs(row).max(), radius))


@given(row=rows(), data=st.data(), factor=st.sampled_from([1e-3, 0.5, 7.0, 1e4]))
def test_only_the_product_of_radius_and_weights_counts(row, data, factor):
    op = BY_NAME["project_weighted_topk"]
    params = draw_case(data, op, row)
    scaled = {
        **params,
        "weights": params["weights"] * factor,
        "radius": params["radius"] / factor,
    }
    assert_close(op, row, op(row, **scaled), op(row, **params), params, times=5.0)


@given(row=rows(least=2), label=st.booleans(), radius=st.sampled_from([0.1, 1.0, 10.0]))
def test_majorised_weights_are_nearer_to_the_diagonal(row, label, radius):
    """Averaging weights shrinks the permutation set, so the row is further from it."""
    ramp = np.arange(row.size + label, 0, -1.0)
    mild = 0.5 * (ramp + ramp.mean())
    near, far = (
        np.linalg.norm(project_weighted_topk(row, w, radius, label=label) - row)
        for w in (ramp, mild)
    )
    assert near <= far + 100 * EPS * row.size * max(np.abs(row).max(), radius * ramp[0])


@given(row=rows(), radius=st.sampled_from([0.0, 0.1, 1.0, 10.0]), shift=st.floats(-100, 100))
def test_simplex_does_not_see_a_shift(row, radius, shift):
    size = np.abs(row).max() + abs(shift) + radius
    assert close(project_simplex(row + shift, radius), project_simplex(row, radius), size, 10.0)


@given(row=rows(), radius=st.sampled_from([0.1, 1.0, 10.0]))
def test_simplex_is_an_open_capped_simplex(row, radius):
    expected = project_simplex(row, radius)
    capped = project_capped_simplex(row, 0.0, np.inf, radius)
    boxed = project_capped_simplex(row, np.zeros_like(row), np.full_like(row, np.inf), radius)
    np.testing.assert_array_equal(capped, expected)
    assert close(boxed, expected, max(np.abs(row).max(), radius), 10.0)


@given(row=rows(), data=st.data())
def test_scalar_bounds_equal_array_bounds(row, data):
    op = BY_NAME["project_capped_simplex"]
    params = draw_case(data, op, row)
    assume(not np.ndim(params["lower"]))
    arrays = {name: np.full(row.size, params[name]) for name in ("lower", "upper")}
    assert_close(op, row, op(row, **{**params, **arrays}), op(row, **params), params)


@given(row=rows(), data=st.data(), shift=st.sampled_from([-0.75, 0.5, 16.0]))
def test_capped_simplex_moves_with_its_box(row, data, shift):
    op = BY_NAME["project_capped_simplex"]
    params = draw_case(data, op, row)
    assume(params.get("equality", True))
    moved = {
        **params,
        "lower": params["lower"] + shift,
        "upper": params["upper"] + shift,
        "total": params["total"] + row.size * shift,
    }
    result = op(row + shift, **moved) - shift
    assert close(result, op(row, **params), 1 + np.abs(row).max() + 10 * abs(shift))


@given(row=rows(), data=st.data())
def test_mirrored_capped_simplex(row, data):
    """Negating the row, the bounds and the total negates the projection."""
    op = BY_NAME["project_capped_simplex"]
    params = draw_case(data, op, row)
    assume(params.get("equality", True) and np.isfinite(params["upper"]).all())
    mirrored = {
        **params,
        "lower": -params["upper"],
        "upper": -params["lower"],
        "total": -params["total"],
    }
    size = np.abs(row).max() + np.abs(params["upper"]).max() + 1
    assert close(-op(-row, **mirrored), op(row, **params), size)


@given(x=rows(), y=rows(), radius=st.sampled_from([0.1, 1.0, 10.0, 1e3]))
def test_bipartite_sides_can_be_swapped(x, y, radius):
    p, q = project_bipartite_simplex(x, y, radius)
    q2, p2 = project_bipartite_simplex(y, x, radius)
    size = max(np.abs(x).max(), np.abs(y).max())
    assert close(p, p2, size)
    assert close(q, q2, size)


@given(x=rows(), one=st.floats(-10, 10), radius=st.sampled_from([0.1, 1.0, 10.0, 1e3]))
def test_bipartite_with_one_entry_is_a_biased_simplex(x, one, radius):
    """With y of one entry, q = sum p, and 1/2 (q - y)^2 is a bias of 1 and a shift."""
    p, q = project_bipartite_simplex(x, [one], radius)
    size = np.abs(x).max() + abs(one)
    assert close(p, project_topk_simplex(x + one, 1, radius, bias=1.0), size)
    assert close(q, p.sum(), size)


# Entropies ----------------------------------------------------------------------------------

alphas = st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 1e3, 1e12])


@given(row=rows(bound=50.0), radius=st.sampled_from([0.1, 1.0, 10.0]))
def test_alpha_zero_is_the_softmax(row, radius):
    weights = np.exp(row - row.max())
    expected = radius * weights / weights.sum()
    np.testing.assert_allclose(prox_entropy_simplex(row, 0.0, radius), expected, rtol=1e-13)


@given(row=rows(bound=50.0), alpha=alphas, radius=st.sampled_from([0.25, 8.0]), k=st.integers(1, 4))
def test_entropy_scales_with_its_radius(row, alpha, radius, k):
    k = min(k, row.size)
    expected = radius * prox_entropy_simplex(row, alpha * radius, upper=1.0 / k)
    result = prox_entropy_simplex(row, alpha, radius, upper=radius / k)
    assert close(result, expected, radius * max(1.0, np.abs(row).max()), 400.0)


@given(row=rows(bound=50.0), alpha=alphas, shift=st.floats(-10, 10))
def test_entropy_does_not_see_a_shift(row, alpha, shift):
    size = max(1.0, np.abs(row).max(), abs(shift))
    shifted = prox_entropy_simplex(row + shift, alpha)
    assert close(shifted, prox_entropy_simplex(row, alpha), size, 400.0)


@given(row=rows(bound=50.0), alpha=st.sampled_from([0.0, 1e-3, 1.0, 1e3]))
def test_topk_entropy_with_k_one_is_an_entropy_with_one_entry_more(row, alpha):
    """The slot z = 1 - s is an entry; s^2 = 1 - 2 z + z^2 gives it the linear term alpha."""
    expected = prox_entropy_simplex(np.append(row, alpha), alpha)[:-1]
    result = prox_topk_entropy(row, alpha, 1)
    assert close(result, expected, max(1.0, np.abs(row).max(), alpha), 400.0)


@given(row=rows(least=2, bound=10.0), alpha=alphas)
def test_topk_entropy_with_k_p_is_flat(row, alpha):
    """All entries are s/p; s solves alpha s (1 + 1/p) + log(s / (1 - s)) = mean(b) + log p."""
    p = row.size
    result = prox_topk_entropy(row, alpha, p)
    s = result.sum()
    assert close(result, s / p, 1.0, 20.0)
    residual = alpha * s * (1 + 1 / p) + np.log(s) - np.log1p(-s) - row.mean() - np.log(p)
    slope = alpha * (1 + 1 / p) + 1 / s + 1 / (1 - s)
    assert abs(residual / slope) <= 400 * EPS * max(1.0, np.abs(row).max())


@given(row=rows(bound=10.0), k=st.integers(1, 4))
def test_huge_alpha_is_the_projection(row, k):
    """The entropy fades: f(alpha b, alpha) tends to the projection of b like log(alpha)/alpha."""
    k = min(k, row.size)
    alpha = 1e12
    simplex = project_capped_simplex(row, 0.0, 1.0 / k, 1.0)
    result = prox_entropy_simplex(alpha * row, alpha, upper=1.0 / k)
    assert np.abs(result - simplex).max() <= 1e-10
    topk = project_topk_simplex(row, k, 1.0, bias=1.0)
    assert np.abs(prox_topk_entropy(alpha * row, alpha, k) - topk).max() <= 1e-10


@operators
@given(
    data=st.data(),
    row=rows(bound=1e8),
    alpha=st.floats(-12, 12).map(lambda e: 10.0**e),
    spread=st.sampled_from([1.0, 1e4, 1e8]),
)
def test_extreme_parameters_never_fail(op, data, row, alpha, spread):
    """Alpha from 1e-12 to 1e12, bias from 1e-8 to 1e8 and entries to 1e8: finite and feasible."""
    row = np.clip(row * spread, -1e8, 1e8)
    params = draw_case(data, op, row)
    for name in {"alpha", "bias"} & params.keys():
        params = {**params, name: alpha if name == "alpha" else np.clip(alpha, 1e-8, 1e8)}
    result = op(row, **params)
    assert np.isfinite(result).all()
    assert_feasible(op, row, result, params)
