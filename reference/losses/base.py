"""What every loss has: gradient, dual step and derivative from one prox, and its small parts."""

from operator import index

import numpy as np

from .. import derivatives
from .._checks import as_row, at_least

EPS = np.finfo(float).eps
SLACK = 1e-9              # how far outside its domain, of size 1, a conjugate forgives rounding


class Loss:
    """A loss of one example: `value` and `conjugate` from the subclass, the rest from (1)."""

    def gradient(self, scores, y):
        """Return the gradient of the loss in the scores, a subgradient where it has a corner."""
        return self._prox(finite(scores), y, 0.0)

    def dual_step(self, q, y, kappa, C):
        """Maximize the dual objective over the block of one example.

        Parameters
        ----------
        q : array_like, shape (m,)
            The scores without the block's own part, ``scores - kappa * a_old``.
        y : int or array_like of bool, shape (m,)
            The label, or the label set.
        kappa : float
            The squared norm of the example; 0 maximizes the example's own term.
        C : float
            The regularization parameter, times the weight of the example.

        Returns
        -------
        ndarray, shape (m,)
            The new block a.
        """
        kappa, C = at_least(kappa, 0, "kappa"), at_least(C, 0, "C")
        return C * (0.0 - self._prox(finite(q, "q"), y, kappa * C))

    def prox(self, q, y, alpha):
        """Return the solution v of (1)."""
        return self._prox(finite(q, "q"), y, at_least(alpha, 0, "alpha"))

    def prox_derivative(self, q, y, alpha):
        """Return dv/dq, an (m, m) matrix; at a kink of the prox that of one side."""
        q = finite(q, "q")
        v = self.prox(q, y, alpha)
        return derivatives.derivative(*self._directions(q, v, y, alpha))


def finite(x, name="scores"):
    """Return a row of finite numbers, or raise."""
    row = as_row(x, name)
    if not np.isfinite(row).all():
        raise ValueError(f"{name} must be finite, got {row!r}.")
    return row


def one_label(y, m):
    """Return the label of one of m >= 2 classes, or raise."""
    y = index(y)
    if not 0 <= y < m or m < 2:
        raise ValueError(f"y must be in 0..{m - 1} and there must be at least 2 classes, got {y}.")
    return y


def label_set(y, m):
    """Return the label set as a mask; a single label is a set too."""
    labels = np.asarray(y)
    if labels.ndim == 0:
        return np.arange(m) == one_label(labels, m)
    if labels.dtype != bool or labels.shape != (m,):
        raise ValueError(f"y must be a label or {m} booleans, got {labels.dtype} of shape "
                         f"{labels.shape}; convert label sets to a boolean row.")
    return labels


def margins(s, y, margin=1.0):
    """Return margin + s_j - s_y over the others j."""
    y = one_label(y, s.size)
    return (np.delete(s, y) - s[y]) + margin


def with_label(p, y):
    """Put -<1,p> on the label and p on the others."""
    return np.insert(p, y, -p.sum())


def of_others(v, y):
    """Return p if v = (p on the others, -<1,p> on the label), else None."""
    y = one_label(y, v.size)
    p = np.delete(v, y)
    return p if abs(v[y] + p.sum()) <= SLACK * max(1.0, np.abs(v).max()) else None


def x_log_x(x):
    """Return x log x with 0 log 0 = 0; what rounding left below 0 counts as 0."""
    return x * np.log(np.where(x > 0, x, 1.0)) * (x > 0)


def shifted_x_log_x(z):
    """Return (1 + z) log(1 + z), exact for small z."""
    return (1 + z) * np.log1p(z) if z > -1 else 0.0
