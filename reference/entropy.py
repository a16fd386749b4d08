r"""Entropic proximal operators: softmax with a quadratic, a cap, or a top-k constraint.

**On the simplex.**  Solve, for given b, alpha >= 0, r and an optional cap u,

    min_x  alpha/2 <x,x> + <x,log x> - <b,x>     s.t.  <1,x> = r,  0 <= x <= u.

The solution is  x_j = min(V(b_j - t)/alpha, u),  V(t) = W(e^t), with t such that <1,x> = r; for
alpha = 0 it is the capped softmax  x_j = min(e^(b_j - t), u).  Capped are the largest entries
of b.  If entry j sits exactly at the cap, b_j - t = V^-1(alpha u); that gives the sum at which
it gets there, and so who is capped.  The others form a problem without a cap:
sum_j V(b_j - t) = c is convex and decreasing in t, and Newton's method from the left converges
monotonically.

**On the top-k simplex** ([A] eq. (11), the conjugate of the top-k entropy loss).  Solve

    min_x  alpha/2 (<x,x> + s^2) + <x,log x> + (1-s) log(1-s) - <b,x>   s.t.  0 <= x_j <= s/k,

s = <1,x>.  The solution is  x_j = min(V(b_j - t)/alpha, s/k)  with ([A] eq. (13)), U being the
j with x_j = s/k,

    s (k - |U|)/k  =  (1/alpha) sum_{j not in U} V(b_j - t),
    t  =  alpha s - log(1-s) - log(alpha) - 1/k sum_{j in U} (b_j - t - alpha s/k - log(alpha s/k)).

For a given t the first line gives U and s, one entry at a time; the second is then a
decreasing function of t alone, solved by Newton's method inside a bracket.  The code writes t for
t + log(alpha), so that log x_j = b_j - t - alpha x_j, which neither under- nor overflows and
makes sense for the smallest alpha.  For alpha = 0, x = sigma(M) q with q the softmax capped at
1/k and M = <b,q> - <q,log q>.

By hand: b = (log 3, 0) has the softmax (3/4, 1/4), and capped at 0.6 it is (0.6, 0.4).  With
alpha = 0, k = 1 and the label's slot e^0, (log 3, 0) becomes (3, 1)/(3 + 1 + 1).

>>> prox_entropy_simplex([np.log(3), 0.0], 0.0).round(12).tolist()
[0.75, 0.25]
>>> prox_entropy_simplex([np.log(3), 0.0], 0.0, upper=0.6).round(12).tolist()
[0.6, 0.4]
>>> prox_topk_entropy([np.log(3), 0.0], 0.0).round(12).tolist()
[0.6, 0.2]

References
----------
[A] Lapin, Hein, Schiele. Analysis and Optimization of Loss Functions for Multiclass, Top-k
    and Multilabel Classification. TPAMI 2018, Propositions 15-17.
[L] Lapin, Hein, Schiele. Loss Functions for Top-k Error. CVPR 2016.
"""

from bisect import bisect_left

import numpy as np

from ._checks import as_row, at_least, count
from .lambert import inverse_lambertw_exp, lambertw_exp

EPS = np.finfo(float).eps


def prox_entropy_simplex(b, alpha, radius=1.0, *, upper=None):
    """Minimize ``alpha/2 |x|^2 + <x, log x> - <b, x>`` over the (capped) simplex.

    Parameters
    ----------
    b : array_like, shape (p,)
        The linear term; entries -inf get mass 0.
    alpha : float
        The weight of the quadratic, alpha >= 0; 0 gives the softmax.
    radius : float, default=1.0
        The sum r > 0 of the solution.
    upper : float, optional
        The cap u on every entry; no cap if None.

    Returns
    -------
    ndarray, shape (p,)
        The minimizer.
    """
    b = as_row(b, "b")
    alpha, radius = at_least(alpha, 0, "alpha"), at_least(radius, 0, "radius")
    if alpha * radius < EPS / 8:
        alpha = 0.0                        # exp(-alpha x) rounds to 1: a softmax
    x = np.zeros_like(b)
    order = np.argsort(-b, kind="stable")[:np.count_nonzero(np.isfinite(b))]
    if radius > 0:
        x[order] = _capped(b[order], alpha, radius, np.inf if upper is None else float(upper))
    return x


def prox_topk_entropy(b, alpha, k=1):
    """Minimize the biased entropy of [A] eq. (11) over the top-k simplex.

    Parameters
    ----------
    b : array_like, shape (p,)
        The linear term; entries -inf get mass 0, so with fewer than `k` finite entries the
        solution is 0.
    alpha : float
        The weight of the quadratics, alpha >= 0.
    k : int, default=1
        1 <= k <= p; 1 gives the softmax loss.

    Returns
    -------
    ndarray, shape (p,)
        The minimizer.
    """
    b = as_row(b, "b")
    alpha, k = at_least(alpha, 0, "alpha"), count(k, b.size)
    x = np.zeros_like(b)
    order = np.argsort(-b, kind="stable")[:np.count_nonzero(np.isfinite(b))]
    if order.size >= k:
        solve = _topk_softmax if alpha < EPS / 8 else _topk_entropy
        x[order] = solve(b[order], alpha, k)
    return x


