from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topkopt.losses.base import Loss
from topkopt.solvers.epochs import Examples

_Real = TypeVar("_Real", np.float32, np.float64)

class VertexExamples(Examples):
    def __init__(
        self,
        loss: Loss,
        label_index: NDArray[np.intp],
        label_start: NDArray[np.intp],
        cost: NDArray[np.float64],
        square_norm: NDArray[np.float64],
        n_classes: int,
        hard: Loss,
        all_slots: bool,
    ) -> None: ...

class ActiveSets:
    def __init__(
        self,
        examples: VertexExamples,
        weights: NDArray[np.float64],
        origin: NDArray[np.float64] | None,
        n: int,
        pairwise: bool,
    ) -> None: ...
    def sizes(self) -> NDArray[np.intp]: ...
    def vertices(self, i: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]: ...
    def propose(
        self, s: NDArray[_Real], d: NDArray[_Real], factor: float
    ) -> tuple[float, float]: ...
    def accept(self, factor: float, a: NDArray[_Real]) -> None: ...

def toward_vertices(
    examples: VertexExamples, s: NDArray[_Real], a: NDArray[_Real], d: NDArray[_Real]
) -> tuple[float, float]: ...
def scores_sums(
    examples: Examples, s: NDArray[_Real], a: NDArray[_Real]
) -> tuple[float, float, float]: ...
