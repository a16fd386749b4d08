"""Projections onto the simplex and the capped simplex.

Solve    min_x  1/2 |x - b|^2 + rho/2 <1,x>^2,   lo <= x <= hi,   <1,x> = r  (or <= r).
The solution is  x = clip(b - t, lo, hi).  S(t) = <1,x> falls with t and is linear between kinks,
which are the numbers b_j - hi_j and b_j - lo_j. So sort the kinks, halve their list until two are
left between which the root lies, and solve the linear equation there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from topkopt.torch._pure.scan import Level, as_it_is, take

__all__ = ["project_box", "project_simplex", "threshold"]


def threshold(
    b: Tensor, lower: Tensor, upper: Tensor, gain: float, slope: float, constant: Tensor
) -> Tensor:
    """Return the root t, of shape (..., 1), of ``gain S(t) - slope t = constant``."""

    def excess(t: Tensor) -> Tensor:
        total = torch.clamp(b - t, lower, upper).sum(-1, keepdim=True)
        return gain * total - slope * t - constant

    kinks = torch.cat([b - upper, b - lower], dim=-1)
    kinks = torch.where(kinks.isfinite(), kinks, torch.cat([b, b], dim=-1))  # of no bound: any
    left, right = _around_root(kinks, excess)
    return _solve_between(b, lower, upper, gain, slope, constant, left, right)


def _around_root(kinks: Tensor, excess: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Return the last kink at which a falling function is not negative, and the next one."""
    kinks = kinks.sort(dim=-1).values
    # The number of kinks up to the root: halve the interval it lies in.
    low = torch.zeros_like(kinks[..., :1], dtype=torch.int64)
    high = low + kinks.shape[-1]
    reach = 1
    while reach <= kinks.shape[-1]:
        reach *= 2
        middle = (low + high) // 2
        above = excess(take(kinks, middle.clamp(max=kinks.shape[-1] - 1))) >= 0
        open_interval = low < high
        low = torch.where(open_interval & above, middle + 1, low)
        high = torch.where(open_interval & ~above, middle, high)
    infinite = torch.full_like(kinks[..., :1], torch.inf)
    edges = torch.cat([-infinite, kinks, infinite], dim=-1)
    return take(edges, low), take(edges, low + 1)


def _solve_between(
    b: Tensor,
    lower: Tensor,
    upper: Tensor,
    gain: float,
    slope: float,
    constant: Tensor,
    left: Tensor,
    right: Tensor,
) -> Tensor:
    """Solve where nobody changes sides: S(t) = fixed + sum of the free b - (their number) t."""
    at_lower, at_upper = b - lower <= left, b - upper >= right
    free = ~(at_lower | at_upper)
    # near an end of the interval, so that the free entries are small numbers
    near = torch.where(left.isfinite(), left, torch.where(right.isfinite(), right, 0.0))
    parts = torch.where(free, b - near, torch.where(at_lower, lower, upper))
    steepness = gain * free.to(b.dtype).sum(-1, keepdim=True) + slope
    offset = (gain * parts.sum(-1, keepdim=True) - slope * near - constant) / steepness
    offset = torch.where(steepness > 0, offset, 0.0)  # S is flat here: every t will do
    return torch.minimum(torch.maximum(near + offset, left), right)


def project_simplex(b: Tensor, radius: float) -> Tensor:
    """Project onto ``{x >= 0, <1,x> = radius}``: x = max(0, b - t), where b is the kinks."""
    # The projection does not see a common shift; what is radius below the largest gets nothing.
    d = (b - b.amax(-1, keepdim=True)).clamp(min=-radius - 1.0)

    def excess(t: Tensor) -> Tensor:
        return (d - t).clamp_(min=0.0).sum(-1, keepdim=True) - radius

    left, right = _around_root(d, excess)
    active = d > left
    near = torch.where(left.isfinite(), left, right)
    count = active.to(b.dtype).sum(-1, keepdim=True).clamp(min=1.0)
    t = near + (torch.where(active, d - near, 0.0).sum(-1, keepdim=True) - radius) / count
    return (d - t).clamp_(min=0.0)


def project_box(
    b: Tensor,
    lower: Tensor,
    upper: Tensor,
    total: float,
    equality: bool,
    bias: float,
    level: Level = as_it_is,
) -> Tensor:
    """Project onto ``{lower <= x <= upper}`` with a fixed or a bounded sum."""
    upper = torch.where(b.isfinite(), upper, lower)
    near = b.amax(-1, keepdim=True)
    for _ in range(2):  # once more close to the root: there the entries keep all their digits
        d = torch.where(b.isfinite(), b - near, 0.0)
        t = threshold(d, lower, upper, 1.0, 0.0, torch.full_like(near, total))
        near = near + t
    x = torch.clamp(d - t, lower, upper)
    if equality:
        return x
    # The sum is free to be smaller: t = bias <1,x>, which is 0 without a bias.
    h = torch.where(b.isfinite(), level(b), 0.0)
    t = threshold(h, lower, upper, bias, 1.0, torch.zeros_like(near)) if bias else 0.0
    loose = torch.clamp(h - t, lower, upper)
    return torch.where(loose.sum(-1, keepdim=True) <= total, loose, x)
