"""One binary problem per class: c_j = 1 on the labels Y, and -1 elsewhere."""

import numpy as np

from .._checks import at_least
from ..lambert import lambertw_exp
from .base import EPS, SLACK, Loss, finite, label_set, shifted_x_log_x, x_log_x


class OneVsAllHinge(Loss):
    """Sum over the classes of the hinge loss max(0, 1 - c_j s_j), c_j = 1 on Y and -1 elsewhere.

    Parameters
    ----------
    smoothing : float, default=0
        gamma >= 0; the terms become max_{0 <= p <= 1} p (1 - c_j s_j) - gamma/2 p^2.
    """

    def __init__(self, smoothing=0):
        self.smoothing = at_least(smoothing, 0, "smoothing")

    def value(self, scores, y):
        """Return the sum of the m hinge losses."""
        s = finite(scores)
        c = _signs(y, s.size)
        p = -c * self._prox(s, y, 0.0)
        return float(p @ ((1 - c * s) - self.smoothing / 2 * p))

    def conjugate(self, v, y):
        """Return the sum of -p_j + gamma/2 p_j^2, p = -c v, if 0 <= p <= 1, else inf."""
        v = finite(v, "v")
        p = -_signs(y, v.size) * v
        if p.min() < -SLACK or p.max() > 1 + SLACK:
            return np.inf
        return float(self.smoothing / 2 * (p @ p) - p.sum())

    def _prox(self, q, y, alpha):
        c = _signs(y, q.size)
        h, curvature = 1 - c * q, alpha + self.smoothing
        return -c * (np.clip(h, 0, curvature) / curvature if curvature > 0 else h > 0)

    def _directions(self, q, v, y, alpha):
        free = (v != 0) & (np.abs(v) < 1)
        return np.eye(v.size)[:, free], np.full(v.size, alpha + self.smoothing)


class OneVsAllLogistic(Loss):
    """Sum over the classes of the logistic loss log(1 + e^(-c_j s_j)), c as in the hinge."""

    def value(self, scores, y):
        """Return the sum of the m logistic losses."""
        s = finite(scores)
        return float(np.logaddexp(0.0, -_signs(y, s.size) * s).sum())

    def conjugate(self, v, y):
        """Return the sum of p log p + (1-p) log(1-p), p = -c v, if 0 <= p <= 1, else inf."""
        v = finite(v, "v")
        p = -_signs(y, v.size) * v
        if p.min() < -SLACK or p.max() > 1 + SLACK:
            return np.inf
        return float(x_log_x(p).sum() + sum(shifted_x_log_x(-x) for x in p))

    def _prox(self, q, y, alpha):
        c = _signs(y, q.size)
        return -c * _logistic_share(-c * q, alpha)

    def _directions(self, q, v, y, alpha):
        p = np.clip(np.abs(v), np.finfo(float).tiny, 1 - EPS / 2)
        return np.eye(v.size), alpha + 1 / p + 1 / (1 - p)


def _logistic_share(b, alpha):
    """Root p of log(p/(1-p)) + alpha p = b, entry by entry.

    If p solves it for b, 1 - p solves it for alpha - b: turn it so that p <= 1/2 and keep the
    digits of p.  In u = log(p/(1-p)) <= 0 the function u + alpha/(1 + e^-u) - b is increasing
    and convex.  Since e^u/2 <= p <= e^u, its root is within log 2 to the left of that of
    u + alpha/2 e^u = b, which is u = log(V(b + log(alpha/2))/(alpha/2)).  A Newton step turns
    the error e into at most e^2/2: six of them leave rounding.
    """
    turned = b > alpha / 2
    b = np.where(turned, alpha - b, b)
    half = alpha / 2
    if half > np.finfo(float).tiny:
        t = b + np.log(half)
        v = lambertw_exp(t)
        # log V = t - V on the left, where V may underflow
        u = np.minimum(np.where(v < 1, b - v, np.log(np.maximum(v, 1)) - np.log(half)), 0.0)
    else:
        u = b
    for _ in range(6):
        e = np.exp(u)
        p = e / (1 + e)
        u = np.minimum(u - (u + alpha * p - b) / (1 + alpha * p / (1 + e)), 0.0)
    p = np.exp(u) / (1 + np.exp(u))
    return np.where(turned, 1 - p, p)


def _signs(y, m):
    return np.where(label_set(y, m), 1.0, -1.0)
