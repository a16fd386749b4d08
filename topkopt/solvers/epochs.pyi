from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topkopt.losses.base import Loss

_Real = TypeVar("_Real", np.float32, np.float64)
_Index = TypeVar("_Index", np.int32, np.int64)

class Examples:
    def __init__(
        self,
        loss: Loss,
        label_index: NDArray[np.intp],
        label_start: NDArray[np.intp],
        cost: NDArray[np.float64],
        square_norm: NDArray[np.float64],
        n_classes: int,
    ) -> None: ...
    def part(self, rows: slice) -> Examples: ...
    @property
    def loss(self) -> Loss: ...
    @property
    def n_classes(self) -> int: ...
    @property
    def moved_rows(self) -> NDArray[np.uint8]: ...
    @property
    def row_gaps(self) -> NDArray[np.float64]: ...

def dense_epoch(
    examples: Examples,
    x: NDArray[_Real],
    w: NDArray[_Real],
    a: NDArray[_Real],
    order: NDArray[np.intp],
    block_size: int,
) -> None: ...
def walk_known_block(
    examples: Examples,
    rows: NDArray[np.intp],
    s: NDArray[_Real],
    gram: NDArray[_Real],
    a: NDArray[_Real],
    d: NDArray[_Real],
) -> None: ...
def gather_rows(x: NDArray[_Real], rows: NDArray[np.intp], out: NDArray[_Real]) -> None: ...
def add_product(
    transposed: bool,
    x: NDArray[_Real],
    b: NDArray[_Real],
    c: NDArray[_Real],
    added: bool,
    columns: slice,
) -> None: ...
def kernel_epoch(
    examples: Examples,
    k: NDArray[_Real],
    a: NDArray[_Real],
    order: NDArray[np.intp],
    block_size: int,
    shift: NDArray[np.float64] | None = None,
) -> None: ...
def sparse_epoch(
    examples: Examples,
    data: NDArray[_Real],
    indices: NDArray[_Index],
    indptr: NDArray[_Index],
    w: NDArray[_Real],
    a: NDArray[_Real],
    order: NDArray[np.intp],
) -> None: ...
def dense_sums(
    examples: Examples,
    x: NDArray[_Real],
    w: NDArray[_Real],
    a: NDArray[_Real],
    rows: NDArray[np.intp],
    block_size: int,
    shift: NDArray[np.float64] | None = None,
) -> tuple[float, float, float]: ...
def sparse_sums(
    examples: Examples,
    data: NDArray[_Real],
    indices: NDArray[_Index],
    indptr: NDArray[_Index],
    w: NDArray[_Real],
    a: NDArray[_Real],
    rows: NDArray[np.intp],
) -> tuple[float, float, float]: ...
def conjugates(examples: Examples, a: NDArray[_Real], rows: NDArray[np.intp]) -> float: ...
def make_feasible(examples: Examples, a: NDArray[_Real], rows: NDArray[np.intp]) -> None: ...
