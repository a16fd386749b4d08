"""Random projections and proxes against exact arithmetic, where the numbers are least friendly.

Rows and parameters from the smallest to the largest numbers, ties, plateaus, neighbouring numbers,
masks, both precisions, any layout and any overlap of `out` with the inputs. Projections of short
rows are compared with solutions in rational numbers, proxes with their conditions of optimality in
long double. A failure names the seed: --fuzz-seed repeats it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from topkopt.reference import oracles

from topkopt.projections import (
    project_bipartite_simplex,
    project_capped_simplex,
    project_simplex,
    project_topk_cone,
    project_topk_simplex,
    project_weighted_topk,
)
from topkopt.prox import prox_entropy_simplex, prox_topk_entropy

from .exact_projections import (
    clip,
    exact_bipartite,
    exact_box,
    exact_cone,
    exact_pinned,
    exact_weighted,
    rational,
)
from .fuzz_rows import draw_bias, draw_length, draw_out, draw_rows, draw_size, lay_out

LD = np.longdouble
EPS = np.finfo(np.float64).eps
INF = np.inf


# The checks ----------------------------------------------------------------------------------


def assert_near(result, exact, size, dtype, factor, about):
    """Compare with rational numbers: rounding of each entry, and factor eps of size."""
    info = np.finfo(dtype)
    least = Fraction(float(info.smallest_subnormal)) + len(exact) * Fraction(5e-324)
    slack = factor * len(exact) * Fraction(EPS) * size + 2 * least
    for j, (got, value) in enumerate(zip(result.tolist(), exact, strict=True)):
        assert np.isfinite(got), f"{about}: entry {j} is {got}"
        error = abs(Fraction(got) - value)
        assert error <= slack + 2 * Fraction(float(info.eps)) * abs(value), (
            f"{about}: entry {j} is {got!r} in place of {float(value)!r}, more than "
            f"{float(slack)!r} off"
        )


def is_decided(b, weights, radius, bias):
    """Whether rounding of the entries leaves no doubt that the sum should grow up to the radius.

    It should as long as <b,w>, b in descending order, outweighs bias * radius * <1,w>^2.
    """
    terms = [v * w for v, w in zip(sorted(b, reverse=True), weights, strict=False)]
    terms.append(-bias * radius * sum(weights) ** 2)
    return abs(sum(terms)) > 8 * len(terms) * Fraction(EPS) * sum(map(abs, terms))


def largest(values):
    return max((abs(v) for v in values), default=Fraction(0))


def is_refusable(rows, lengths):
    """Whether lengths too different to be told apart meet, or results cannot be held."""
    finite = np.concatenate([np.abs(r[np.isfinite(r)]).astype(np.float64).ravel() for r in rows])
    lengths = np.abs(np.concatenate([np.ravel(length) for length in lengths]))
    lengths = lengths[np.isfinite(lengths)]
    most = max(finite.max(initial=0), lengths.max(initial=0))
    short = ((lengths > 0) & (lengths < 6.1e-241)).any()
    return (most > 6e240 and short) or most > np.finfo(rows[0].dtype).max / 1e3


def attempt(call, rows, lengths, about):
    """Return what the call gives, or None where it may refuse and does."""
    try:
        return call()
    except ValueError as error:
        message = str(error)
        known = "next to numbers beyond" in message or "can hold" in message
        assert known, f"{about}: {message}"
        assert is_refusable(rows, lengths), f"{about}: refused, {message}"
        return None


def run(rng, function, rows, lengths, about, **params):
    """Call plainly, then in another layout with another out: the same bits. Return the rows."""
    plain = attempt(lambda: function(rows.copy(), **params), rows[None], lengths, about)
    if plain is None:
        return None
    x, axis = lay_out(rng, rows)
    x, out = draw_out(rng, x)
    before = x.copy()
    again = function(x, axis=axis, out=out, **params)
    assert again is out
    np.testing.assert_array_equal(out.T if axis == 0 else out, plain, err_msg=about)
    if not np.shares_memory(x, out):
        np.testing.assert_array_equal(x, before, err_msg=about)
    return plain


def finite_part(row):
    return rational(row[np.isfinite(row)])


def describe(seed, name, rows, params):
    shown = np.array2string(rows, floatmode="unique", threshold=60, max_line_width=100)
    return f"seed {seed}: {name}({shown}, {rows.dtype}, {params})"


def draw_problem(rng, most=9):
    dtype = np.dtype(rng.choice(["f4", "f8"]))
    return draw_rows(rng, (int(rng.integers(1, 4)), int(rng.integers(1, most))), dtype)


def fuzz_simplex(seed, rng):
    rows = draw_problem(rng)
    radius = draw_length(rng, draw_size(rows))
    about = describe(seed, "project_simplex", rows, {"radius": radius})
    result = run(rng, project_simplex, rows, [radius], about, radius=radius)
    if result is None:
        return
    for row, p in zip(rows, result, strict=True):
        assert (p[np.isneginf(row)] == 0).all(), about
        b, zero = finite_part(row), Fraction(0)
        exact = exact_box(b, [zero] * len(b), [None] * len(b), Fraction(radius), True, zero)
        assert_near(p[np.isfinite(row)], exact, Fraction(radius), rows.dtype, 32, about)


def draw_box(rng, rows):
    """Return bounds that hold a point of the total, in every row."""
    size = draw_size(rows)
    shape = rows.shape if rng.random() < 0.5 else (1, 1)
    lower = np.zeros(shape) if rng.random() < 0.5 else -rng.random(shape) * draw_length(rng, size)
    upper = lower + rng.random(shape) * draw_length(rng, size)
    if rng.random() < 0.2:
        upper[...] = INF
    n, finite = rows.shape[1], np.isfinite(rows)
    low = [sum(rational(row)) for row in np.broadcast_to(lower, rows.shape)]
    reach = [
        sum((Fraction(0) if np.isinf(h) else Fraction(float(h)) - Fraction(float(lo)))
            for h, lo, used in zip(*bounds, strict=True) if used)
        for bounds in zip(*(np.broadcast_to(a, rows.shape) for a in (upper, lower)), finite,
                          strict=True)
    ]  # fmt: skip
    least = max(low)
    most = min(a + r for a, r in zip(low, reach, strict=True))
    if np.isinf(upper).any():
        most = least + abs(least) + Fraction(draw_length(rng, size))
    share = Fraction(float(rng.choice([0.0, 1.0, rng.random(), 1e-9])))
    most_total = Fraction(10) ** 300
    total = float(clip(least + (most - least) * share, -most_total, most_total))
    feasible = n > 0 and least <= Fraction(total) <= most
    if shape == (1, 1):
        lower, upper = lower.item(), upper.item()
    return lower, upper, total, feasible


def fuzz_capped(seed, rng):
    rows = draw_problem(rng)
    lower, upper, total, feasible = draw_box(rng, rows)
    if not feasible or not np.isfinite(np.sum(lower)):
        return
    equality, bias = bool(rng.random() < 0.5), draw_bias(rng)
    params = {"total": total, "equality": equality, "bias": bias}
    about = describe(
        seed, "project_capped_simplex", rows, {"lower": lower, "upper": upper} | params
    )

    def function(x, axis=-1, **more):
        bounds = [np.moveaxis(a, -1, axis) if np.ndim(a) else a for a in (lower, upper)]
        return project_capped_simplex(x, *bounds, axis=axis, **params, **more)

    result = run(rng, function, rows, [lower, upper, total], about)
    if result is None:
        return
    boxes = [np.broadcast_to(bound, rows.shape) for bound in (lower, upper)]
    for row, p, lo, hi in zip(rows, result, *boxes, strict=True):
        used = np.isfinite(row)
        np.testing.assert_array_equal(p[~used], lo[~used].astype(rows.dtype), err_msg=about)
        lows, rest = rational(lo[used]), Fraction(total) - sum(rational(lo[~used]))
        highs = [None if np.isinf(v) else Fraction(float(v)) for v in hi[used]]
        b, pinned = finite_part(row), sum(rational(lo[~used]))
        exact = exact_pinned(b, lows, highs, Fraction(total), pinned, equality, Fraction(bias))
        size = max(abs(rest), abs(Fraction(total)), largest(rational(lo)), largest(exact))
        if not equality and sum(exact) < rest:
            size = max(size, largest(b))
        assert_near(p[used], exact, size, rows.dtype, 32, about)


def fuzz_topk(seed, rng):
    rows = draw_problem(rng)
    n, kind = rows.shape[1], str(rng.choice(["alpha", "beta", "label", "cone"]))
    k = int(rng.integers(1, n + 1 + (kind == "label")))
    radius, bias = draw_length(rng, draw_size(rows)), draw_bias(rng)
    params = {"k": k, "bias": bias}
    if kind != "cone":
        params |= {"radius": radius, "kind": kind}
    about = describe(seed, f"project_topk_{kind}", rows, params)
    function = project_topk_cone if kind == "cone" else project_topk_simplex
    lengths = [0.0 if kind == "cone" else radius]
    result = run(rng, function, rows, lengths, about, **params)
    if result is None:
        return
    for row, p in zip(rows, result, strict=True):
        assert (p[np.isneginf(row)] == 0).all(), about
        b, r, rho = finite_part(row), Fraction(radius), Fraction(bias)
        cone, bound = (k, None if kind == "cone" else r) if kind in ("cone", "alpha") else (0, r)
        if not cone:
            exact = exact_box(b, [Fraction(0)] * len(b), [r / k] * len(b), r, False, rho)
            if kind == "label" and k > 1 and sum(exact) < r * (k - 1) / k:
                cone, bound = k - 1, r * (k - 1) / k
        if cone:
            exact = exact_cone(b, cone, bound, rho)
        tight = bound is not None and sum(exact) == bound
        if tight and cone:
            tight = is_decided(b, [Fraction(1, cone)] * cone, bound, rho)
        size = bound if tight else largest(b)
        assert_near(p[np.isfinite(row)], exact, size, rows.dtype, 32, about)


def fuzz_weighted(seed, rng):
    rows = draw_problem(rng)
    n, label = rows.shape[1], bool(rng.random() < 0.3)
    weights = np.sort(rng.random(int(rng.integers(1, n + 1 + label))))[::-1]
    if rng.random() < 0.3:
        weights = np.ceil(4 * weights) / 4
    weights = weights * 10.0 ** rng.uniform(-100, 100)
    reach = max(float(weights[0]), 1e-100)
    radius = draw_length(rng, min(draw_size(rows) / reach, 1e300))
    bias = draw_bias(rng) if rng.random() < 0.5 else 0.0
    params = {"weights": weights, "radius": radius, "label": label, "bias": bias}
    about = describe(seed, "project_weighted_topk", rows, params)
    length = np.ldexp(radius, np.frexp(reach)[1] - 1)
    result = run(rng, project_weighted_topk, rows, [length, 2 * length], about, **params)
    if result is None:
        return
    for row, p in zip(rows, result, strict=True):
        assert (p[np.isneginf(row)] == 0).all(), about
        b, w, r = finite_part(row), rational(weights), Fraction(radius)
        if len(b) + label < len(w) or r == 0:
            assert (p == 0).all(), about
        elif label:
            assert_certified(row, p, weights / reach, LD(radius) * LD(reach), bias, about)
        else:
            exact = exact_weighted(b, w, r, Fraction(bias))
            tight = sum(exact) == r * sum(w) and is_decided(b, w, r, Fraction(bias))
            size = sum(exact) if tight else largest(b)
            assert_near(p[np.isfinite(row)], exact, size, rows.dtype, 64, about)


def assert_certified(row, p, weights, radius, bias, about):
    """Check the label-included set by its optimality conditions, in long double."""
    assert np.isfinite(p).all(), about
    if p.max() < np.finfo(p.dtype).tiny / np.finfo(p.dtype).eps:  # no digits to look at
        return
    violation = oracles.kkt_project_weighted_topk(
        row.astype(LD), p.astype(LD), weights, radius, label=True, bias=bias
    )
    eps = np.finfo(p.dtype).eps
    assert violation <= 64 * row.size * eps * (1 + bias), f"{about}: violation {violation:.3g}"


def fuzz_bipartite(seed, rng):
    rows = draw_problem(rng)
    cut = int(rng.integers(rows.shape[1] + 1))
    x, y = rows[:, :cut].copy(), rows[:, cut:].copy()
    for side in (x, y):
        if side.size:
            side[~np.isfinite(side).any(axis=1), 0] = 1.0
    radius = draw_length(rng, draw_size(rows))
    about = describe(seed, f"project_bipartite_simplex[{cut}]", rows, {"radius": radius})
    plain = attempt(
        lambda: project_bipartite_simplex(x.copy(), y.copy(), radius), [x, y], [radius], about
    )
    if plain is None:
        return
    a, b = x.copy(), y.copy()
    outs = [(a, b), (None, a), (b, None), (b, a)][int(rng.integers(4))]
    fits = all(
        out is None or out.shape == side.shape for out, side in zip(outs, (x, y), strict=True)
    )
    again = project_bipartite_simplex(a, b, radius, out=outs if fits else None)
    for got, expected in zip(again, plain, strict=True):
        np.testing.assert_array_equal(got, expected, err_msg=about)
    for i in range(len(rows)):
        p, q = plain[0][i], plain[1][i]
        b, c = finite_part(x[i]), finite_part(y[i])
        if not b or not c:
            assert (p == 0).all(), about
            assert (q == 0).all(), about
            continue
        exact = exact_bipartite(b, c, Fraction(radius))
        tight = sum(exact[: len(b)]) == radius
        size = Fraction(radius) if tight else max(largest(b), largest(c))
        found = np.concatenate([p[np.isfinite(x[i])], q[np.isfinite(y[i])]])
        assert_near(found, exact, size, rows.dtype, 32, about)


def assert_rounded(narrow, wide, about):
    """Check that a float32 result is that of float64, rounded."""
    info = np.finfo(np.float32)
    slack = 2 * info.eps * wide + 2 * float(info.smallest_subnormal)
    assert (np.abs(narrow.astype(np.float64) - wide) <= slack).all(), about


def entropy_error(b, x, alpha, radius, upper):
    """Return how far x is from a solution, as a part of the radius.

    alpha x + log x = b - t where x is below its cap, at most that where it is at the cap, and the
    sum is the radius. Residuals are told as the change of x that would mend them.
    """
    b, x, alpha, radius = b.astype(LD), x.astype(LD), LD(alpha), LD(radius)
    used = np.isfinite(b)
    if (x[~used] != 0).any() or (x < 0).any() or (x > upper).any():
        return INF
    b, x = b[used], x[used]
    wrong_sum = abs(x.sum() - radius) / radius
    least = max(radius * LD(1e-290), LD(np.finfo(np.float64).tiny))
    shown = x > least
    free = shown & (x < LD(upper) * (1 - 64 * EPS))
    if not free.any():
        return float(wrong_sum)
    d = b - b[free].max()
    x, free, log_x = x[shown], free[shown], np.log(x[shown] / radius)
    level = d[shown] - alpha * x - log_x
    rounding = 1 + np.abs(log_x) + np.where(free, 0, np.abs(d[shown]))
    worth = x / (1 + alpha * x) / radius
    t = level[free][np.argmax(worth[free])]
    wrong = np.where(free, np.abs(level - t), np.maximum(t - level, 0)) * worth
    hidden = np.minimum(d[~shown] - t, 0).max(initial=-INF) > np.log(1e3 * least / radius)
    return float(max(wrong_sum, (wrong / rounding).max(), INF if hidden else 0))


def draw_alpha(rng):
    return float(rng.choice([0.0, 1.0, 10.0 ** rng.uniform(-300, 144), 10 ** rng.uniform(-4, 4)]))


def fuzz_entropy(seed, rng):
    rows = draw_problem(rng, 12)
    if rng.random() < 0.3:
        rows = draw_rows(rng, (1, int(rng.integers(50, 3000))), rows.dtype)
    n, finite = rows.shape[1], int(np.isfinite(rows).sum(axis=1).min())
    high = 300 if rows.dtype == np.float64 else 37
    radius = float(10.0 ** rng.uniform(-high, high)) if rng.random() < 0.3 else 1.0
    alpha = draw_alpha(rng)
    if alpha * radius > 3e144:
        alpha = 0.0
    upper = None
    if rng.random() < 0.6:  # often so low that nearly all entries reach it
        share = rng.choice([1.0, rng.random(), 10.0 ** rng.uniform(-14, 0)])
        upper = float(radius / finite * (1 + share * (finite - 1)))
    params = {"alpha": alpha, "radius": radius, "upper": upper}
    about = describe(seed, "prox_entropy_simplex", rows, params)
    result = run(rng, prox_entropy_simplex, rows, [0.0], about, **params)
    wide = prox_entropy_simplex(rows.astype(np.float64), **params)
    assert_rounded(result, wide, about) if rows.dtype == np.float32 else None
    if radius / n < 1e-290:  # then results have no digits to look at
        assert np.isfinite(wide).all(), about
        return
    for row, x in zip(rows, wide, strict=True):
        assert np.isfinite(x).all(), about
        error = entropy_error(row, x, alpha, radius, INF if upper is None else upper)
        assert error <= (20 + n) * EPS, f"{about}: error {error:.3g}"


def fuzz_topk_entropy(seed, rng):
    rows = draw_problem(rng, 12)
    k = int(rng.integers(1, rows.shape[1] + 1))
    params = {"alpha": draw_alpha(rng), "k": k}
    about = describe(seed, "prox_topk_entropy", rows, params)
    result = run(rng, prox_topk_entropy, rows, [0.0], about, **params)
    wide = prox_topk_entropy(rows.astype(np.float64), **params)
    assert_rounded(result, wide, about) if rows.dtype == np.float32 else None
    for row, x in zip(rows, wide, strict=True):
        assert np.isfinite(x).all(), about
        assert (x >= 0).all(), about
        top = np.sort(row[np.isfinite(row)].astype(LD))[-k:]
        if 0 < x.max() < 1e-290 or abs(top.sum()) <= 8 * k * EPS * np.abs(top).sum():
            continue  # no digits to look at, in the result or in the sum that decides
        error = oracles.kkt_prox_topk_entropy(row.astype(LD), x.astype(LD), **params)
        assert error <= 200 * EPS, f"{about}: error {error:.3g}"


FUZZERS = {
    "simplex": fuzz_simplex,
    "capped": fuzz_capped,
    "topk": fuzz_topk,
    "weighted": fuzz_weighted,
    "bipartite": fuzz_bipartite,
    "entropy": fuzz_entropy,
    "topk entropy": fuzz_topk_entropy,
}


@pytest.mark.filterwarnings(
    "ignore:overflow", "ignore:divide", "ignore:invalid", "ignore:underflow"
)
def test_fuzz_operators(fuzz_rounds):
    """All operators take turns, a problem each."""
    for seed, rng in fuzz_rounds:
        for fuzz in FUZZERS.values():
            fuzz(seed, rng)
