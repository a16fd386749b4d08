r"""The losses: value, gradient, conjugate, and the dual step that trains with them.

Every loss L here is a function of the scores s of ONE example.  All but the truncated entropy
are convex, with the conjugate  L*(v) = sup_s <s,v> - L(s).  Solve, for given q and alpha >= 0,

    min_v  L*(v) - <q,v> + alpha/2 <v,v>.                                                 (1)

The solution answers both questions a solver asks:

    gradient    alpha = 0, q = s:  the v that attains  L(s) = max_v <s,v> - L*(v);
    dual step   alpha = kappa C:   a = -C v maximizes the dual objective over the block a,

            max_a  -C L*(-a/C) - <q,a> - kappa/2 <a,a>,      kappa = ||x||^2,  q = s - kappa a_old.

So each class is its value, its conjugate and one `_prox` that solves (1).  The form of v is

    label y, u_j = s_j - s_y          v = (p on the others, -<1,p> on y),  h = 1 + u
      hinge losses                    p = projection of h/(alpha + gamma) onto the set of the loss
      softmax, top-k entropy          p = prox_topk_entropy(u, alpha, k)
    label set Y, N = |Y|              v = (-p on Y, p' on the others)
      multilabel hinge                projection of (1/2 - q_Y, 1/2 + q_rest)/(alpha + gamma)
      multilabel softmax              x - 1_Y/N, x = prox_entropy_simplex(q + alpha 1_Y/N, alpha)
    one problem per class, c = +-1    v_j = -c_j p_j,  c_j = 1 on Y
      hinge                           p = clip((1 - c q)/(alpha + gamma), 0, 1)
      logistic                        log(p/(1-p)) + alpha p = -c q

gamma is the smoothing: gamma/2 <p,p> is added to the conjugate of a hinge loss, which rounds the
corners of the loss itself ([A] Prop. 2).  Without it, alpha = 0 leaves a linear problem, solved by
the largest entries of h.

By hand: s = (1, 0.5, 0), y = 0, h = (0.5, 0).  With alpha = 10 the step is p = (0.025, 0), and
a = 10 (0.025, -0.025, 0) moves the scores to (1.25, 0.25, 0), where the margin is exactly 1.

>>> s = [1.0, 0.5, 0.0]
>>> Hinge().value(s, 0), Hinge().gradient(s, 0).tolist()
(0.5, [-1.0, 1.0, 0.0])
>>> Hinge().dual_step(s, 0, 1.0, 10.0).tolist()
[0.25, -0.25, 0.0]
>>> TopKHinge(2).value(s, 0), TopKHinge(2).conjugate([-1.0, 0.5, 0.5], 0)
(0.25, -1.0)
>>> Softmax().gradient([0.0, 0.0, np.log(2)], 0).round(12).tolist()
[-0.75, 0.25, 0.5]
>>> MultilabelHinge().value([3.0, 1.0, 0.5], [True, True, False])
0.5

References
----------
[T] Lapin, Hein, Schiele. Top-k Multiclass SVM. NIPS 2015.
[A] Lapin, Hein, Schiele. Analysis and Optimization of Loss Functions for Multiclass, Top-k
    and Multilabel Classification. TPAMI 2018, sections 3 and 5.
[W] Hirohashi, Kato. Learning Weighted Top-k Support Vector Machine. ACML 2019.
"""

from operator import index

import numpy as np

from . import derivatives
from ._checks import as_row, at_least, count
from .bipartite import project_bipartite_simplex
from .entropy import prox_entropy_simplex, prox_topk_entropy
from .lambert import lambertw_exp
from .topk import project_topk_simplex
from .weighted import project_weighted_topk

EPS = np.finfo(float).eps
SLACK = 1e-9              # how far outside its domain, of size 1, a conjugate forgives rounding


class Loss:
    """A loss of one example: `value` and `conjugate` from the subclass, the rest from (1)."""

    def gradient(self, scores, y):
        """Return the gradient of the loss in the scores, a subgradient where it has a corner."""
        return self._prox(_finite(scores), y, 0.0)

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
        return C * (0.0 - self._prox(_finite(q, "q"), y, kappa * C))

    def prox(self, q, y, alpha):
        """Return the solution v of (1)."""
        return self._prox(_finite(q, "q"), y, at_least(alpha, 0, "alpha"))

    def prox_derivative(self, q, y, alpha):
        """Return dv/dq, an (m, m) matrix; at a kink of the prox that of one side."""
        q = _finite(q, "q")
        v = self.prox(q, y, alpha)
        return derivatives.derivative(*self._directions(q, v, y, alpha))


# Hinge losses: h = 1 + s_j - s_y over the others j ------------------------------------------


