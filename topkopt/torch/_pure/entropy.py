r"""Entropic proxes: a softmax with a cap, a quadratic, or a top-k constraint.

**Capped softmax.**  Solve  min <x,log x> - <b,x>,  <1,x> = 1,  x <= u.
The solution is  x_j = min(e^(b_j - t), u).  At most K = ceil(1/u) entries can be at the cap, so it
takes the K largest entries and the sum of all other exponentials: with T_j the logarithm of
e^(b_j) + e^(b_{j+1}) + ... in descending order, entry j is free if it is at most u when
the mass 1 - (j-1) u is left to it and to those behind it.

**With a quadratic**, alpha > 0, x_j = min(V(b_j - t)/alpha, u), and t is the root of a decreasing
function. So it is for the **top-k simplex**: with c = alpha s/k and mu_j = max(0, b_j-t-c-log c),

    sum_j min(V(b_j - t), c) = k c,      k c + V(alpha - t - <1,mu>/k) = alpha.

The root is searched in a bracket, by Newton's method on the logarithm and, every third
step, by halving.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from topkopt.torch._pure.lambert import inverse_lambertw_exp, lambertw_exp
from topkopt.torch._pure.scan import Level, as_it_is, constants, running_from_end, take

__all__ = ["capped_softmax", "prox_entropy", "prox_topk_entropy", "topk_softmax"]

_STEPS = {torch.float32: 33, torch.float64: 63}  # of a search; a third of them halve the bracket


def _n_capped_at_most(share: float, length: int) -> int:
    """Return K, the number of entries that share the mass if all of them are at the cap."""
    return min(length, max(1, math.ceil(1.0 / share * (1.0 - 1e-12))))


def _threshold(b: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return t minus the K-th largest, the number of capped entries and the K largest.

    They are those of mass 1 and u = share; with fewer than K entries above -inf, t is +inf.
    """
    count = _n_capped_at_most(share, b.shape[-1])
    top, place = b.topk(count, dim=-1)
    near = top[..., -1:]
    rest = (b - near).scatter_(-1, place, -torch.inf).exp_().sum(-1, keepdim=True)
    relative = top - near
    tails = running_from_end(
        torch.cat([relative[..., :-1], torch.log1p(rest)], dim=-1), torch.logaddexp
    )
    used = share * torch.arange(count, device=b.device, dtype=b.dtype)
    log_left = torch.log1p(-used)
    capped = log_left + relative - tails > math.log(share)
    n_capped = capped[..., : count - 1].sum(-1, keepdim=True)
    t = take(tails, n_capped) - log_left[n_capped]
    return torch.where(near > -torch.inf, t, torch.inf), n_capped, top


def capped_softmax(b: Tensor, share: float) -> Tensor:
    """Return the softmax with no entry above share."""
    if share >= 1.0:
        return torch.softmax(b, dim=-1)
    t, _, top = _threshold(b, share)
    return torch.exp(b - top[..., -1:] - t).clamp(max=share)


def topk_softmax(b: Tensor, k: int, level: Level = as_it_is) -> tuple[Tensor, Tensor]:
    """Return M = max <b,q> - <q,log q> over the capped softmaxes q <= 1/k, and sigma(M) q."""
    t, n_capped, top = _threshold(b, 1.0 / k)
    enough = t < torch.inf  # or else there is no q
    near, t = top[..., -1:], torch.where(enough, t, 0.0)
    is_capped = torch.arange(top.shape[-1], device=b.device) < n_capped
    capped_sum = torch.where(is_capped, level(top) + math.log(k), 0.0).sum(-1, keepdim=True)
    largest = capped_sum / k + (level(near) + t) * ((k - n_capped).to(b.dtype) / k)
    largest = torch.where(enough, largest, -torch.inf)
    log_sigma = torch.nn.functional.logsigmoid(largest)
    d = torch.where(enough, b - near, 0.0)
    return largest, d.sub_(t).clamp_(max=-math.log(k)).add_(log_sigma).exp_()


def _decreasing_root(
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor]], low: Tensor, high: Tensor
) -> Tensor:
    """Return t with f(t) = 0, where evaluate gives f and its negative slope f' < 0."""
    t = low
    for step in range(_STEPS[low.dtype]):
        value, slope = evaluate(t)
        low = torch.where(value >= 0, t, low)
        high = torch.where(value <= 0, t, high)
        newton = t - value / slope
        inside = (newton >= low) & (newton <= high)
        halve = low + (high - low) / 2
        if step % 3 == 2 and step < _STEPS[low.dtype] - 6:
            # What has converged stays where it is.
            inside = inside & ((newton - t).abs() <= 1e-9 * (1 + t.abs()))
        t = torch.where(inside, newton, halve)
    return t


