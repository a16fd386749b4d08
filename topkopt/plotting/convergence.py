"""How gaps and objectives fell during trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from topkopt._scores import final_step
from topkopt.plotting.common import (
    Display,
    above_rounding,
    is_history,
    name_of,
    one_of,
)
from topkopt.solvers import Solution

__all__ = ["ConvergenceDisplay"]


class ConvergenceDisplay(Display):
    """How the objectives, or the gap between them, fall during training.

    Parameters
    ----------
    runs : dict of str to dict of ndarray
        The history of each run, by its name in the legend.

    Attributes
    ----------
    lines_ : list of matplotlib.lines.Line2D
        What was drawn.
    ax_, figure_
        Where.

    Examples
    --------
    >>> import numpy as np
    >>> import topkopt
    >>> from topkopt.plotting import ConvergenceDisplay
    >>> solution = topkopt.solve(np.eye(3), [0, 1, 2], "softmax")
    >>> display = ConvergenceDisplay.from_solutions({"softmax": solution})
    >>> len(display.lines_)
    1
    """

    def __init__(self, runs: Mapping[str, Mapping[str, NDArray]]):
        if not isinstance(runs, Mapping) or not all(map(is_history, runs.values())):
            raise TypeError(
                "runs must be a dict of the histories of solutions, by name, got "
                f"{type(runs).__name__}; use ConvergenceDisplay.from_solutions."
            )
        if not runs:
            raise ValueError("runs must hold at least one history, got none.")
        self.runs = runs

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None, **options: Any
    ) -> ConvergenceDisplay:
        """Draw the training of a fitted estimator, or of a pipeline that ends in one.

        Parameters
        ----------
        estimator : TopKClassifier, TopKClassifierCV, MultilabelClassifier or Pipeline
            A fitted estimator.
        name : str, optional
            Its name in the legend.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **options
            Passed to `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        model = final_step(estimator)
        if not hasattr(model, "history_"):
            raise ValueError(
                f"estimator must be a fitted classifier of topkopt, got {estimator!r}; call fit."
            )
        return cls({name or name_of(model): model.history_}).plot(ax, **options)

    @classmethod
    def from_solutions(
        cls, solutions: Mapping[str, Any], *, ax: Any = None, **options: Any
    ) -> ConvergenceDisplay:
        """Draw several runs.

        Parameters
        ----------
        solutions : dict of str to Solution
            The runs, by their names in the legend.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **options
            Passed to `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        is_dict = isinstance(solutions, Mapping)
        if not is_dict or not all(isinstance(each, Solution) for each in solutions.values()):
            raise TypeError(
                "solutions must be a dict of what topkopt.solve returned, by name, got "
                f"{solutions!r}; of an estimator take solution_."
            )
        runs = {name: solution.history for name, solution in solutions.items()}
        return cls(runs).plot(ax, **options)

    def plot(
        self, ax: Any = None, *, against: str = "epoch", quantity: str = "gap", **line: Any
    ) -> ConvergenceDisplay:
        """Draw the runs.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.
        against : {"epoch", "seconds"}, default "epoch"
            The horizontal axis.
        quantity : {"gap", "objective"}, default "gap"
            The relative duality gap (where it is below rounding, 2.2e-16), or both objectives,
            divided by ``C * n`` as in the papers: the primal one falls, the dual one (dashed)
            rises, and the optimum is between them.
        **line
            Passed to ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        ConvergenceDisplay
        """
        one_of(against, "against", ("epoch", "seconds"))
        one_of(quantity, "quantity", ("gap", "objective"))
        ax = self._open(ax)
        self.lines_: list[Any] = []
        for name, history in self.runs.items():
            if quantity == "gap":
                gap = above_rounding(history["gap"])
                self.lines_ += ax.plot(history[against], gap, label=name, **line)
                continue
            (primal,) = ax.plot(history[against], history["primal"], label=name, **line)
            dashed = {**line, "linestyle": "--", "color": primal.get_color()}
            self.lines_ += [primal, *ax.plot(history[against], history["dual"], **dashed)]
        if quantity == "gap":
            ax.set_yscale("log")
        ax.set_xlabel("epochs" if against == "epoch" else "seconds")
        ax.set_ylabel("relative duality gap" if quantity == "gap" else "primal and dual objective")
        ax.legend(frameon=False)
        return self
