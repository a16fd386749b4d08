"""Every kernel against its three witnesses: reference, oracle and certificate."""

from itertools import islice

import numpy as np
import pytest

from topkopt import projections

from .cases import (
    BY_NAME,
    FAMILIES,
    OPERATORS,
    assert_certified,
    assert_close,
    assert_feasible,
    cases_of,
    rows_of,
)

operators = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
families = pytest.mark.parametrize("family", FAMILIES)


def check_against_reference(op, rows, grid=None):
    """Compare two rows, at random, with the twin for each set of parameters."""
    rng = np.random.default_rng(len(rows))
    for params, feasible in cases_of(op, rows, grid):
        some = rng.permutation(len(feasible))[:2]
        for row, result in zip(feasible[some], op(feasible, **params)[some], strict=True):
            wide = row.astype(np.float64)
            assert result.dtype == row.dtype
            assert_close(op, row, result, op.reference(wide, **params), params)
            assert_feasible(op, row, result, params)


@operators
@families
@pytest.mark.parametrize("p", [1, 2, 3, 10])
def test_reference(op, family, p):
    check_against_reference(op, rows_of(family, p))


@operators
@families
def test_reference_hundred(op, family):
    check_against_reference(op, rows_of(family, 100, n=2), op.grid(100)[::3])


@operators
@families
@pytest.mark.parametrize("p", [3, 10])
def test_float32(op, family, p):
    check_against_reference(op, rows_of(family, p).astype(np.float32), op.grid(p)[::2])


