"""Training of a loss without a dual problem: L-BFGS from the solution of the softmax loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from topkopt.solvers.certificate import check_finite_objective
from topkopt.solvers.data import KernelData, inner_product
from topkopt.solvers.problem import Problem
from topkopt.solvers.progress import Progress
from topkopt.solvers.solution import Solution, State

__all__ = ["descend"]

_ENTRIES = 1 << 22  # of scores looked at together, so that Ctrl-C is noticed soon


def descend(
    problem: Problem,
    progress: Progress,
    start: Solution,
    *,
    tol: float,
    max_iterations: int,
    return_on_interrupt: bool,
) -> tuple[Solution, str]:
    """Return where L-BFGS ends, and why it may not have converged."""
    data, loss = problem.data, problem.loss
    linear = not isinstance(data, KernelData)
    begin = start.coef if linear else start.dual
    if begin is None or (linear and begin.shape[0] != data.n_features):
        raise ValueError(
            f"warm_start must be a Solution with coef of shape ({data.n_features}, "
            f"{problem.n_classes}), got {None if begin is None else begin.shape}."
        )
    latest: dict[str, Any] = {}

    def objective(flat: NDArray) -> tuple[float, NDArray]:
        parameters = flat.reshape(begin.shape).astype(data.dtype, copy=False)
        scores = data.scores(parameters)
        check_finite_objective(problem, float(np.abs(scores).max()))
        total, pull = _losses_and_pulls(problem, scores)
        penalty, direction = parameters, data.coef_from(pull.astype(data.dtype, copy=False))
        if not linear:  # the parameters are A, the metric is K
            penalty, direction = scores, data.scores(direction)
        primal = problem.scale * (total + 0.5 * inner_product(parameters, penalty))
        check_finite_objective(problem, primal)
        latest.update(dual=-pull, size=problem.scale * float(np.abs(direction).max()))
        return primal, (problem.scale * (penalty + direction)).astype(np.float64).ravel()

    def show(x: NDArray, primal: float) -> bool:
        coef = x.reshape(begin.shape) if linear else None
        return progress.check(
            State(
                latest["n"],
                progress.seconds(),
                primal,
                np.nan,
                np.nan,
                "lbfgs",
                [coef, latest["dual"]],
            )
        )

    def iterate(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        x, primal = intermediate_result.x.copy(), intermediate_result.fun
        latest.update(n=latest["n"] + 1, x=x, fun=primal)
        if show(x, primal):
            raise StopIteration

    flat = begin.astype(np.float64).ravel()
    first, _ = objective(flat)
    latest.update(x=flat, fun=first, n=0)
    result = scipy.optimize.OptimizeResult(success=False, message="stopped by the callback")
    try:
        if not show(flat, first):
            result = scipy.optimize.minimize(
                objective,
                flat,
                jac=True,
                method="L-BFGS-B",
                callback=iterate,
                # The gradient is the difference of two terms; it is to vanish next to them.
                options={"maxiter": max_iterations, "gtol": tol * latest["size"], "ftol": 0.0},
            )
    except KeyboardInterrupt:
        if not return_on_interrupt:
            raise
        result.message = "interrupted"
    result = scipy.optimize.OptimizeResult(
        {"x": latest["x"], "fun": latest["fun"], "nit": latest["n"], **result}
    )
    coef = result.x.reshape(begin.shape).astype(data.dtype)
    solution = Solution(
        coef=coef if linear else None,
        dual=latest["dual"].astype(data.dtype) if linear else coef,
        primal=float(result.fun),
        dual_value=np.nan,
        gap=np.nan,
        converged=bool(result.success),
        n_epochs=int(result.nit),
        history=progress.history(),
        loss=loss,
        C=problem.C,
        tol=tol,
        cost=problem.cost,
        n_examples=data.n_rows,
        n_classes=problem.n_classes,
    )
    return solution, (
        f"L-BFGS stopped after {result.nit} iterations before its gradient fell to {tol:g} of the "
        f"pull of the losses: {result.message}; raise max_epochs or tol."
    )


def _losses_and_pulls(problem: Problem, scores: NDArray) -> tuple[float, NDArray]:
    """Return the sum of costs times losses, and the gradient of each term in its scores."""
    labels, cost, total = problem.labels, problem.cost, 0.0
    pull = np.empty(scores.shape)
    step = max(1, _ENTRIES // scores.shape[1])
    for first in range(0, len(scores), step):
        rows = slice(first, first + step)
        total += float(cost[rows] @ problem.loss.value(scores[rows], labels[rows]))
        pull[rows] = cost[rows, None] * problem.loss.gradient(scores[rows], labels[rows])
    return total, pull
