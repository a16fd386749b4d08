"""All that the library needs to know of a loss besides its mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Declaration"]


@dataclass(frozen=True)
class Declaration:
    """What a loss says of itself, once; it stands on the class as ``declaration``.

    Registry, estimators, flat parameters, tests, benchmarks and tables are made from it.

    Attributes
    ----------
    name : str
        The name in the registry.
    parameters : tuple of str
        The parameters of the constructor, which are also attributes, in their order.
    tasks : tuple of str
        "multiclass" (one label per example), "multilabel" (any number), or both.
    convex : bool
        Whether there is a conjugate, and so a dual problem and a certificate.
    smooth : bool or None
        Whether it is differentiable; None if that depends on its `smoothing`.
    curvature : float
        How large its second derivatives are, if it is smooth: a bound in any direction, for hinges
        as long as two classes take part. Where it depends on the `smoothing`, times the smoothing.
    probabilities : {"softmax", "logistic"} or None
        What makes probabilities of scores, if something does.
    vertices : bool
        Whether the domain of the conjugate is a polytope that Frank-Wolfe methods know.
    variants : mapping of str to dict
        Further names in the registry, each with the parameters that it implies.
    named : bool
        Whether a name in the registry stands for it; otherwise it is given as an object.
    example : mapping
        Parameters of an instance for at least 4 classes, to try it with.
    """

    name: str
    parameters: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("multiclass",)
    convex: bool = True
    smooth: bool | None = None
    curvature: float = 1.0
    probabilities: str | None = None
    vertices: bool = False
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    named: bool = True
    example: Mapping[str, Any] = field(default_factory=dict, hash=False)
