"""Projections in rational numbers, by methods that are slow and plain: no rounding at all."""

from fractions import Fraction
from itertools import pairwise, product


def rational(values):
    return [Fraction(float(v)) for v in values]


def clip(value, low, high):
    return max(low, value if high is None else min(value, high))


def root(function, breaks):
    """Return the root of a non-increasing function that is linear between the breaks."""
    breaks = sorted(set(breaks))
    values = [function(t) for t in breaks]
    for (left, right), (f, g) in zip(pairwise(breaks), pairwise(values), strict=True):
        if f >= 0 >= g:
            return left if f == g else left + (right - left) * f / (f - g)
    inner, outer = (breaks[0], breaks[0] - 1) if values[0] < 0 else (breaks[-1], breaks[-1] + 1)
    f, g = function(inner), function(outer)
    return inner if f == g else inner + (outer - inner) * f / (f - g)


def exact_box(b, lower, upper, total, equality, bias):
    """Return clip(b - t, lower, upper); upper None is infinite."""

    def at(t):
        return [clip(v - t, lo, hi) for v, lo, hi in zip(b, lower, upper, strict=True)]

    breaks = [v - lo for v, lo in zip(b, lower, strict=True)]
    breaks += [v - hi for v, hi in zip(b, upper, strict=True) if hi is not None]
    if not equality:
        free = at(root(lambda t: bias * sum(at(t)) - t, [*breaks, Fraction(0)]) if bias else 0)
        if sum(free) <= total:
            return free
    return at(root(lambda t: sum(at(t)) - total, breaks))


def exact_cone(b, k, radius, bias):
    """Project onto the top-k cone, cut at the radius (None for none), by trying all pieces."""
    order = sorted(range(len(b)), key=lambda j: -b[j])
    d = [b[j] for j in order]
    zero = [Fraction(0)] * len(b)
    if len(b) < k or sum(d[:k]) <= 0 or radius == 0:
        return zero
    for u, end in product(range(k + 1), range(len(b) + 1)):
        if (u < k) != (end > u):
            continue
        above, middle, m = sum(d[:u], Fraction(0)), sum(d[u:end], Fraction(0)), end - u
        if u == k:
            s = above / (k * bias + 1)
            s = s if radius is None else min(s, radius)
            t = d[k] if len(d) > k else d[k - 1] - s / k
        else:
            s = (middle + m * above / (k - u)) / (
                Fraction(k - u, k) + m * (bias * k + Fraction(u, k)) / (k - u)
            )
            s = s if radius is None else min(s, radius)
            t = (middle - s * Fraction(k - u, k)) / m
        placed = [*[v - t >= s / k for v in d[:u]], *[0 <= v - t <= s / k for v in d[u:end]]]
        price = t - bias * s + (above - u * t - u * s / k) / k  # of the radius
        if s > 0 and all(placed) and all(v <= t for v in d[end:]) and price >= 0:
            if price > 0 and s != radius:
                continue
            x = zero[:]
            for place, v in zip(order, d, strict=True):
                x[place] = clip(v - t, Fraction(0), s / k)
            return x
    raise ArithmeticError("no piece fits")


def exact_weighted(b, w, radius, bias):
    """Newton's method over pools, which ends after finitely many steps without rounding."""
    order = sorted(range(len(b)), key=lambda j: -b[j])
    w = [*w, *[Fraction(0)] * (len(b) - len(w))]
    pools = [(b[j], v, 1) for j, v in zip(order, w, strict=True)]
    while True:
        gain = sum(s * v / n for s, v, n in pools)
        cost = sum(v * v / n for _, v, n in pools) + bias * sum(w) ** 2
        zeta = clip(gain / cost, Fraction(0), radius)
        merged = []
        for s, v, n in pools:
            while merged and (merged[-1][0] - zeta * merged[-1][1]) / merged[-1][2] < (
                (s - zeta * v) / n
            ):
                last = merged.pop()
                s, v, n = s + last[0], v + last[1], n + last[2]
            merged.append((s, v, n))
        if len(merged) == len(pools):
            break
        pools = merged
    values = [(s - zeta * v) / n for s, v, n in pools for _ in range(n)]
    x = [Fraction(0)] * len(b)
    for place, value in zip(order, values, strict=True):
        x[place] = b[place] - value
    return x


def exact_bipartite(b, c, radius):
    zero = Fraction(0)

    def excess(t):
        return sum(max(zero, v - t) for v in b) - sum(max(zero, v + t) for v in c)

    t = root(excess, [*b, *[-v for v in c]])
    x, y = [max(zero, v - t) for v in b], [max(zero, v + t) for v in c]
    if sum(x) <= radius:
        return x + y
    return [
        entry
        for side in (b, c)
        for entry in exact_box(side, [zero] * len(side), [None] * len(side), radius, True, zero)
    ]


def exact_pinned(b, lower, upper, total, pinned, equality, bias):
    """As exact_box, next to entries that sit at their lower bounds, of sum pinned."""
    fixed = exact_box([*b, -pinned], [*lower, pinned], [*upper, pinned], total, equality, bias)
    return fixed[:-1]
