"""The methods by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt import losses
from topkopt.solvers.auto import Auto
from topkopt.solvers.frank_wolfe import ActiveSetFrankWolfe, FrankWolfe
from topkopt.solvers.method import Method
from topkopt.solvers.newton import StartedNewton
from topkopt.solvers.problem import Problem
from topkopt.solvers.sdca import CoordinateAscent, ShrinkingAscent
from topkopt.solvers.settings import Settings
from topkopt.solvers.solution import Solution
from topkopt.solvers.vertices import ActiveSets, VertexExamples

__all__ = ["METHODS", "check_method", "make_method"]

METHODS = (
    "auto",
    "sdca",
    "lbfgs",
    "newton",
    "frank_wolfe",
    "away_step",
    "pairwise",
    "block_frank_wolfe",
)


def check_method(method: str, loss: losses.Loss) -> None:
    """Raise unless the method exists and can train the loss."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    if method == "auto":
        return
    if method == "lbfgs":
        if not loss.smooth:
            raise ValueError(
                f"method='lbfgs' needs a smooth loss, got {loss!r}; give it smoothing > 0, or use "
                "method='sdca', which trains every loss."
            )
        return
    if isinstance(loss, losses.CustomLoss):
        raise ValueError(
            f"method={method!r} needs a loss whose conjugate is known, got {loss!r}; use "
            "method='lbfgs' or 'auto'."
        )
    if method not in ("sdca", "newton") and not loss.declaration.vertices:
        able = ", ".join(cls.__name__ for cls in losses.classes() if cls.declaration.vertices)
        raise ValueError(
            f"method={method!r} needs a loss with vertices ({able}), got {loss!r}; use "
            "method='sdca', which trains every loss."
        )


def make_method(
    problem: Problem,
    settings: Settings,
    dual: NDArray | None,
    warm_start: Solution | None,
    rng: Any,
    block_size: int,
) -> Method:
    """Return the method that is asked for, to go on from dual blocks.

    These are None, which stands for 0, unless there is a training with dual blocks to continue.
    """
    name = settings.method

    def ascent(dual: NDArray | None) -> CoordinateAscent:
        examples = problem.examples()
        if settings.check_every == "auto":
            made: CoordinateAscent = ShrinkingAscent(
                problem, examples, dual, rng, block_size, settings.tol
            )
        else:
            made = CoordinateAscent(problem, examples, dual, rng, block_size)
        made.name = "sdca"
        return made

    if name == "auto":
        coef, last = None, ""
        started = None if warm_start is None else warm_start.coef
        if started is not None and started.shape[0] == problem.data.n_features:
            coef = started.astype(problem.data.dtype)
            last = str(warm_start.history["method"][-1])  # type: ignore[union-attr]
        return Auto(problem, ascent, dual, settings, coef, last)
    if name == "sdca":
        return ascent(dual)
    if name == "newton":
        return StartedNewton(ascent(dual))
    if dual is None:
        dual = problem.zero_dual()
    method = _vertex_method(name, problem, dual, warm_start is not None, rng, block_size)
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
