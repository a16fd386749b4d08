"""Projection onto the bipartite simplex, the dual set of the multilabel hinge loss.

Solve    min  1/2 |x - b|^2,   x >= 0,  the sums of x over both sides of a mask agree, and are <= r.
The solution is  x = max(0, b - t) on the one side and max(0, b + t) on the other; if the common
sum exceeds r, two projections onto simplices. With the sign of one side turned, t is the
threshold of a knapsack problem of sum 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from topkopt.torch._pure.knapsack import project_simplex, threshold

__all__ = ["project_bipartite"]


def project_bipartite(below: Tensor, side: Tensor, radius: float, top: Tensor) -> Tensor:
    """Project the rows b = top + below, whose entries belong to one side (mask true) or the other.

    Projections onto a simplex do not see top, so that it costs them no digits.
    """
    b = top + below
    zero = torch.zeros_like(b)
    infinite = torch.full_like(b, torch.inf)
    present = b.isfinite()
    signed = torch.where(present, torch.where(side, b, -b), zero)
    lower = torch.where(present & ~side, -infinite, zero)
    upper = torch.where(present & side, infinite, zero)
    t = threshold(signed, lower, upper, 1.0, 0.0, zero[..., :1])
    x = torch.clamp(signed - t, lower, upper).abs()
    apart = [project_simplex(torch.where(part, below, -infinite), radius) for part in (side, ~side)]
    joint = x.sum(-1, keepdim=True) <= 2.0 * radius
    return torch.where(joint, x, torch.where(side, apart[0], apart[1]))
