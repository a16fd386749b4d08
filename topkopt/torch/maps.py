"""Projections and entropic proxes as layers: exact in both directions.

They are the functions of `topkopt.projections` and `topkopt.prox` for tensors, with ``dim`` in the
place of ``axis``. Entries of -inf get no mass (masks); a vector that has no solution, because it
holds NaN or +inf or nothing but -inf, becomes NaN, as in `torch.softmax`. Derivatives of any order
exist away from kinks, where entries join or leave a bound; parameters and bounds are constants.
float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

import topkopt.torch._operators as _operators
from topkopt._validation import check_flag, check_k, check_scalar, check_weights
from topkopt.torch._differentiation import solve

__all__ = [
    "project_capped_simplex",
    "project_simplex",
    "project_topk_simplex",
    "project_weighted_topk",
    "prox_entropy_simplex",
    "prox_topk_entropy",
]


def _check_vectors(x: Tensor, dim: int, name: str) -> int:
    """Return the length of the vectors along dim."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name} must be a tensor of floating point numbers, got {got}.")
    if not -x.ndim <= dim < x.ndim or x.shape[dim] == 0:
        raise ValueError(
            f"dim must be a dimension of {name} with at least one entry, got {dim} for shape "
            f"{tuple(x.shape)}."
        )
    return x.shape[dim]