@operators
@families
@pytest.mark.parametrize("p", [1, 2, 3, 10, 100])
def test_certificate(op, family, p):
    for params, feasible in cases_of(op, rows_of(family, p, n=2), op.grid(p)[:: 1 + p // 40]):
        for row, result in zip(feasible, op(feasible, **params), strict=True):
            assert_certified(op, row, result, params)


@operators
@pytest.mark.parametrize("p", [2, 3, 10])
def test_oracle(op, p):
    cases = (case for family in FAMILIES for case in cases_of(op, rows_of(family, p, n=1)))
    for params, feasible in islice(cases, 0, None, op.oracle_stride):
        expected = op.oracle(feasible[0], **params)
        assert_close(op, feasible[0], op(feasible[0], **params), expected, params)
        assert_close(op, feasible[0], op.reference(feasible[0], **params), expected, params)


# Long rows, where only candidates above a bound on the threshold are looked at ----------------


def _edge(rng, p):
    """Four entries put the threshold for a sum of 1 right where all the others are."""
    row = 0.75 + 1e-13 * rng.random(p)
    row[[3, 40, 77, 118]] = 1.0
    return row


LONG = {
    "normal": lambda rng, p: rng.standard_normal(p),
    "equal": lambda rng, p: np.full(p, 0.25),
    "sorted": lambda rng, p: np.sort(rng.standard_normal(p)),
    "descending": lambda rng, p: np.sort(rng.standard_normal(p))[::-1],
    "spread": lambda rng, p: rng.permutation(np.logspace(-12, 2, p)),
    "outlier": lambda rng, p: np.append(rng.standard_normal(p - 1), 1e6),
    "sparse": lambda rng, p: np.where(np.arange(p) % (p // 9) == 3, rng.random(p), -np.inf),
    "periodic": lambda rng, p: np.tile(np.arange(32.0), p // 32 + 1)[:p],  # one part has it all
    "ties": lambda rng, p: rng.integers(-3, 4, p) / 4.0,
    "comb": lambda rng, p: np.where(np.arange(p) % 32 == 5, 9 * rng.random(p), -np.inf),
    "edge": _edge,
    "heavy": lambda rng, p: rng.standard_cauchy(p),
    "powers": lambda rng, p: 2.0 ** -np.linspace(0, 900, p),
}

LONG_GRIDS = {
    "project_simplex": lambda p: [{"radius": r} for r in (0.1, 1.0, 100.0, 1e4)],
    "project_capped_simplex": lambda p: (
        [{"lower": 0.0, "upper": 1.0, "total": total} for total in (0.5, 3.0, 0.1 * p, p - 1e-3)]
        + [
            {"lower": -0.5, "upper": 0.25, "total": p * (0.75 * s - 0.5)}
            for s in (1e-6, 0.5, 1 - 1e-6)
        ]
        + [
            {"lower": 0.0, "upper": 0.2, "total": 1.0, "equality": False, "bias": b}
            for b in (0.0, 2.0)
        ]
        + [{"lower": np.linspace(-1, 0, p), "upper": np.linspace(0, 1, p), "total": 0.1 * p}]
    ),
    "project_topk_cone": lambda p: [
        {"k": k, "bias": bias} for k in (1, 5, 100, p // 2) for bias in (0.0, 1.0)
    ],
    "project_topk_simplex": lambda p: [
        {"k": k, "radius": radius, "kind": kind, "bias": bias}
        for kind in ("alpha", "beta", "label")
        for k, radius, bias in ((1, 1.0, 0.0), (5, 1.0, 1.0), (100, 30.0, 0.0), (p // 2, 1e3, 0.5))
    ],
    "project_weighted_topk": lambda p: [
        {"weights": weights, "radius": radius, "label": label}
        for weights in (np.arange(5, 0, -1.0) / 15, np.arange(100, 0, -1.0) / 500)
        for radius in (1.0, 100.0)
        for label in (False, True)
    ],
    "project_bipartite_simplex": lambda p: [
        {"cut": cut, "radius": radius} for cut in (3, p // 2) for radius in (1.0, 1e3)
    ],
    "prox_entropy_simplex": lambda p: [
        {"alpha": alpha, "radius": 1.0, "upper": upper}
        for alpha in (0.0, 1.0, 1e3)
        for upper in (None, 0.2)
    ],
    "prox_topk_entropy": lambda p: [
        {"alpha": alpha, "k": k} for alpha in (0.0, 1.0, 1e3) for k in (1, 5)
    ],
}


@operators
@pytest.mark.parametrize("family", LONG)
@pytest.mark.parametrize("p", [129, 2000])
def test_long(op, family, p):
    row = LONG[family](np.random.default_rng(p), p)
    check_against_reference(op, row[None], LONG_GRIDS[op.name](p))


@pytest.mark.parametrize("p", [128, 129, 300, 5000])
def test_long_plateaus(p):
    # Where k entries reach the cap, the sum is the same for many thresholds: those below another
    # entry must not be taken. It happens in few rows, so there are many.
    rows = np.random.default_rng(p).standard_cauchy((2_000_000 // p, p))
    for k in (4, 7, 10):
        x = BY_NAME["project_capped_simplex"](rows, lower=0.0, upper=10.0 / k, total=10.0)
        error = np.abs(x.sum(axis=1) - 10.0)
        assert (error <= 1e-14 * k * np.abs(rows).max(axis=1)).all()


@operators
def test_longest(op):
    rows = np.stack([LONG[family](np.random.default_rng(7), 20_000) for family in LONG])
    for params, feasible in cases_of(op, rows[::3], LONG_GRIDS[op.name](20_000)[::3]):
        for row, result in zip(feasible, op(feasible, **params), strict=True):
            assert_close(op, row, result, op.reference(row, **params), params)


@operators
def test_long_float32(op):
    rows = np.random.default_rng(3).standard_normal((2, 2000)).astype(np.float32)
    check_against_reference(op, rows, LONG_GRIDS[op.name](2000))


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_label_near_its_bend(k, bias):
    """Where the beta projection has just the sum that makes room for the label's slot, or not."""
    op, params = BY_NAME["project_topk_simplex"], {"k": k, "kind": "label", "bias": bias}
    rest = (k - 1) / k
    for miss in (0.0, 1e-2, -1e-2, 1e-4, -1e-4, 1e-9, -1e-9):
        row = np.full(k + 2, -1.0)
        row[: k - 1] = 1 / k + bias * rest + 0.1
        row[k - 2] = 1 / k + bias * rest - miss
        check_against_reference(op, row[None], [params])


@pytest.mark.parametrize("scale", [1e17, 1e100, 1e300])
@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
def test_rows_far_above_their_radius(kind, scale):
    # Where entries differ by more than any cap the k largest share the radius.
    rows = scale * np.array([[1.0, 0.5, -0.3, -0.4], [1.0, 1.0, 0.2, 0.1], [0.2, 0.3, 0.1, -0.1]])
    expected = [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0]]
    result = projections.project_topk_simplex(rows, 2, kind=kind)
    np.testing.assert_array_equal(result, expected)
