"""V(t) = W(e^t), the root of V + log V = t, in a fixed number of steps."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["inverse_lambertw_exp", "lambertw_exp"]


def inverse_lambertw_exp(v: Tensor) -> Tensor:
    """Return the t with V(t) = v."""
    return v + v.log()


def lambertw_exp(t: Tensor) -> Tensor:
    """Return V(t): two steps of high order from a rough guess on either side of t = 1.

    >>> lambertw_exp(torch.tensor([1.0, torch.e + 1]))
    tensor([1.0000, 2.7183])
    """
    return torch.where(t > 1, _right(t.clamp(min=1)), _left(t.clamp(max=1)))


def _left(t: Tensor) -> Tensor:
    """Householder steps of order 5 on w - e^(t-w)."""
    z = t.exp()
    w = z / (1 + z)
    for _ in range(2):
        y = z * torch.exp(-w)  # not exp(t - w), whose argument is rounded
        f, g = w - y, 1 + y
        w = w - 4 * f * (6 * g * (g * g + f * y) + f * f * y) / (
            g * g * (24 * g * g + 36 * f * y) + f * f * y * (14 * y + f + 8)
        )
    return w


def _right(t: Tensor) -> Tensor:
    """Take steps of Fritsch, Shafer and Crowley on the residual t - w - log w."""
    w = t - t.log()
    for _ in range(2):
        p = 1 + w
        c = (t - w - w.log()) / p
        w = w * (1 + c * (1 + 2 * c / 3 - c / (2 * p)) / (1 + 2 * c / 3 - c / p))
    return w
