r"""Oracles: slow algorithms that are obviously right, to test the fast ones against.

Three kinds of witness, none sharing code with the rest of the package:

* functions with the operators' own names and arguments: **bisection** in long double, on the
  threshold t for a fixed sum, and around it on the sum or the scale zeta, whose optimality
  condition phi' is monotone because phi, the value of a convex problem, is convex;
* ``kkt_<operator>(input, output, ...)``: a **certificate** that needs no second solution.  For a
  projection onto a set C it checks that x is in C and that

      <x - b + rho <1,x>, x - y>  <=  0     for all y in C,

  at the worst y, which is a vertex found by sorting.  For the entropies it is the residual of
  the optimality conditions, expressed as an error of x.  Both are relative to the size of the
  problem: rounding leaves a few p * eps;
* ``qp_weighted_topk``: a **quadratic program** with the inequalities of the set written out.

By hand: (2, 0, 0) is the projection of (3, 1, 0) onto the simplex of radius 2, (1, 1, 0) is not.

>>> project_simplex([3.0, 1.0, 0.0], 2.0).round(15).tolist()
[2.0, 0.0, 0.0]
>>> kkt_project_simplex([3.0, 1.0, 0.0], [2.0, 0.0, 0.0], 2.0) < 1e-15
True
>>> kkt_project_simplex([3.0, 1.0, 0.0], [1.0, 1.0, 0.0], 2.0) > 0.1
True
"""

import numpy as np
from scipy.optimize import nnls

LD = np.longdouble


# Bisection ---------------------------------------------------------------------------------


def _bisect(is_left, low, high, steps=160):
    """Return the point where `is_left` turns from True to False."""
    for _ in range(steps):
        middle = low + (high - low) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if is_left(middle) else (low, middle)
    return low


def _finite_row(x):
    """Return the whole row (float64) and its finite part in long double."""
    x = np.asarray(x, dtype=np.float64)
    return x, x[np.isfinite(x)].astype(LD)


def _spread(x, values):
    """Put `values` where `x` is finite and 0 elsewhere."""
    out = np.zeros(x.shape)
    out[np.isfinite(x)] = np.asarray(values, dtype=np.float64)
    return out


def _size(*arrays):
    """Return the largest finite magnitude in the arrays, 1 if all are 0."""
    values = np.concatenate([np.ravel(np.asarray(a, dtype=LD)) for a in arrays])
    size = np.abs(values[np.isfinite(values)]).max(initial=0)
    return size if size > 0 else LD(1)


def lambertw_exp(t):
    """V(t) = e^y with y + e^y = t, which is increasing in y."""
    t = np.asarray(t, dtype=LD)
    return np.exp(_log_lambert(t)).astype(np.float64)[()]


def _log_lambert(t):
    """Root y of the convex function y + e^y - t: Newton's method from the right."""
    y = np.minimum(t, np.log(np.maximum(t, 1)))
    for _ in range(12):
        e = np.exp(y)
        y = y - (y + e - t) / (1 + e)
    return y


def project_simplex(x, radius=1.0):
    """Projection onto the simplex by bisection on t."""
    return project_capped_simplex(x, 0.0, np.inf, radius)


def project_capped_simplex(x, lower, upper, total, *, equality=True, bias=0.0):
    """Projection onto the capped simplex by bisection on t."""
    x = np.asarray(x, dtype=np.float64)
    lower = np.broadcast_to(np.asarray(lower, dtype=LD), x.shape)
    upper = np.broadcast_to(np.asarray(upper, dtype=LD), x.shape)
    b = x.astype(LD)
    t = _knapsack(b, lower, upper, LD(total), equality, LD(bias))
    return np.clip(b - t, lower, upper).astype(np.float64)


def _knapsack(b, lower, upper, total, equality, bias):
    def summed(t):
        return np.clip(b - t, lower, upper).sum()

    width = 2 * (b.size + 1) * (1 + bias) * _size(b, lower, upper, total)
    t = _bisect(lambda t: bias * summed(t) > t, -width, width)     # t = rho S(t)
    if equality or summed(t) > total:
        t = _bisect(lambda t: summed(t) > total, -width, width)
    return t


def project_topk_cone(x, k, *, bias=0.0):
    """Projection onto the top-k cone by nested bisection on s and t."""
    x, b = _finite_row(x)
    return _spread(x, _topk(b, k, 2 * b.size * _size(b), LD(bias)))


