from typing import SupportsIndex, final

from topkopt.losses.base import Loss

class TopKEntropy(Loss):
    def __init__(self, k: SupportsIndex) -> None: ...
    @property
    def k(self) -> int: ...

@final
class Softmax(TopKEntropy):
    def __init__(self) -> None: ...

@final
class TruncatedTopKEntropy(Loss):
    def __init__(self, k: SupportsIndex) -> None: ...
    @property
    def k(self) -> int: ...

# A loss whose stub is not written yet.
def __getattr__(name: str) -> type[Loss]: ...
