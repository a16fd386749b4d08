"""Entropies: losses of the exponentials of u = s_j - s_y over the others j."""

import numpy as np

from .. import derivatives
from .._checks import count
from ..entropy import prox_entropy_simplex, prox_topk_entropy
from .base import Loss, finite, margins, of_others, shifted_x_log_x, with_label, x_log_x
from .hinge import TopKHinge


class TopKEntropy(Loss):
    """Top-k entropy loss of [A]: log(1 + e^M), M = max <u,q> - <q,log q> over q_j <= 1/k.

    Parameters
    ----------
    k : int
        1 <= k <= m - 1.
    """

    def __init__(self, k):
        self.k = k

    def value(self, scores, y):
        """Return log(1 + e^M); q, in the simplex, is the softmax of u capped at 1/k."""
        u = margins(finite(scores), y, 0.0)
        k = count(self.k, u.size)
        if k == 1:
            return float(np.logaddexp(0.0, np.logaddexp.reduce(u)))
        q = prox_entropy_simplex(u, 0.0, upper=1 / k)
        return float(np.logaddexp(0.0, q @ u - x_log_x(q).sum()))

    def conjugate(self, v, y):
        """Return <p,log p> + (1-s) log(1-s), s = <1,p>, on the top-k simplex alpha, else inf."""
        p = of_others(finite(v, "v"), y)
        if p is None or not TopKHinge(self.k).contains(p):
            return np.inf
        return float(x_log_x(p).sum() + shifted_x_log_x(-p.sum()))

    def _prox(self, q, y, alpha):
        return with_label(prox_topk_entropy(margins(q, y, 0.0), alpha, self.k), y)

    def _directions(self, q, v, y, alpha):
        p = np.delete(v, y)
        columns = derivatives.topk_directions(p, self.k, "alpha")
        x = np.insert(p, y, 1 - p.sum())
        return (np.insert(columns, y, -columns.sum(axis=0), axis=0),
                alpha + 1 / np.maximum(x, np.finfo(float).tiny))


class Softmax(TopKEntropy):
    """Softmax loss log(1 + sum_j e^(u_j)): the top-k entropy loss with k = 1."""

    def __init__(self):
        super().__init__(1)


class TruncatedTopKEntropy(Loss):
    """Truncated top-k entropy log(1 + sum_J e^(u_j)), J the m - k smallest of the others [A].

    It is not convex, so it has no conjugate worth the name and no dual step.

    Parameters
    ----------
    k : int
        1 <= k <= m - 1; 1 gives the softmax loss.
    """

    def __init__(self, k):
        self.k = k

    def value(self, scores, y):
        """Return log(1 + sum_J e^(u_j))."""
        u, kept = self._truncate(scores, y)
        return float(np.logaddexp(0.0, np.logaddexp.reduce(u[kept])))

    def gradient(self, scores, y):
        """Return the softmax over J and the label, minus 1 on the label."""
        u, kept = self._truncate(scores, y)
        p = np.zeros_like(u)
        top = max(0.0, u[kept].max())
        e = np.exp(u[kept] - top)
        p[kept] = e / (np.exp(-top) + e.sum())
        return with_label(p, y)

    def conjugate(self, v, y):
        """Raise: the loss is not convex."""
        raise TypeError(_NOT_CONVEX)

    def dual_step(self, q, y, kappa, C):
        """Raise: the loss is not convex."""
        raise TypeError(_NOT_CONVEX)

    def _truncate(self, scores, y):
        u = margins(finite(scores), y, 0.0)
        return u, np.argsort(-u, kind="stable")[count(self.k, u.size) - 1:]


_NOT_CONVEX = ("TruncatedTopKEntropy is not convex and has no dual problem; start from the "
               "solution of Softmax() and follow its gradient.")
