import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.epochs import Examples

def proxes(
    examples: Examples,
    s: NDArray[np.float64],
    moved: NDArray[np.float64],
    length: float,
    centre: NDArray[np.float64],
    sigma: float,
    v: NDArray[np.float64],
    rows: NDArray[np.intp],
) -> float: ...
def changed_rows(
    v: NDArray[np.float64], new: NDArray[np.float64], rows: NDArray[np.intp]
) -> NDArray[np.intp]: ...
def sums(
    examples: Examples, s: NDArray[np.float64], v: NDArray[np.float64]
) -> tuple[float, float]: ...

class Curvature:
    def __init__(
        self,
        examples: Examples,
        s: NDArray[np.float64],
        centre: NDArray[np.float64],
        sigma: float,
        v: NDArray[np.float64],
        rows: NDArray[np.intp],
    ) -> None: ...
    @property
    def n_classes(self) -> int: ...
    @property
    def rows(self) -> NDArray[np.intp]: ...
    @property
    def rank(self) -> int: ...
    def apply(self, u: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def diagonals(self) -> NDArray[np.float64]: ...
    def pairs(self, first: int, last: int) -> NDArray[np.float64]: ...
    def factors(self) -> tuple[NDArray[np.float64], NDArray[np.intp]]: ...
