"""The maps: each is a small set of parameters with three answers.

``pure`` solves in torch operations, ``compiled`` solves with the kernels, through the NumPy
functions that check their input; ``derivative`` applies the Jacobian at a solution, which is
symmetric. Vectors lie along the last dimension. ``solvable`` says which of them have a solution;
the others become NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

import topkopt.torch._pieces as _pieces
from topkopt import projections, prox
from topkopt.torch._pure import entropy, knapsack, topk, weighted
from topkopt.torch._pure.scan import Level, as_it_is, constants

__all__ = [
    "OPERATORS",
    "Box",
    "EntropySimplex",
    "Operator",
    "Simplex",
    "TopKEntropy",
    "TopKSimplex",
    "WeightedTopK",
]


Kind = Literal["alpha", "beta", "label"]  # of a top-k simplex


@dataclass(frozen=True)
class Operator:
    """A map of vectors, with its parameters as fields."""

    schema: ClassVar[str]  # of the parameters, as torch writes them
    inputs: ClassVar[tuple[str, ...]] = ("b",)  # the tensors that it takes

    def parameters(self) -> tuple[Any, ...]:
        """Return the fields in their order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def solvable(self, b: Tensor) -> Tensor:
        """Return, with the last dimension kept, whether vectors have a solution.

        NaN, +inf and a vector of nothing but -inf show in the largest entry.
        """
        return b.amax(-1, keepdim=True).isfinite()

    def pure(self, b: Tensor) -> Tensor:
        """Solve in torch operations; the dtype is float32 or float64."""
        raise NotImplementedError

    def compiled(self, b: NDArray, out: NDArray, n_threads: int) -> None:
        """Solve rows with the kernels."""
        raise NotImplementedError

    def derivative(self, x: Tensor, g: Tensor) -> Tensor:
        """Return D g at the solution x."""
        raise NotImplementedError


@dataclass(frozen=True)
class Simplex(Operator):
    """See `topkopt.projections.project_simplex`."""

    radius: float
    schema = "float radius"

    def pure(self, b: Tensor) -> Tensor:
        return knapsack.project_simplex(b, self.radius)

    def compiled(self, b: NDArray, out: NDArray, n_threads: int) -> None:
        projections.project_simplex(b, self.radius, out=out, n_threads=n_threads)

    def derivative(self, x: Tensor, g: Tensor) -> Tensor:
        return _pieces.box_pieces(g, x > 0, 0.0, True)


@dataclass(frozen=True)
class Box(Operator):
    """See `topkopt.projections.project_capped_simplex`; the bounds are tensors."""

    total: float
    equality: bool
    bias: float
    schema = "float total, bool equality, float bias"
    inputs = ("b", "lower", "upper")

    def solvable(self, b: Tensor, lower: Tensor, upper: Tensor) -> Tensor:  # type: ignore[override]
        finite = b.amax(-1, keepdim=True).isfinite()
        least = lower.expand_as(b).sum(-1, keepdim=True)
        rounding = 4 * torch.finfo(b.dtype).eps * b.shape[-1]
        slack = rounding * max(abs(self.total), 1.0)
        possible = (lower <= upper).expand_as(b).all(-1, keepdim=True)
        possible = possible & (least <= self.total + slack)
        if self.equality:
            most = torch.where(b > -torch.inf, upper, lower).sum(-1, keepdim=True)
            possible = possible & (most >= self.total - slack)
        return finite & possible

    def pure(self, b: Tensor, lower: Tensor, upper: Tensor) -> Tensor:  # type: ignore[override]
        bounds = lower.expand_as(b), upper.expand_as(b)
        return knapsack.project_box(b, *bounds, self.total, self.equality, self.bias)

    def compiled(  # type: ignore[override]
        self, b: NDArray, lower: NDArray, upper: NDArray, out: NDArray, n_threads: int
    ) -> None:
        projections.project_capped_simplex(
            b,
            lower,
            upper,
            self.total,
            equality=self.equality,
            bias=self.bias,
            out=out,
            n_threads=n_threads,
        )

    def derivative(self, x: Tensor, g: Tensor, lower: Tensor, upper: Tensor) -> Tensor:  # type: ignore[override]
        free = (x > lower) & (x < upper)
        size = x.abs().sum(-1, keepdim=True) + abs(self.total)
        short = self.total - x.sum(-1, keepdim=True)
        fixed = self.equality or short <= size * _pieces.slack(x)
        return _pieces.box_pieces(g, free, self.bias, fixed)


