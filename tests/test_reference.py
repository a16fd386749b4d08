"""The reference itself: certified, and equal to algorithms that share nothing with it."""

import numpy as np
import pytest
from topkopt.reference import oracles

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
