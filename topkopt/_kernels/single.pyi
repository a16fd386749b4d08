import numpy as np
from numpy.typing import NDArray

def takes(m: int, k: int) -> bool: ...
def topk_hinge_rows(
    scores: NDArray[np.float32],
    own: NDArray[np.intp],
    k: int,
    values: NDArray[np.float32],
    gradients: NDArray[np.float32],
) -> None: ...
def topk_entropy_rows(
    scores: NDArray[np.float32],
    own: NDArray[np.intp],
    k: int,
    values: NDArray[np.float32],
    gradients: NDArray[np.float32],
) -> None: ...
