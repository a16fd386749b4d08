"""The demonstration: what each operator does to a small vector, how fast, and how exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topkopt import __version__, projections, prox
from topkopt._demo.layout import as_table, new_figure
from topkopt.plotting import ProjectionDisplay
from topkopt.reference import oracles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXAMPLE = np.array([2.0, 0.5, 0.25, -1.0])
SHAPE = (50, 1000)  # of the array that is timed: small, to be done before other work intervenes

# What is shown: title, operator, parameters.
CASES: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("simplex", projections.project_simplex, {}),
    (
        "capped simplex, upper 0.4",
        projections.project_capped_simplex,
        {"lower": 0.0, "upper": 0.4, "total": 1.0},
    ),
    ("top-2 cone", projections.project_topk_cone, {"k": 2}),
    ("top-2 simplex, alpha", projections.project_topk_simplex, {"k": 2}),
    ("top-2 simplex, beta", projections.project_topk_simplex, {"k": 2, "kind": "beta"}),
    ("top-2 simplex, label", projections.project_topk_simplex, {"k": 2, "kind": "label"}),
    ("weighted top-2 (2/3, 1/3)", projections.project_weighted_topk, {"weights": [2 / 3, 1 / 3]}),
    ("bipartite simplex", projections.project_bipartite_simplex, {}),
    ("entropy, simplex", prox.prox_entropy_simplex, {"alpha": 1.0}),
    ("entropy, top-2 simplex", prox.prox_topk_entropy, {"alpha": 1.0, "k": 2}),
]


class Measurement(NamedTuple):
    """One line of the table."""

    title: str
    example: NDArray  # the image of EXAMPLE
    microseconds: float  # for 1000 numbers
    speedup: float  # over `oracles.simplex_by_sorting` on the same array
    violation: float  # of the optimality conditions, relative to the size of the problem


def measure(cases: Sequence[tuple[str, Callable[..., Any], dict[str, Any]]]) -> list[Measurement]:
    """Apply each operator to the example and to a random array."""
    x = np.random.default_rng(0).standard_normal(SHAPE)
    lines = []
    for title, operator, params in cases:
        arrays, out = _inputs(operator, x), _inputs(operator, np.empty_like(x))
        target = tuple(out) if len(out) > 1 else out[0]
        time, sorting = _seconds(
            lambda: operator(*arrays, **params, out=target),  # noqa: B023
            lambda: oracles.simplex_by_sorting(x),
        )
        example = operator(*_inputs(operator, EXAMPLE), **params)
        violation = max(_violation(operator, params, row) for row in x[:4])
        lines.append(
            Measurement(title, np.hstack(example), 1e9 * time / x.size, sorting / time, violation)
        )
    return lines


def _inputs(operator: Callable[..., Any], x: NDArray) -> list[NDArray]:
    """Return what to call an operator with: x, or its halves if it takes a pair."""
    return np.split(x, 2 if operator is projections.project_bipartite_simplex else 1)


def _violation(operator: Callable[..., Any], params: dict[str, Any], row: NDArray) -> float:
    arrays = _inputs(operator, row)
    certificate = getattr(oracles, f"kkt_{operator.__name__}")
    result = operator(*arrays, **params)
    return certificate(arrays if len(arrays) > 1 else row, result, **params)


def _seconds(*calls: Callable[[], object], repeats: int = 40) -> list[float]:
    """Return the best time of each call, taken in turns."""
    best = [float("inf")] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = perf_counter()
            call()
            best[i] = min(best[i], perf_counter() - start)
    return best


def table(lines: Sequence[Measurement]) -> str:
    """Lay the measurements out as text."""
    image = f"image of {EXAMPLE.tolist()}"
    rows = [["set", image, "us per 1000", "vs sorting", "violation"]]
    rows += [
        [
            line.title,
            "[" + ", ".join(f"{value:.3f}" for value in line.example) + "]",
            f"{line.microseconds:.2f}",
            f"{line.speedup:.1f}x",
            f"{line.violation:.0e}",
        ]
        for line in lines
    ]
    return as_table(rows, text_columns=2)


# The picture -------------------------------------------------------------------------------

PANELS: list[tuple[str, Callable[[NDArray], NDArray], NDArray]] = [
    ("project_simplex(x)", projections.project_simplex, np.eye(3)),
    (
        "project_topk_simplex(x, k=2)",
        lambda x: projections.project_topk_simplex(x, 2),
        (1 - np.eye(3)) / 2,
    ),
    (
        "prox_entropy_simplex(x, alpha=1)",
        lambda x: prox.prox_entropy_simplex(x, 1.0),
        np.eye(3),
    ),
]


def draw_sets(axes: Sequence[Axes]) -> None:
    """Draw points around the simplex of three classes, and where each operator takes them."""
    for ax, (title, operator, vertices) in zip(axes, PANELS, strict=True):
        ProjectionDisplay.from_function(operator, vertices=vertices, name=title, ax=ax)


def draw_timings(ax: Axes, lines: Sequence[Measurement]) -> None:
    """Draw a bar for each operator and a line where sorting would be."""
    sorting = lines[0].microseconds * lines[0].speedup
    ax.barh([line.title for line in lines], [line.microseconds for line in lines], color="#4c72b0")
    ax.axvline(sorting, color="0.3", linestyle="--", label="simplex by np.sort")
    ax.legend(frameon=False)
    ax.set_xlabel("microseconds for 1000 numbers, one thread")
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)


def run(output: str, picture: bool) -> None:
    """Print the table and save the picture."""
    lines = measure(CASES)
    print(f"topkopt {__version__}, float64, array of shape {SHAPE}\n")
    print(table(lines))
    print(
        "\nvs sorting: speed relative to the usual projection onto the simplex with np.sort;"
        "\nviolation: of the optimality conditions on a row of 1000 numbers, 0 is perfect."
    )
    if not picture:
        return
    figure = new_figure(11, 7.5)
    grid = figure.add_gridspec(2, len(PANELS), height_ratios=[1.25, 1])
    draw_sets([figure.add_subplot(grid[0, i]) for i in range(len(PANELS))])
    draw_timings(figure.add_subplot(grid[1, :]), lines)
    figure.savefig(output, dpi=100)
    print(f"\nPicture saved to {output}")
