"""Hinge losses: the largest <h,p> over a set of p, h = 1 + s_j - s_y over the others j."""

import numpy as np

from .. import derivatives
from .._checks import at_least, count
from ..topk import project_topk_simplex
from ..weighted import project_weighted_topk
from .base import EPS, SLACK, Loss, finite, margins, of_others, with_label


class _MaxMargin(Loss):
    """The largest <h,p> - gamma/2 <p,p> over a set of p, which the subclass describes."""

    all_slots = False     # whether gamma also weighs the label's slot <1,p>

    def value(self, scores, y):
        """Return the maximum over the set; for gamma = 0 a vertex of the set attains it."""
        h = margins(finite(scores), y)
        p = self._best(h, 0.0)
        return float(max(0.0, h @ p - self._smoothing_term(p)))    # 0 is in the set

    def conjugate(self, v, y):
        """Return -<1,p> + gamma/2 <p,p> if p is in the set and v_y = -<1,p>, else inf."""
        p = of_others(finite(v, "v"), y)
        if p is None or not self.contains(p):
            return np.inf
        return float(self._smoothing_term(p) - p.sum())

    def _smoothing_term(self, p):
        return self.smoothing / 2 * (p @ p + self.all_slots * p.sum() ** 2)

    def _prox(self, q, y, alpha):
        return with_label(self._best(margins(q, y), alpha), y)

    def _directions(self, q, v, y, alpha):
        """Return columns that v may move along, and the curvature of its entries."""
        own_curvature, curvature = alpha + self.all_slots * self.smoothing, alpha + self.smoothing
        p = np.delete(v, y)
        if curvature == 0:
            return np.zeros((v.size, 0)), v
        columns = self._ways(p, margins(q, y) / curvature, own_curvature / curvature)
        return (np.insert(columns, y, -columns.sum(axis=0), axis=0),
                np.insert(np.full(p.size, curvature), y, own_curvature))

    def _best(self, h, alpha):
        curvature = alpha + self.smoothing
        if curvature <= EPS * max(h.max(), 0.0):       # the quadratic is lost in rounding
            return self.vertex(h)
        bias = 1.0 if self.all_slots else alpha / curvature
        return self._project(h / curvature, bias)


class TopKHinge(_MaxMargin):
    """Top-k hinge loss of [T], from the k largest margins h_[1] >= h_[2] >= ...

    ``kind="alpha"`` is max(0, mean of the k largest), ``"beta"`` the mean of the k largest
    max(0, h_[j]), and ``"label"`` is alpha over h and the label's own slot 0, as [T] eq. (3)
    prints it.  alpha <= label <= beta, and all three bound the top-k error from above.

    Parameters
    ----------
    k : int
        1 <= k <= m - 1; for ``kind="label"``, k <= m.
    kind : {"alpha", "beta", "label"}, default="alpha"
        Which loss.
    smoothing : float, default=0
        gamma >= 0.
    """

    def __init__(self, k, kind="alpha", smoothing=0):
        if kind not in ("alpha", "beta", "label"):
            raise ValueError(f'kind must be "alpha", "beta" or "label", got {kind!r}.')
        self.k, self.kind = k, kind
        self.smoothing = at_least(smoothing, 0, "smoothing")

    def _project(self, b, bias):
        return project_topk_simplex(b, self.k, kind=self.kind, bias=bias)

    def _ways(self, p, b, bias):
        return derivatives.topk_directions(p, self.k, self.kind)

    def vertex(self, h):
        """Return the p with the largest <h,p>."""
        k = count(self.k, h.size + (self.kind == "label"))
        p = _weigh_largest(h, np.full(k, 1 / k), self.kind == "label")
        if self.kind == "beta":
            return np.where(h > 0, p, 0.0)
        return p if h @ p > 0 else np.zeros_like(p)

    def contains(self, p):
        """Return whether p is in the set, but for rounding."""
        k = count(self.k, p.size + (self.kind == "label"))
        s, largest = p.sum(), p.max()
        cone = {"alpha": k * largest <= s + k * SLACK, "beta": True,
                "label": (k - 1) * largest <= s + k * SLACK}[self.kind]
        capped = self.kind == "alpha" or largest <= 1 / k + SLACK
        return cone and capped and p.min() >= -SLACK and s <= 1 + SLACK


