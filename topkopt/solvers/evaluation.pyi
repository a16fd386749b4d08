from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.epochs import Examples

_Real = TypeVar("_Real", np.float32, np.float64)
_Index = TypeVar("_Index", np.int32, np.int64)

class Buffers:
    def __init__(self, n_rows: int, m: int) -> None: ...

def dense_evaluation(
    examples: Examples,
    x: NDArray[_Real],
    w: NDArray[_Real],
    g: NDArray[np.float64],
    block_size: int,
    a: NDArray[_Real] | None = None,
    conjugates: bool = False,
) -> tuple[float, float]: ...
def sparse_evaluation(
    examples: Examples,
    data: NDArray[_Real],
    indices: NDArray[_Index],
    indptr: NDArray[_Index],
    w: NDArray[_Real],
    g: NDArray[np.float64],
    a: NDArray[_Real] | None = None,
    conjugates: bool = False,
) -> tuple[float, float]: ...
def scores_evaluation(
    examples: Examples,
    s: NDArray[_Real],
    block_size: int,
    a: NDArray[_Real] | None = None,
    conjugates: bool = False,
) -> tuple[float, float]: ...
def dense_curvatures(
    examples: Examples,
    x: NDArray[np.float64],
    w: NDArray[np.float64],
    h: NDArray[np.float64],
    block_size: int,
) -> None: ...