def prox_entropy(b: Tensor, alpha: float, radius: float, upper: float) -> Tensor:
    """Minimise alpha/2 |x|^2 - <b,x> + <x,log x> with <1,x> = radius, x <= upper."""
    share = min(1.0, upper / radius) if radius > 0 else 1.0
    if radius == 0:
        return torch.zeros_like(b)
    if alpha * radius < torch.finfo(b.dtype).eps / 8:
        return radius * capped_softmax(b, share)
    count = _n_capped_at_most(share, b.shape[-1])
    target, cap = alpha * radius, alpha * radius * share
    top = b.topk(count, dim=-1).values
    near = top[..., -1:]
    d = b - near

    def evaluate(t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logarithm of (what is free)/(what is left to it), and its slope."""
        v = lambertw_exp(d - t)
        free = v < cap
        left = target - cap * (~free).to(b.dtype).sum(-1, keepdim=True)
        total = torch.where(free, v, 0.0).sum(-1, keepdim=True)
        rate = torch.where(free, v / (1 + v), 0.0).sum(-1, keepdim=True)
        value = torch.where(left > 0, total.log() - left.clamp(min=tiny).log(), torch.inf)
        return value, -rate / total

    tiny = torch.finfo(b.dtype).tiny
    ends = inverse_lambertw_exp(constants([target / count, target / b.shape[-1]], b))
    low = torch.zeros_like(near) - ends[0]  # here the K largest have the whole mass,
    high = (top[..., :1] - near) - ends[1]  # and here no entry has its part of it
    t = _decreasing_root(evaluate, low, high)
    v = lambertw_exp(d - t)
    free = v < cap
    left = (target - cap * (~free).to(b.dtype).sum(-1, keepdim=True)).clamp(min=0.0)
    total = torch.where(free, v, 0.0).sum(-1, keepdim=True)
    scale = torch.where(total > 0, left / total.clamp(min=tiny), 0.0)  # the sum has the last word
    return torch.where(free, (v * scale).clamp(max=cap), cap) / alpha


def prox_topk_entropy(b: Tensor, alpha: float, k: int) -> Tensor:
    """Minimise alpha/2 (|x|^2 + s^2) - <b,x> + <x,log x> + (1-s) log(1-s), 0 <= x <= s/k."""
    if alpha < torch.finfo(b.dtype).eps / 8:
        return topk_softmax(b, k)[1]
    top = b.topk(k, dim=-1).values
    reached = b >= top[..., -1:]
    ties = reached.sum(-1, keepdim=True) - k
    near = top[..., -1:]
    enough = near > -torch.inf
    near = torch.where(enough, near, 0.0)
    top = torch.where(enough, top, 0.0) - near
    d = torch.where(enough, b - near, 0.0)
    room = torch.arange(k, 0, -1, device=b.device, dtype=b.dtype).log()

    def logs(e: Tensor) -> tuple[Tensor, Tensor]:
        """Return V(e) and its logarithm, which is e - V and does not underflow."""
        v = lambertw_exp(e)
        return v, torch.where(v < 1, e - v, v.clamp(min=1).log())

    def caps(t: Tensor) -> tuple[Tensor, ...]:
        """Return |U|, log c, and d log c/dt, for one t."""
        v, log_v = logs(d - t)
        v_top, log_top = logs(top - t)
        last = log_top[..., -1:]
        weight = (log_v - last).masked_fill(reached, -torch.inf).exp()
        rest = weight.sum(-1, keepdim=True) + ties
        rate_rest = (weight / (1 + v)).sum(-1, keepdim=True) + ties / (1 + v_top[..., -1:])
        tails = running_from_end(
            torch.cat([log_top[..., :-1], last + torch.log1p(rest)], dim=-1), torch.logaddexp
        )
        fits = room + log_top <= tails
        fits[..., -1] = True
        n_u = (~fits).sum(-1, keepdim=True)
        log_tail = take(tails, n_u)
        place = torch.arange(k, device=b.device)
        own = torch.where(place >= n_u, (log_top - log_tail).exp() / (1 + v_top), 0.0)
        rate = own.sum(-1, keepdim=True) + rate_rest * (last - log_tail).exp()
        return n_u, log_tail - room[n_u], -rate

    def evaluate(t: Tensor) -> tuple[Tensor, Tensor]:
        n_u, log_c, c_rate = caps(t)
        c = log_c.exp()
        place = torch.arange(k, device=b.device)
        mu = torch.where(place < n_u, top - t - c - log_c, 0.0).sum(-1, keepdim=True)
        mu_rate = n_u * (-1 - (1 + c) * c_rate)
        y = lambertw_exp(alpha - near - t - mu / k)
        total = k * c + y
        slope = k * c * c_rate + y / (1 + y) * (-1 - mu_rate / k)
        return total.log() - math.log(alpha), slope / total

    def at(v: float) -> Tensor:
        return inverse_lambertw_exp(torch.full_like(near, v))

    low = -at(alpha / k)  # here the k largest alone would have s >= 1,
    high = torch.maximum(-at(alpha / (2 * k * b.shape[-1])), alpha - near - at(alpha / 2))
    t = _decreasing_root(evaluate, low, torch.maximum(high, low))
    log_cap = caps(t)[1].clamp(max=math.log(alpha / k))
    x = torch.minimum(logs(d - t)[1], log_cap).exp() / alpha
    return torch.where(enough, x, 0.0)
