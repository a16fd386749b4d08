from collections.abc import Callable
from typing import Any, final

from numpy.typing import NDArray

from topkopt.losses.base import Loss

@final
class CustomLoss(Loss):
    def __init__(
        self,
        value_and_gradient: Callable[[NDArray, NDArray], tuple[Any, Any]],
        convex: bool = True,
        curvature: float | None = None,
        name: str | None = None,
    ) -> None: ...
    def check(self, m: int) -> None: ...