def project_topk_simplex(x, k, radius=1.0, *, kind="alpha", bias=0.0):
    """Projection onto a top-k simplex by nested bisection on s and t."""
    if kind == "beta" or (kind == "label" and k == 1):
        cap = LD(radius) / k
        return project_capped_simplex(x, 0.0, cap, radius, equality=False, bias=bias)
    x, b = _finite_row(x)
    if kind == "alpha":
        return _spread(x, _topk(b, k, LD(radius), LD(bias)))
    return _spread(x, _topk(b, k - 1, LD(radius), LD(bias), cap=LD(radius) / k))


def _topk(b, k, radius, bias, cap=None):
    """Minimize phi(s), the best value with sum s: 0 <= x_j <= min(s/k, cap), s <= r."""
    cap = LD(np.inf) if cap is None else cap
    if b.size < k:
        return np.zeros(b.size)

    def solve(s):
        top = min(s / k, cap)
        t = _knapsack(b, np.zeros_like(b), np.full_like(b, top), s, True, LD(0))
        price = np.maximum(b - t - top, 0).sum() / k if s / k < cap else 0   # d/ds of the cap
        return np.clip(b - t, 0, top), bias * s - t - price

    radius = min(radius, b.size * cap, 2 * b.size * _size(b))
    s = _bisect(lambda s: solve(s)[1] < 0, LD(0), radius, steps=90)
    return solve(s)[0] if s > 0 else np.zeros(b.size)


def project_weighted_topk(x, weights, radius=1.0, *, label=False, bias=0.0):
    """Projection onto the weighted top-k set by nested bisection on zeta and mu."""
    x, b = _finite_row(x)
    w = np.zeros(x.size + label, dtype=LD)
    w[:len(weights)] = weights
    if w[0] == 0 or w[b.size + label:].any():
        return np.zeros(x.shape)
    order = np.argsort(-b, kind="stable")
    radius = min(LD(radius), 4 * b.size * _size(b) / w[0])
    p = np.zeros_like(b)
    p[order] = _weighted(b[order], w[:b.size + label], radius, label, LD(bias))
    return _spread(x, p)


def _weighted(b, w, radius, label, bias):
    first = w[:b.size]

    def solve(zeta):
        a = _isotonic(b - zeta * first)
        if not label:
            return b - a, -(a @ first) + bias * zeta * first.sum() ** 2
        c = _isotonic(b - zeta * w[1:])
        width = 2 * (b.size + 1) * (1 + bias) * _size(a, b, c)
        mu = _bisect(lambda m: bias * (b - np.clip(m, a, c)).sum() > m, -width, width)
        return b - np.clip(mu, a, c), -(np.maximum(a - mu, 0) @ first) - (
            np.minimum(c - mu, 0) @ w[1:])

    zeta = _bisect(lambda z: solve(z)[1] < 0, LD(0), radius, steps=90)
    return solve(zeta)[0]


def _isotonic(y):
    """Closest non-increasing sequence by its min-max formula (means of all intervals)."""
    sums = np.concatenate([[LD(0)], np.cumsum(y)])
    first, last = np.indices((y.size, y.size))
    mean = (sums[last + 1] - sums[first]) / np.maximum(last - first + 1, 1)
    return np.array([mean[:m + 1, m:].max(axis=1).min() for m in range(y.size)])


def project_bipartite_simplex(x, y, radius=1.0):
    """Projection onto the bipartite simplex by bisection on t, or on each side's own t."""
    (x, b), (y, c) = _finite_row(x), _finite_row(y)
    if b.size == 0 or c.size == 0:
        return np.zeros(x.shape), np.zeros(y.shape)
    width = 2 * (b.size + c.size) * _size(b, c)
    t = _bisect(lambda t: np.maximum(b - t, 0).sum() > np.maximum(c + t, 0).sum(), -width, width)
    if np.maximum(b - t, 0).sum() > radius:
        return project_simplex(x, radius), project_simplex(y, radius)
    return _spread(x, np.maximum(b - t, 0)), _spread(y, np.maximum(c + t, 0))


def prox_entropy_simplex(b, alpha, radius=1.0, *, upper=None):
    """Entropic prox on the (capped) simplex by bisection on t."""
    b, f = _finite_row(b)
    cap = LD(np.inf) if upper is None else LD(upper)
    return _spread(b, _entropic(f, LD(alpha), LD(radius), cap)[0])


def _entropic(b, alpha, total, cap):
    """Return x with alpha x + log x = b - t below the cap and sum `total`, and t."""
    shift = b.max()
    b = b - shift
    log_alpha = np.log(alpha) if alpha > 0 else LD(0)
    cap = min(cap, 2 * total)              # changes no solution, and exp cannot overflow

    def solve(t):
        log_x = b - t if alpha == 0 else _log_lambert(b - t + log_alpha) - log_alpha
        return np.minimum(np.exp(np.minimum(log_x, np.log(cap))), cap)

    least = min(cap, total) / (2 * b.size)
    low = b.min() - 2 * alpha * total - np.log(2 * total)          # every entry >= total
    high = -alpha * least - np.log(least)                 # every entry <= least
    t = _bisect(lambda t: solve(t).sum() > total, low, high)
    return solve(t), t + shift


