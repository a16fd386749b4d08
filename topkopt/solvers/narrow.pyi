from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.epochs import Examples

_Real = TypeVar("_Real", np.float32, np.float64)
_Index = TypeVar("_Index", np.int32, np.int64)

def narrow_sparse_epoch(
    examples: Examples,
    data: NDArray[_Real],
    indices: NDArray[_Index],
    indptr: NDArray[_Index],
    w: NDArray[_Real],
    a: NDArray[_Real],
    order: NDArray[np.intp],
    least: int,
    others: NDArray[np.intp],
) -> int: ...
