"""What a worker holds and computes: some rows with their labels, and sums over them.

Nothing here knows of Dask: a partition is an ordinary object, and the functions below are ordinary
functions of partitions, which never change what they are given. Dask may so run any of them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from topkopt import losses
from topkopt._threads import as_team
from topkopt._validation import aligned, as_floating, as_labels, as_weight
from topkopt.distributed.rows import RowsOfFile
from topkopt.solvers.data import Data, DenseData
from topkopt.solvers.epochs import Examples
from topkopt.solvers.matrices import as_data
from topkopt.solvers.problem import costs_of

__all__ = ["Description", "Partition", "Sum", "Terms", "add", "make_partition"]


@dataclass(frozen=True)
class Terms:
    """What is trained with, apart from the examples; the client sends it along with every task."""

    loss: losses.Loss
    C: float
    n_classes: int


@dataclass(frozen=True)
class Description:
    """What the client has to know of a partition."""

    n_rows: int
    n_features: int
    dtype: np.dtype
    n_entries: int
    dense: bool
    largest_norm: float  # squared
    labels: NDArray  # the different ones, in order; of an indicator matrix its columns
    indicator: bool
    weight: float  # the sum


class Sum(NamedTuple):
    """Numbers and a matrix that are added up over the partitions."""

    numbers: NDArray
    matrix: NDArray


def add(one: Sum, other: Sum) -> Sum:
    """Return the sum of two."""
    return Sum(one.numbers + other.numbers, one.matrix + other.matrix)


class Partition:
    """Rows, their labels and weights.

    Parameters
    ----------
    data : Data
        The rows.
    y : ndarray
        Their labels, or an indicator matrix.
    weight : ndarray
        Their weights.
    """

    def __init__(self, data: Data, y: NDArray, weight: NDArray):
        self.data, self.y, self.weight = data, y, weight
        self.lock = Lock()  # what is known of the examples is not for two tasks at a time
        self._known: tuple[Terms, float, Any] | None = None

    def __getstate__(self) -> tuple[Data, NDArray, NDArray]:
        return self.data, self.y, self.weight

    def __setstate__(self, state: tuple[Data, NDArray, NDArray]) -> None:
        self.__init__(*map(aligned, state))  # type: ignore[misc]

    def __sizeof__(self) -> int:
        """Return the bytes it takes: Dask moves the smaller things to the larger ones."""
        held = [self.y, self.weight, self.data.square_norms]
        if isinstance(self.data, DenseData):
            mapped = isinstance(self.data.X, np.memmap)
            held += [] if mapped else [self.data.X]
        else:
            held += list(self.data.parts)  # type: ignore[attr-defined]
        return object.__sizeof__(self) + sum(array.nbytes for array in held)

    def examples(self, terms: Terms, scale: float = 1.0) -> Examples:
        """Return the examples as the epochs take them, with costs that many times as large."""
        if self._known is None or self._known[:2] != (terms, scale):
            index, start, m = as_labels(
                self.y, self.data.n_rows, terms.n_classes, multilabel=terms.loss.multilabel
            )
            cost = scale * self.costs(terms.C)
            examples = Examples(terms.loss, index, start, cost, self.data.square_norms, m)
            self._known = terms, scale, examples
        return self._known[2]

    def costs(self, C: float) -> NDArray:
        """Return C times the weights, all of which may be 0 here."""
        if not self.weight.any():
            return np.zeros(self.data.n_rows)
        return costs_of(C, self.weight, self.data)

    def describe(self) -> Description:
        """Return what the client has to know."""
        data, indicator = self.data, self.y.ndim == 2
        labels = np.arange(self.y.shape[1]) if indicator else np.unique(self.y)
        return Description(
            data.n_rows,
            data.n_features,
            data.dtype,
            data.n_entries,
            isinstance(data, DenseData),
            float(data.square_norms.max(initial=0.0)),
            labels,
            indicator,
            float(self.weight.sum()),
        )


def together(blocks: list[Any]) -> Any:
    """Return row blocks as one: as they are if there is one, else copied behind each other."""
    if len(blocks) == 1:
        return blocks[0]
    if any(scipy.sparse.issparse(block) for block in blocks):
        return scipy.sparse.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def make_partition(
    X: list[Any], y: list[Any], weight: list[Any] | None, n_threads: int = 1
) -> Partition:
    """Return a partition of row blocks, their labels and weights, if these are not all 1."""
    data = as_data(together([_opened(block) for block in X]), kernel=False, sampling="rows")
    data = data.on(as_team(n_threads))
    labels = together([_opened(block) for block in y])
    if scipy.sparse.issparse(labels):
        labels = labels.toarray()
    labels = np.asarray(labels)
    if labels.shape[:1] != (data.n_rows,):
        raise ValueError(
            f"y must have one entry per row of X, got blocks of {labels.shape[0]} labels for "
            f"{data.n_rows} rows; give both the same chunks."
        )
    return Partition(data, labels, _as_part_of_weight(weight, data.n_rows))


def _opened(block: Any) -> Any:
    return block.open() if isinstance(block, RowsOfFile) else block


def _as_part_of_weight(weight: list[Any] | None, n: int) -> NDArray:
    """Return the weights of n examples; unlike those of all examples, they may all be 0."""
    if weight is None:
        return np.ones(n)
    given = as_floating(together([_opened(block) for block in weight]), "sample_weight")
    absent = given.shape == (n,) and not given.any()
    return np.zeros(n) if absent else as_weight(given, n)
