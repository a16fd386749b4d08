import numpy as np
from numpy.typing import NDArray

def scan_rows(rows: NDArray[np.float32] | NDArray[np.float64]) -> tuple[int, int, bool]: ...
