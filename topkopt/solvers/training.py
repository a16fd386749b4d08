"""The loop of every training: when to certify, what to record, and when to stop.

The steps themselves are those of a method, see `method`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from topkopt import losses
from topkopt._threads import as_team
from topkopt.solvers.certificate import Certificate, Stationarity
from topkopt.solvers.checkpoint import Checkpoint, NoCheckpoint
from topkopt.solvers.data import Data, KernelData
from topkopt.solvers.method import Method
from topkopt.solvers.problem import Problem
from topkopt.solvers.progress import Progress
from topkopt.solvers.settings import Settings
from topkopt.solvers.solution import ConvergenceWarning, Solution, State
from topkopt.solvers.starts import start as start_method
from topkopt.solvers.threads import threads_for

__all__ = ["block_size_for", "train"]

Start = Callable[[Problem, Settings, Any, int], Method]


def train(
    problem: Problem,
    settings: Settings,
    warm_start: Solution | None = None,
    *,
    title: str = "",
    stacklevel: int = 3,
    start: Start = start_method,
) -> Solution:
    """Train and warn unless the gap was reached.

    Along a path a solution has the dual variables that the next training needs, even if they are
    not to be kept. `start` makes the method, in place of `starts.start`.
    """
    team = as_team(settings.n_threads).settled()
    problem = replace(problem, data=problem.data.on(team))
    progress = Progress(settings.tol, settings.verbose, settings.callback, title)
    file = Checkpoint(settings.checkpoint, problem) if settings.checkpoint else NoCheckpoint()
    warm_start = file.load(settings.method, progress) or warm_start
    size = block_size_for(settings.block_size, problem.data, problem.n_classes)
    operations = problem.data.product_size(problem.n_classes, size)
    try:
        with team.at_work(), threads_for(operations, team):
            if not problem.loss.convex and warm_start is None:
                softly = Progress(settings.tol), None, size, start, NoCheckpoint()
                warm_start, _ = _ascend(problem.of(losses.Softmax()), settings, *softly)
            solution, complaint = _ascend(
                problem, settings, progress, warm_start, size, start, file
            )
    finally:
        progress.close()
    if not solution.converged:
        warnings.warn(complaint, ConvergenceWarning, stacklevel=stacklevel)
    return solution


def block_size_for(block_size: int | str, data: Data, m: int) -> int:
    """Return how many rows to take together."""
    size = data.auto_block(m) if isinstance(block_size, str) else block_size
    return min(size, data.most_together() or size)


def _ascend(
    problem: Problem,
    settings: Settings,
    progress: Progress,
    warm_start: Solution | None,
    block_size: int,
    start: Start,
    file: NoCheckpoint,
) -> tuple[Solution, str]:
    """Train with the gap as the only stopping rule; also return what to complain of."""
    method = start(problem, settings, warm_start, block_size)
    every = 0.0 if isinstance(settings.check_every, str) else settings.check_every
    passes, due, settled = file.passes, 0.0, True
    reason = f"max_epochs={settings.max_epochs} reached"
    try:
        while True:
            last = passes >= settings.max_epochs or bool(method.stuck)
            reason = method.stuck or reason
            if last or passes >= due:
                due = passes + every
                if last or (method.ready and not settled):
                    method.settle()
                    settled = True
                found = method.certificate()
                if found.reaches(settings.tol) and not settled:
                    method.settle()
                    settled = True
                    found = method.certificate()
                if progress.check(_state(passes, progress, found, method)):
                    reason = "stopped by the callback"
                    break
                if last or found.reaches(settings.tol):
                    break
            progress.move_on()
            passes += method.advance(settings.max_epochs - passes)
            settled = False
            file.save_if_due(method, passes, progress)
    except KeyboardInterrupt:
        if settings.on_interrupt == "raise":
            file.save(method, passes, progress)
            raise
        method.settle()
        found = method.certificate()
        progress.note(_state(passes, progress, found, method))
        reason = "interrupted"
    file.save(method, passes, progress)
    kept = settings.keep_dual or (settings.along_path and method.has_dual)
    solution = _solution(problem, settings, progress, method, found, math.ceil(passes), kept)
    return solution, _complaint(reason, found, settings.tol)


def _solution(
    problem: Problem,
    settings: Settings,
    progress: Progress,
    method: Method,
    found: Certificate,
    n_epochs: int,
    kept: bool,
) -> Solution:
    """Return where the method is as a solution, whose dual variables a kernel needs anyway."""
    kernel = isinstance(problem.data, KernelData)
    kept = kept or kernel
    return Solution(
        coef=None if kernel else method.coef,
        dual=method.dual if kept else None,
        primal=found.primal,
        dual_value=found.dual_value,
        gap=found.gap,
        converged=found.reaches(settings.tol),
        n_epochs=n_epochs,
        history=progress.history(),
        loss=problem.loss,
        C=problem.C,
        tol=settings.tol,
        cost=problem.cost if kept else None,
        n_examples=problem.data.n_rows,
        n_classes=problem.n_classes,
    )


def _state(passes: float, progress: Progress, found: Certificate, method: Method) -> State:
    return State(
        math.ceil(passes),
        progress.seconds(),
        found.primal,
        found.dual_value,
        found.gap,
        method.name,
        [
            None if isinstance(method.data, KernelData) else method.coef,
            lambda: method.dual,
        ],
    )


def _complaint(reason: str, found: Certificate, tol: float) -> str:
    if isinstance(found, Stationarity):
        return (
            f"{reason} before the gradient fell to {tol:.3e} of the pull of the losses (it is at "
            f"{found.residual:.3e}); raise max_epochs or tol, or scale the features."
        )
    if found.gap < 0:
        return (
            f"{reason} with a dual objective above the primal one, by {-found.gap:.3e} of it "
            f"(asked for a gap of tol={tol:.3e}): digits were lost; scale the features, or lower C."
        )
    return (
        f"{reason} with relative duality gap {found.gap:.3e} > tol={tol:.3e}; raise "
        "max_epochs or tol, or scale the features."
    )
