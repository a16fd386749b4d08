"""Running sums and maxima as trees: as many passes as the length has binary digits.

``torch.cumsum`` has no deterministic form on CUDA; these do, and their rounding errors grow with
the logarithm of the length.

A `Level` says which numbers of a problem the entries of a row stand for: the entries shifted, such
as 1 + (s - s_y). To shift a row first would cost entries that are far from s_y, but close to each
other, the digits of their differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Level", "as_it_is", "constants", "running", "running_from_end", "running_sum", "take"]

Level = Callable[[Tensor], Tensor]


def as_it_is(x: Tensor) -> Tensor:
    """Return x: no shift."""
    return x


def constants(numbers: Sequence[float], like: Tensor) -> Tensor:
    """Return a vector that the device writes itself: a copy from the host would wait for it."""
    return torch.stack([like.new_full((), number) for number in numbers])


def running(x: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return x_1, x_1 x_2, x_1 x_2 x_3, ... along the last dimension for an associative product.

    >>> running(torch.tensor([1.0, 2.0, 3.0]), torch.add)
    tensor([1., 3., 6.])
    """
    reach = 1
    while reach < x.shape[-1]:
        joined = combine(x[..., reach:], x[..., :-reach])
        x = torch.cat([x[..., :reach], joined], dim=-1)
        reach *= 2
    return x


def running_sum(x: Tensor) -> Tensor:
    """Return the sums of the first entries."""
    return running(x, torch.add)


def running_from_end(x: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return ..., x_{n-1} x_n, x_n: the products of the last entries."""
    return running(x.flip(-1), combine).flip(-1)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Return x[..., index] for one index per vector, which keeps its dimension."""
    return torch.gather(x, -1, index)