def prox_topk_entropy(b, alpha, k=1):
    """Entropic prox on the top-k simplex by nested bisection on logit(s) and t."""
    b, f = _finite_row(b)
    if f.size < k:
        return np.zeros(b.shape)
    alpha = LD(alpha)

    def solve(logit):
        s = 1 / (1 + np.exp(-logit))
        x, t = _entropic(f, alpha, s, s / k)
        price = np.maximum(f - t - alpha * s / k - np.log(s / k), 0).sum() / k
        return x, alpha * s + np.logaddexp(0, logit) - t - price

    limit = min(2 * (_size(f) + alpha + 100), LD(5000))            # e^-5000 is 0 in double
    logit = _bisect(lambda c: solve(c)[1] < 0, -limit, limit, steps=80)
    return _spread(b, solve(logit)[0])


def simplex_by_sorting(x):
    """Project rows onto the simplex the way it is usually written in NumPy, by sorting.

    >>> simplex_by_sorting(np.array([[0.5, 1.0, -1.0]]))
    array([[0.25, 0.75, 0.  ]])
    """
    descending = -np.sort(-x, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    ranks = np.arange(1, x.shape[1] + 1, dtype=x.dtype)
    support = (descending * ranks > excess).sum(axis=1, keepdims=True)
    threshold = np.take_along_axis(excess, support - 1, axis=1) / support.astype(x.dtype)
    return np.maximum(x - threshold, 0)


# Certificates ------------------------------------------------------------------------------


def kkt_lambertw_exp(t, v):
    """Return the largest relative error of `v` as a root of v + log v = t."""
    t, v = np.asarray(t, dtype=LD), np.asarray(v, dtype=LD)
    tiny = np.finfo(np.float64).tiny
    error = np.abs(v + np.log(np.where(v > 0, v, 1)) - t) / (1 + v)
    return float(np.where(v < tiny, t > np.log(LD(tiny)), error).max(initial=0))


def _normalized(b, x, *numbers):
    """Divide everything by the size of b and x, so that certificates are pure numbers."""
    b, x = np.asarray(b, dtype=LD), np.asarray(x, dtype=LD)
    size = _size(b, x) if b[np.isfinite(b)].any() else _size(x, *numbers)
    return [b / size, x / size, *[np.asarray(n, dtype=LD) / size for n in numbers]]


def _violation(b, x, bias, lowest, *infeasible):
    """Return the largest of <g,x> - min_y <g,y> and the infeasibilities."""
    g = x - b + bias * x.sum()             # +inf where b = -inf, and x must be 0 there
    lost = np.abs(x[np.isinf(b)]).max(initial=0)
    used = np.isfinite(b)
    gap = (g[used] @ x[used] - lowest(g)) / (1 + np.abs(g[used]).max())
    return float(max(gap, lost, 0, *infeasible))


def _top(g, w):
    """Return min <g, permutation of w>: the largest weights meet the smallest entries."""
    used = w > 0
    return (np.sort(g)[:w.size][used] * w[used]).sum() if used.any() else LD(0)


def _flat(k):
    return np.full(k, 1 / LD(k))


def kkt_project_simplex(x_in, x_out, radius=1.0):
    """Certificate of `project_simplex`."""
    return kkt_project_capped_simplex(x_in, x_out, 0.0, np.inf, radius)


def kkt_project_capped_simplex(x_in, x_out, lower, upper, total, *, equality=True, bias=0.0):
    """Certificate of `project_capped_simplex`."""
    b, x, lower, upper, total = _normalized(x_in, x_out, lower, upper, total)
    lower, upper = np.broadcast_to(lower, b.shape), np.broadcast_to(upper, b.shape)
    outside = max((lower - x).max(), (x - upper).max())
    s = x.sum()
    wrong_sum = abs(s - total) if equality else s - total
    # Bounds further than 2 from everything are never active: a nearer set, the same solution.
    lower, upper = np.maximum(lower, x - 2), np.minimum(upper, x + 2)
    pinned = np.isneginf(b)

    def lowest(g):
        g, low, high = g[~pinned], lower[~pinned], upper[~pinned]
        value, room = g @ low, total - low.sum() - x[pinned].sum()
        for j in np.argsort(g):            # fractional knapsack: cheapest first
            if not equality and g[j] >= 0:
                break
            take = min(max(room, 0), high[j] - low[j])
            value, room = value + take * g[j], room - take
        return value

    if pinned.any():                       # these entries sit at their lower bound
        x, b = x.copy(), b.copy()
        outside = max(outside, np.abs(x - lower)[pinned].max())
        g = np.where(pinned, 0, x - np.where(pinned, 0, b) + bias * s)
        gap = (g @ x - lowest(g)) / (1 + np.abs(g).max())
        return float(max(gap, outside, wrong_sum, 0))
    return _violation(b, x, bias, lowest, outside, wrong_sum)


def kkt_project_topk_cone(x_in, x_out, k, *, bias=0.0):
    """Certificate of `project_topk_cone`."""
    return kkt_project_topk_simplex(x_in, x_out, k, np.inf, bias=bias)


def kkt_project_topk_simplex(x_in, x_out, k, radius=1.0, *, kind="alpha", bias=0.0):
    """Certificate of `project_topk_simplex`."""
    if kind == "beta":
        return kkt_project_capped_simplex(x_in, x_out, 0.0, LD(radius) / k, radius,
                                          equality=False, bias=bias)
    return kkt_project_weighted_topk(x_in, x_out, _flat(k), radius, label=kind == "label",
                                     bias=bias)


def kkt_project_weighted_topk(x_in, x_out, weights, radius=1.0, *, label=False, bias=0.0):
    """Certificate of `project_weighted_topk`."""
    w = np.asarray(weights, dtype=LD)
    if w[0] == 0:
        return float(np.abs(x_out).max())
    w, radius = w / w[0], LD(radius) * w[0]
    b, x, radius = _normalized(x_in, x_out, radius)
    zeta, *outside = _outside_permutations(x, w, label)
    near = min(radius, 1 + 2 * zeta)       # by convexity, a smaller set around x is enough

    def lowest(g):
        return min(0, near * _top(np.append(g, 0) if label else g, w))

    return _violation(b, x, bias, lowest, zeta - radius, *outside)


def _outside_permutations(x, w, label):
    """Return the least zeta for x, and how far x is from the inequalities of zeta Perm(w)."""
    w = np.concatenate([w, np.zeros(x.size + label - w.size, dtype=LD)])
    top, w_top = np.cumsum(np.sort(x)[::-1]), np.cumsum(w)
    if not label:
        zeta = top[-1] / w_top[-1]
        return zeta, (top - zeta * w_top).max(), -x.min()
    zeta = (top / w_top[:-1]).max()
    tail = np.cumsum(np.sort(x))[::-1]     # sums from j on; they must leave room for z
    return zeta, (zeta * (w_top[-1] - w_top[:-1]) - tail).max(), -x.min()


def kkt_project_bipartite_simplex(x_in, x_out, radius=1.0):
    """Certificate of `project_bipartite_simplex`; x_in = (x, y) and x_out = (p, q)."""
    (b, c), (p, q) = x_in, x_out
    if not (np.isfinite(b).any() and np.isfinite(c).any()):
        return float(max(np.max(p, initial=0), np.max(q, initial=0)))
    size = np.size(b)
    b, x, radius = _normalized(np.concatenate([b, c]), np.concatenate([p, q]), radius)
    radius = min(radius, LD(2 * b.size))
    sums = x[:size].sum(), x[size:].sum()
    return _violation(b, x, 0, lambda g: min(0, radius * (g[:size].min() + g[size:].min())),
                      abs(sums[0] - sums[1]), max(sums) - radius, -x.min())


def kkt_prox_entropy_simplex(x_in, x_out, alpha, radius=1.0, *, upper=None):
    """Certificate of `prox_entropy_simplex`, as an error of x relative to the radius."""
    b, x = np.asarray(x_in, dtype=LD), np.asarray(x_out, dtype=LD)
    radius = LD(radius)
    cap = LD(np.inf) if upper is None else LD(upper)
    stationarity, _ = _entropic_residual(b, x, LD(alpha), cap)
    scale = radius * (1 + _size(b) + abs(np.log(radius)))
    return float(max(stationarity / scale, abs(x.sum() - radius) / radius, -x.min(),
                     (x.max() - cap) / radius, x[np.isinf(b)].max(initial=0)))


def kkt_prox_topk_entropy(x_in, x_out, alpha, k=1):
    """Certificate of `prox_topk_entropy`, as an error of x."""
    b, x = np.asarray(x_in, dtype=LD), np.asarray(x_out, dtype=LD)
    alpha, s = LD(alpha), x.sum()
    if np.isfinite(b).sum() < k:
        return float(np.abs(x).max())
    if s == 0:                             # allowed only if the solution underflows
        return float(np.sort(b)[-k:].mean() > -700)
    stationarity, t = _entropic_residual(b, x, alpha, s / k)
    used = np.isfinite(b)
    price = np.maximum(b[used] - t - alpha * s / k - np.log(s / k), 0).sum() / k
    rest = max(1 - s, np.finfo(float).eps / 4)
    second = alpha * s - np.log(rest) - t - price
    if rest < 32 * np.finfo(float).eps:     # s rounds to 1, log(1-s) can be anything larger
        second = max(second, 0)
    error = abs(second) / (1 / s + 1 / rest + alpha)
    return float(max(stationarity / (1 + _size(b)), error / (1 + _size(b)), -x.min(), s - 1,
                     x.max() - s / k, x[~used].max(initial=0)))


def _entropic_residual(b, x, alpha, cap):
    """Return the error of x against alpha x + log x = b - t (>= at the cap), and t."""
    used = np.isfinite(b) & (x > 0)
    b, x = b[used], x[used]
    residual = b - alpha * x - np.log(x)
    worth = x / (1 + alpha * x)            # dx for a unit change of the residual
    free = x < cap * (1 - 64 * np.finfo(float).eps)
    t = residual[free][np.argmax(worth[free])] if free.any() else residual.min()
    wrong = np.where(free, np.abs(residual - t), np.maximum(t - residual, 0))
    return (worth * wrong).max(), t


# Quadratic program -------------------------------------------------------------------------


def qp_weighted_topk(x, weights, radius=1.0, *, label=False, bias=0.0):
    """Projection onto the weighted top-k set from its inequalities (finite rows).

    A symmetric set keeps the order of b.  For x sorted in descending order, with the sums
    C_j = x_1 + .. + x_j, T_j = x_j + .. + x_p and W_j = w_1 + .. + w_j, x is in zeta Perm(w) iff
    C_j <= zeta W_j for all j, with equality at the end.  With the label's slot z the equality
    gives z, and zeta (W_m - W_j) <= T_j.  Eliminating zeta leaves inequalities in x alone.
    With many ties the p^2 inequalities are degenerate and the solver may break down, which
    raises ArithmeticError (or RuntimeError from scipy): skip such a row, do not trust it.
    """
    b = np.asarray(x, dtype=np.float64)
    p = b.size
    w = np.zeros(p + label)
    w[:len(weights)] = weights
    order = np.argsort(-b, kind="stable")
    c, t = np.tril(np.ones((p, p))), np.triu(np.ones((p, p)))
    total = np.cumsum(w)
    rows = [-np.eye(p)[p - 1]] + [np.eye(p)[j + 1] - np.eye(p)[j] for j in range(p - 1)]
    if label:
        rows += [c[j] * (total[-1] - total[i]) - total[j] * t[i]
                 for i in range(p) for j in range(p)]
        last = list(c)
        bound = radius * total[:p]
    else:
        rows += [c[j] * total[-1] - total[j] * c[-1] for j in range(p - 1)]
        last, bound = [c[-1]], radius * total[-1:]
    size = float(_size(b))
    out = np.zeros(p)
    out[order] = size * _inequality_least_squares(
        np.vstack([np.eye(p), np.full((1, p), np.sqrt(bias))]), np.append(b[order] / size, 0),
        np.array(rows + last), np.concatenate([np.zeros(len(rows)), bound / size]))
    return out


def _inequality_least_squares(e, f, g, h):
    """Minimize |e x - f| subject to g x <= h (Lawson and Hanson, chapter 23)."""
    norm = np.linalg.norm(g, axis=1)
    useful = norm > 1e-12 * norm.max()     # 0 <= 0 up to rounding says nothing
    g, h = g[useful] / norm[useful, None], h[useful] / norm[useful]
    q, r = np.linalg.qr(e)
    # With u = r x - q'f it becomes min |u| subject to a u >= c, whose dual is an NNLS problem.
    a = -np.linalg.solve(r.T, g.T).T
    c = -h - a @ (q.T @ f)
    stacked = np.vstack([a.T, c])
    target = np.zeros(stacked.shape[0])
    target[-1] = 1
    y, _ = nnls(stacked, target, maxiter=100 * stacked.shape[1])
    residual = stacked @ y - target
    x = np.linalg.solve(r, -residual[:-1] / residual[-1] + q.T @ f)
    if (g @ x - h).max() > 1e-9 * (1 + np.abs(x).max()):
        raise ArithmeticError("nnls broke down on this degenerate problem; use another oracle.")
    return x
