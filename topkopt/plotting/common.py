"""What the displays share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._extras import require
from topkopt._scores import final_step
from topkopt._validation import as_floating

__all__ = ["ROUNDING", "Display", "above_rounding", "as_matrix", "is_history", "name_of", "one_of"]


# A relative gap below this is rounding, of either sign: on a logarithmic axis it would be a cliff.
ROUNDING = float(np.finfo(np.float64).eps)


class Display:
    """Finds the axes to draw on and remembers them."""

    ax_: Any
    figure_: Any

    def _open(self, ax: Any) -> Any:
        pyplot = require("matplotlib.pyplot")
        if ax is not None and not isinstance(ax, require("matplotlib.axes").Axes):
            raise TypeError(
                f"ax must be one matplotlib Axes or None, got {type(ax).__name__}; take one of "
                "what pyplot.subplots returned."
            )
        self.ax_ = pyplot.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_


def one_of(value: str, name: str, choices: Sequence[str]) -> str:
    """Return a value that is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
    return value


def as_matrix(x: ArrayLike, name: str, columns: int) -> NDArray:
    """Return finite numbers in so many columns."""
    matrix = as_floating(x, name)
    if matrix.ndim != 2 or matrix.shape[1] != columns:
        raise ValueError(f"{name} must have {columns} columns, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity.")
    return matrix


def name_of(estimator: Any) -> str:
    """Return a legend for an estimator: its loss, with k where there is one."""
    model = final_step(estimator)
    solution = getattr(model, "solution_", None)
    if solution is None:
        return type(model).__name__
    name = model.loss if isinstance(model.loss, str) else solution.loss.name
    k = getattr(solution.loss, "k", None) if "topk" in name else None
    return name.replace("_", " ") + (f", k = {k}" if k is not None else "")


def above_rounding(gaps: NDArray) -> NDArray:
    """Return gaps that a logarithmic axis can show; NaN stays."""
    return np.maximum(gaps, ROUNDING)


def is_history(run: Any) -> bool:
    """Whether it is what `Solution.history` holds."""
    return isinstance(run, Mapping) and {"epoch", "seconds", "primal", "dual", "gap"} <= run.keys()
