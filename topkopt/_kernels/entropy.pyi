from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def prox_entropy_rows(
    b: NDArray[_Real], x: NDArray[_Real], alpha: float, radius: float, upper: float
) -> None: ...
