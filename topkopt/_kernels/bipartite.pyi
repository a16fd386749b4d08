from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def project_bipartite_rows(
    x: NDArray[_Real], y: NDArray[_Real], p: NDArray[_Real], q: NDArray[_Real], radius: float
) -> None: ...
