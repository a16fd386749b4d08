"""What the benchmarks share: the cases, the axes, the inputs, the clock and the yardsticks.

A case is a public operator with parameters. Cases are looked up by the names in each module's
``__all__``, so that an operator without a benchmark is an error.
"""

import os
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from topkopt.reference.oracles import simplex_by_sorting

from topkopt import projections, prox, reference

# One round of everything on small arrays: does it run? The figures then mean nothing.
QUICK = bool(os.environ.get("TOPKOPT_BENCH_QUICK"))

# Axes ---------------------------------------------------------------------------------------

ROWS = {1_000: 1000, 10_000: 200, 100_000: 40}  # dimension: how many rows of it
DTYPES = ["float64", "float32"]
KS = [5, 10]
ALPHAS = [1e-3, 1.0, 1e3]

_LINEAR = 2 * np.arange(10, 0, -1) / 110  # weights of the top 10, sum 1
_CAPPED = {"lower": 0.0, "upper": 0.1, "total": 1.0}
_PARAMETERS = {
    "project_simplex": [{}],
    "project_capped_simplex": [
        _CAPPED,
        {**_CAPPED, "equality": False, "bias": 1.0},
        {**_CAPPED, "upper": np.array([0.1])},  # a bound for each entry
    ],
    "project_topk_cone": [{"k": k} for k in KS],
    "project_topk_simplex": [
        *({"k": k, "kind": kind} for kind in ("alpha", "beta", "label") for k in KS),
        {"k": 10, "bias": 1.0},
    ],
    "project_weighted_topk": [{"weights": _LINEAR}, {"weights": _LINEAR, "label": True}],
    "project_bipartite_simplex": [{"radius": 10.0}],
    "prox_entropy_simplex": [
        *({"alpha": alpha} for alpha in ALPHAS),
        {"alpha": 1.0, "upper": 0.1},
    ],
    "prox_topk_entropy": [{"alpha": alpha, "k": 10} for alpha in ALPHAS],
}


@dataclass(frozen=True)
class Case:
    """A public operator, its readable twin and the parameters of both."""

    operator: object
    twin: object
    params: dict

    @property
    def sides(self):
        """How many arrays the operator takes and returns."""
        return 2 if self.operator is projections.project_bipartite_simplex else 1

    @property
    def label(self):
        """A short name for tables and plots."""
        shown = (f"{key}={_short(value)}" for key, value in self.params.items())
        return " ".join([self.operator.__name__.removeprefix("project_"), *shown])


def _short(value):
    if not isinstance(value, np.ndarray):
        return f"{value:g}" if isinstance(value, float) else value
    return f"[{value[0]:g}]" if value.size == 1 else f"linear{value.size}"


def cases_of(module):
    """Return label: case for every public operator of a module."""
    cases = (
        Case(getattr(module, name), getattr(reference, name), params)
        for name in module.__all__
        for params in _PARAMETERS[name]
    )
    return {case.label: case for case in cases}


PROJECTIONS = cases_of(projections)
PROXES = cases_of(prox)
CASES = PROJECTIONS | PROXES

# Inputs -------------------------------------------------------------------------------------

FAMILIES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.permuted(
        np.tile(np.geomspace(1e-30, 1e3, shape[1]), (shape[0], 1)), axis=1
    ),
    "equal": lambda rng, shape: np.ones(shape),
    "ascending": lambda rng, shape: np.sort(rng.standard_normal(shape), axis=1),
    "descending": lambda rng, shape: np.sort(rng.standard_normal(shape), axis=1)[:, ::-1],
}


class Problem:
    """One case on one array, with everything allocated; each method is something to time."""

    def __init__(self, case, rows, dimension, dtype="float64", family="normal"):
        if QUICK:
            rows, dimension = min(rows, 4), min(dimension, 1000)
        x = FAMILIES[family](np.random.default_rng(dimension), (rows, dimension))
        self.case = case
        self.x = np.ascontiguousarray(x, dtype=dtype)
        self.sides = [np.ascontiguousarray(s) for s in np.split(self.x, case.sides, axis=1)]
        self.out = [np.ones_like(side) for side in self.sides]  # touched, so really there
        self.threshold = self.x.max(axis=1, keepdims=True) - self.x.dtype.type(0.5)
        self.below = np.ones_like(self.x)

    def compiled(self, rows=slice(None), n_threads=1):
        """The public operator; its yardsticks have one thread."""
        out = tuple(side[rows] for side in self.out)
        self.case.operator(
            *(side[rows] for side in self.sides),
            **self.case.params,
            out=out if self.case.sides > 1 else out[0],
            n_threads=n_threads,
        )

    def reference(self):
        """The readable twin, on the first row alone: see `numbers`."""
        self.case.twin(*(side[0] for side in self.sides), **self.case.params)

    def numpy_sort(self):
        """The projection onto the simplex by sorting: the floor of whatever sorts."""
        simplex_by_sorting(self.x)

    def limit(self):
        """The machine's limit: look at every number, then apply a threshold that is given."""
        self.x.max(axis=1)
        np.subtract(self.x, self.threshold, out=self.below)
        np.maximum(self.below, 0, out=self.below)

    def numbers(self, implementation):
        """Return how many numbers an implementation works on."""
        return self.x.shape[1] if implementation == "reference" else self.x.size

    def seconds_per_number(self, *implementations):
        """Time implementations side by side."""
        times = seconds(*(getattr(self, name) for name in implementations))
        return [t / self.numbers(name) for t, name in zip(times, implementations, strict=True)]


IMPLEMENTATIONS = ["compiled", "reference", "numpy_sort"]


# Clock --------------------------------------------------------------------------------------


def seconds(*calls, budget=0.4):
    """Return the best time of each call, taken in turns so that noise meets all of them."""
    best = [np.inf] * len(calls)
    stop = perf_counter() + budget * len(calls)
    for done in range(1000):
        for i, call in enumerate(calls):
            start = perf_counter()
            call()
            best[i] = min(best[i], perf_counter() - start)
        if QUICK or (done >= 2 and perf_counter() > stop):
            break
    return best
