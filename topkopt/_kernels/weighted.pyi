from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def project_weighted_rows(
    b: NDArray[_Real],
    x: NDArray[_Real],
    w: NDArray[np.float64],
    radius: float,
    label: bool,
    bias: float,
) -> None: ...