def _along(operator: _operators.Operator, dim: int, x: Tensor, *bounds: Tensor) -> Tensor:
    """Solve along a dimension, in float32 at least."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    moved = [t.to(dtype).movedim(dim, -1) if t.ndim else t.to(dtype) for t in (x, *bounds)]
    return solve(operator, *moved).movedim(-1, dim).to(x.dtype)


def project_simplex(x: Tensor, radius: float = 1.0, *, dim: int = -1) -> Tensor:
    """Project onto the simplex ``{p >= 0, sum p = radius}``; also known as sparsemax.

    Parameters
    ----------
    x : Tensor
        The vectors to project, along `dim`.
    radius : float, default 1.0
        The sum of each projected vector; non-negative.
    dim : int, default -1
        The dimension along which the vectors lie.

    Returns
    -------
    Tensor
        The projections, of the shape of `x`.

    Examples
    --------
    >>> import torch
    >>> from topkopt.torch import project_simplex
    >>> project_simplex(torch.tensor([0.5, 1.0, -1.0]))
    tensor([0.2500, 0.7500, 0.0000])
    """
    _check_vectors(x, dim, "x")
    return _along(_operators.Simplex(check_scalar(radius, "radius")), dim, x)


def _as_bound(bound: float | Tensor, x: Tensor, name: str) -> Tensor:
    if not isinstance(bound, Tensor):
        number = check_scalar(bound, name, signed=True, finite=name == "lower")
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32  # as in _along
        return torch.full((), number, dtype=dtype, device=x.device)
    if bound.requires_grad:
        raise ValueError(f"{name} must not require a gradient, which is not computed; detach it.")
    try:
        return bound.expand(x.shape) if bound.ndim else bound
    except RuntimeError:
        raise ValueError(
            f"{name} must broadcast to the shape {tuple(x.shape)} of x, got {tuple(bound.shape)}."
        ) from None


def project_capped_simplex(
    x: Tensor,
    lower: float | Tensor,
    upper: float | Tensor,
    total: float,
    *,
    equality: bool = True,
    bias: float = 0.0,
    dim: int = -1,
) -> Tensor:
    """Project onto ``{lower <= p <= upper, sum p = total}``.

    Parameters
    ----------
    x : Tensor
        The vectors to project, along `dim`.
    lower, upper : float or Tensor
        Bounds on each entry; tensors are broadcast to the shape of `x`. `upper` may be infinite.
        Vectors whose bounds leave no point become NaN.
    total : float
        The sum of each projected vector, or its upper bound.
    equality : bool, default True
        Whether the sum must equal `total` (True) or may not exceed it (False).
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``; without effect when `equality` is true.
    dim : int, default -1
        The dimension along which the vectors lie.

    Returns
    -------
    Tensor
        The projections, of the shape of `x`.

    Examples
    --------
    >>> import torch
    >>> from topkopt.torch import project_capped_simplex
    >>> project_capped_simplex(torch.tensor([3.0, 1.0, 0.5]), 0.0, 1.0, 1.5)
    tensor([1.0000, 0.5000, 0.0000])
    """
    length = _check_vectors(x, dim, "x")
    total = check_scalar(total, "total", signed=True)
    equality, bias = check_flag(equality, "equality"), check_scalar(bias, "bias")
    if not isinstance(lower, Tensor) and not isinstance(upper, Tensor):
        most = length * upper if equality else total
        if not lower <= upper or not length * lower <= total * (1 + 1e-12) + 1e-300:
            raise ValueError(
                f"lower must not exceed upper, nor {length} times lower the total, got {lower!r}, "
                f"{upper!r} and {total!r}; widen the bounds."
            )
        if most < total * (1 - 1e-12):
            raise ValueError(
                f"total must be at most {length} times upper ({most:g}), got {total:g}; raise "
                "upper or pass equality=False."
            )
    bounds = _as_bound(lower, x, "lower"), _as_bound(upper, x, "upper")
    return _along(_operators.Box(total, equality, bias), dim, x, *bounds)


def project_topk_simplex(
    x: Tensor,
    k: int,
    radius: float = 1.0,
    *,
    kind: Literal["alpha", "beta", "label"] = "alpha",
    bias: float = 0.0,
    dim: int = -1,
) -> Tensor:
    """Project onto a top-k simplex: no entry holds more than the k-th part of the mass.

    Parameters
    ----------
    x : Tensor
        The vectors to project, along `dim`.
    k : int
        At least 1 and at most the length of a vector (one more for kind "label").
    radius : float, default 1.0
        The largest sum; non-negative.
    kind : {"alpha", "beta", "label"}, default "alpha"
        Which of the sets, see `topkopt.projections.project_topk_simplex`.
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``.
    dim : int, default -1
        The dimension along which the vectors lie.

    Returns
    -------
    Tensor
        The projections, of the shape of `x`.

    Examples
    --------
    >>> import torch
    >>> from topkopt.torch import project_topk_simplex
    >>> project_topk_simplex(torch.tensor([2.0, 0.5, 0.25, -1.0]), 2)
    tensor([0.5000, 0.3750, 0.1250, 0.0000])
    """
    length = _check_vectors(x, dim, "x")
    if kind not in ("alpha", "beta", "label"):
        raise ValueError(f"kind must be one of alpha, beta, label, got {kind!r}.")
    k = check_k(k, length + (kind == "label"), "the number of entries along dim")
    radius, bias = check_scalar(radius, "radius"), check_scalar(bias, "bias")
    return _along(_operators.TopKSimplex(k, radius, kind, bias), dim, x)


@torch.compiler.assume_constant_result  # the weights are constants of a compiled graph
def _listed(weights: Sequence[float] | Tensor, most: int) -> tuple[float, ...]:
    return tuple(check_weights(weights, most).tolist())


def project_weighted_topk(
    x: Tensor,
    weights: Sequence[float] | Tensor,
    radius: float = 1.0,
    *,
    label: bool = False,
    bias: float = 0.0,
    dim: int = -1,
) -> Tensor:
    """Project onto the weighted top-k set ``{p in z * Perm(weights), 0 <= z <= radius}``.

    Parameters
    ----------
    x : Tensor
        The vectors to project, along `dim`.
    weights : sequence of float, or Tensor on the CPU
        Non-increasing, non-negative; constants.
    radius : float, default 1.0
        The largest multiple z of the weights; non-negative.
    label : bool, default False
        Whether one slot belongs to a coordinate that is not in `x`.
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``.
    dim : int, default -1
        The dimension along which the vectors lie.

    Returns
    -------
    Tensor
        The projections, of the shape of `x`.

    Examples
    --------
    >>> import torch
    >>> from topkopt.torch import project_weighted_topk
    >>> project_weighted_topk(torch.tensor([3.0, 2.0, -1.0]), [0.75, 0.25])
    tensor([0.7500, 0.2500, 0.0000])
    """
    length = _check_vectors(x, dim, "x")
    label = check_flag(label, "label")
    w = _listed(weights, length + label)
    radius, bias = check_scalar(radius, "radius"), check_scalar(bias, "bias")
    return _along(_operators.WeightedTopK(w, radius, label, bias), dim, x)


def prox_entropy_simplex(
    b: Tensor, alpha: float, radius: float = 1.0, *, upper: float | None = None, dim: int = -1
) -> Tensor:
    """Entropic prox on the (capped) simplex; for ``alpha = 0`` the (capped) softmax.

    Minimises ``alpha/2 |x|^2 - <b, x> + <x, log x>`` over ``x >= 0, sum x = radius, x <= upper``.

    Parameters
    ----------
    b : Tensor
        The vectors of linear terms, along `dim`.
    alpha : float
        Weight of the quadratic term; non-negative.
    radius : float, default 1.0
        The sum of each solution; non-negative.
    upper : float, optional
        The largest value of an entry; vectors that cannot reach `radius` become NaN.
    dim : int, default -1
        The dimension along which the vectors lie.

    Returns
    -------
    Tensor
        The solutions, of the shape of `b`.

    Examples
    --------
    >>> import torch
    >>> from topkopt.torch import prox_entropy_simplex
    >>> prox_entropy_simplex(torch.tensor([1.0, 2.0, 5.0]).log(), 0.0, upper=0.4)
    tensor([0.2000, 0.4000, 0.4000])
    """
    length = _check_vectors(b, dim, "b")
    alpha, radius = check_scalar(alpha, "alpha"), check_scalar(radius, "radius")
    cap = torch.inf if upper is None else check_scalar(upper, "upper", finite=False)
    if cap * length < radius * (1 - 1e-12):
        raise ValueError(
            f"upper must let {length} entries reach radius, got {cap:g} and {radius:g}; raise "
            "upper or lower radius."
        )
    cap = cap if radius > 0 else torch.inf
    return _along(_operators.EntropySimplex(alpha, radius, cap), dim, b)


def prox_topk_entropy(b: Tensor, alpha: float, k: int = 1, *, dim: int = -1) -> Tensor:
    """Entropic prox on the top-k simplex, the step of the top-k entropy loss.

    Minimises ``alpha/2 (|x|^2 + s^2) - <b, x> + <x, log x> + (1 - s) log(1 - s)`` over
    ``0 <= x_j <= s/k`` with ``s = sum x``.

    Parameters
    ----------
    b : Tensor
        The vectors of linear terms, along `dim`.
    alpha : float
        Weight of the quadratic terms; non-negative.
    k : int, default 1
        No entry may hold more than the k-th part of the sum.
    dim : int, default -1
        The dimension along which the vectors lie.

    Returns
    -------
    Tensor
        The solutions, of the shape of `b`.

    Examples
    --------
    >>> import torch
    >>> from topkopt.torch import prox_topk_entropy
    >>> prox_topk_entropy(torch.zeros(2), 0.0, 2)
    tensor([0.3333, 0.3333])
    """
    length = _check_vectors(b, dim, "b")
    k = check_k(k, length, "the number of entries along dim")
    return _along(_operators.TopKEntropy(check_scalar(alpha, "alpha"), k), dim, b)
