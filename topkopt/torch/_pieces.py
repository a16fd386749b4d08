r"""Derivatives of the maps, from the piece that a solution is on.

A map takes b to the minimiser x over a set. Near b the constraints that hold with equality stay
the same, x moves in the span of some directions B only, and with the Hessian Q of the objective

    D = dx/db = B (B'QB)^-1 B',

which is symmetric: it is the Jacobian, and its transpose. For projections Q = I + rho 11'; then
with P the orthogonal projection onto the span of B,

    D = P - c (P1)(P1)',      c = rho/(1 + rho <1,P1>),  or 1/<1,P1> where <1,x> is at its bound.

Where x itself enters (entropies), it does so by differentiable operations: derivatives of any order
follow. Everything here may be vmapped.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = [
    "alpha_pieces",
    "at_least",
    "bipartite_pieces",
    "box_pieces",
    "entropy_pieces",
    "slack",
    "topk_entropy_pieces",
    "weighted_pieces",
]


def slack(x: Tensor) -> float:
    """Return the relative rounding error that a sum along x may have."""
    return torch.finfo(x.dtype).eps * (8.0 + 4.0 * x.shape[-1] ** 0.5)


def at_least(value: Tensor, bound: Tensor | float, x: Tensor) -> Tensor:
    """Return whether value >= bound, but for rounding."""
    return value >= bound * (1.0 - slack(x))


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True)


def _nonzero(x: Tensor) -> Tensor:
    """Return a divisor: where it would be 0, so is the dividend."""
    return torch.where(x == 0, 1.0, x)


def _with_bias(
    g: Tensor, project: Callable[[Tensor], Tensor], bias: float, sum_fixed: Tensor | bool
) -> Tensor:
    """Return (P - c (P1)(P1)') g."""
    moved, ones = project(g), project(torch.ones_like(g))
    total = _sum(ones)
    moving = bias / (1.0 + bias * total)
    if isinstance(sum_fixed, bool):
        c = 1.0 / _nonzero(total) if sum_fixed else moving
    else:
        c = torch.where(sum_fixed, 1.0 / _nonzero(total), moving)
    return moved - c * ones * _sum(moved)


def box_pieces(g: Tensor, free: Tensor, bias: float, sum_fixed: Tensor | bool) -> Tensor:
    """Apply D for {lower <= x <= upper}: the free entries move, each by itself."""
    return _with_bias(g, lambda h: torch.where(free, h, 0.0), bias, sum_fixed)


def alpha_pieces(x: Tensor, g: Tensor, k: int, bias: float, sum_fixed: Tensor) -> Tensor:
    """Apply D for {0 <= x_j <= s/k}: the columns e_j + 1_U/(k - |U|), j in M.

    They span the vectors on M of sum 0 and the direction of s, on which U shares evenly.
    """
    in_u = at_least(k * x, _sum(x), x) & (x > 0)
    in_m = (x > 0) & ~in_u
    n_u, n_m = _sum(in_u.to(x.dtype)), _sum(in_m.to(x.dtype))
    share = torch.where(in_u, 1.0, torch.where(in_m, (k - n_u).clamp(min=0) / _nonzero(n_m), 0.0))
    square = _nonzero(_sum(share * share))

    def project(h: Tensor) -> Tensor:
        centred = torch.where(in_m, h - _sum(torch.where(in_m, h, 0.0)) / _nonzero(n_m), 0.0)
        return centred + share * (_sum(share * h) / square)

    return _with_bias(g, project, bias, sum_fixed)


def bipartite_pieces(x: Tensor, side: Tensor, g: Tensor, radius: float) -> Tensor:
    """Apply D for two sides x >= 0 of equal sum, at most radius."""
    free = x > 0
    sign = torch.where(free, torch.where(side, 1.0, -1.0), 0.0).to(g.dtype)
    joint = torch.where(free, g, 0.0) - sign * (_sum(sign * g) / _nonzero(_sum(sign * sign)))

    def alone(part: Tensor) -> Tensor:
        count = _nonzero(_sum(part.to(g.dtype)))
        return torch.where(part, g - _sum(torch.where(part, g, 0.0)) / count, 0.0)

    apart = alone(free & side) + alone(free & ~side)
    return torch.where(at_least(_sum(x), 2.0 * radius, x), apart, joint)


def entropy_pieces(x: Tensor, g: Tensor, alpha: float, upper: float) -> Tensor:
    """Apply D for the entropic prox: Q = alpha + 1/x on the free entries, and a fixed sum."""
    rate = torch.where(at_least(x, upper, x), 0.0, x / (1.0 + alpha * x))
    return rate * (g - _sum(rate * g) / _nonzero(_sum(rate)))


def topk_entropy_pieces(x: Tensor, g: Tensor, alpha: float, k: int) -> Tensor:
    """Apply D for Q = alpha + diag(1/x) + (alpha + 1/(1-s)) 11' and the columns of alpha.

    B'QB is diag(alpha + 1/x_M) + c 11'; where |U| = k, the one column 1_U is left.
    """
    s = _sum(x)
    in_u = at_least(k * x, s, x) & (x > 0)
    n_u = _sum(in_u.to(x.dtype))
    full = n_u >= k
    room = torch.where(full, 1.0, k - n_u)
    rate = torch.where(in_u | (x == 0), 0.0, x / (1.0 + alpha * x))
    bend = alpha + 1.0 / (1.0 - s).clamp(min=torch.finfo(x.dtype).eps)
    top = alpha + k / _nonzero(s)
    on_u = _sum(torch.where(in_u, g, 0.0))
    # |U| < k
    c = (n_u * top + bend * k**2) / room**2
    columns = g + on_u / room
    moved = rate * (columns - c * _sum(rate * columns) / (1.0 + c * _sum(rate)))
    lifted = torch.where(in_u, _sum(moved) / room, moved)
    # |U| = k
    even = torch.where(in_u, on_u / (k * top + bend * k**2), 0.0)
    return torch.where(full, even, lifted)


def weighted_pieces(
    x: Tensor, g: Tensor, weights: Tensor, radius: float, label: bool, bias: float
) -> Tensor:
    """Apply D for zeta Perm(w): pools whose sum is fixed, and the direction of zeta.

    Sort x in descending order. A pool ends where the largest entries have all that the weights
    allow; with a slot for the label, also where the smallest have no more than they must, and
    what lies between the last of the former and the first of the latter is free.
    """
    order = x.argsort(dim=-1, descending=True, stable=True)
    row = x.gather(-1, order)
    length = x.shape[-1]
    w = torch.nn.functional.pad(weights, (0, max(0, length + int(label) - weights.numel())))
    mass = w[:length]
    heads, allowed = row.cumsum(-1), mass.cumsum(0)
    if not label:
        zeta = heads[..., -1:] / allowed[-1]
        ends = at_least(heads, zeta * allowed, x)
        free, share = torch.zeros_like(ends), mass.expand_as(row)
    else:
        spare_mass = w[1 : length + 1]
        tails = row.flip(-1).cumsum(-1).flip(-1)
        needed = spare_mass.flip(0).cumsum(0).flip(0)
        zeta = (heads / allowed).amax(-1, keepdim=True)
        least = torch.where(needed > 0, tails / _nonzero(needed), torch.inf)
        bound = at_least(zeta, least.amin(-1, keepdim=True).clamp(max=radius), x)
        zeta = torch.where(bound, zeta, 0.0)  # nothing presses on zeta: no entry is held
        full = at_least(heads, zeta * allowed, x) & (zeta > 0)
        # entries from here on have no more than needed
        spare = tails <= zeta * needed + slack(x) * heads[..., -1:]
        place = torch.arange(length, device=x.device)
        last = torch.where(full, place + 1, 0).amax(-1, keepdim=True)
        first = torch.where(spare & (place >= last), place, length).amin(-1, keepdim=True)
        starts_later = torch.cat([spare[..., 1:], torch.ones_like(spare[..., :1])], dim=-1)
        free = (place >= last) & (place < first)
        ends = torch.where(place < last, full, starts_later | free)
        share = torch.where(place < last, mass, torch.where(free, 0.0, spare_mass))
    pool_mean = _pool_means(ends)
    held = at_least(zeta, radius, x) | (zeta == 0) | free  # at 0, zeta has no room to fall
    direction = torch.where(held, 0.0, pool_mean(share))
    square = _nonzero(_sum(direction * direction))

    def project(h: Tensor) -> Tensor:
        centred = torch.where(free, h, h - pool_mean(h))
        return centred + direction * (_sum(direction * h) / square)

    moved = _with_bias(g.gather(-1, order), project, bias, False)
    return moved.gather(-1, order.argsort(dim=-1))


def _pool_means(ends: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function that puts the mean of its pool in the place of each entry."""
    length = ends.shape[-1]
    place = torch.arange(length, device=ends.device)
    ends = ends | (place == length - 1)
    last = torch.where(ends, place, length).flip(-1).cummin(-1).values.flip(-1)
    before = torch.cat([torch.zeros_like(ends[..., :1]), ends[..., :-1]], dim=-1)
    first = torch.where(before, place, 0).cummax(-1).values

    def mean(h: Tensor) -> Tensor:
        sums = torch.nn.functional.pad(h.cumsum(-1), (1, 0))
        size = (last - first + 1).to(h.dtype)
        return (sums.gather(-1, last + 1) - sums.gather(-1, first)) / size

    return mean
