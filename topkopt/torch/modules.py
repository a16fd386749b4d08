"""The losses as modules: a function of `topkopt.torch.losses` that remembers its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from topkopt.torch import losses
from topkopt.torch._operators import Kind

__all__ = [
    "MultilabelHingeLoss",
    "MultilabelSoftmaxLoss",
    "OneVsAllHingeLoss",
    "OneVsAllLogisticLoss",
    "TopKEntropyLoss",
    "TopKHingeLoss",
    "TruncatedTopKEntropyLoss",
    "WeightedTopKHingeLoss",
]


class RowLossModule(torch.nn.Module):
    """A loss of logits and targets; see `topkopt.torch.losses` for what all of them share.

    `weight` is a buffer, so that it moves with the module from device to device.
    """

    function: ClassVar[Callable[..., Tensor]]
    weight: Tensor | None

    def __init__(
        self,
        parameters: dict[str, Any],
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self._parameters_of_loss = parameters
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        # Mistakes in parameters come to light here and not in the middle of the first epoch.
        smallest = 2 + int(parameters.get("k") or 0) + len(parameters.get("weights", ()))
        self._call(torch.zeros(1, smallest), torch.zeros(1, dtype=torch.int64), weight=None)

    def __getattr__(self, name: str) -> Any:
        known = self.__dict__.get("_parameters_of_loss", {})
        return known[name] if name in known else super().__getattr__(name)

    def _call(self, input: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return type(self).function(
            input,
            target,
            **self._parameters_of_loss,
            weight=weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits of shape (C), (N, C) or (N, C, d1, ...)."""
        return self._call(input, target, self.weight)

    def extra_repr(self) -> str:
        """List the parameters, and what differs from the defaults."""
        listed = [f"{name}={value!r}" for name, value in self._parameters_of_loss.items()]
        if self.ignore_index != -100:
            listed.append(f"ignore_index={self.ignore_index}")
        if self.reduction != "mean":
            listed.append(f"reduction={self.reduction!r}")
        return ", ".join(listed)


class TopKHingeLoss(RowLossModule):
    """Module of `topkopt.torch.topk_hinge`.

    >>> import torch
    >>> from topkopt.torch import TopKHingeLoss
    >>> TopKHingeLoss(5, smoothing=1.0)
    TopKHingeLoss(k=5, kind='alpha', smoothing=1.0)
    """

    function = staticmethod(losses.topk_hinge)

    def __init__(
        self,
        k: int,
        kind: Kind = "alpha",
        smoothing: float = 0.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        parameters = {"k": k, "kind": kind, "smoothing": smoothing}
        super().__init__(parameters, weight, ignore_index, reduction)


class WeightedTopKHingeLoss(RowLossModule):
    """Module of `topkopt.torch.weighted_topk_hinge`.

    >>> from topkopt.torch import WeightedTopKHingeLoss
    >>> WeightedTopKHingeLoss("linear", 2).weights
    (0.6666666666666666, 0.3333333333333333)
    """

    function = staticmethod(losses.weighted_topk_hinge)

    def __init__(
        self,
        weights: Sequence[float] | str,
        k: int | None = None,
        label: bool = False,
        smoothing: float = 0.0,
        envelope: Literal["others", "all"] = "others",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        listed = losses.listed_profile(weights, k)
        parameters = {"weights": listed, "label": label, "smoothing": smoothing}
        super().__init__({**parameters, "envelope": envelope}, weight, ignore_index, reduction)


class TopKEntropyLoss(RowLossModule):
    """Module of `topkopt.torch.topk_entropy`.

    >>> from topkopt.torch import TopKEntropyLoss
    >>> TopKEntropyLoss(5)
    TopKEntropyLoss(k=5)
    """

    function = staticmethod(losses.topk_entropy)

    def __init__(
        self,
        k: int,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__({"k": k}, weight, ignore_index, reduction)


class TruncatedTopKEntropyLoss(RowLossModule):
    """Module of `topkopt.torch.truncated_topk_entropy`."""

    function = staticmethod(losses.truncated_topk_entropy)

    def __init__(
        self,
        k: int,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__({"k": k}, weight, ignore_index, reduction)


class MultilabelHingeLoss(RowLossModule):
    """Module of `topkopt.torch.multilabel_hinge`."""

    function = staticmethod(losses.multilabel_hinge)

    def __init__(
        self,
        smoothing: float = 0.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__({"smoothing": smoothing}, weight, ignore_index, reduction)


class MultilabelSoftmaxLoss(RowLossModule):
    """Module of `topkopt.torch.multilabel_softmax`."""

    function = staticmethod(losses.multilabel_softmax)

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__({}, weight, ignore_index, reduction)


class OneVsAllHingeLoss(RowLossModule):
    """Module of `topkopt.torch.one_vs_all_hinge`."""

    function = staticmethod(losses.one_vs_all_hinge)

    def __init__(
        self,
        smoothing: float = 0.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__({"smoothing": smoothing}, weight, ignore_index, reduction)


class OneVsAllLogisticLoss(RowLossModule):
    """Module of `topkopt.torch.one_vs_all_logistic`."""

    function = staticmethod(losses.one_vs_all_logistic)

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__({}, weight, ignore_index, reduction)
