"""A training problem: data, labels, loss and costs, checked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt import losses
from topkopt._validation import as_labels, as_weight
from topkopt.solvers.data import Data
from topkopt.solvers.epochs import Examples
from topkopt.solvers.matrices import as_data

__all__ = ["Problem", "as_problem", "costs_of"]


@dataclass(frozen=True)
class Problem:
    """n examples with their labels, and what a mistake costs."""

    data: Data
    loss: losses.Loss
    label_index: NDArray
    label_start: NDArray
    n_classes: int
    weight: NDArray  # of the examples
    C: float
    cost: NDArray  # C times the weights

    @property
    def scale(self) -> float:
        """What turns 1/2 |W|^2 + sum_i cost_i loss_i into the objective of the papers."""
        return 1.0 / (self.C * self.data.n_rows)

    @property
    def labels(self) -> NDArray:
        """The labels of a loss that takes one per example."""
        return self.label_index[self.label_start[:-1]]

    def examples(self, kind: type[Examples] = Examples, *extra: Any) -> Any:
        """Return the examples as the epochs take them."""
        return kind(
            self.loss,
            self.label_index,
            self.label_start,
            self.cost,
            self.data.square_norms,
            self.n_classes,
            *extra,
        )

    def zero_dual(self) -> NDArray:
        """Return dual blocks to begin with."""
        return np.zeros((self.data.n_rows, self.n_classes), self.data.dtype)

    def at(self, C: float) -> Problem:
        """Return the same problem for another C."""
        return replace(self, C=C, cost=costs_of(C, self.weight, self.data))

    def of(self, loss: losses.Loss) -> Problem:
        """Return the same problem for another loss."""
        return replace(self, loss=loss)


def as_problem(
    X: Any,
    y: Any,
    loss: losses.Loss,
    C: float,
    sample_weight: ArrayLike | None,
    kernel: bool | str,
    n_classes: int | None,
    sampling: str = "auto",
) -> Problem:
    """Check the user's data and put them together."""
    data = as_data(X, kernel, sampling)
    if data.n_rows == 0:
        raise ValueError("X must have at least one row, got none.")
    index, start, m = as_labels(y, data.n_rows, n_classes, multilabel=loss.multilabel)
    if m < 2:
        raise ValueError(f"y must hold at least 2 classes, got {m}; add examples of others.")
    loss.check_classes(m)
    weight = as_weight(sample_weight, data.n_rows)
    return Problem(data, loss, index, start, m, weight, C, costs_of(C, weight, data))


def costs_of(C: float, weight: NDArray, data: Data) -> NDArray:
    """Return C times the weights, where all that is computed from them can be represented."""
    limits, most = np.finfo(data.dtype), np.finfo(np.float64)
    if not most.tiny <= C <= most.max / (4 * data.n_rows):
        raise ValueError(
            f"C must be between {most.tiny:.1e} and {most.max / (4 * data.n_rows):.1e} for "
            f"{data.n_rows} examples, got {C!r}; scale the features instead."
        )
    with np.errstate(over="ignore", under="ignore"):
        cost = C * weight
        steepest = (cost * data.square_norms).max()
    counted = cost[weight > 0]
    least = max(most.tiny, limits.smallest_subnormal)  # 1/cost is finite, and cost is not 0
    if counted.min() < least or counted.max() > limits.max:
        raise ValueError(
            f"C times sample_weight must be between {least:.1e} and {limits.max:.1e} for X of "
            f"{data.dtype}, got {counted.min():.1e} to {counted.max():.1e}; scale the features "
            "instead of C, or pass X as float64."
        )
    if not np.isfinite(steepest):
        raise ValueError(
            f"C times the squared norm of a row of X must be finite, got C={C:g} and a largest "
            f"squared norm of {data.square_norms.max():.3g}; scale the features or lower C."
        )
    return cost
