"""scikit-learn's callbacks, from its version 1.9: what a fit tells progress bars and monitors.

A fit is a tree of tasks, each with a hook at its begin and one at its end. Without callbacks, or
before 1.9, nothing happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topkopt.solvers import State

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Adds nothing."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "EpochTasks", "Task", "fit_task", "with_callbacks"]


class Task:
    """A task that has begun; an idle one if nobody watches."""

    def __init__(self, estimator: Any = None, context: Any = None, data: Any = None):
        self.estimator, self.context, self.data = estimator, context, data or {}
        if context is not None:
            context.call_on_fit_task_begin(estimator=estimator, **self.data)

    @property
    def watched(self) -> bool:
        """Whether a callback is there to see the task."""
        return self.context is not None

    def subtask(self, name: str, n_subtasks: int = 0) -> Task:
        """Begin a part of the task, which has itself so many parts."""
        if self.context is None:
            return self
        context = self.context.subcontext(task_name=name, max_subtasks=n_subtasks)
        return Task(self.estimator, context, self.data)

    def end(self, fitted: Callable[[], dict[str, Any]] | None = None) -> bool:
        """End the task; true if a callback asks to stop.

        What `fitted` returns are the attributes of a classifier as good as training got so far.
        """
        if self.context is None:
            return False
        return self.context.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=fitted, **self.data
        )

    def subfit(self, name: str, model: Any, *data: Any) -> None:
        """Fit another classifier as a part of the task."""
        if self.context is None:
            model.fit(*data)
            return
        context = self.context.subcontext(task_name=name)
        with context.propagate_callback_context(model):
            part = Task(self.estimator, context, self.data)
            model.fit(*data)
        part.end()


def fit_task(estimator: Any, n_subtasks: int, X: Any, y: Any, sample_weight: Any) -> Task:
    """Begin the fit of an estimator, whose `fit` is wrapped by `with_callbacks`."""
    if not hasattr(estimator, "_skl_callbacks"):
        return Task()
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    context = estimator._init_callback_context(max_subtasks=n_subtasks)
    return Task(estimator, context, {"X": X, "y": y, "metadata": metadata})


class EpochTasks:
    """A callback of `solve` that makes every epoch a task."""

    def __init__(
        self, task: Task, tol: float, max_epochs: int, fitted: Callable[[State], dict[str, Any]]
    ):
        self.task, self.tol, self.max_epochs, self.fitted = task, tol, max_epochs, fitted
        self.running: Task | None = None

    def __call__(self, state: State) -> bool:
        """End the epoch that led to this state, and begin the next one if there is one."""
        stop = self.running is not None and self.running.end(lambda: self.fitted(state))
        last = stop or state.gap <= self.tol or state.epoch >= self.max_epochs
        self.running = None if last else self.task.subtask("epoch")
        return stop

    def close(self) -> None:
        """End an epoch that was announced and did not come."""
        if self.running is not None:
            self.running.end()
