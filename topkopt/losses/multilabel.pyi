from typing import final

from topkopt.losses.base import Loss

@final
class MultilabelHinge(Loss):
    def __init__(self, smoothing: float = 0.0) -> None: ...
    @property
    def smoothing(self) -> float: ...

@final
class MultilabelSoftmax(Loss): ...

# A loss whose stub is not written yet.
def __getattr__(name: str) -> type[Loss]: ...
