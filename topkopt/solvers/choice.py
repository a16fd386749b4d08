"""The methods by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt import losses
from topkopt.solvers.frank_wolfe import ActiveSetFrankWolfe, FrankWolfe
from topkopt.solvers.method import Method
from topkopt.solvers.newton import StartedNewton
from topkopt.solvers.problem import Problem
from topkopt.solvers.sdca import CoordinateAscent
from topkopt.solvers.vertices import ActiveSets, VertexExamples

__all__ = ["METHODS", "check_method", "make_method"]

METHODS = ("sdca", "newton", "frank_wolfe", "away_step", "pairwise", "block_frank_wolfe")


def check_method(method: str, loss: losses.Loss) -> None:
    """Raise unless the method exists and can train the loss."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    if method not in ("sdca", "newton") and not loss.declaration.vertices:
        able = ", ".join(cls.__name__ for cls in losses.classes() if cls.declaration.vertices)
        raise ValueError(
            f"method={method!r} needs a loss with vertices ({able}), got {loss!r}; use "
            "method='sdca', which trains every loss."
        )


def make_method(
    name: str, problem: Problem, dual: NDArray, warm: bool, rng: Any, block_size: int
) -> Method:
    """Return the method of a name, from dual blocks that are not 0 if it starts warm."""
    if name == "sdca":
        method: Method = CoordinateAscent(problem, problem.examples(), dual, rng, block_size)
    elif name == "newton":
        method = StartedNewton(CoordinateAscent(problem, problem.examples(), dual, rng, block_size))
    else:
        method = _vertex_method(name, problem, dual, warm, rng, block_size)
    method.name = name
    return method


def _vertex_method(
    name: str, problem: Problem, dual: NDArray, warm: bool, rng: Any, block_size: int
) -> Method:
    """Return one of the methods that move towards vertices."""
    loss: Any = problem.loss
    parameters = dict(loss._parameters())
    hard = type(loss)(**{**parameters, "smoothing": 0.0})
    examples = problem.examples(VertexExamples, hard, parameters.get("envelope") == "all")
    if name == "block_frank_wolfe":
        return CoordinateAscent(problem, examples, dual, rng, block_size)
    if name == "frank_wolfe":
        return FrankWolfe(problem, examples, dual)
    weights = np.array(parameters.get("weights") or [1.0 / hard.k] * hard.k)
    origin = dual.astype(np.float64) if warm else None
    sets = ActiveSets(examples, weights, origin, problem.data.n_rows, name == "pairwise")
    return ActiveSetFrankWolfe(problem, examples, dual, sets)
