r"""Projection onto the weighted top-k set.

Solve    min_x  1/2 |x - b|^2 + rho/2 <1,x>^2,   x in zeta Perm(w),   0 <= zeta <= r,
w_1 >= ... >= w_q > 0 and zeros behind them.  The solution is, for b in descending order,

    x = b - v,    v = iso(b - zeta w),

iso being the closest non-increasing sequence, and zeta the end r or the root of the increasing
function  -<v,w> + rho zeta <1,w>^2: halve the interval. One isotonic regression is

    v_i = min_{a <= i} max_{e >= i} mean of the entries a..e,

of which only a <= q matter. If e runs into the zeros, the largest mean takes in the entries of b
that lie above it; that is a search in a sorted list, made once for all zeta.

With a slot for the label (label=True), v = clip(mu, A, B), A and B being the regressions of b
minus zeta (w_1, ..., w_p) and minus zeta (w_2, ..., w_{p+1}), and mu = rho <1,x>.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from topkopt.torch._pure.knapsack import threshold
from topkopt.torch._pure.scan import (
    Level,
    as_it_is,
    constants,
    running,
    running_from_end,
    running_sum,
    take,
)

__all__ = ["project_weighted"]

_HALVINGS = {torch.float32: 34, torch.float64: 66}
_MOST = 2**24  # numbers in a table; more rows are worked off one part after the other


def project_weighted(
    b: Tensor,
    weights: Sequence[float],
    radius: float,
    label: bool,
    bias: float,
    level: Level = as_it_is,
) -> Tensor:
    """Project onto the weighted top-k set, or onto the one with a slot for the label."""
    if not weights or radius == 0:
        return torch.zeros_like(b)
    rows = b.reshape(-1, b.shape[-1])
    w = constants(weights, b) / weights[0]
    radius = radius * weights[0]
    part = max(1, _MOST // (len(weights) * b.shape[-1]))
    pieces = zip(rows.split(part), level(b).reshape(rows.shape).split(part), strict=True)
    solved = [_project(*piece, w, radius, label, bias) for piece in pieces]
    return torch.cat(solved).reshape(b.shape) if solved else torch.zeros_like(b)


def _project(
    b: Tensor, levels: Tensor, w: Tensor, radius: float, label: bool, bias: float
) -> Tensor:
    row, order = b.sort(dim=-1, descending=True, stable=True)
    finite = row > -torch.inf
    enough = finite.sum(-1, keepdim=True) + label >= w.numel()
    h = take(levels, order)
    solve = _with_label if label else _without_label
    x = torch.where(enough & finite, solve(row, h, w, radius, bias).clamp(min=0.0), 0.0)
    return torch.zeros_like(b).scatter(-1, order, x)


def _padded(w: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(w, (0, length - w.numel()))


def _root(rises: Callable[[Tensor], Tensor], high: Tensor) -> Tensor:
    """Return the zeta in [0, high] at which an increasing function gets positive."""
    low, end = torch.zeros_like(high), high
    at_zero = rises(low) >= 0
    for step in range(_HALVINGS[high.dtype]):
        zeta = end if step == 0 else low + (high - low) / 2
        positive = rises(zeta) > 0
        high = torch.where(positive, zeta, high)
        low = torch.where(positive, low, zeta)
    return torch.where(at_zero, 0.0, low + (high - low) / 2)


def _shares(row: Tensor, v: Tensor, w: Tensor, zeta: Tensor) -> Tensor:
    """Return row - v, v being iso(row - zeta w), with the digits that the difference would lose.

    In a pool it is zeta times the mean weight, plus the distance to the mean entry. The entries of
    a pool are as close to each other as their shares.
    """
    place = torch.arange(row.shape[-1], device=row.device).expand(row.shape)
    falls = v[..., 1:] < v[..., :-1]
    edge = torch.ones_like(v[..., :1], dtype=torch.bool)
    first = running(torch.where(torch.cat([edge, falls], dim=-1), place, 0), torch.maximum)
    ends = torch.where(torch.cat([falls, edge], dim=-1), place, row.shape[-1])
    last = running_from_end(ends, torch.minimum)

    def mean(h: Tensor) -> Tensor:
        sums = torch.nn.functional.pad(running_sum(h), (1, 0))
        means = (take(sums, last + 1) - take(sums, first)) / (last - first + 1)
        return torch.where(first == last, h, means)  # a share of 0 stays 0

    inside = torch.where(row > -torch.inf, row, 0.0)
    near, weight = inside - take(inside, first), mean(w.expand(row.shape))
    return torch.where(weight > 0, zeta * weight + (near - mean(near)), 0.0)


def _without_label(row: Tensor, h: Tensor, w: Tensor, radius: float, bias: float) -> Tensor:
    q = w.numel()
    anchor, d = h[..., q - 1 : q], row - row[..., q - 1 : q]
    iso = _isotonic(d, w)
    total, padded = w.sum(), _padded(w, d.shape[-1])
    # All entries in one pool is the slowest rise there is: the root is not behind this.
    most = (d.shape[-1] * h[..., :1].clamp(min=0.0) / total).clamp(max=radius)

    def rises(zeta: Tensor) -> Tensor:
        v = torch.where(padded > 0, iso(zeta), 0.0)
        gain = (v * padded).sum(-1, keepdim=True) + anchor * total
        return bias * zeta * total**2 - gain

    zeta = _root(rises, most)
    return _shares(row, iso(zeta), padded, zeta)


def _with_label(row: Tensor, h: Tensor, w: Tensor, radius: float, bias: float) -> Tensor:
    q, length = max(1, w.numel() - 1), row.shape[-1]
    anchor, d = h[..., q - 1 : q], row - row[..., q - 1 : q]
    finite = d > -torch.inf
    mass, slack = _padded(w, max(length, w.numel()))[:length], _padded(w[1:], length)
    iso_mass, iso_slack = _isotonic(d, w[:length]), _isotonic(d, w[1:])
    inside = torch.where(finite, d, 0.0)

    def box(zeta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return A, B and mu."""
        above = torch.where(finite, iso_mass(zeta), 0.0)
        below = torch.where(finite, torch.maximum(iso_slack(zeta), above), 0.0)
        if bias == 0:
            return above, below, -anchor
        return above, below, threshold(inside, inside - below, inside - above, bias, 1.0, anchor)

    def rises(zeta: Tensor) -> Tensor:
        above, below, mu = box(zeta)
        over = torch.where(finite, (above - mu).clamp(min=0.0) * mass, 0.0)
        under = torch.where(finite, (below - mu).clamp(max=0.0) * slack, 0.0)
        return -(over + under).sum(-1, keepdim=True)

    zeta = _root(rises, torch.full_like(anchor, radius))
    upper = _shares(row, iso_mass(zeta), mass, zeta)
    lower = torch.minimum(_shares(row, iso_slack(zeta), slack, zeta), upper)
    h = torch.where(finite, h, 0.0)
    mu = threshold(h, lower, upper, bias, 1.0, torch.zeros_like(anchor)) if bias else 0.0
    return torch.clamp(h - mu, lower, upper)


