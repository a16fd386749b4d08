"""The door from tensors to the two bodies, with derivatives of every order and direction.

In eager mode a map is one `torch.autograd.Function`: its backward and its jvp are the derivative
at the solution, which is a differentiable function of the solution, and its vmap is a further
dimension of vectors. A loss is the pair of its value and its gradient v in the scores; the
derivative of the value is v, and that of v makes the second derivative. `torch.compile` traces
functions without a jvp only, or the operators of `_compiled`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import topkopt.torch._compiled as _compiled
from topkopt.torch._operators import Operator
from topkopt.torch._row_losses import RowLoss

__all__ = ["evaluate", "solve"]

use_kernels = True  # tests turn them off, to see on a CPU what other devices do


def _takes_kernels(x: Tensor) -> bool:
    return use_kernels and _compiled.has_kernels(x)


def _is_differentiated(x: Tensor) -> bool:
    """Return whether a derivative may be asked for; torch 2.4 traces functions only then."""
    return torch.is_grad_enabled() and x.requires_grad


def _to_front(tensor: Tensor, dim: int | None, ndim: int) -> Tensor:
    """Move the dimension of vmap to the front of a tensor that is broadcast to ndim others."""
    if dim is None:
        return tensor
    moved = tensor.movedim(dim, 0)
    return moved.reshape(moved.shape[:1] + (1,) * (ndim + 1 - moved.ndim) + moved.shape[1:])


# Maps ---------------------------------------------------------------------------------------


class _Traced(torch.autograd.Function):
    """A map as `torch.compile` can trace it."""

    @staticmethod
    def forward(operator: Operator, b: Tensor, *bounds: Tensor) -> Tensor:
        if _takes_kernels(b):
            return _compiled.call_operator(operator, b, *bounds)
        x = operator.pure(b, *bounds)
        return torch.where(operator.solvable(b, *bounds), x, torch.nan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operator = inputs[0]
        ctx.save_for_backward(output, *inputs[2:])
        ctx.save_for_forward(output, *inputs[2:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *bounds = ctx.saved_tensors
        return None, ctx.operator.derivative(x, g, *bounds), *[None] * len(bounds)


class _Solve(_Traced):
    """A map with all transforms of `torch.func`."""

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor, *__: Tensor | None) -> Tensor:
        x, *bounds = ctx.saved_tensors
        return ctx.operator.derivative(x, tangent, *bounds)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], operator: Operator, *tensors: Tensor
    ) -> tuple[Tensor, int]:
        ndim = tensors[0].ndim - (in_dims[1] is not None)
        moved = [_to_front(t, dim, ndim) for t, dim in zip(tensors, in_dims[1:], strict=True)]
        if in_dims[1] is None:
            moved[0] = moved[0].expand(info.batch_size, *moved[0].shape)
        return _Solve.apply(operator, *moved), 0


def solve(operator: Operator, b: Tensor, *bounds: Tensor) -> Tensor:
    """Solve vectors along the last dimension of a float32 or float64 tensor."""
    if not torch.compiler.is_compiling():
        return _Solve.apply(operator, b, *bounds)
    if _takes_kernels(b):
        return _compiled.call_operator(operator, b, *bounds)
    call = _Traced.apply if _is_differentiated(b) else _Traced.forward
    return call(operator, b, *bounds)


# Losses -------------------------------------------------------------------------------------


class _TracedLoss(torch.autograd.Function):
    """Value and gradient of a loss as `torch.compile` can trace them."""

    @staticmethod
    def forward(loss: RowLoss, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if _takes_kernels(s):
            return _compiled.call_loss(loss, s, target)
        return loss.pure(s, target)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.loss = inputs[0]
        ctx.save_for_backward(output[1], inputs[2])
        ctx.save_for_forward(output[1], inputs[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, of_value: Tensor | None, of_v: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        v, target = ctx.saved_tensors
        return None, _compiled.loss_backward(ctx.loss, v, target, of_value, of_v), None


class _Evaluate(_TracedLoss):
    """Value and gradient with all transforms of `torch.func`."""

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor, __: None) -> tuple[Tensor, Tensor]:
        v, target = ctx.saved_tensors
        return (v * tangent).sum(-1), ctx.loss.derivative(v, target, tangent)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], loss: RowLoss, s: Tensor, target: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        s, target = (
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in ((s, in_dims[1]), (target, in_dims[2]))
        )
        return _Evaluate.apply(loss, s, target), (0, 0)


def evaluate(loss: RowLoss, s: Tensor, target: Tensor) -> Tensor:
    """Return the losses of rows of float32 or float64 scores along the last dimension."""
    if not torch.compiler.is_compiling():
        return _Evaluate.apply(loss, s, target)[0]
    if _takes_kernels(s):
        return _compiled.call_loss(loss, s, target)[0]
    call = _TracedLoss.apply if _is_differentiated(s) else _TracedLoss.forward
    return call(loss, s, target)[0]
