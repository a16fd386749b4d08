r"""The Lambert W function of an exponential.

Solve, for a real t,

    v + log v = t,        v > 0.

The solution is V(t) = W(e^t), the letter V being the one of [A] and [L].  It is what an
entropy plus a quadratic leaves to compute: the minimizer of  a/2 x^2 + x log x - b x  is
V(b - t)/a  with t = 1 - log a.

V behaves like e^t on the left and like t - log t on the right, so e^t itself must never be
formed for large t.  Both branches below start from a rough guess and take a few steps of a
high-order Newton method.

A value to check by hand: 1 + log 1 = 1, so V(1) = 1; and V(e + 1) = e.

>>> lambertw_exp([1.0, np.e + 1]).round(12).tolist()
[1.0, 2.718281828459]
>>> float(lambertw_exp(1e6)) < 1e6          # no overflow
True

References
----------
[A] Lapin, Hein, Schiele. Analysis and Optimization of Loss Functions for Multiclass, Top-k
    and Multilabel Classification. TPAMI 2018, section 5 (arXiv 1612.03663).
[L] Lapin, Hein, Schiele. Loss Functions for Top-k Error. CVPR 2016 (arXiv 1512.00486).
Fritsch, Shafer, Crowley. Solution of the transcendental equation w e^w = x. CACM 1973.
"""

import numpy as np


def lambertw_exp(t):
    """Lambert W function of ``exp(t)``: the root v of ``v + log(v) = t``.

    Parameters
    ----------
    t : array_like
        Any real numbers; -inf gives 0 and +inf gives +inf.

    Returns
    -------
    ndarray or float
        V(t), accurate to a few units in the last place, of the shape of `t`.
    """
    t = np.asarray(t, dtype=np.float64)
    v = np.full(t.shape, np.inf)
    big = (t > 1) & (t < np.inf)
    small = ~(t > 1)                       # NaN goes here and stays NaN
    v[big] = _right(t[big])
    v[small] = _left(t[small])
    return v[()]


def lambertw_exp_derivatives(t):
    """Return V and its first three derivatives at `t`.

    Differentiating v + log v = t gives V' = V/(1 + V); the others follow by the chain rule.

    >>> [float(d) for d in lambertw_exp_derivatives(1.0)]
    [1.0, 0.5, 0.125, -0.03125]

    Parameters
    ----------
    t : array_like
        Any real numbers.

    Returns
    -------
    tuple of ndarray
        ``(V, V', V'', V''')``.
    """
    v = lambertw_exp(t)
    return v, v / (1 + v), v / (1 + v) ** 3, v * (1 - 2 * v) / (1 + v) ** 5


def inverse_lambertw_exp(v):
    """Return the t with V(t) = v, which is ``v + log(v)``."""
    return v + np.log(v)


def _left(t):
    """V(t) for t <= 1: Householder steps of order 5 on f(w) = w - e^(t-w)."""
    z = np.exp(t)
    w = z / (1 + z)
    for _ in range(2):
        y = z * np.exp(-w)         # not exp(t - w): rounding t - w costs |t| eps/2
        f, g = w - y, 1 + y
        w = w - 4 * f * (6 * g * (g * g + f * y) + f * f * y) / (
            g * g * (24 * g * g + 36 * f * y) + f * f * y * (14 * y + f + 8))
    return w


def _right(t):
    """V(t) for t > 1: steps of Fritsch, Shafer and Crowley on the residual t - w - log w."""
    w = t - np.log(t)
    for _ in range(2):
        p = 1 + w
        c = (t - w - np.log(w)) / p        # everything over p, so that p^2 cannot overflow
        w = w * (1 + c * (1 + 2 * c / 3 - c / (2 * p)) / (1 + 2 * c / 3 - c / p))
    return w
