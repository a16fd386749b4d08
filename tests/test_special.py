"""V(t) = W(e^t) against mpmath: at most 4 eps over the whole range of both precisions."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import wrightomega
from topkopt.reference import oracles

from topkopt import reference
from topkopt.special import lambertw_exp

precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def truth(t):
    """Return V(t) to 40 digits: Newton's method for y + e^y = t, V = e^y."""
    with mpmath.workdps(40):
        t = mpmath.mpf(t if isinstance(t, mpmath.mpf) else float(t))
        y = t if t < 1 else mpmath.log(t)
        for _ in range(60):
            e = mpmath.exp(y)
            step = (y + e - t) / (1 + e)
            y -= step
            if abs(step) <= mpmath.mpf(10) ** -36 * max(1, abs(y)):
                return mpmath.exp(y)
    raise ArithmeticError(f"no convergence at {t}")


def errors(t, v):
    """Return the errors in eps, relative to V or to the smallest normal number."""
    info = np.finfo(v.dtype)
    size = float(info.eps), float(info.tiny)
    return np.array(
        [
            float(abs(mpmath.mpf(float(b)) - exact) / (size[0] * max(exact, size[1])))
            for b, exact in zip(v, map(truth, t), strict=True)
        ]
    )


def test_truth():
    for t in (-50.0, -1.0, 0.0, 1.0, 2.5, 40.0):
        assert abs(truth(t) / mpmath.lambertw(mpmath.exp(t)) - 1) < 1e-14
    assert truth(1.0) == 1


def grid(dtype):
    """Return numbers from every part of the range, dense where the method changes."""
    info, rng = np.finfo(dtype), np.random.default_rng(11)
    lowest = float(np.log(info.tiny))
    parts = [
        np.linspace(lowest, 1.0, 1500),
        np.linspace(lowest - 17, lowest, 100),  # subnormal results
        rng.uniform(-40, 3, 1500),
        rng.uniform(0.9, 1.1, 500),
        1 + np.arange(-20, 21) * float(info.eps),
        np.linspace(1, 100, 1000),
        np.exp(rng.uniform(0, np.log(float(info.max)), 1500)),
        np.exp2(np.arange(0, info.maxexp)) * 1.0,
        -np.exp(rng.uniform(np.log(float(info.tiny)), 3, 500)),  # towards V(0) = 0.567
        [float(info.max), -0.0, 0.0, float(info.tiny), np.e, np.e + 1],
    ]
    return np.concatenate(parts).astype(dtype)


@precisions
def test_relative_error(dtype):
    t = grid(dtype)
    error = errors(t, lambertw_exp(t))
    assert error.max() <= 4, f"{error.max():.3g} eps at t = {t[error.argmax()]!r}"


@precisions
@given(data=st.data())
def test_relative_error_anywhere(dtype, data):
    width = np.finfo(dtype).bits
    t = np.array([data.draw(st.floats(-1e3, allow_infinity=False, width=width))], dtype=dtype)
    assert errors(t, lambertw_exp(t))[0] <= 4


@precisions
def test_ends(dtype):
    result = lambertw_exp(np.array([-np.inf, np.inf, np.nan, -1e30, 1.0], dtype=dtype))
    np.testing.assert_array_equal(result, np.array([0.0, np.inf, np.nan, 0.0, 1.0], dtype=dtype))


@precisions
def test_place_in_the_array_does_not_matter(dtype):
    """The vectorised loop has full and partial blocks: all give the same bits."""
    t = np.random.default_rng(0).uniform(-50, 50, 200).astype(dtype)
    alone = np.array([lambertw_exp(t[i : i + 1])[0] for i in range(t.size)])
    for start in (0, 1, 7, 63):
        np.testing.assert_array_equal(lambertw_exp(t[start:]), alone[start:])


@precisions
def test_increasing(dtype):
    t = np.sort(grid(dtype))
    v = lambertw_exp(t).astype(np.float64)
    assert (np.diff(v) >= -4 * np.finfo(dtype).eps * v[1:]).all()


def test_witnesses():
    t = grid(np.float64)
    t = t[(t > -700) & (t < 1e15)]
    v = lambertw_exp(t)
    np.testing.assert_allclose(v, reference.lambertw_exp(t), rtol=2e-15)
    np.testing.assert_allclose(v, oracles.lambertw_exp(t), rtol=1e-15)
    np.testing.assert_allclose(v, wrightomega(t), rtol=1e-14)
    assert oracles.kkt_lambertw_exp(t, v) <= 4 * np.finfo(float).eps


def test_inverse():
    v = np.exp(np.linspace(-30, 30, 500))
    np.testing.assert_allclose(lambertw_exp(v + np.log(v)), v, rtol=2e-14)


def test_derivatives():
    t = np.linspace(-5, 20, 26)
    step = 1e-5
    slopes = (lambertw_exp(t + step) - lambertw_exp(t - step)) / (2 * step)
    np.testing.assert_allclose(slopes, reference.lambertw_exp_derivatives(t)[1], rtol=1e-8)
    with mpmath.workdps(40):
        for i, order in ((5, 1), (12, 2), (20, 3)):
            exact = mpmath.diff(truth, float(t[i]), order, h=mpmath.mpf(10) ** -6)
            mine = reference.lambertw_exp_derivatives(t[i])[order]
            assert abs(mine / exact - 1) < 1e-5
