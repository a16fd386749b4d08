r"""Projections onto the top-k cone and the top-k simplex alpha.

Solve    min_x  1/2 |x - b|^2 + rho/2 s^2,   0 <= x_j <= s/k,   s = <1,x> <= r.
The solution is  x = clip(b - c, 0, tau - c)  with  s = k (tau - c).  Sort b in descending order.
That the entries sum to s means that what the k largest lack at the top is what the others have,

    sum_{j <= k} max(0, tau - b_j)  =  sum_{j > k} max(0, b_j - c)  =:  y.

So tau(y) rises and c(y) falls, both linear between kinks, which are the y where tau or c meets an
entry of b. The objective falls with y as long as T + y > (1 + k rho) s(y), T being the sum of the
k largest entries: look at all kinks at once, count those before the end, and solve for s on the
piece that is then known.  Before the first kink y = 0, and x = s/k on the k largest entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from topkopt.torch._pure.knapsack import project_box
from topkopt.torch._pure.scan import Level, as_it_is, running_sum, take

__all__ = ["project_alpha", "project_beta", "project_label"]


def project_beta(b: Tensor, k: int, radius: float, bias: float, level: Level = as_it_is) -> Tensor:
    """Project onto ``{0 <= x <= radius/k, <1,x> <= radius}``."""
    zero = torch.zeros_like(b)
    return project_box(b, zero, zero + radius / k, radius, False, bias, level)


def project_label(b: Tensor, k: int, radius: float, bias: float, level: Level = as_it_is) -> Tensor:
    """Project onto beta cut by the top-(k-1) cone, which matters for sums below a bend."""
    beta = project_beta(b, min(k, b.shape[-1] + 1), radius, bias, level)
    if k == 1:
        return beta
    bend = radius * (k - 1) / k
    alpha = project_alpha(b, k - 1, bend, bias, level)
    return torch.where(beta.sum(-1, keepdim=True) >= bend, beta, alpha)


def project_alpha(b: Tensor, k: int, radius: float, bias: float, level: Level = as_it_is) -> Tensor:
    """Project onto the top-k simplex alpha; an infinite radius makes it the cone."""
    row, order = b.sort(dim=-1, descending=True, stable=True)
    anchor = row[..., k - 1 : k]
    enough = anchor > -torch.inf  # fewer entries could not carry s/k each
    anchor = torch.where(enough, anchor, 0.0)
    d, anchor = row - anchor, level(anchor)
    above = torch.where(enough, d[..., :k], 0.0)
    top_sum = above.sum(-1, keepdim=True) + k * anchor
    flat = (top_sum / (1.0 + k * bias)).clamp(0.0, radius)  # s, if no entry leaves the cap
    gap = -d[..., k : k + 1] if d.shape[-1] > k else torch.full_like(flat, torch.inf)
    all_at_cap = flat <= k * gap
    x = torch.cat([(flat / k).expand_as(above), torch.zeros_like(d[..., k:])], dim=-1)
    if d.shape[-1] > k:
        middle = _with_a_middle(d, anchor, k, radius, bias, top_sum)
        x = torch.where(all_at_cap, x, middle)
    x = torch.where(enough, x, 0.0)
    return torch.zeros_like(b).scatter(-1, order, x)


def _with_a_middle(
    d: Tensor, anchor: Tensor, k: int, radius: float, bias: float, top_sum: Tensor
) -> Tensor:
    """Project sorted rows, minus their k-th entry, for which y > 0."""
    # A quotient of integers would be of the default dtype.
    n_inside, n_outside = (n.to(d.dtype) for n in _piece(d, k, radius, bias, top_sum))
    first, last = k - n_inside, k + n_outside  # U = d[:first], M = d[first:last]
    place = torch.arange(d.shape[-1], device=d.device)
    in_u, in_m = place < first, (place >= first) & (place < last)
    size = n_inside + n_outside
    share = n_inside / (k * size)  # how fast c sinks as s grows
    slope = first / k**2 + n_inside * share / k + bias

    def solve(near: Tensor) -> tuple[Tensor, Tensor]:
        """Return s and c - near, from sums of differences to near."""
        mean = torch.where(in_m, d - near, 0.0).sum(-1, keepdim=True) / size
        sum_u = torch.where(in_u, d - near, 0.0).sum(-1, keepdim=True)
        gain = anchor + near + (sum_u + n_inside * mean) / k
        s = (gain / slope).clamp(0.0, radius)
        return s, mean - s * share

    s, c = solve(torch.zeros_like(anchor))
    s, c_off = solve(c)  # once more, close to c: there sums of long rows keep their digits
    x = torch.minimum((d - c - c_off).clamp(min=0.0), s / k)
    return torch.where(in_u, s / k, torch.where(in_m, x, 0.0))


def _piece(d: Tensor, k: int, radius: float, bias: float, top_sum: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many of the k largest entries, and of the others, are between c and tau."""
    inside = d[..., :k].flip(-1)  # in the order in which tau meets them
    outside = torch.where(d[..., k:].isfinite(), d[..., k:], 0.0)
    sum_in, sum_out = running_sum(inside), running_sum(outside)
    y_in = torch.arange(1, k + 1, device=d.device) * inside - sum_in
    y_out = sum_out - torch.arange(1, outside.shape[-1] + 1, device=d.device) * outside
    y_out = torch.where(d[..., k:].isfinite(), y_out, torch.inf)  # never met
    y, origin = torch.cat([y_in, y_out], dim=-1).sort(dim=-1, stable=True)
    from_inside = origin < k
    n_in = from_inside.cumsum(-1).clamp(min=1)
    n_out = (~from_inside).cumsum(-1).clamp(min=1)
    tau = (y + take(sum_in, n_in - 1)) / n_in
    c = (take(sum_out, n_out - 1) - y) / n_out
    s = k * (tau - c)
    goes_on = (top_sum + y > (1.0 + k * bias) * s) & (s < radius) & y.isfinite()
    last = (goes_on.sum(-1, keepdim=True) - 1).clamp(min=0)
    return take(n_in, last), take(n_out, last)
