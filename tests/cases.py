"""The one table of cases: every public operator, its witnesses, parameters and set.

An operator takes a row; the bipartite simplex, which takes two, sees here one row cut in two. So
every test can be written once and parametrised over `OPERATORS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from topkopt.reference import oracles

from topkopt import reference

Params = dict


@dataclass(frozen=True)
class Operator:
    """What the tests need to know of one public operator."""

    name: str
    module: str
    grid: Callable[[int], list[Params]]  # parameter sets for rows of length p
    outside: Callable[..., float]  # by how much a row misses the set
    factor: float = 20.0  # tolerance, in units of eps times the size of the problem
    paired: bool = False  # takes two rows, see `cut`
    oracle_stride: int = 1  # slow oracles see every so many cases

    @property
    def public(self) -> Callable:
        """The function as the user calls it."""
        return getattr(importlib.import_module(f"topkopt.{self.module}"), self.name)

    def __call__(self, x, **params):
        return self._on_row(self.public, x, params)

    def reference(self, x, **params):
        """Solve one row with the readable twin."""
        return self._on_row(getattr(reference, self.name), x, params)

    def oracle(self, x, **params):
        """Solve one row with a slow algorithm that is obviously right."""
        return self._on_row(getattr(oracles, self.name), x, params)

    def certificate(self, x, result, *, cut=None, **params) -> float:
        """Return the violation of the optimality conditions; 0 is perfect."""
        if self.paired:
            x, result = (x[:cut], x[cut:]), (result[:cut], result[cut:])
        return getattr(oracles, f"kkt_{self.name}")(x, result, **params)

    def _on_row(self, function, x, params):
        if not self.paired:
            return function(x, **params)
        params = dict(params)
        cut, axis = params.pop("cut"), params.get("axis", -1)
        return np.concatenate(function(*np.split(x, [cut], axis=axis), **params), axis=axis)

    @property
    def is_projection(self) -> bool:
        """Whether the operator is homogeneous and non-expansive."""
        return self.module == "projections"

    def size(self, row, expected, params) -> float:
        """Return the magnitude that rounding errors are relative to."""
        if not self.is_projection:
            return max(1.0, _largest(row)) * max(1.0, params.get("radius", 1.0))
        # Sums enter every equation. The floor is for the oracles: bisection towards 0 stops short.
        mass = np.abs(np.asarray(expected, dtype=np.float64)).sum()
        return max(_largest(row), mass, _largest(params.get("lower", 0.0)), 1e-20)

    def tolerance(self, row, expected, params) -> np.ndarray:
        """Return the error allowed in each entry: rounding of the result, and of the threshold."""
        own = np.finfo(np.asarray(row).dtype).eps * np.abs(expected)
        eps = np.finfo(np.float64).eps
        return own + self.factor * eps * self.size(row, expected, params)

    def lipschitz(self, params) -> float:
        """Return the constant L of |f(a) - f(b)| <= L |a - b|."""
        if self.is_projection:
            return 1.0
        # The entropy of a distribution of mass r is (1/r)-strongly convex.
        return 1.0 / (params["alpha"] + 1.0 / params.get("radius", 1.0))

    def is_feasible(self, row, params) -> bool:
        """Return whether the entries above -inf leave a point in the set."""
        finite = np.isfinite(row)
        if self.paired:
            return all(side.size == 0 or side.any() for side in np.split(finite, [params["cut"]]))
        if self.name == "project_capped_simplex" and params.get("equality", True):
            lower, upper = (np.broadcast_to(params[b], row.shape) for b in ("lower", "upper"))
            return np.where(finite, upper, lower).sum() >= params["total"]
        if params.get("upper") is not None and self.name == "prox_entropy_simplex":
            return finite.sum() * params["upper"] >= params["radius"]
        return True


def _largest(values) -> float:
    values = np.abs(np.asarray(values, dtype=np.float64))
    return values[np.isfinite(values)].max(initial=0.0)


# Parameters ---------------------------------------------------------------------------------


def _sets(**choices) -> list[Params]:
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def ks(p: int, extra: int = 0) -> list[int]:
    """Return values of k from one end to the other."""
    return sorted({k for k in (1, 2, 3, 5, 10, p // 2, p - 1, p, p + extra) if 1 <= k <= p + extra})


RADII = (0.1, 1.0, 10.0)
BIASES = (0.0, 0.5, 3.0)
EXTREME_BIASES = (1e-8, 1e8)


def _simplex_grid(p):
    return _sets(radius=(1.0, 0.1, 10.0, 0.0))


def _capped_grid(p):
    caps = [(radius / k, radius) for radius, k in product(RADII, ks(p))]
    grid = [{"lower": 0.0, "upper": upper, "total": total} for upper, total in caps]
    grid += [
        {**params, "equality": False, "bias": bias}
        for params in grid[::2]
        for bias in (*BIASES, *EXTREME_BIASES)
    ]
    box = {"lower": -0.5, "upper": 0.25}
    shares = (0.0, 1e-9, 0.3, 0.7, 1 - 1e-9, 1.0)  # from all at lower to all at upper
    grid += [{**box, "total": p * (0.75 * share - 0.5)} for share in shares]
    grid += [{**box, "total": 0.1 * p, "equality": False, "bias": bias} for bias in BIASES]
    grid += [{"lower": lower, "upper": np.inf, "total": 1.0} for lower in (0.0, -2.0, 0.5 / p)]
    return grid + [
        {**arrays, "total": total, "equality": equality, "bias": bias}
        for arrays in (_bounds(p, 2.0), _bounds(p, np.inf))
        for total, equality, bias in (
            (0.1 * p, True, 0.0),
            (-0.4 * p, True, 0.0),
            (0.1 * p, False, 0.0),
            (0.1 * p, False, 0.5),
            (0.1 * p, False, 1e8),
        )
    ]


def _bounds(p, last):
    upper = np.linspace(0.25, 2.0, p)
    upper[-1] = last
    return {"lower": np.linspace(-1.0, 0.1, p), "upper": upper}


def _cone_grid(p):
    return _sets(k=ks(p), bias=(*BIASES, *EXTREME_BIASES))


def _topk_grid(p):
    grid = _sets(k=ks(p), radius=RADII, kind=("alpha", "beta", "label"), bias=BIASES)
    grid += _sets(k=[p + 1], radius=RADII, kind=["label"], bias=BIASES)
    grid += _sets(k=[1, p], radius=[1.0], kind=("alpha", "beta", "label"), bias=EXTREME_BIASES)
    return [*grid, {"k": 1, "radius": 0.0}]


def weight_vectors(m: int) -> list[np.ndarray]:
    """Return weights for at most m slots: flat, linear, exponential, ties and zeros, all kinds."""
    ramp = np.arange(m, 0, -1.0)
    return [
        np.array([1.0]),
        np.full(m, 1.0 / m),
        2.0 * ramp / (m * (m + 1)),
        np.exp(-np.arange(m) / max(1, m // 3)),
        np.ceil(ramp / 3),
        np.append(ramp[: max(1, m // 2)] ** 2, np.zeros(m - max(1, m // 2))),
        np.repeat([1.0, 0.5], [1, m - 1]),
    ]


def _weighted_grid(p):
    return [
        {"weights": weights, "radius": radius, "label": label, "bias": bias}
        for label in (False, True)
        for weights in weight_vectors(p + label)
        for radius, bias in ((1.0, 0.0), (0.1, 0.5), (10.0, 3.0), (10.0, 0.0), (1.0, 1e8))
    ]


def _bipartite_grid(p):
    cuts = sorted({1, p // 2, p - 1} - {0, p}) or [0, 1]
    return _sets(cut=cuts, radius=(1.0, 0.1, 10.0, 1e3, 0.0))


ALPHAS = (1.0, 0.0, 1e-3, 0.1, 10.0, 1e3)
EXTREME_ALPHAS = (1e-12, 1e12)


def _entropy_grid(p):
    grid = _sets(alpha=(*ALPHAS, *EXTREME_ALPHAS), radius=RADII)
    grid += [
        {"alpha": alpha, "radius": radius, "upper": radius / k}
        for alpha, radius, k in product((1.0, 0.0, 0.1, 1e3, 1e-12, 1e12), RADII, ks(p))
    ]
    return grid


def _topk_entropy_grid(p):
    return _sets(alpha=(*ALPHAS, *EXTREME_ALPHAS), k=ks(p))


# Sets ---------------------------------------------------------------------------------------


def _outside_simplex(x, radius=1.0):
    return max(-x.min(), abs(x.sum() - radius))


def _outside_capped(x, lower, upper, total, equality=True, bias=0.0):
    excess = x.sum() - total
    return max((lower - x).max(), (x - upper).max(), abs(excess) if equality else excess)


def _outside_cone(x, k, bias=0.0):
    return max(-x.min(), x.max() - x.sum() / k)


def _outside_topk(x, k, radius=1.0, kind="alpha", bias=0.0):
    s = x.sum()
    if kind == "alpha":
        return max(-x.min(), x.max() - s / k, s - radius)
    beta = max(-x.min(), x.max() - radius / k, s - radius)
    return max(beta, x.max() - s / (k - 1)) if kind == "label" and k > 1 else beta


def _outside_weighted(x, weights, radius=1.0, label=False, bias=0.0):
    # Sorted sums must not exceed those of zeta * weights. With a slot for the label, what the
    # weights have left after the j largest must fit into the rest of x.
    weights = np.append(weights, np.zeros(x.size + label - len(weights)))
    head, bound = np.cumsum(np.sort(x)[::-1]), np.cumsum(weights)
    if not label:
        zeta = head[-1] / bound[-1]
        return max(-x.min(), (head - zeta * bound).max(), zeta - radius)
    zeta = (head / bound[:-1]).max()
    tail = np.cumsum(np.sort(x))[::-1]
    return max(-x.min(), zeta - radius, (zeta * (bound[-1] - bound[:-1]) - tail).max())


def _outside_bipartite(x, cut, radius=1.0):
    p, q = x[:cut].sum(), x[cut:].sum()
    return max(-x.min(), abs(p - q), max(p, q) - radius)


def _outside_entropy(x, alpha, radius=1.0, upper=None):
    return max(_outside_simplex(x, radius), 0.0 if upper is None else x.max() - upper)


def _outside_topk_entropy(x, alpha, k=1):
    return _outside_topk(x, k)


OPERATORS = [
    Operator("project_simplex", "projections", _simplex_grid, _outside_simplex),
    Operator(
        "project_capped_simplex", "projections", _capped_grid, _outside_capped, oracle_stride=3
    ),
    Operator("project_topk_cone", "projections", _cone_grid, _outside_cone, oracle_stride=61),
    Operator("project_topk_simplex", "projections", _topk_grid, _outside_topk, oracle_stride=193),
    Operator(
        "project_weighted_topk", "projections", _weighted_grid, _outside_weighted, oracle_stride=131
    ),
    Operator(
        "project_bipartite_simplex", "projections", _bipartite_grid, _outside_bipartite, paired=True
    ),
    Operator(
        "prox_entropy_simplex", "prox", _entropy_grid, _outside_entropy, 200.0, oracle_stride=23
    ),
    Operator(
        "prox_topk_entropy",
        "prox",
        _topk_entropy_grid,
        _outside_topk_entropy,
        200.0,
        oracle_stride=199,
    ),
]
PROJECTIONS = [op for op in OPERATORS if op.is_projection]
BY_NAME = {op.name: op for op in OPERATORS}


# Inputs -------------------------------------------------------------------------------------


def _equal(rng, n, p):
    values = np.append([0.0, 1.0, -1.0], rng.standard_normal(n))[:n]
    return np.repeat(values[:, None], p, axis=1)


def _outlier(rng, n, p):
    rows = rng.standard_normal((n, p))
    rows[:, p // 2] = [1e6, -1e6, 1e3, -1e3][:n]
    return rows


def _holes(rng, n, p):
    rows = rng.standard_normal((n, p))
    rows[rng.random((n, p)) < 0.5] = -np.inf
    rows[:, 0] = rng.standard_normal(n)  # an entry above -inf in every row
    return rows


FAMILIES: dict[str, Callable] = {
    "normal": lambda rng, n, p: rng.standard_normal((n, p)),
    "ties": lambda rng, n, p: rng.standard_normal((n, p)).round(1),
    "large": lambda rng, n, p: 1e6 * rng.standard_normal((n, p)),
    "tiny": lambda rng, n, p: 1e-6 * rng.standard_normal((n, p)),
    "negative": lambda rng, n, p: -np.abs(rng.standard_normal((n, p))),
    "equal": _equal,
    "sorted": lambda rng, n, p: np.sort(rng.standard_normal((n, p)), axis=1)[:, ::-1],
    "spread": lambda rng, n, p: rng.permuted(np.tile(np.logspace(-6, 6, p), (n, 1)), axis=1),
    "outlier": _outlier,
    "holes": _holes,
}


def rows_of(family: str, p: int, n: int = 4) -> np.ndarray:
    """Return n rows of length p; always the same ones."""
    return FAMILIES[family](np.random.default_rng(20240 + p), n, p)


def cases_of(op: Operator, rows: np.ndarray, grid=None) -> Iterator[tuple[Params, np.ndarray]]:
    """Yield each parameter set with the rows for which the set is not empty."""
    for params in op.grid(rows.shape[1]) if grid is None else grid:
        keep = [op.is_feasible(row, params) for row in rows]
        if any(keep):
            yield params, rows[keep]


# Assertions ---------------------------------------------------------------------------------


def assert_close(op: Operator, row, result, expected, params, times: float = 1.0) -> None:
    """Fail with the whole case if result and expected differ by more than rounding."""
    error = np.abs(np.asarray(result, dtype=np.float64) - expected)
    tolerance = times * op.tolerance(row, expected, params)
    units = (error / np.maximum(tolerance, np.finfo(float).tiny)).max(initial=0.0)
    assert (error <= tolerance).all(), (
        f"{op.name}({_show(row)}, {params}): {units:.3g} times the tolerance of {op.factor} eps;"
        f" got {_show(result)}, expected {_show(expected)}"
    )


def assert_feasible(op: Operator, row, result, params) -> None:
    """Fail with the whole case if the result misses the set by more than rounding."""
    result = np.asarray(result)
    eps = np.finfo(result.dtype).eps
    outside = op.outside(result.astype(np.float64), **params)
    allowed = 4 * row.size * eps * op.size(row, result, params)
    assert outside <= allowed, (
        f"{op.name}({_show(row)}, {params}): outside of the set by {outside:.3g},"
        f" allowed {allowed:.3g}; got {_show(result)}"
    )


def assert_certified(op: Operator, row, result, params) -> None:
    """Fail with the whole case if the optimality conditions do not hold."""
    violation = op.certificate(row, np.asarray(result), **params)
    # An error in x enters the gradient times bias * size; bounds may be larger than the row.
    scale = op.size(row, result, params) / max(_largest(row), _largest(result), 1e-20)
    scale = scale * (1 + row.size * params.get("bias", 0.0)) if op.is_projection else 1.0
    allowed = scale * op.factor * row.size * np.finfo(np.asarray(result).dtype).eps
    assert violation <= allowed, (
        f"{op.name}({_show(row)}, {params}): certificate {violation:.3g}, allowed {allowed:.3g};"
        f" got {_show(result)}"
    )


def _show(row) -> str:
    return np.array2string(np.asarray(row), threshold=24, separator=",", floatmode="unique")
