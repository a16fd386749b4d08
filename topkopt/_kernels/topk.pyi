from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def project_topk_rows(
    b: NDArray[_Real], x: NDArray[_Real], k: int, radius: float, kind: int, bias: float
) -> None: ...
