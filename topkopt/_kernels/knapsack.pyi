from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def project_capped_rows(
    b: NDArray[_Real],
    x: NDArray[_Real],
    lo: float,
    hi: float,
    total: float,
    equality: bool,
    bias: float,
) -> None: ...
def project_boxed_rows(
    b: NDArray[_Real],
    x: NDArray[_Real],
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    total: float,
    equality: bool,
    bias: float,
) -> None: ...
