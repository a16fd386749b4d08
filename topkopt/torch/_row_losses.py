"""The losses of one example: value, gradient v, and the derivative of v.

Scores lie along the last dimension. The target is a class index per example, or for multilabel
losses a mask of the shape of the scores. ``twin`` is the compiled loss of `topkopt.losses`, whose
docstring has the formula; ``pure`` computes the same in torch operations. The gradient is
v = (p on the others, -<1,p> on the label), with p a map of the differences u = s_j - s_y; hence
its derivative is E D E', with D from the piece that p is on and E' g = g_j - g_y.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import topkopt.torch._pieces as _pieces
from topkopt import losses
from topkopt._kernels import single
from topkopt._validation import check_k
from topkopt.losses.batch import evaluate_rows
from topkopt.torch._operators import Kind, Operator, TopKSimplex, WeightedTopK
from topkopt.torch._pure.bipartite import project_bipartite
from topkopt.torch._pure.entropy import topk_softmax
from topkopt.torch._pure.scan import Level, constants

__all__ = [
    "ROW_LOSSES",
    "MultilabelHinge",
    "MultilabelSoftmax",
    "OneVsAllHinge",
    "OneVsAllLogistic",
    "RowLoss",
    "TopKEntropy",
    "TopKHinge",
    "TruncatedTopKEntropy",
    "WeightedTopKHinge",
]


Labels = tuple[NDArray, NDArray]  # those of row i are index[start[i]:start[i + 1]]


@dataclass(frozen=True)
class RowLoss:
    """A loss of rows of scores, with its parameters as fields."""

    schema: ClassVar[str] = ""
    multilabel: ClassVar[bool] = False

    def parameters(self) -> tuple[Any, ...]:
        """Return the fields in their order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def twin(self) -> losses.Loss:
        """Return the compiled loss."""
        made: losses.Loss = getattr(losses, type(self).__name__)(*self.parameters())
        return made

    def check_classes(self, m: int) -> None:
        """Raise unless the loss is defined for m classes."""
        if m < 2:
            raise ValueError(f"input must have scores of at least 2 classes, got {m}.")

    def compiled(self, s: NDArray, labels: Labels, value: NDArray, gradient: NDArray) -> None:
        """Write values and gradients of rows of finite scores with the kernels."""
        evaluate_rows(self.twin(), s, *labels, value, gradient)

    def pure(self, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and gradients; the dtype is float32 or float64."""
        raise NotImplementedError

    def derivative(self, v: Tensor, target: Tensor, g: Tensor) -> Tensor:
        """Return the derivative of v in the direction g, or its transpose applied to g."""
        raise NotImplementedError


def _one_each(labels: Labels) -> NDArray:
    index, start = labels
    return index[start[0] : start[-1]]


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True)


def _largest(u: Tensor, top: Tensor) -> Tensor:
    """Return a mask of the largest entries, given as top; of equal ones, the first are larger."""
    least = top[..., -1:]
    equal = u == least
    places = _sum(top == least)
    first = equal.cumsum(-1, dtype=torch.int32) <= places
    return (u > least).logical_or_(equal.logical_and_(first))


# One label ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneLabel(RowLoss):
    """A loss of the differences u of the other classes to the label."""

    def of_others(self, others: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values, with the last dimension kept, and p.

        The scores of the others are -inf on the label. They come as they are, since u, far from
        the label, would no longer tell apart those that are close to each other.
        """
        raise NotImplementedError

    def pure(self, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        own = target.unsqueeze(-1)
        others, label = s.scatter(-1, own, -torch.inf), s.gather(-1, own)
        top = others.amax(-1, keepdim=True) - label
        value, p = self.of_others(others, label)
        # Without another class there is nothing to lose; what is infinite or NaN stays so.
        value = torch.where(top.isfinite(), value, top.clamp(min=0.0))
        p = p + torch.where(top < torch.inf, 0.0, torch.nan)
        return value.squeeze(-1), p.scatter_(-1, own, -_sum(p))

    def others_derivative(self, p: Tensor, h: Tensor) -> Tensor:
        """Return the derivative of p in the direction h of u."""
        raise NotImplementedError

    def derivative(self, v: Tensor, target: Tensor, g: Tensor) -> Tensor:
        own = target.unsqueeze(-1)
        p = v.scatter(-1, own, 0.0)
        moved = self.others_derivative(p, g - g.gather(-1, own)).scatter(-1, own, 0.0)
        return moved.scatter(-1, own, -_sum(moved))


@dataclass(frozen=True)
class MaxMargin(OneLabel):
    """The largest <h,p> - smoothing/2 <p,p> over a set of p; h = 1 + u are the margins."""

    smoothing: float

    @property
    def all_slots(self) -> bool:
        """Whether the smoothing also weighs <1,p>^2."""
        return False

    def projection(self) -> Operator:
        """Return the projection onto the set of p."""
        raise NotImplementedError

    def project(self, others: Tensor, level: Level) -> Tensor:
        """Project the margins, the levels of the scores, onto smoothing times the set of p."""
        raise NotImplementedError

    def vertex(self, others: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest <h,p> and a p that has it; p = 0 if it is not positive."""
        raise NotImplementedError

    def of_others(self, others: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        if not self.smoothing:
            return self.vertex(others, label)
        h = 1.0 + (others - label)
        p = self.project(others, lambda s: 1.0 + (s - label)) / self.smoothing
        square = _sum(p * p) + (_sum(p) ** 2 if self.all_slots else 0.0)
        value = _sum(torch.where(p > 0, p * h, 0.0)) - 0.5 * self.smoothing * square
        return value.clamp(min=0.0), p  # 0 is in the set: only rounding is below it

    def others_derivative(self, p: Tensor, h: Tensor) -> Tensor:
        if not self.smoothing:
            return torch.zeros_like(h)  # piecewise linear
        return self.projection().derivative(p, h) / self.smoothing


@dataclass(frozen=True)
class TopKHinge(MaxMargin):
    k: int
    kind: Kind
    schema = "float smoothing, int k, str kind"

    def parameters(self) -> tuple[Any, ...]:
        return self.smoothing, self.k, self.kind

    def twin(self) -> losses.Loss:
        return losses.TopKHinge(self.k, self.kind, self.smoothing)

    def check_classes(self, m: int) -> None:
        super().check_classes(m)
        check_k(self.k, m - 1, "the number of other classes")

    def compiled(self, s: NDArray, labels: Labels, value: NDArray, gradient: NDArray) -> None:
        plain = self.smoothing == 0 and self.kind == "alpha"
        if plain and s.dtype == np.float32 and single.takes(s.shape[1], self.k):
            single.topk_hinge_rows(s, _one_each(labels), self.k, value, gradient)
        else:
            super().compiled(s, labels, value, gradient)

    def projection(self) -> Operator:
        return TopKSimplex(self.k, 1.0, self.kind, 0.0)

    def project(self, others: Tensor, level: Level) -> Tensor:
        return TopKSimplex(self.k, self.smoothing, self.kind, 0.0).pure(others, level)

    def vertex(self, others: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        top = others.topk(self.k, dim=-1).values
        counts = 1.0 + (top - label)
        if self.kind == "beta":
            counts = counts.clamp(min=0.0)
        elif self.kind == "label":  # its slot takes the last place from a negative margin
            last = counts[..., -1:].clamp(min=0.0)
            counts = torch.cat([counts[..., :-1], last], dim=-1)
        value = _sum(counts).clamp(min=0.0) / self.k
        p = _largest(others, top) * ((value > 0).to(top.dtype) / self.k)
        if self.kind == "beta":
            p = torch.where(others - label > -1.0, p, 0.0)
        elif self.kind == "label":  # of the chosen, the last of the smallest
            smallest = (p > 0) & (others == top[..., -1:]) & (others - label < -1.0)
            last_one = smallest & (smallest.cumsum(-1) == _sum(smallest))
            p = torch.where(last_one, 0.0, p)
        return value, p


@dataclass(frozen=True)
class WeightedTopKHinge(MaxMargin):
    weights: tuple[float, ...]
    label: bool
    envelope: Literal["others", "all"]
    schema = "float smoothing, float[] weights, bool label, str envelope"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))  # torch passes lists

    def twin(self) -> losses.Loss:
        return losses.WeightedTopKHinge(
            self.weights, label=self.label, smoothing=self.smoothing, envelope=self.envelope
        )

    def check_classes(self, m: int) -> None:
        super().check_classes(m)
        check_k(len(self.weights), m - 1 + self.label, "the number of places", name="weights")

    @property
    def all_slots(self) -> bool:
        return self.envelope == "all"

    def projection(self) -> Operator:
        return WeightedTopK(self.weights, 1.0, self.label, 1.0 if self.all_slots else 0.0)

    def project(self, others: Tensor, level: Level) -> Tensor:
        scaled = WeightedTopK(self.weights, self.smoothing, self.label, float(self.all_slots))
        return scaled.pure(others, level)

    def vertex(self, others: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        h = 1.0 + (others - label)
        order = others.argsort(dim=-1, descending=True, stable=True)
        w = constants(self.weights, h)
        w = torch.nn.functional.pad(w, (0, h.shape[-1] + 1 - w.numel()))
        place = torch.arange(h.shape[-1], device=h.device)
        if self.label:  # a slot of margin 0 moves those behind it one place on
            place = torch.where(place < _sum(h >= 0.0), place, place + 1)
        p = torch.zeros_like(h).scatter(-1, order, w[place].expand_as(h))
        value = _sum(torch.where(p > 0, p * h, 0.0))
        return value.clamp(min=0.0), torch.where(value > 0, p, 0.0)


@dataclass(frozen=True)
class TopKEntropy(OneLabel):
    k: int
    schema = "int k"

    def check_classes(self, m: int) -> None:
        super().check_classes(m)
        check_k(self.k, m - 1, "the number of other classes")

    def compiled(self, s: NDArray, labels: Labels, value: NDArray, gradient: NDArray) -> None:
        if s.dtype == np.float32 and single.takes(s.shape[1], self.k):
            single.topk_entropy_rows(s, _one_each(labels), self.k, value, gradient)
        else:
            super().compiled(s, labels, value, gradient)

    def of_others(self, others: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        largest, p = topk_softmax(others, self.k, lambda s: s - label)
        return torch.logaddexp(largest, torch.zeros_like(largest)), p

    def others_derivative(self, p: Tensor, h: Tensor) -> Tensor:
        return _pieces.topk_entropy_pieces(p, h, 0.0, self.k)


@dataclass(frozen=True)
class TruncatedTopKEntropy(OneLabel):
    k: int
    schema = "int k"

    def check_classes(self, m: int) -> None:
        super().check_classes(m)
        check_k(self.k, m - 1, "the number of other classes")

    def of_others(self, others: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        if self.k > 1:
            largest = _largest(others, others.topk(self.k - 1, dim=-1).values)
            others = others.masked_fill(largest, -torch.inf)
        top = torch.maximum(others.amax(-1, keepdim=True), label)
        e = torch.exp(others - top)
        own, total = torch.exp(label - top), _sum(e)
        lost = top - label
        value = torch.where(lost > 0, lost + torch.log(total + own), torch.log1p(total))
        return value, e / (total + own)

    def others_derivative(self, p: Tensor, h: Tensor) -> Tensor:
        return p * (h - _sum(p * h))  # the label has h = 0


# Any number of labels -----------------------------------------------------------------------


@dataclass(frozen=True)
class MultilabelHinge(RowLoss):
    smoothing: float
    schema = "float smoothing"
    multilabel = True

    def pure(self, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        low = torch.where(target, s, torch.inf).amin(-1, keepdim=True)
        high = torch.where(target, -torch.inf, s).amax(-1, keepdim=True)
        largest = high - low + 1.0
        below = torch.where(target, low - s, s - high)
        if self.smoothing:
            # Shared among both sides: the largest of either is half of the largest margin.
            b = 0.5 * largest + below
            p = project_bipartite(below, target, self.smoothing, 0.5 * largest) / self.smoothing
            value = _sum(torch.where(p > 0, b * p, 0.0)) - 0.5 * self.smoothing * _sum(p * p)
        else:
            sides = [below.masked_fill(~side, -torch.inf) for side in (target, ~target)]
            ends = [_largest(side, torch.zeros_like(largest)) for side in sides]
            p = (ends[0] | ends[1]).to(s.dtype)
            value = largest
        both = target.any(-1, keepdim=True) & ~target.all(-1, keepdim=True)
        value = torch.where(both, value.clamp(min=0.0), 0.0)
        p = torch.where(both & (largest > 0), p, 0.0)
        broken = torch.where(both & largest.isnan(), torch.nan, 0.0)
        return (value + broken).squeeze(-1), torch.where(target, -p, p) + broken

    def derivative(self, v: Tensor, target: Tensor, g: Tensor) -> Tensor:
        if not self.smoothing:
            return torch.zeros_like(g)
        moved = _pieces.bipartite_pieces(v.abs(), target, torch.where(target, -g, g), 1.0)
        return torch.where(target, -moved, moved) / self.smoothing


@dataclass(frozen=True)
class MultilabelSoftmax(RowLoss):
    multilabel = True

    def pure(self, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        both = target.any(-1, keepdim=True) & ~target.all(-1, keepdim=True)
        share = target.to(s.dtype) / _sum(target.to(s.dtype)).clamp(min=1.0)
        top = s.amax(-1, keepdim=True)
        e = torch.exp(s - top)
        gap = _sum(torch.where(target, (top - s) * share, 0.0))
        value = torch.where(both, gap + torch.log(_sum(e)), 0.0)
        return value.squeeze(-1), torch.where(both, e / _sum(e) - share, 0.0)

    def derivative(self, v: Tensor, target: Tensor, g: Tensor) -> Tensor:
        both = target.any(-1, keepdim=True) & ~target.all(-1, keepdim=True)
        share = target.to(v.dtype) / _sum(target.to(v.dtype)).clamp(min=1.0)
        pi = torch.where(both, v + share, 0.0)
        return pi * (g - _sum(pi * g))


@dataclass(frozen=True)
class OneVsAllHinge(RowLoss):
    smoothing: float
    schema = "float smoothing"
    multilabel = True

    def pure(self, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        short = 1.0 - torch.where(target, s, -s)
        p = (short / self.smoothing).clamp(0.0, 1.0) if self.smoothing else (short > 0).to(s.dtype)
        value = (p * (short.clamp(min=0.0) - 0.5 * self.smoothing * p)).sum(-1)
        return value, torch.where(target, -p, p)

    def derivative(self, v: Tensor, target: Tensor, g: Tensor) -> Tensor:
        if not self.smoothing:
            return torch.zeros_like(g)
        return torch.where((v != 0) & (v.abs() < 1), g / self.smoothing, 0.0)


@dataclass(frozen=True)
class OneVsAllLogistic(RowLoss):
    multilabel = True

    def pure(self, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        short = torch.where(target, -s, s)
        p = torch.sigmoid(short)
        value = torch.logaddexp(short, torch.zeros_like(short)).sum(-1)
        return value, torch.where(target, -p, p)

    def derivative(self, v: Tensor, target: Tensor, g: Tensor) -> Tensor:
        p = torch.where(target, -v, v)
        return p * (1.0 - p) * g


ROW_LOSSES: dict[str, type[RowLoss]] = {
    "topk_hinge": TopKHinge,
    "weighted_topk_hinge": WeightedTopKHinge,
    "topk_entropy": TopKEntropy,
    "truncated_topk_entropy": TruncatedTopKEntropy,
    "multilabel_hinge": MultilabelHinge,
    "multilabel_softmax": MultilabelSoftmax,
    "one_vs_all_hinge": OneVsAllHinge,
    "one_vs_all_logistic": OneVsAllLogistic,
}
