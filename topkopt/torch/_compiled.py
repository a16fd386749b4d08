"""The compiled kernels as operators of torch, ``torch.ops.topkopt``: CPU, float32 and float64.

Tensors and arrays share their memory, rows are shared among ``torch.get_num_threads()`` threads
(the kernels work without the GIL), and since a row knows nothing of the others, the result does not
depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from topkopt._threads import Team
from topkopt.torch._operators import OPERATORS, Operator
from topkopt.torch._row_losses import ROW_LOSSES, RowLoss

__all__ = ["call_loss", "call_operator", "has_kernels"]


def has_kernels(x: Tensor) -> bool:
    """Return whether the kernels take such tensors."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


# Maps ---------------------------------------------------------------------------------------


def _solve(operator: Operator, b: Tensor, *bounds: Tensor) -> Tensor:
    """Solve all vectors that have a solution; the others are NaN."""
    solvable = operator.solvable(b, *bounds).squeeze(-1)
    if bool(solvable.all()):
        return _solve_rows(operator, b, *bounds)
    x = torch.full(b.shape, torch.nan, dtype=b.dtype)
    chosen = [bound.expand_as(b)[solvable] if bound.ndim else bound for bound in bounds]
    x[solvable] = _solve_rows(operator, b[solvable], *chosen)
    return x


def _solve_rows(operator: Operator, b: Tensor, *bounds: Tensor) -> Tensor:
    x = torch.empty(b.shape, dtype=b.dtype)
    rows, out = (tensor.reshape(-1, b.shape[-1]).numpy() for tensor in (b.contiguous(), x))
    spread = [
        bound.expand_as(b).reshape(rows.shape).numpy() if bound.ndim else bound.numpy()
        for bound in bounds
    ]
    solve: Any = operator.compiled  # which takes as many bounds as there are
    if x.numel():
        solve(rows, *spread, out=out, n_threads=torch.get_num_threads())
    return x


def _fake_map(b: Tensor, *_: Any) -> Tensor:
    return b.new_empty(b.shape)


def _define_map(name: str, kind: type[Operator]) -> None:
    count = len(kind.inputs)

    def run(*arguments: Any) -> Tensor:
        return _solve(kind(*arguments[count:]), *arguments[:count])

    def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operator = kind(*inputs[count:])
        ctx.save_for_backward(output, *inputs[1:count])

    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *bounds = ctx.saved_tensors
        nothing = [None] * (count - 1 + len(ctx.operator.parameters()))
        return ctx.operator.derivative(x, g, *bounds), *nothing

    tensors = ", ".join(f"Tensor {tensor}" for tensor in kind.inputs)
    _define(name, f"({tensors}, {kind.schema}) -> Tensor", run, _fake_map, remember, backward)


def call_operator(operator: Operator, *tensors: Tensor) -> Tensor:
    """Call the operator of torch that solves a map."""
    return _NAMED[type(operator)](*tensors, *operator.parameters())


# Losses -------------------------------------------------------------------------------------


def _evaluate(loss: RowLoss, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and gradients; rows that are not finite are left to the pure body."""
    m = s.shape[-1]
    rows = s.reshape(-1, m)
    labels = target.reshape(-1, m) if loss.multilabel else target.reshape(-1)
    if not loss.multilabel and labels.numel() and not _within(labels, m):
        raise IndexError(
            f"target must hold class indices from 0 to {m - 1}, got {int(labels.min())} to "
            f"{int(labels.max())}; mark examples to leave out with ignore_index."
        )
    # A sum is finite if all is: only what overflows is looked at again.
    finite = rows.sum(-1).isfinite() if bool(rows.sum().isfinite()) else rows.isfinite().all(-1)
    if bool(finite.all()):
        values, gradients = _evaluate_rows(loss, rows.contiguous(), labels)
    else:
        values, gradients = loss.pure(rows, labels)
        values[finite], gradients[finite] = _evaluate_rows(loss, rows[finite], labels[finite])
    return values.reshape(s.shape[:-1]), gradients.reshape(s.shape)


def _within(labels: Tensor, m: int) -> bool:
    least, most = torch.aminmax(labels)
    return bool(least >= 0) and bool(most < m)


def _evaluate_rows(loss: RowLoss, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    values, gradients = rows.new_empty(rows.shape[:1]), torch.empty_like(rows)
    index, start = _label_pointers(labels.numpy())
    scores, value, gradient = rows.numpy(), values.numpy(), gradients.numpy()

    def work(part: slice) -> None:
        own = start[part.start : part.stop + 1]
        loss.compiled(scores[part], (index, own), value[part], gradient[part])

    if rows.numel():
        Team(torch.get_num_threads()).each_row(work, *scores.shape)
    return values, gradients


def _label_pointers(labels: NDArray) -> tuple[NDArray, NDArray]:
    """Return the labels of all rows behind each other, and where those of each row start."""
    if labels.ndim == 1:
        return labels.astype(np.intp, copy=False), np.arange(len(labels) + 1, dtype=np.intp)
    start = np.zeros(len(labels) + 1, dtype=np.intp)
    np.cumsum(np.count_nonzero(labels, axis=1), out=start[1:])
    return np.ascontiguousarray(np.nonzero(labels)[1], dtype=np.intp), start


def _fake_loss(s: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return s.new_empty(s.shape[:-1]), s.new_empty(s.shape)


def loss_backward(
    loss: RowLoss, v: Tensor, target: Tensor, of_value: Tensor | None, of_v: Tensor | None
) -> Tensor | None:
    """Return the gradient in the scores, given those of the values and of their gradient v.

    That v is an output makes the second derivative: it is what the derivative of v gives.
    """
    first = None if of_value is None else of_value.unsqueeze(-1) * v
    if of_v is None:
        return first
    second = loss.derivative(v, target, of_v)
    return second if first is None else first + second


def _define_loss(name: str, kind: type[RowLoss]) -> None:
    def run(s: Tensor, target: Tensor, *parameters: Any) -> tuple[Tensor, Tensor]:
        return _evaluate(kind(*parameters), s, target)

    def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.loss = kind(*inputs[2:])
        ctx.save_for_backward(output[1], inputs[1])
        ctx.set_materialize_grads(False)

    def backward(
        ctx: Any, of_value: Tensor | None, of_v: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        v, target = ctx.saved_tensors
        nothing = [None] * (1 + len(ctx.loss.parameters()))
        return loss_backward(ctx.loss, v, target, of_value, of_v), *nothing

    parameters = f", {kind.schema}" if kind.schema else ""
    schema = f"(Tensor scores, Tensor target{parameters}) -> (Tensor, Tensor)"
    _define(name, schema, run, _fake_loss, remember, backward)


def call_loss(loss: RowLoss, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Call the operator of torch that evaluates a loss."""
    return _NAMED[type(loss)](s, target, *loss.parameters())


# Definitions --------------------------------------------------------------------------------


def _define(
    name: str, schema: str, run: Callable, fake: Callable, remember: Callable, backward: Callable
) -> None:
    made = torch.library.custom_op(
        f"topkopt::{name}", run, mutates_args=(), device_types="cpu", schema=schema
    )
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=remember)


for _name, _operator in OPERATORS.items():
    _define_map(_name, _operator)
for _name, _loss in ROW_LOSSES.items():
    _define_loss(_name, _loss)
_NAMED: dict[type, Any] = {
    kind: getattr(torch.ops.topkopt, name).default
    for name, kind in {**OPERATORS, **ROW_LOSSES}.items()
}
