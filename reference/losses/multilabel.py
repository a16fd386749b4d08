"""Label sets: losses that rank the labels Y before the others."""

import numpy as np

from .. import derivatives
from .._checks import at_least
from ..bipartite import project_bipartite_simplex
from ..entropy import prox_entropy_simplex
from .base import EPS, SLACK, Loss, finite, label_set, shifted_x_log_x, x_log_x
from .entropy import Softmax


class MultilabelHinge(Loss):
    """Multilabel hinge loss max(0, 1 + max_{j not in Y} s_j - min_{y in Y} s_y) of [A].

    If Y is empty or everything there is nothing to rank and the loss is 0.

    Parameters
    ----------
    smoothing : float, default=0
        gamma >= 0, the weight of <v,v>/2 over all m entries ([A] Prop. 6).
    """

    def __init__(self, smoothing=0):
        self.smoothing = at_least(smoothing, 0, "smoothing")

    def value(self, scores, y):
        """Return max <b,p> + <c,p'> - gamma/2 <v,v>, with b and c as in `_margins`."""
        s = finite(scores)
        labels = label_set(y, s.size)
        if not _can_rank(labels):
            return 0.0
        margins, v = self._margins(s, labels), self._prox(s, labels, 0.0)
        return float(max(0.0, margins @ np.abs(v) - self.smoothing / 2 * (v @ v)))

    def conjugate(self, v, y):
        """Return -<1,p> + gamma/2 <v,v> on the bipartite simplex, else inf."""
        v = finite(v, "v")
        labels = label_set(y, v.size)
        p, rest = -v[labels], v[~labels]
        s = p.sum()
        if not _can_rank(labels):
            return 0.0 if np.abs(v).max() <= SLACK else np.inf
        if abs(s - rest.sum()) > SLACK or s > 1 + SLACK or min(p.min(), rest.min()) < -SLACK:
            return np.inf
        return float(self.smoothing / 2 * (v @ v) - s)

    def _prox(self, q, y, alpha):
        labels = label_set(y, q.size)
        v = np.zeros(q.size)
        if not _can_rank(labels):
            return v
        margins = self._margins(q, labels)
        b, c = margins[labels], margins[~labels]
        curvature = alpha + self.smoothing
        if curvature <= EPS * max(b.max(), 0.0):
            p, rest = np.zeros_like(b), np.zeros_like(c)
            if b.max() + c.max() > 0:
                p[b.argmax()] = rest[c.argmax()] = 1.0
        else:
            p, rest = project_bipartite_simplex(b / curvature, c / curvature)
        v[labels], v[~labels] = 0.0 - p, rest
        return v

    def _directions(self, q, v, y, alpha):
        labels, moves, curvature = label_set(y, q.size), v != 0, alpha + self.smoothing
        sides = [moves]
        if -v[labels].sum() >= 1 - derivatives.AT_BOUND:      # then either side keeps its sum
            sides = [moves & labels, moves & ~labels]
        columns = [derivatives.exchanges(np.flatnonzero(side), v.size) for side in sides]
        return (np.hstack(columns)[:, :None if curvature else 0],
                np.full(v.size, curvature))

    def _margins(self, s, labels):
        """Share the margins 1 + s_j - s_y among j and y: b_y + c_j, half of the largest each.

        As <1,v> = 0 it does not matter who has how much; but so a small margin keeps its digits.
        """
        low, high = s[labels].min(), s[~labels].max()
        half = (high - low + 1) / 2
        return half + np.where(labels, low - s, s - high)


class MultilabelSoftmax(Loss):
    """Multilabel softmax loss, the mean over y in Y of log(sum_j e^(s_j - s_y)) [A].

    If Y is empty or everything there is nothing to rank and the loss is 0.
    """

    def value(self, scores, y):
        """Return the mean of the softmax losses of the labels."""
        s = finite(scores)
        labels = label_set(y, s.size)
        if not _can_rank(labels):
            return 0.0
        return float(np.mean([np.logaddexp.reduce(s - own) for own in s[labels]]))

    def conjugate(self, v, y):
        """Return <x,log x> if x = v + 1_Y/N is in the simplex, else inf."""
        v = finite(v, "v")
        labels = label_set(y, v.size)
        if not _can_rank(labels):
            return 0.0 if np.abs(v).max() <= SLACK else np.inf
        x = v + _uniform(labels)
        if abs(v.sum()) > SLACK or x.min() < -SLACK:
            return np.inf
        # x log x = x (log(1/N) + log(N x)) on Y, exact where v is small
        n = np.count_nonzero(labels)
        on_labels = sum(shifted_x_log_x(n * z) / n for z in v[labels])
        return float(on_labels - x[labels].sum() * np.log(n) + x_log_x(x[~labels]).sum())

    def _prox(self, q, y, alpha):
        labels = label_set(y, q.size)
        if not _can_rank(labels):
            return np.zeros(q.size)
        if np.count_nonzero(labels) == 1:          # then -<1,p> has more digits than x - 1
            return Softmax().prox(q, labels.argmax(), alpha)
        share = _uniform(labels)
        x = prox_entropy_simplex(q + alpha * share, alpha)
        return _polish(x, q, share, alpha) if alpha > 1 else x - share

    def _directions(self, q, v, y, alpha):
        labels = label_set(y, q.size)
        if not _can_rank(labels):
            return np.zeros((v.size, 0)), v
        x = np.maximum(v + _uniform(labels), np.finfo(float).tiny)
        return derivatives.exchanges(np.arange(v.size), v.size), alpha + 1 / x


def _polish(x, q, share, alpha):
    """Return v = x - share after two Newton steps on log(share + v) + alpha v + t = q, <1,v> = 0.

    For large alpha, q drowns in q + alpha share and v in x - share; this brings the digits back.
    """
    v = x - share
    for _ in range(2):
        log_x = np.log(np.maximum(x, np.finfo(float).tiny))
        near = np.abs(v) < share / 2
        log_x[near] = np.log(share[near]) + np.log1p(v[near] / share[near])
        rate = x / (1 + alpha * x)         # dx for a unit change of the residual
        residual = q - alpha * v - log_x
        t = (rate @ residual + v.sum()) / rate.sum()
        x, v = x + rate * (residual - t), v + rate * (residual - t)
    return v


def _can_rank(labels):
    return labels.any() and not labels.all()


def _uniform(labels):
    return labels / np.count_nonzero(labels)
