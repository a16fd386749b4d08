"""The reference itself: certified, and equal to algorithms that share nothing with it."""

import numpy as np
import pytest
from topkopt.reference import oracles
from topkopt.reference.jumps import jump, jump_to_topk_cone

from topkopt import reference

from .cases import FAMILIES, OPERATORS, assert_certified, assert_feasible, cases_of, rows_of

operators = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)


@operators
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("p", [1, 3, 10])
def test_certificate(op, family, p):
    for params, feasible in cases_of(op, rows_of(family, p, n=1), op.grid(p)[::2]):
        result = op.reference(feasible[0], **params)
        assert_certified(op, feasible[0], result, params)
        assert_feasible(op, feasible[0], result, params)


@operators
def test_certificate_rejects_a_wrong_answer(op):
    """Half of the right answer is certified nowhere."""
    row = np.array([0.3, 1.1, -0.2, 0.7])
    for params in op.grid(4):
        right = op.reference(row, **params)
        if np.abs(right).max() > 1e-3:
            assert op.certificate(row, 0.5 * right, **params) > 1e-6, params


@pytest.mark.parametrize("label", [False, True])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_quadratic_program(label, bias):
    rng = np.random.default_rng(8)
    for p in (1, 2, 4, 7):
        weights = np.sort(rng.random(p + label))[::-1]
        for row in rng.standard_normal((5, p)):
            expected = oracles.qp_weighted_topk(row, weights, 1.0, label=label, bias=bias)
            result = reference.project_weighted_topk(row, weights, 1.0, label=label, bias=bias)
            np.testing.assert_allclose(result, expected, atol=1e-9)


def alpha_projection(row, k, radius, bias):
    """Project along the path onto the top-k simplex alpha, or the cone if the radius is inf."""
    if radius == np.inf:
        return reference.project_topk_cone(row, k, bias=bias)
    return reference.project_topk_simplex(row, k, radius, bias=bias)