def _isotonic(d: Tensor, w: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function zeta -> iso(d - zeta w) for rows d that descend."""
    q = w.numel()
    if q == 0:
        return lambda zeta: d
    head, tail = d[..., :q], d[..., q:]
    head = torch.where(head > -torch.inf, head, 0.0)  # rows with too few entries are not used
    place = torch.arange(q, device=d.device)
    size = (place[None, :] - place[:, None] + 1).clamp(min=1)
    wrong = place[None, :] < place[:, None]
    level = _last_pool(tail, q)

    def iso(zeta: Tensor) -> Tensor:
        a = head - zeta * w
        sums = running_sum(a)
        before = torch.nn.functional.pad(sums[..., :-1], (1, 0))
        means = (sums[..., None, :] - before[..., :, None]) / size
        from_here = sums[..., -1:] - before
        means = torch.cat([means[..., :-1], level(from_here)[..., None]], dim=-1)
        means = means.masked_fill(wrong, -torch.inf)
        best = running_from_end(means, torch.maximum)  # over the ends e >= i
        v = best.masked_fill(wrong, torch.inf).amin(-2)  # over the starts a <= i
        return torch.cat([v, torch.minimum(tail, v[..., -1:])], dim=-1)

    return iso


def _last_pool(tail: Tensor, q: int) -> Callable[[Tensor], Tensor]:
    """Return the function that gives the level of a pool of head entries a..q and the tail."""
    sizes = torch.arange(q, 0, -1, device=tail.device)
    present = tail > -torch.inf
    entries = torch.where(present, tail, 0.0)
    sums = torch.nn.functional.pad(running_sum(entries), (1, 0))  # of the first tail entries
    count = torch.arange(tail.shape[-1], device=tail.device)
    # Entry j joins a pool with the sum A of its head if (size + j) b_j - sums_j > A.
    needs = (sizes[:, None] + count) * entries[..., None, :] - sums[..., None, :-1]
    needs = torch.where(present[..., None, :], needs, -torch.inf)
    ascending = (-needs).contiguous()

    def level(head_sums: Tensor) -> Tensor:
        joined = torch.searchsorted(ascending, (-head_sums)[..., None].contiguous())[..., 0]
        return (head_sums + torch.gather(sums, -1, joined)) / (sizes + joined)

    return level