class _MaxMargin(Loss):
    """The largest <h,p> - gamma/2 <p,p> over a set of p, which the subclass describes."""

    all_slots = False     # whether gamma also weighs the label's slot <1,p>

    def value(self, scores, y):
        """Return the maximum over the set; for gamma = 0 a vertex of the set attains it."""
        h = _margins(_finite(scores), y)
        p = self._best(h, 0.0)
        return float(max(0.0, h @ p - self._smoothing_term(p)))    # 0 is in the set

    def conjugate(self, v, y):
        """Return -<1,p> + gamma/2 <p,p> if p is in the set and v_y = -<1,p>, else inf."""
        p = _of_others(_finite(v, "v"), y)
        if p is None or not self._contains(p):
            return np.inf
        return float(self._smoothing_term(p) - p.sum())

    def _smoothing_term(self, p):
        return self.smoothing / 2 * (p @ p + self.all_slots * p.sum() ** 2)

    def _prox(self, q, y, alpha):
        return _with_label(self._best(_margins(q, y), alpha), y)

    def _directions(self, q, v, y, alpha):
        """Return columns that v may move along, and the curvature of its entries."""
        own_curvature, curvature = alpha + self.all_slots * self.smoothing, alpha + self.smoothing
        p = np.delete(v, y)
        if curvature == 0:
            return np.zeros((v.size, 0)), v
        columns = self._ways(p, _margins(q, y) / curvature, own_curvature / curvature)
        return (np.insert(columns, y, -columns.sum(axis=0), axis=0),
                np.insert(np.full(p.size, curvature), y, own_curvature))

    def _best(self, h, alpha):
        curvature = alpha + self.smoothing
        if curvature <= EPS * max(h.max(), 0.0):       # the quadratic is lost in rounding
            return self._vertex(h)
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

    def _vertex(self, h):
        k = count(self.k, h.size + (self.kind == "label"))
        p = _weigh_largest(h, np.full(k, 1 / k), self.kind == "label")
        if self.kind == "beta":
            return np.where(h > 0, p, 0.0)
        return p if h @ p > 0 else np.zeros_like(p)

    def _contains(self, p):
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

    def _vertex(self, h):
        count(self.weights.size, h.size + self.label, "the number of weights")
        p = _weigh_largest(h, self.weights, self.label)
        return p if h @ p > 0 else np.zeros_like(p)

    def _contains(self, p):
        """Whether the j largest entries of p never exceed zeta (w_1 + .. + w_j), zeta <= 1."""
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


# Entropies: u = s_j - s_y over the others j -------------------------------------------------


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
        u = _margins(_finite(scores), y, 0.0)
        k = count(self.k, u.size)
        if k == 1:
            return float(np.logaddexp(0.0, np.logaddexp.reduce(u)))
        q = prox_entropy_simplex(u, 0.0, upper=1 / k)
        return float(np.logaddexp(0.0, q @ u - _x_log_x(q).sum()))

    def conjugate(self, v, y):
        """Return <p,log p> + (1-s) log(1-s), s = <1,p>, on the top-k simplex alpha, else inf."""
        p = _of_others(_finite(v, "v"), y)
        if p is None or not TopKHinge(self.k)._contains(p):
            return np.inf
        return float(_x_log_x(p).sum() + _shifted_x_log_x(-p.sum()))

    def _prox(self, q, y, alpha):
        return _with_label(prox_topk_entropy(_margins(q, y, 0.0), alpha, self.k), y)

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
        return _with_label(p, y)

    def conjugate(self, v, y):
        """Raise: the loss is not convex."""
        raise TypeError(_NOT_CONVEX)

    def dual_step(self, q, y, kappa, C):
        """Raise: the loss is not convex."""
        raise TypeError(_NOT_CONVEX)

    def _truncate(self, scores, y):
        u = _margins(_finite(scores), y, 0.0)
        return u, np.argsort(-u, kind="stable")[count(self.k, u.size) - 1:]


_NOT_CONVEX = ("TruncatedTopKEntropy is not convex and has no dual problem; start from the "
               "solution of Softmax() and follow its gradient.")


# One binary problem per class ---------------------------------------------------------------


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
        s = _finite(scores)
        c = _signs(y, s.size)
        p = -c * self._prox(s, y, 0.0)
        return float(p @ ((1 - c * s) - self.smoothing / 2 * p))

    def conjugate(self, v, y):
        """Return the sum of -p_j + gamma/2 p_j^2, p = -c v, if 0 <= p <= 1, else inf."""
        v = _finite(v, "v")
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
        s = _finite(scores)
        return float(np.logaddexp(0.0, -_signs(y, s.size) * s).sum())

    def conjugate(self, v, y):
        """Return the sum of p log p + (1-p) log(1-p), p = -c v, if 0 <= p <= 1, else inf."""
        v = _finite(v, "v")
        p = -_signs(y, v.size) * v
        if p.min() < -SLACK or p.max() > 1 + SLACK:
            return np.inf
        return float(_x_log_x(p).sum() + sum(_shifted_x_log_x(-x) for x in p))

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