@pytest.mark.parametrize("radius", [0.3, 1.0, 5.0, np.inf])
@pytest.mark.parametrize("bias", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("ties", [False, True])
def test_jumps_rest_only_at_the_projection(ties, bias, radius):
    """From near and far, jumps find what the path finds or say that they did not."""
    rng = np.random.default_rng(12)
    n_found = n_starts = 0
    for p in (1, 2, 3, 5, 9, 30):
        for k in sorted({1, 2, p // 2, p - 1, p} & set(range(1, p + 1))):
            for far in (1.0, 1.0, 1e3, 1e6):
                row = rng.integers(-2, 3, p) * 1.0 if ties else rng.standard_normal(p)
                t, u = far * rng.standard_normal(), far * (1e-3 + rng.exponential())
                found = jump_to_topk_cone(row, k, t, u, radius=radius, bias=bias)
                n_starts += 1
                if found is not None:
                    n_found += 1
                    expected = alpha_projection(row, k, radius, bias)
                    result = np.clip(row - found[0], 0.0, found[1])
                    np.testing.assert_allclose(result, expected, atol=1e-13)
    assert n_found > n_starts / 2


@pytest.mark.parametrize("radius", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_jumps_from_the_solution_of_a_similar_row_come_to_rest(bias, radius):
    rng = np.random.default_rng(14)
    n_solved = 0
    for row in rng.standard_normal((40, 10)):
        for k in (1, 3, 9):
            start = jump_to_topk_cone(row, k, 0.0, radius / k, radius=radius, bias=bias)
            if start is None or start[1] == 0.0:
                continue
            n_solved += 1
            changed = row + 0.05 * rng.standard_normal(row.size)
            t, u = jump_to_topk_cone(changed, k, *start, radius=radius, bias=bias)
            expected = alpha_projection(changed, k, radius, bias)
            np.testing.assert_allclose(np.clip(changed - t, 0.0, u), expected, atol=1e-14)
    assert n_solved >= 60


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("radius", [1.0, np.inf])
def test_one_jump_confirms_a_solution(radius, bias):
    """Nearby, with all entries in their places, a single jump is exact."""
    rng = np.random.default_rng(13)
    for row in rng.standard_normal((50, 8)) + 0.5:
        for k in (1, 3, 7, 8):
            found = jump_to_topk_cone(row, k, 0.0, 0.2, radius=radius, bias=bias)
            if found is None or found[1] == 0.0:
                continue
            t, u, rests = jump(row, k, found[0] - 1e-9, found[1], radius=radius, bias=bias)
            assert rests
            np.testing.assert_allclose(
                np.clip(row - t, 0.0, u), alpha_projection(row, k, radius, bias), atol=1e-13
            )


def test_jumps_leave_a_circle_halfway():
    """Two full jumps lead from (0, 2) back to it, yet the solution is found."""
    row = np.array([3.0, 1.0, 0.0])
    t, u, _ = jump(row, 2, 0.0, 2.0)
    assert jump(row, 2, t, u) == (0.0, 2.0, False)
    t, u = jump_to_topk_cone(row, 2, 0.0, 2.0)
    np.testing.assert_allclose(np.clip(row - t, 0.0, u), [7 / 3, 5 / 3, 2 / 3], rtol=1e-15)


@pytest.mark.parametrize("start", [(0.0, 1.0), (-0.75, 0.1), (-5.0, 1e-3)])
def test_jumps_see_that_the_projection_is_zero(start):
    """The two largest entries have no positive sum."""
    assert jump_to_topk_cone(np.array([0.5, -0.75, -1.0]), 2, *start)[1] == 0.0


def test_jumps_from_far_away_keep_all_digits():
    """The first sums are of entries near 1e9, and have seven digits of the row left."""
    row = np.array([0.31, 0.23, 0.17])
    t, u = jump_to_topk_cone(row, 1, -1e9, 3e9, bias=0.7)
    expected = reference.project_topk_cone(row, 1, bias=0.7)
    np.testing.assert_allclose(np.clip(row - t, 0.0, u), expected, rtol=1e-14)


def test_jumps_do_not_rest_on_too_few_finite_entries():
    """Two finite entries cannot share a sum three times; the path knows that x is 0."""
    assert jump_to_topk_cone(np.array([3.0, 1.0, -np.inf]), 3, 0.0, 1.0) is None


@operators
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_entries(op, value):
    row = np.array([0.3, value, -0.2, 0.7])
    with pytest.raises(ValueError, match=r"NaN or \+inf"):
        op.reference(row, **op.grid(4)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.project_simplex([1.0], -1.0), "radius must be finite and >= 0"),
        (lambda f: f.project_simplex([[1.0]]), "one row"),
        (lambda f: f.project_simplex([-np.inf]), "at least one finite"),
        (lambda f: f.project_topk_cone([1.0], 2), r"k must be an integer in 1\.\.1"),
        (lambda f: f.project_topk_cone([1.0], 1, bias=-1.0), "bias must be finite"),
        (lambda f: f.project_topk_simplex([1.0], 1, kind="x"), "kind must be"),
        (lambda f: f.project_weighted_topk([1.0], [1.0, 1.0]), "weights must be 1-D"),
        (lambda f: f.project_weighted_topk([1.0, 2.0], [1.0, 2.0]), "non-increasing"),
        (lambda f: f.project_capped_simplex([1.0], 0.0, 1.0, 2.0), "sum.upper. must be >= total"),
        (lambda f: f.project_capped_simplex([1.0], 1.0, 2.0, 0.0), "sum.lower. must be <= total"),
        (lambda f: f.project_capped_simplex([1.0], 1.0, 0.0, 0.0), "lower must be <= upper"),
        (lambda f: f.prox_entropy_simplex([1.0], 1.0, upper=0.5), "upper must be >= radius"),
        (lambda f: f.prox_topk_entropy([1.0], -1.0), "alpha must be finite"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(reference)