class Hinge(TopKHinge):
    """Multiclass hinge loss max(0, h_[1]): the top-k hinge loss with k = 1.

    Parameters
    ----------
    smoothing : float, default=0
        gamma >= 0.
    """

    def __init__(self, smoothing=0):
        super().__init__(1, smoothing=smoothing)


class WeightedTopKHinge(_MaxMargin):
    """Weighted top-k hinge loss max(0, w_1 h_[1] + w_2 h_[2] + ...) of [W].

    Parameters
    ----------
    weights : array_like or {"flat", "linear", "exp"}
        w_1 >= w_2 >= ... >= 0, or one of the profiles of [W] over the first `k` places.
    k : int, optional
        How many places a profile has.
    label : bool, default=False
        Whether the label's own slot 0 is sorted in with h, as in [W].
    smoothing : float, default=0
        gamma >= 0.
    envelope : {"others", "all"}, default="others"
        Whether gamma weighs <p,p> only, or the label's slot too, <p,p> + <1,p>^2, which is the
        Moreau envelope in all m scores used by [W].
    """

    def __init__(self, weights, k=None, label=False, smoothing=0, envelope="others"):
        self.weights = _profile(weights, k)
        if envelope not in ("others", "all"):
            raise ValueError(f'envelope must be "others" or "all", got {envelope!r}.')
        self.label, self.all_slots = bool(label), envelope == "all"
        self.smoothing = at_least(smoothing, 0, "smoothing")

    def _project(self, b, bias):
        return project_weighted_topk(b, self.weights, label=self.label, bias=bias)

    def _ways(self, p, b, bias):
        mu = bias * p.sum() if self.label else None
        return derivatives.weighted_directions(p, b - p, self.weights, mu)

    def vertex(self, h):
        """Return the p with the largest <h,p>."""
        count(self.weights.size, h.size + self.label, "the number of weights")
        p = _weigh_largest(h, self.weights, self.label)
        return p if h @ p > 0 else np.zeros_like(p)

    def contains(self, p):
        """Return whether the j largest of p never exceed zeta (w_1 + .. + w_j), zeta <= 1."""
        size = p.size + self.label
        w = np.zeros(size)
        w[:count(self.weights.size, size, "the number of weights")] = self.weights
        w_top, top = np.cumsum(w), np.cumsum(np.sort(p)[::-1])
        slack = SLACK * w_top[-1]
        if self.label:                     # the slot takes what is left, but never too much
            zeta = max((top / w_top[:-1]).max(), 0.0)
            tail = np.cumsum(np.sort(p))[::-1]
            fits = (tail >= zeta * (w_top[-1] - w_top[:-1]) - slack).all()
        else:
            zeta = top[-1] / w_top[-1]
            fits = (top <= zeta * w_top + slack).all()
        return fits and p.min() >= -slack and zeta <= 1 + SLACK * w_top[-1] / w[0]


def _weigh_largest(h, w, label):
    """Give w_1 to the largest entry of h, and so on; with `label` a slot 0 competes."""
    slots = np.append(h, 0.0) if label else h
    p = np.zeros(slots.size)
    p[np.argsort(-slots, kind="stable")[:w.size]] = w
    return p[:h.size]


def _profile(weights, k):
    """Return the weights as an array; profiles have sum 1 ([W])."""
    if isinstance(weights, str):
        if k is None:
            raise ValueError(f"k must be given with weights={weights!r}.")
        place = np.arange(1, count(k, np.inf) + 1)
        shapes = {"flat": 0.0 * place + 1, "linear": k + 1.0 - place, "exp": np.exp(-place / k)}
        if weights not in shapes:
            raise ValueError(f'weights must be "flat", "linear", "exp" or a row, got {weights!r}.')
        return shapes[weights] / shapes[weights].sum()
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not w.size or not np.isfinite(w).all() or (np.diff(w) > 0).any() \
            or w[-1] < 0 or w[0] == 0:
        raise ValueError("weights must be one row, finite, non-negative, non-increasing and not "
                         f"all 0; sort them in descending order, got {weights!r}.")
    return w