def _capped(b, alpha, radius, cap):
    """Solve the first problem for a descending row b."""
    if not cap * b.size >= radius * (1 - b.size * EPS):
        raise ValueError(f"upper must be >= radius/{b.size}, the number of finite entries of b, "
                         f"got {cap} with radius {radius}; raise upper or lower radius.")

    def is_free(j):
        """Whether the sum exceeds r already when entry j has just reached the cap."""
        return cap * (j + _relative_mass(b[j:] - b[j], alpha, cap)) > radius

    capped = bisect_left(range(b.size), True, key=is_free) if cap < radius else 0
    rest = max(radius - capped * cap, 0.0) if capped else radius
    if capped == b.size or rest == 0:
        return np.where(np.arange(b.size) < capped, cap, 0.0)
    d = b[capped:] - b[capped]             # the solution does not see a common shift
    if alpha * rest < EPS / 8:
        free = np.exp(d)
    else:
        free = lambertw_exp(d - _uncapped_threshold(d, alpha * rest)) / alpha
    # t is known up to |t| eps only, the sum exactly: it has the last word.
    return np.concatenate([np.full(capped, cap), np.minimum(free * (rest / free.sum()), cap)])


def _relative_mass(d, alpha, cap):
    """Sum of x/cap over entries d <= d_0 = 0 when entry 0 has x = cap."""
    if alpha * cap < EPS / 8:
        return np.exp(d).sum()
    return (lambertw_exp(d + inverse_lambertw_exp(alpha * cap)) / (alpha * cap)).sum()


def _uncapped_threshold(d, c):
    """Root t of sum_j V(d_j - t) = c for max(d) = 0, by Newton's method from the left."""
    t = -inverse_lambertw_exp(c)           # here the largest term alone is c
    while True:
        v = lambertw_exp(d - t)
        step = (v.sum() - c) / (v / (1 + v)).sum()
        if not t + step > t:
            return t
        t += step


def _topk_softmax(b, _, k):
    """Solve the second problem for alpha = 0 and a descending row b."""
    q = _capped(b, 0.0, 1.0, 1.0 / k)
    entropy = -(q * np.log(np.where(q > 0, q, 1.0))).sum()
    m = b[0] + (q @ (b - b[0]) + entropy)
    return q * (1 / (1 + np.exp(-m)) if m > 0 else np.exp(m) / (1 + np.exp(m)))


def _topk_entropy(b, alpha, k):
    """Solve the second problem for alpha > 0 and a descending row b."""
    anchor = b[k - 1]                      # t stays near the k-th entry
    d = b - anchor

    def log_x(t):
        """Return log(V(d - t + log alpha)/alpha) without underflow: log x = d - t - alpha x."""
        v = lambertw_exp(d - t + np.log(alpha))
        return np.where(v < 1, d - t - v, np.log(np.maximum(v, 1)) - np.log(alpha)), v

    def solve(t):
        """Return |U|, log s, the residual of the second equation, and its slope."""
        log_free, v = log_x(t)
        log_tail = np.logaddexp.accumulate(log_free[::-1])[::-1]   # of x_j + x_{j+1} + ...
        u = _size_of_u(log_free, log_tail, k)
        log_top = log_tail[u] - np.log(k - u)                      # log(s/k)
        log_s = min(log_top + np.log(k), 0.0)
        s = np.exp(log_s)
        if s == 1:                         # too far left, log(1 - s) would be infinite
            return u, log_s, np.inf, -np.inf
        prices = d[:u] - t - alpha * s / k - log_top
        residual = alpha * s - np.log(-np.expm1(log_s)) - prices.sum() / k - anchor - t
        # d log s/dt is minus the mean of V'/V = 1/(1 + V) over the entries outside U
        rate = -(np.exp(log_free[u:] - log_tail[u]) / (1 + v[u:])).sum()
        slope = rate * (alpha * s + s / (1 - s) + (u / k) * (1 + alpha * s / k)) - (1 - u / k)
        return u, log_s, residual, slope

    # At this t the k-th entry of V/alpha is 1/k, hence s >= 1: the root is to the right.
    low = np.log(k) - alpha / k
    width = 1.0
    while solve(low + width)[2] > 0:
        width *= 2
    t = _decreasing_root(lambda t: solve(t)[2:], low, low + width)
    u, log_s, _, _ = solve(t)
    x = np.minimum(np.exp(np.minimum(log_x(t)[0], 0.0)), np.exp(log_s) / k)
    x[:u] = np.exp(log_s) / k
    return x


def _size_of_u(log_v, log_tail, k):
    """Smallest u with (k - u) V_[u+1] <= V_[u+1] + V_[u+2] + ...; it is below k."""
    room = np.log(k - np.arange(k))
    return int(np.argmax(room + log_v[:k] <= log_tail[:k]))


def _decreasing_root(f, low, high):
    """Newton's method kept in a bracket; f returns value and slope, f(low) >= 0 >= f(high)."""
    t = high
    for _ in range(400):
        value, slope = f(t)
        low, high = (t, high) if value > 0 else (low, t)
        guess = t - value / slope if np.isfinite(value) else high
        if guess == t:
            break
        if not low < guess < high:
            guess = low + (high - low) / 2
            if not low < guess < high:
                break
        t = guess
    return t
