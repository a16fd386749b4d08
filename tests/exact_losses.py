"""The losses of one row with a hundred digits: slow, short, and with next to nothing to round.

Scores are taken for what they are, so that a value differs from these by what its computation has
lost, and by nothing else.
"""

import mpmath
import numpy as np
from mpmath import exp, fsum, log, log1p, mpf

DIGITS = 100
EPS = np.finfo(float).eps
FLOOR = 1e-300  # what is smaller may have been rounded to a subnormal number, or to 0


def exact_value(loss, scores, y):
    """Return the value of any loss; y is a label, or an indicator for multilabel losses."""
    return _evaluate(_VALUES, loss, scores, y)


def exact_gradient(loss, scores, y):
    """Return the gradient at scores that are on no kink: differences of values with many digits."""
    step = mpf(10) ** (-DIGITS // 5)
    gradient = np.empty(len(scores))
    for j in range(len(scores)):
        with mpmath.workdps(DIGITS):
            ends = [[mpf(float(x)) for x in scores] for _ in range(2)]
            for end, sign in zip(ends, (1, -1), strict=True):
                end[j] += sign * step
            after, before = (_evaluate(_VALUES, loss, end, y) for end in ends)
            gradient[j] = (after - before) / (2 * step)
    return gradient


def exact_conjugate(loss, v, y):
    """Return the conjugate at a v of its domain, where the label's entry stands for the sum."""
    return _evaluate(_CONJUGATES, loss, v, y)


def label_list(y):
    """Return the labels of a row: one, or those of an indicator."""
    return np.flatnonzero(y) if np.ndim(y) else np.array([y])


def _evaluate(table, loss, row, y):
    labels = label_list(y).tolist()
    with mpmath.workdps(DIGITS):
        return table[type(loss).__name__](loss, [mpf(x) for x in row], labels)


# How far rounding may go --------------------------------------------------------------------


def distance(value, exact):
    """Return the absolute error of a double."""
    with mpmath.workdps(DIGITS):
        return float(abs(exact - mpmath.mpf(float(value))))


def _nothing_to_rank(loss, labels, m):
    return loss.name.startswith("multilabel") and not 0 < labels.size < m


def _margin(loss, s, own):
    """Return the size of the numbers on the way to 1 + s - own, or s - own: all that is rounded."""
    d = np.subtract(s, own)
    lost = np.where(np.subtract(s, own, dtype=np.longdouble) == d, 0.0, np.abs(d))
    return np.abs(1.0 + d) + lost if "hinge" in loss.name else np.abs(d)


def differences(loss, s, y):
    """Return for each class the size of the numbers that its score is seen through."""
    labels = label_list(y)
    is_label = np.isin(np.arange(s.size), labels)
    if loss.name.startswith("ova"):
        return _margin(loss, np.where(is_label, -s, s), 0.0)
    if not loss.multilabel:
        return _margin(loss, s, s[labels[0]])
    if _nothing_to_rank(loss, labels, s.size):
        return np.zeros_like(s)
    low, high = s[labels].min(), s[~is_label].max()
    if loss.name == "multilabel_softmax":
        return np.abs(s - s[labels].max()) + np.abs(s[labels].max() - s[labels]).mean()
    return _margin(loss, high, low) + np.where(is_label, s - low, high - s)


def _shares(loss, v, y):
    """Return what the multilabel softmax adds to v: 1/N on each of several labels."""
    labels = label_list(y)
    if loss.name != "multilabel_softmax" or not 1 < labels.size < v.size:
        return np.zeros_like(v)
    return np.isin(np.arange(v.size), labels) / labels.size


def rounding(loss, s, y, v, value):
    """Return what rounding the differences by one unit can change of a value, and its own unit.

    A smoothed value of 0 changes by a square.
    """
    mass, seen = np.abs(v) + _shares(loss, v, y), differences(loss, s, y)
    smoothing = getattr(loss, "smoothing", 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = EPS * np.where(mass > 0, mass * seen, 0.0).sum()
        if value == 0 and smoothing > 0:
            moved += (EPS * seen.max()) ** 2 / smoothing
        return EPS * abs(value) + moved + FLOOR


def conjugate_rounding(loss, v, y):
    """Return a unit of the conjugate's rounding: its terms, and their slopes times v."""
    smoothing = getattr(loss, "smoothing", None)
    if smoothing is not None:
        return EPS * (np.abs(v).sum() + smoothing * (v @ v)) + FLOOR
    x = np.clip(np.abs(v + _shares(loss, v, y)), FLOOR, 1.0)
    return EPS * ((np.abs(v) + x) * (1 + np.abs(np.log(x)))).sum() + FLOOR


# Parts --------------------------------------------------------------------------------------


def _others(s, labels):
    return [x for j, x in enumerate(s) if j not in labels]


def _margins(s, labels, margin):
    (y,) = labels
    return sorted((x - s[y] + margin for x in _others(s, labels)), reverse=True)


def _dot(a, b):
    return fsum(x * y for x, y in zip(a, b, strict=True))


def _clip(x, low, high):
    return max(low, min(x, high))


def _crossing(function, breaks):
    """Return the root of a decreasing function that is linear between the breaks."""
    breaks = sorted(set(breaks))
    low, high = 0, len(breaks) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if function(breaks[middle]) >= 0 else (low, middle)
    at_low, at_high = function(breaks[low]), function(breaks[high])
    if at_low == at_high:
        return breaks[low]
    return breaks[low] + (breaks[high] - breaks[low]) * at_low / (at_low - at_high)


def _isotonic(b, w, zeta):
    """Return the non-increasing sequence closest to b - zeta w."""
    pools = []
    for x, share in zip(b, w, strict=True):
        total, size = x - zeta * share, 1
        while pools and pools[-1][0] * size <= total * pools[-1][1]:
            more, count = pools.pop()
            total, size = total + more, size + count
        pools.append((total, size))
    return [total / size for total, size in pools for _ in range(size)]


# Projections: the maximiser of <b,p> - <p,p>/2 - bias/2 <1,p>^2 for a descending b -----------


def _in_hull(b, w, bias, label):
    """Over zeta times the hull of the permutations of w, 0 <= zeta <= 1.

    p is b less a price for each entry. Where the label has a slot of its own, it takes any weight
    at the price mu of the bias, and so the entries on either side of it have other weights.
    """
    w = w + [mpf(0)] * (len(b) + label - len(w))

    def at(zeta):
        """Return p and the slope of the maximum in zeta."""
        upper = lower = _isotonic(b, w[: len(b)], zeta)
        if label:
            upper = _isotonic(b, w[1:], zeta)

        def prices(mu):
            return [_clip(mu, x, z) for x, z in zip(lower, upper, strict=True)]

        mu = mpf(0)
        if bias:
            mu = _crossing(
                lambda mu: bias * (fsum(b) - fsum(prices(mu))) - mu,
                [*lower, *upper, mpf(0), bias * zeta * fsum(w)],
            )
        slope = _dot([max(x - mu, 0) if label else x - mu for x in lower], w[: len(b)])
        if label:
            slope += _dot([min(x - mu, 0) for x in upper], w[1:])
        return [x - price for x, price in zip(b, prices(mu), strict=True)], slope

    low, high = mpf(0), mpf(1)
    _, first = at(low)
    if first <= 0:
        return [mpf(0)] * len(b)
    p, at_high = at(high)
    if at_high >= 0:
        return p
    at_low = first
    for step in range(1000):
        middle = (low + high) / 2
        if step % 3 < 2:  # right once both ends are on the same linear piece
            middle = low + (high - low) * at_low / (at_low - at_high)
        p, slope = at(middle)
        if abs(slope) <= mpf(10) ** (-DIGITS // 3) * first:
            return p  # the maximum itself is known to twice as many digits
        if slope > 0:
            low, at_low = middle, slope
        else:
            high, at_high = middle, slope
    raise AssertionError("no maximum was found")


def _simplex(b):
    """Over p >= 0, <1,p> = 1."""
    t = _crossing(lambda t: fsum(max(x - t, 0) for x in b) - 1, [*b, max(b) - 1])
    return [max(x - t, 0) for x in b]


def _below_cap(b, cap):
    """Over 0 <= p <= cap, <1,p> <= 1."""

    def excess(t):
        return fsum(_clip(x - t, 0, cap) for x in b) - 1

    t = mpf(0)
    if excess(t) > 0:
        t = _crossing(excess, [t, *(x for x in b if x > 0), *(x - cap for x in b if x > cap)])
    return [_clip(x - t, 0, cap) for x in b]


def _bipartite(b, c):
    """Over p, q >= 0 with <1,p> = <1,q> <= 1; returns both."""
    t = _crossing(
        lambda t: fsum(max(x - t, 0) for x in b) - fsum(max(x + t, 0) for x in c),
        [*b, *(-x for x in c)],
    )
    p, q = [max(x - t, 0) for x in b], [max(x + t, 0) for x in c]
    if fsum(p) <= 1:
        return p, q
    return _simplex(b), _simplex(c)


# Values of hinge losses ---------------------------------------------------------------------


def _sharp(h, w, kind):
    slots = sorted([*h, mpf(0)], reverse=True) if kind == "label" else h
    floor = 0 if kind == "beta" else -mpmath.inf
    return max(mpf(0), _dot([max(x, floor) for x in slots[: len(w)]], w))


def _max_margin(h, w, kind, gamma, bias):
    if gamma == 0:
        return _sharp(h, w, kind)
    b = [x / gamma for x in h]
    p = _below_cap(b, w[0]) if kind == "beta" else _in_hull(b, w, bias, kind == "label")
    return gamma * (_dot(b, p) - (_dot(p, p) + bias * fsum(p) ** 2) / 2)


def _topk_hinge(loss, s, labels):
    weights = [mpf(1) / loss.k] * loss.k
    return _max_margin(_margins(s, labels, 1), weights, loss.kind, mpf(loss.smoothing), 0)


def _weighted_hinge(loss, s, labels):
    return _max_margin(
        _margins(s, labels, 1),
        [mpf(w) for w in loss.weights],
        "label" if loss.label else "alpha",
        mpf(loss.smoothing),
        int(loss.envelope == "all"),
    )


def _ova_hinge(loss, s, labels):
    gamma, total = mpf(loss.smoothing), mpf(0)
    for h in (1 + x for x in _wrong(s, labels)):
        p = _clip(h / gamma, 0, 1) if gamma else mpf(h > 0)
        total += p * h - gamma * p * p / 2
    return total


def _multilabel_hinge(loss, s, labels):
    if not 0 < len(labels) < len(s):
        return mpf(0)
    gamma = mpf(loss.smoothing)
    b, c = [0.5 - s[y] for y in labels], [0.5 + x for x in _others(s, labels)]
    if gamma == 0:
        return max(mpf(0), max(b) + max(c))
    p, q = _bipartite([x / gamma for x in b], [x / gamma for x in c])
    return _dot(b, p) + _dot(c, q) - gamma * (_dot(p, p) + _dot(q, q)) / 2


# Values of entropies ------------------------------------------------------------------------


def _wrong(s, labels):
    """Return the scores, with the sign turned for labels: all of them should be small."""
    return [-x if j in labels else x for j, x in enumerate(s)]


def _softmax(loss, s, labels):
    return log1p(fsum(map(exp, _margins(s, labels, 0))))


def _truncated(loss, s, labels):
    return log1p(fsum(map(exp, _margins(s, labels, 0)[loss.k - 1 :])))


def _topk_entropy(loss, s, labels):
    u, k = _margins(s, labels, 0), loss.k
    for capped in range(k):
        # below the cap log q = u - t, and the first of these must not exceed it
        t = log(fsum(exp(x - u[capped]) for x in u[capped:]) * k / (k - capped)) + u[capped]
        if u[capped] - t <= -log(k):
            break
    log_q = [-log(k)] * capped + [x - t for x in u[capped:]]
    return log1p(exp(fsum(exp(q) * (x - q) for x, q in zip(u, log_q, strict=True))))


def _ova_logistic(loss, s, labels):
    return fsum(log1p(exp(x)) for x in _wrong(s, labels))


def _multilabel_softmax(loss, s, labels):
    if not 0 < len(labels) < len(s):
        return mpf(0)
    return fsum(_softmax(loss, s, [y]) for y in labels) / len(labels)


# Conjugates ---------------------------------------------------------------------------------


def _hinge_conjugate(loss, v, labels):
    own, p = v[labels[0]], _others(v, labels)
    square = _dot(p, p) + (own**2 if getattr(loss, "envelope", "others") == "all" else 0)
    return own + mpf(loss.smoothing) * square / 2


def _x_log_x(x):
    return x * log(x) if x > 0 else mpf(0)


def _one_plus(z):
    """Return (1 + z) log(1 + z) for the smallest z."""
    return (1 + z) * log1p(z) if z > -1 else mpf(0)


def _entropy_conjugate(loss, v, labels):
    return _one_plus(v[labels[0]]) + fsum(map(_x_log_x, _others(v, labels)))


def _ova_hinge_conjugate(loss, v, labels):
    return fsum(mpf(loss.smoothing) * p * p / 2 - p for p in _wrong(v, labels))


def _ova_logistic_conjugate(loss, v, labels):
    return fsum(_x_log_x(p) + _one_plus(-p) for p in _wrong(v, labels))


def _multilabel_hinge_conjugate(loss, v, labels):
    return fsum(v[y] for y in labels) + mpf(loss.smoothing) * _dot(v, v) / 2


def _multilabel_softmax_conjugate(loss, v, labels):
    if not 0 < len(labels) < len(v):
        return mpf(0)
    n = len(labels)  # N x = 1 + N v on the labels
    on_labels = fsum(_one_plus(n * v[y]) - (1 + n * v[y]) * log(n) for y in labels) / n
    return on_labels + fsum(map(_x_log_x, _others(v, labels)))


_VALUES = {
    "Hinge": _topk_hinge,
    "TopKHinge": _topk_hinge,
    "WeightedTopKHinge": _weighted_hinge,
    "Softmax": _softmax,
    "TopKEntropy": _topk_entropy,
    "TruncatedTopKEntropy": _truncated,
    "OneVsAllHinge": _ova_hinge,
    "OneVsAllLogistic": _ova_logistic,
    "MultilabelHinge": _multilabel_hinge,
    "MultilabelSoftmax": _multilabel_softmax,
}
_CONJUGATES = {
    "Hinge": _hinge_conjugate,
    "TopKHinge": _hinge_conjugate,
    "WeightedTopKHinge": _hinge_conjugate,
    "Softmax": _entropy_conjugate,
    "TopKEntropy": _entropy_conjugate,
    "OneVsAllHinge": _ova_hinge_conjugate,
    "OneVsAllLogistic": _ova_logistic_conjugate,
    "MultilabelHinge": _multilabel_hinge_conjugate,
    "MultilabelSoftmax": _multilabel_softmax_conjugate,
}
