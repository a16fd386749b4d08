from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def lambertw_exp(t: NDArray[_Real], w: NDArray[_Real]) -> None: ...
