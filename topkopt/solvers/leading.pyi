from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)
_Index = TypeVar("_Index", np.int32, np.int64)

def lead_on(
    a: NDArray[_Real],
    before: NDArray[_Real],
    momentum: float,
    rows: NDArray[np.intp],
    moved: NDArray[np.uint8],
) -> None: ...
def lead_matrix_on(w: NDArray[_Real], before: NDArray[_Real], momentum: float) -> None: ...
def lead_sparse_on(
    a: NDArray[_Real],
    before: NDArray[_Real],
    momentum: float,
    rows: NDArray[np.intp],
    moved: NDArray[np.uint8],
    data: NDArray[_Real],
    indices: NDArray[_Index],
    indptr: NDArray[_Index],
    w: NDArray[_Real],
) -> None: ...