# Label sets ---------------------------------------------------------------------------------


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
        s = _finite(scores)
        labels = _label_set(y, s.size)
        if not _can_rank(labels):
            return 0.0
        margins, v = self._margins(s, labels), self._prox(s, labels, 0.0)
        return float(max(0.0, margins @ np.abs(v) - self.smoothing / 2 * (v @ v)))

    def conjugate(self, v, y):
        """Return -<1,p> + gamma/2 <v,v> on the bipartite simplex, else inf."""
        v = _finite(v, "v")
        labels = _label_set(y, v.size)
        p, rest = -v[labels], v[~labels]
        s = p.sum()
        if not _can_rank(labels):
            return 0.0 if np.abs(v).max() <= SLACK else np.inf
        if abs(s - rest.sum()) > SLACK or s > 1 + SLACK or min(p.min(), rest.min()) < -SLACK:
            return np.inf
        return float(self.smoothing / 2 * (v @ v) - s)

    def _prox(self, q, y, alpha):
        labels = _label_set(y, q.size)
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
        labels, moves, curvature = _label_set(y, q.size), v != 0, alpha + self.smoothing
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
        s = _finite(scores)
        labels = _label_set(y, s.size)
        if not _can_rank(labels):
            return 0.0
        return float(np.mean([np.logaddexp.reduce(s - own) for own in s[labels]]))

    def conjugate(self, v, y):
        """Return <x,log x> if x = v + 1_Y/N is in the simplex, else inf."""
        v = _finite(v, "v")
        labels = _label_set(y, v.size)
        if not _can_rank(labels):
            return 0.0 if np.abs(v).max() <= SLACK else np.inf
        x = v + _uniform(labels)
        if abs(v.sum()) > SLACK or x.min() < -SLACK:
            return np.inf
        # x log x = x (log(1/N) + log(N x)) on Y, exact where v is small
        n = np.count_nonzero(labels)
        on_labels = sum(_shifted_x_log_x(n * z) / n for z in v[labels])
        return float(on_labels - x[labels].sum() * np.log(n) + _x_log_x(x[~labels]).sum())

    def _prox(self, q, y, alpha):
        labels = _label_set(y, q.size)
        if not _can_rank(labels):
            return np.zeros(q.size)
        if np.count_nonzero(labels) == 1:          # then -<1,p> has more digits than x - 1
            return Softmax()._prox(q, labels.argmax(), alpha)
        share = _uniform(labels)
        x = prox_entropy_simplex(q + alpha * share, alpha)
        return _polish(x, q, share, alpha) if alpha > 1 else x - share

    def _directions(self, q, v, y, alpha):
        labels = _label_set(y, q.size)
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


# Small parts --------------------------------------------------------------------------------


def _finite(x, name="scores"):
    row = as_row(x, name)
    if not np.isfinite(row).all():
        raise ValueError(f"{name} must be finite, got {row!r}.")
    return row


def _margins(s, y, margin=1.0):
    """Return margin + s_j - s_y over the others j."""
    y = _label(y, s.size)
    return (np.delete(s, y) - s[y]) + margin


def _with_label(p, y):
    """Put -<1,p> on the label and p on the others."""
    return np.insert(p, y, -p.sum())


def _of_others(v, y):
    """Return p if v = (p on the others, -<1,p> on the label), else None."""
    y = _label(y, v.size)
    p = np.delete(v, y)
    return p if abs(v[y] + p.sum()) <= SLACK * max(1.0, np.abs(v).max()) else None


def _label(y, m):
    y = index(y)
    if not 0 <= y < m or m < 2:
        raise ValueError(f"y must be in 0..{m - 1} and there must be at least 2 classes, got {y}.")
    return y


def _label_set(y, m):
    """Return the label set as a mask; a single label is a set too."""
    labels = np.asarray(y)
    if labels.ndim == 0:
        return np.arange(m) == _label(labels, m)
    if labels.dtype != bool or labels.shape != (m,):
        raise ValueError(f"y must be a label or {m} booleans, got {labels.dtype} of shape "
                         f"{labels.shape}; convert label sets to a boolean row.")
    return labels


def _can_rank(labels):
    return labels.any() and not labels.all()


def _signs(y, m):
    return np.where(_label_set(y, m), 1.0, -1.0)


def _uniform(labels):
    return labels / np.count_nonzero(labels)


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


def _x_log_x(x):
    """Return x log x with 0 log 0 = 0; what rounding left below 0 counts as 0."""
    return x * np.log(np.where(x > 0, x, 1.0)) * (x > 0)


def _shifted_x_log_x(z):
    """Return (1 + z) log(1 + z), exact for small z."""
    return (1 + z) * np.log1p(z) if z > -1 else 0.0


__all__ = [name for name, value in globals().items() if not name.startswith("_")
           and isinstance(value, type) and issubclass(value, Loss) and value is not Loss]
