from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topkopt.losses.base import Loss

_Real = TypeVar("_Real", np.float32, np.float64)

def evaluate_rows(
    loss: Loss,
    scores: NDArray[_Real],
    label_index: NDArray[np.intp],
    label_start: NDArray[np.intp],
    values: NDArray[_Real],
    gradients: NDArray[_Real],
) -> None: ...