@dataclass(frozen=True)
class TopKSimplex(Operator):
    """See `topkopt.projections.project_topk_simplex`."""

    k: int
    radius: float
    kind: Kind
    bias: float
    schema = "int k, float radius, str kind, float bias"

    def pure(self, b: Tensor, level: Level = as_it_is) -> Tensor:
        project = getattr(topk, f"project_{self.kind}")
        return project(b, self.k, self.radius, self.bias, level)

    def compiled(self, b: NDArray, out: NDArray, n_threads: int) -> None:
        projections.project_topk_simplex(
            b, self.k, self.radius, kind=self.kind, bias=self.bias, out=out, n_threads=n_threads
        )

    def derivative(self, x: Tensor, g: Tensor) -> Tensor:
        s = x.sum(-1, keepdim=True)
        reached = _pieces.at_least(s, self.radius, x)
        if self.kind == "alpha":
            return _pieces.alpha_pieces(x, g, self.k, self.bias, reached)
        below_cap = (x > 0) & ~_pieces.at_least(x, self.radius / self.k, x)
        beta = _pieces.box_pieces(g, below_cap, self.bias, reached)
        if self.kind == "beta" or self.k == 1:
            return beta
        # At the bend the sum is fixed, and both caps are the same.
        bend = self.radius * (self.k - 1) / self.k
        at_bend = _pieces.at_least(s, bend, x)
        alpha = _pieces.alpha_pieces(x, g, self.k - 1, self.bias, at_bend)
        return torch.where(s > bend * (1.0 + _pieces.slack(x)), beta, alpha)


@dataclass(frozen=True)
class WeightedTopK(Operator):
    """See `topkopt.projections.project_weighted_topk`; the weights are positive."""

    weights: tuple[float, ...]
    radius: float
    label: bool
    bias: float
    schema = "float[] weights, float radius, bool label, float bias"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))  # torch passes lists

    def pure(self, b: Tensor, level: Level = as_it_is) -> Tensor:
        parameters = self.weights, self.radius, self.label, self.bias
        return weighted.project_weighted(b, *parameters, level)

    def compiled(self, b: NDArray, out: NDArray, n_threads: int) -> None:
        projections.project_weighted_topk(
            b,
            self.weights,
            self.radius,
            label=self.label,
            bias=self.bias,
            out=out,
            n_threads=n_threads,
        )

    def derivative(self, x: Tensor, g: Tensor) -> Tensor:
        if not self.weights or self.radius == 0:
            return torch.zeros_like(g)
        w = constants(self.weights, x)
        return _pieces.weighted_pieces(x, g, w, self.radius, self.label, self.bias)


@dataclass(frozen=True)
class EntropySimplex(Operator):
    """See `topkopt.prox.prox_entropy_simplex`; `upper` may be infinite."""

    alpha: float
    radius: float
    upper: float
    schema = "float alpha, float radius, float upper"

    def solvable(self, b: Tensor) -> Tensor:
        least = self.radius / self.upper * (1.0 - 4.0 * torch.finfo(b.dtype).eps * b.shape[-1])
        enough = (b > -torch.inf).sum(-1, keepdim=True) >= least
        return b.amax(-1, keepdim=True).isfinite() & enough

    def pure(self, b: Tensor) -> Tensor:
        return entropy.prox_entropy(b, self.alpha, self.radius, self.upper)

    def compiled(self, b: NDArray, out: NDArray, n_threads: int) -> None:
        prox.prox_entropy_simplex(
            b, self.alpha, self.radius, upper=self.upper, out=out, n_threads=n_threads
        )

    def derivative(self, x: Tensor, g: Tensor) -> Tensor:
        return _pieces.entropy_pieces(x, g, self.alpha, self.upper)


@dataclass(frozen=True)
class TopKEntropy(Operator):
    """See `topkopt.prox.prox_topk_entropy`."""

    alpha: float
    k: int
    schema = "float alpha, int k"

    def pure(self, b: Tensor) -> Tensor:
        return entropy.prox_topk_entropy(b, self.alpha, self.k)

    def compiled(self, b: NDArray, out: NDArray, n_threads: int) -> None:
        prox.prox_topk_entropy(b, self.alpha, self.k, out=out, n_threads=n_threads)

    def derivative(self, x: Tensor, g: Tensor) -> Tensor:
        return _pieces.topk_entropy_pieces(x, g, self.alpha, self.k)


OPERATORS: dict[str, type[Operator]] = {
    "project_simplex": Simplex,
    "project_capped_simplex": Box,
    "project_topk_simplex": TopKSimplex,
    "project_weighted_topk": WeightedTopK,
    "prox_entropy_simplex": EntropySimplex,
    "prox_topk_entropy": TopKEntropy,
}
