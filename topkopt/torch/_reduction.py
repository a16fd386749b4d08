"""What the losses share with `torch.nn.functional.cross_entropy`: shapes, weights, reduction."""

from __future__ import annotations

import torch
from torch import Tensor

from topkopt.torch._differentiation import evaluate
from topkopt.torch._row_losses import RowLoss

__all__ = ["reduced"]


def reduced(
    loss: RowLoss,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """Evaluate a loss on logits of shape (C), (N, C) or (N, C, d1, ...) and reduce it."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction must be "mean", "sum" or "none", got {reduction!r}.')
    classes = _check_shapes(loss, input, target, weight)
    loss.check_classes(input.shape[classes])
    scores, sets = input.movedim(classes, -1), target
    device = input.device.type
    if _has_autocast(device) and torch.is_autocast_enabled(device):
        scores = scores.float()
    result = scores.dtype
    if scores.dtype not in (torch.float32, torch.float64):
        scores = scores.float()
    if loss.multilabel:
        sets = _as_sets(input, target, classes)
        labels, ignored = _label_sets(sets, scores, target.ndim == input.ndim, ignore_index)
    else:
        ignored = target == ignore_index
        labels = torch.where(ignored, 0, target).long()
    values = evaluate(loss, scores, labels)
    counts = _counts(labels, weight, loss.multilabel, values)
    counts = torch.where(ignored, 0.0, counts)
    values = torch.where(ignored, 0.0, values) * counts
    if reduction == "none":
        return values.to(result)
    total = values.sum()
    return (total if reduction == "sum" else total / counts.sum()).to(result)


@torch.compiler.assume_constant_result  # torch 2.4 cannot trace the question
def _has_autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device)


def _check_shapes(loss: RowLoss, input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """Return the dimension of the classes."""
    if input.ndim == 0 or not input.is_floating_point():
        raise ValueError(
            "input must be a floating point tensor of shape (C), (N, C) or (N, C, d1, ...), got "
            f"{input.dtype} of shape {tuple(input.shape)}."
        )
    classes = 0 if input.ndim == 1 else 1
    indices = input.shape[:classes] + input.shape[classes + 1 :]
    wanted = [indices, input.shape] if loss.multilabel else [indices]
    is_index = target.ndim == input.ndim - 1
    if target.shape not in wanted or (is_index and target.is_floating_point()):
        kinds = "class indices" + (" or a multi-hot tensor" if loss.multilabel else "")
        raise ValueError(
            f"target must be {kinds} of shape {' or '.join(str(tuple(s)) for s in wanted)} for "
            f"input of shape {tuple(input.shape)}, got {target.dtype} of {tuple(target.shape)}."
        )
    if weight is not None and weight.shape != input.shape[classes : classes + 1]:
        raise ValueError(
            f"weight must have one entry for each of {input.shape[classes]} classes, got shape "
            f"{tuple(weight.shape)}."
        )
    return classes


def _as_sets(input: Tensor, target: Tensor, classes: int) -> Tensor:
    return target.movedim(classes, -1) if target.ndim == input.ndim else target


def _label_sets(
    target: Tensor, scores: Tensor, multi_hot: bool, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return a mask of labels, and which examples to leave out: those that hold ignore_index."""
    if multi_hot:
        if target.dtype == torch.bool:
            return target, torch.zeros_like(target[..., 0])
        return target > 0, (target == ignore_index).any(-1)
    classes = torch.arange(scores.shape[-1], device=scores.device)
    return target.unsqueeze(-1) == classes, target == ignore_index


def _counts(labels: Tensor, weight: Tensor | None, multilabel: bool, values: Tensor) -> Tensor:
    """Return how much each example counts: the weight of its label, the mean of several."""
    if weight is None:
        return torch.ones_like(values)
    weight = weight.to(values.dtype)
    if not multilabel:
        return weight[labels]
    chosen = labels.to(values.dtype)
    return (chosen * weight).sum(-1) / chosen.sum(-1).clamp(min=1.0)
