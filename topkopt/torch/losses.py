"""The losses as functions, with the arguments of `torch.nn.functional.cross_entropy`.

==================== ======================================================================
input                logits of shape (C), (N, C) or (N, C, d1, ...)
target               class indices of shape (), (N) or (N, d1, ...); multilabel losses also
                     take a multi-hot tensor of the shape of `input`
weight               one weight per class. An example counts with that of its class, or with
                     the mean of those of its classes
ignore_index         examples with this target are left out; so are those whose multi-hot
                     target holds it
reduction            "mean" divides by the weights that count; "sum"; "none"
==================== ======================================================================

The formulas are those of the losses of the same name in `topkopt.losses`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

import topkopt.torch._row_losses as _row_losses
from topkopt._validation import check_flag, check_k, check_profile, check_scalar
from topkopt.torch._operators import Kind
from topkopt.torch._reduction import reduced

__all__ = [
    "multilabel_hinge",
    "multilabel_softmax",
    "one_vs_all_hinge",
    "one_vs_all_logistic",
    "topk_entropy",
    "topk_hinge",
    "truncated_topk_entropy",
    "weighted_topk_hinge",
]


def _check_places(k: int) -> int:
    return check_k(k, sys.maxsize, "the number of other classes")


@torch.compiler.assume_constant_result  # the weights are constants of a compiled graph
def listed_profile(weights: Sequence[float] | str, k: int | None) -> tuple[float, ...]:
    """Return the weights of the places, given as such or as the name of a profile."""
    return tuple(np.asarray(check_profile(weights, k)).tolist())


def topk_hinge(
    input: Tensor,
    target: Tensor,
    k: int,
    *,
    kind: Kind = "alpha",
    smoothing: float = 0.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Top-k hinge loss, for kind alpha ``max(0, mean of the k largest 1 + s_j - s_y)``.

    Parameters are those of `topkopt.losses.TopKHinge`, and the arguments at the top of this module.

    >>> import torch
    >>> from topkopt.torch import topk_hinge
    >>> topk_hinge(torch.tensor([[1.0, 0.5, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 0]), 2)
    tensor(1.6250)
    """
    if kind not in ("alpha", "beta", "label"):
        raise ValueError(f"kind must be one of alpha, beta, label, got {kind!r}.")
    loss = _row_losses.TopKHinge(check_scalar(smoothing, "smoothing"), _check_places(k), kind)
    return reduced(loss, input, target, weight, ignore_index, reduction)


def weighted_topk_hinge(
    input: Tensor,
    target: Tensor,
    weights: Sequence[float] | str,
    k: int | None = None,
    *,
    label: bool = False,
    smoothing: float = 0.0,
    envelope: Literal["others", "all"] = "others",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Weighted top-k hinge loss ``max(0, w_1 h_[1] + w_2 h_[2] + ...)``, h = 1 + s_j - s_y.

    `weights` belong to the places 1, 2, ..., `weight` to the classes. Parameters are those of
    `topkopt.losses.WeightedTopKHinge`, and the arguments at the top of this module.

    >>> import torch
    >>> from topkopt.torch import weighted_topk_hinge
    >>> weighted_topk_hinge(torch.tensor([1.0, 0.5, 0.0]), torch.tensor(0), [0.75, 0.25])
    tensor(0.3750)
    """
    if envelope not in ("others", "all"):
        raise ValueError(f"envelope must be others or all, got {envelope!r}.")
    w = listed_profile(weights, k)
    label = check_flag(label, "label")
    loss = _row_losses.WeightedTopKHinge(check_scalar(smoothing, "smoothing"), w, label, envelope)
    return reduced(loss, input, target, weight, ignore_index, reduction)


def topk_entropy(
    input: Tensor,
    target: Tensor,
    k: int,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Top-k entropy loss, the softmax loss whose mass must be shared by k others; k = 1 is softmax.

    Parameters are those of `topkopt.losses.TopKEntropy`, and the arguments at the top of this
    module.

    >>> import torch
    >>> from topkopt.torch import topk_entropy
    >>> topk_entropy(torch.zeros(1, 3), torch.tensor([0]), 2)
    tensor(1.0986)
    """
    return reduced(
        _row_losses.TopKEntropy(_check_places(k)), input, target, weight, ignore_index, reduction
    )


def truncated_topk_entropy(
    input: Tensor,
    target: Tensor,
    k: int,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Softmax loss without the k - 1 best of the others, the truncated top-k entropy loss.

    It is not convex. Parameters are those of `topkopt.losses.TruncatedTopKEntropy`, and the
    arguments at the top of this module.

    >>> import torch
    >>> from topkopt.torch import truncated_topk_entropy
    >>> truncated_topk_entropy(torch.tensor([[0.0, 5.0, 0.0]]), torch.tensor([0]), 2)
    tensor(0.6931)
    """
    loss = _row_losses.TruncatedTopKEntropy(_check_places(k))
    return reduced(loss, input, target, weight, ignore_index, reduction)


def multilabel_hinge(
    input: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Multilabel hinge loss ``max(0, 1 + max_{j not in Y} s_j - min_{y in Y} s_y)``.

    Parameters are those of `topkopt.losses.MultilabelHinge`, and the arguments at the top of this
    module.

    >>> import torch
    >>> from topkopt.torch import multilabel_hinge
    >>> multilabel_hinge(torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([[1, 1, 0]]))
    tensor(0.5000)
    """
    loss = _row_losses.MultilabelHinge(check_scalar(smoothing, "smoothing"))
    return reduced(loss, input, target, weight, ignore_index, reduction)


def multilabel_softmax(
    input: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Multilabel softmax loss, the mean over the labels y of ``log(sum_j exp(s_j - s_y))``.

    The arguments are at the top of this module.

    >>> import torch
    >>> from topkopt.torch import multilabel_softmax
    >>> multilabel_softmax(torch.zeros(1, 4), torch.tensor([[1, 1, 0, 0]]))
    tensor(1.3863)
    """
    return reduced(_row_losses.MultilabelSoftmax(), input, target, weight, ignore_index, reduction)


def one_vs_all_hinge(
    input: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Sum over the classes of ``max(0, 1 - c_j s_j)``, c_j = 1 for labels, -1 for the others.

    Parameters are those of `topkopt.losses.OneVsAllHinge`, and the arguments at the top of this
    module.

    >>> import torch
    >>> from topkopt.torch import one_vs_all_hinge
    >>> one_vs_all_hinge(torch.tensor([0.5, -2.0, 0.0]), torch.tensor(0))
    tensor(1.5000)
    """
    loss = _row_losses.OneVsAllHinge(check_scalar(smoothing, "smoothing"))
    return reduced(loss, input, target, weight, ignore_index, reduction)


def one_vs_all_logistic(
    input: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Sum over the classes of ``log(1 + exp(-c_j s_j))``, c_j = 1 for labels, -1 for the others.

    The arguments are at the top of this module.

    >>> import torch
    >>> from topkopt.torch import one_vs_all_logistic
    >>> one_vs_all_logistic(torch.zeros(1, 2), torch.tensor([0]))
    tensor(1.3863)
    """
    return reduced(_row_losses.OneVsAllLogistic(), input, target, weight, ignore_index, reduction)
