from typing import Literal, SupportsIndex

from numpy.typing import ArrayLike

from topkopt.losses.base import Loss

class MaxMargin(Loss):
    @property
    def smoothing(self) -> float: ...

class TopKHinge(MaxMargin):
    def __init__(
        self,
        k: SupportsIndex,
        kind: Literal["alpha", "beta", "label"] = "alpha",
        smoothing: float = 0.0,
    ) -> None: ...
    @property
    def k(self) -> int: ...
    @property
    def kind(self) -> str: ...

class Hinge(TopKHinge):
    def __init__(self, smoothing: float = 0.0) -> None: ...

class WeightedTopKHinge(MaxMargin):
    def __init__(
        self,
        weights: ArrayLike | Literal["flat", "linear", "exp"],
        k: SupportsIndex | None = None,
        label: bool = False,
        smoothing: float = 0.0,
        envelope: Literal["others", "all"] = "others",
    ) -> None: ...
    @property
    def weights(self) -> tuple[float, ...]: ...
    @property
    def label(self) -> bool: ...
    @property
    def envelope(self) -> str: ...

# A loss whose stub is not written yet.
def __getattr__(name: str) -> type[Loss]: ...
