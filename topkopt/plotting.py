"""Pictures of trainings, accuracies, paths and projections, as scikit-learn's displays.

A display is made by a ``from_...`` method, which also draws it; ``plot(ax)`` draws it again, and
leaves ``ax_`` and ``figure_``. matplotlib (the extra ``plot``) is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._extras import require
from topkopt._scores import final_step, scores_of
from topkopt._validation import as_floating, check_k, check_scalar
from topkopt.metrics import _listed, topk_accuracy_curve
from topkopt.solvers import Solution
from topkopt.solvers.path import Path

__all__ = ["ConvergenceDisplay", "PathDisplay", "ProjectionDisplay", "TopKAccuracyDisplay"]

# A relative gap below this is rounding, of either sign: on a logarithmic axis it would be a cliff.
_ROUNDING = float(np.finfo(np.float64).eps)

# The panel for the gap that belongs to axes on which a path was drawn.
_GAP_PANELS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class _Display:
    """Finds the axes to draw on and remembers them."""

    ax_: Any
    figure_: Any

    def _open(self, ax: Any) -> Any:
        pyplot = require("matplotlib.pyplot")
        if ax is not None and not isinstance(ax, require("matplotlib.axes").Axes):
            raise TypeError(
                f"ax must be one matplotlib Axes or None, got {type(ax).__name__}; take one of "
                "what pyplot.subplots returned."
            )
        self.ax_ = pyplot.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_


def _one_of(value: str, name: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
    return value


def _as_matrix(x: ArrayLike, name: str, columns: int) -> NDArray:
    matrix = as_floating(x, name)
    if matrix.ndim != 2 or matrix.shape[1] != columns:
        raise ValueError(f"{name} must have {columns} columns, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity.")
    return matrix


def _name_of(estimator: Any) -> str:
    """Return a legend for an estimator: its loss, with k where there is one."""
    model = final_step(estimator)
    solution = getattr(model, "solution_", None)
    if solution is None:
        return type(model).__name__
    name = model.loss if isinstance(model.loss, str) else solution.loss.name
    k = getattr(solution.loss, "k", None) if "topk" in name else None
    return name.replace("_", " ") + (f", k = {k}" if k is not None else "")


def _above_rounding(gaps: NDArray) -> NDArray:
    """Return gaps that a logarithmic axis can show; NaN stays."""
    return np.maximum(gaps, _ROUNDING)


def _is_history(run: Any) -> bool:
    return isinstance(run, Mapping) and {"epoch", "seconds", "primal", "dual", "gap"} <= run.keys()


class ConvergenceDisplay(_Display):
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
        if not isinstance(runs, Mapping) or not all(map(_is_history, runs.values())):
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
        return cls({name or _name_of(model): model.history_}).plot(ax, **options)

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
        _one_of(against, "against", ("epoch", "seconds"))
        _one_of(quantity, "quantity", ("gap", "objective"))
        ax = self._open(ax)
        self.lines_: list[Any] = []
        for name, history in self.runs.items():
            if quantity == "gap":
                gap = _above_rounding(history["gap"])
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


class TopKAccuracyDisplay(_Display):
    """The accuracy against the number of guesses; equal scores get their expected credit.

    Parameters
    ----------
    accuracy : array_like of shape (m,)
        The top-1, top-2, ..., top-m accuracies.
    name : str, optional
        The name in the legend.

    Attributes
    ----------
    line_ : matplotlib.lines.Line2D
        What was drawn.
    ax_, figure_
        Where.

    Examples
    --------
    >>> from topkopt.plotting import TopKAccuracyDisplay
    >>> display = TopKAccuracyDisplay.from_predictions([0, 1], [[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    >>> display.accuracy
    array([0.5, 1. , 1. ])
    """

    def __init__(self, accuracy: ArrayLike, *, name: str | None = None):
        self.accuracy = as_floating(accuracy, "accuracy")
        if self.accuracy.ndim != 1 or not self.accuracy.size:
            raise ValueError(
                "accuracy must be a non-empty list of numbers, one per k, got shape "
                f"{self.accuracy.shape}."
            )
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
        **options: Any,
    ) -> TopKAccuracyDisplay:
        """Score a classifier on examples and draw.

        Parameters
        ----------
        estimator : estimator with classes_ and decision_function or predict_proba
            A fitted classifier, of any library.
        X, y
            Examples and their classes.
        sample_weight : array_like of shape (n,), optional
            Weights of the examples.
        name : str, optional
            The name in the legend.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **options
            Passed to `plot`.

        Returns
        -------
        TopKAccuracyDisplay
        """
        scores, classes = scores_of(estimator, X)
        return cls.from_predictions(
            y,
            scores,
            labels=classes,
            sample_weight=sample_weight,
            name=name or _name_of(estimator),
            ax=ax,
            **options,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
        **options: Any,
    ) -> TopKAccuracyDisplay:
        """Draw from scores, see `topkopt.metrics.topk_accuracy_curve`.

        Parameters
        ----------
        y_true, y_score, labels, sample_weight
            Passed to `topkopt.metrics.topk_accuracy_curve`.
        name : str, optional
            The name in the legend.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **options
            Passed to `plot`.

        Returns
        -------
        TopKAccuracyDisplay
        """
        curve = topk_accuracy_curve(y_true, y_score, labels=labels, sample_weight=sample_weight)
        return cls(curve, name=name).plot(ax, **options)

    def plot(
        self, ax: Any = None, *, name: str | None = None, most: int | None = None, **line: Any
    ) -> TopKAccuracyDisplay:
        """Draw the accuracy for k = 1, 2, ...

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.
        name : str, optional
            The name in the legend.
        most : int, optional
            The largest k to draw; all by default.
        **line
            Passed to ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        TopKAccuracyDisplay
        """
        if most is not None:
            check_k(most, np.iinfo(np.intp).max, name="most")
        ax = self._open(ax)
        shown = self.accuracy[:most]
        label = name or self.name
        style = {"marker": ".", "label": label, **line}
        (self.line_,) = ax.plot(np.arange(1, len(shown) + 1), shown, **style)
        ax.set_xlabel("guesses k")
        ax.set_ylabel("top-k accuracy")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if label:
            ax.legend(frameon=False)
        return self


class PathDisplay(_Display):
    """Accuracy and certified gap against C.

    The gap has a panel of its own below the accuracies, within the place of the axes they are drawn
    on. Its axis is logarithmic and spans decades, whatever the gaps: those that trainings stop at
    differ by chance, and below rounding they are nothing.

    Parameters
    ----------
    Cs : array_like of shape (p,)
        The values of C.
    accuracy : dict of str to array_like of shape (p,)
        Accuracies, or other scores, by their names in the legend.
    gaps : array_like of shape (p,)
        The relative duality gap for each C; NaN where there is no certificate.
    tol : float, optional
        The gap that was asked for.

    Attributes
    ----------
    lines_ : list of matplotlib.lines.Line2D
        The accuracies.
    gap_line_ : matplotlib.lines.Line2D
        The gap, where it is not below what its axis shows.
    ax_, gap_ax_, figure_
        The axes of the accuracies and of the gap, and their figure.

    Examples
    --------
    >>> import numpy as np
    >>> import topkopt
    >>> from topkopt.plotting import PathDisplay
    >>> path = topkopt.path(np.eye(3), [0, 1, 2], "softmax", Cs=[0.1, 1.0])
    >>> PathDisplay.from_path(path, np.eye(3), [0, 1, 2], ks=[1, 2]).accuracy["top-1"]
    array([1., 1.])
    """

    def __init__(
        self,
        Cs: ArrayLike,
        accuracy: Mapping[str, ArrayLike],
        gaps: ArrayLike,
        *,
        tol: float | None = None,
    ):
        if not isinstance(accuracy, Mapping):
            raise TypeError(
                f"accuracy must be a dict of accuracies by name, got {type(accuracy).__name__}."
            )
        self.Cs = as_floating(Cs, "Cs")
        self.accuracy = {
            name: as_floating(v, f"accuracy[{name!r}]") for name, v in accuracy.items()
        }
        self.gaps = as_floating(gaps, "gaps")
        self.tol = None if tol is None else check_scalar(tol, "tol")
        for name, values in {**self.accuracy, "gaps": self.gaps}.items():
            if self.Cs.ndim != 1 or not self.Cs.size or values.shape != self.Cs.shape:
                raise ValueError(
                    "Cs, accuracy and gaps must be lists of equal positive lengths, got shape "
                    f"{self.Cs.shape} for Cs and {values.shape} for {name!r}."
                )

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ks: Sequence[int] | None = None, ax: Any = None, **options: Any
    ) -> PathDisplay:
        """Draw what a `TopKClassifierCV` found for its best k, averaged over the folds.

        Parameters
        ----------
        estimator : TopKClassifierCV or Pipeline
            A fitted estimator.
        ks : list of int, optional
            Which top-k accuracies to draw; by default the score that was maximised.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **options
            Passed to `plot`.

        Returns
        -------
        PathDisplay
        """
        model = final_step(estimator)
        if not hasattr(model, "cv_accuracy_"):
            raise ValueError(
                f"estimator must be a fitted TopKClassifierCV, got {estimator!r}; call fit, or use "
                "PathDisplay.from_path."
            )
        column = int(np.flatnonzero(model.ks_ == model.k_)[0])
        if ks is None:
            accuracy = {_name_of_scoring(model): model.scores_[:, column]}
        else:
            mean = model.cv_accuracy_.mean(axis=0)[:, column]
            accuracy = {f"top-{k}": mean[:, k - 1] for k in _listed(ks, len(model.classes_))}
        gaps = model.cv_gap_[..., column].max(axis=0)
        return cls(model.Cs_, accuracy, gaps, tol=model.tol).plot(ax, **options)

    @classmethod
    def from_path(
        cls,
        path: Path,
        X: Any,
        y: ArrayLike,
        *,
        ks: Sequence[int] = (1,),
        sample_weight: ArrayLike | None = None,
        ax: Any = None,
        **options: Any,
    ) -> PathDisplay:
        """Score every solution of a path on examples and draw.

        Parameters
        ----------
        path : Path
            What `topkopt.path` returned.
        X, y
            Examples (or their kernel with the training examples) and labels 0, 1, ...
        ks : list of int, default (1,)
            Which top-k accuracies to draw.
        sample_weight : array_like of shape (n,), optional
            Weights of the examples.
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        **options
            Passed to `plot`.

        Returns
        -------
        PathDisplay
        """
        if not isinstance(path, Path):
            raise TypeError(
                f"path must be what topkopt.path returned, got {type(path).__name__}; for a "
                "TopKClassifierCV use PathDisplay.from_estimator."
            )
        scores = path.scores(X)
        labels = np.arange(scores.shape[2])
        ks = _listed(ks, len(labels)).tolist()
        curves = np.stack(
            [
                topk_accuracy_curve(y, each, ks=ks, labels=labels, sample_weight=sample_weight)
                for each in scores
            ]
        )
        accuracy = {f"top-{k}": curves[:, i] for i, k in enumerate(ks)}
        return cls(path.Cs, accuracy, path.gaps, tol=path[0].tol).plot(ax, **options)

    def plot(self, ax: Any = None, **line: Any) -> PathDisplay:
        """Draw the accuracies, and the gap in a panel below them.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default. Both panels share its place, also with what
            was drawn there before.
        **line
            Passed to ``matplotlib.axes.Axes.plot`` for the accuracies.

        Returns
        -------
        PathDisplay
        """
        ax = self._open(ax)
        self.gap_ax_ = gap_ax = _gap_panel(ax)
        self.lines_: list[Any] = []
        for name, values in self.accuracy.items():
            self.lines_ += ax.plot(self.Cs, values, **{"marker": ".", "label": name, **line})
        colour = self.lines_[0].get_color() if self.lines_ else "0.4"
        low, high = self._decades()
        (self.gap_line_,) = gap_ax.plot(
            self.Cs, np.maximum(self.gaps, low), ".:", color=colour, clip_on=False
        )
        if self.tol:
            gap_ax.axhline(self.tol, color="0.7", linewidth=0.8, zorder=0)
        gap_ax.set(xscale="log", yscale="log", ylim=(low, high))
        gap_ax.tick_params(axis="y", labelsize="small")
        self._label("accuracy" if all("top-" in name for name in self.accuracy) else "score")
        return self

    def _label(self, quantity: str) -> None:
        """Name the axes; inside of them where no layout makes room for names between axes."""
        if self.figure_.get_layout_engine() is not None:
            self.ax_.set_ylabel(quantity)
            self.gap_ax_.set(xlabel="C", ylabel="gap")
            self.ax_.legend(frameon=False)
            return
        self.ax_.legend(frameon=False, title=quantity)
        self.ax_.tick_params(axis="y", labelsize="small")
        self.ax_.locator_params(axis="y", nbins=5)  # few ticks have few digits
        if not self.gap_ax_.texts:
            small = {"fontsize": "small", "transform": self.gap_ax_.transAxes}
            self.gap_ax_.text(0.02, 0.96, "gap", va="top", **small)
            self.gap_ax_.text(0.98, 0.06, "C", ha="right", va="bottom", **small)

    def _decades(self) -> tuple[float, float]:
        """Return the ends of the axis of the gap: decades, also those drawn there before."""
        finite = self.gaps[np.isfinite(self.gaps)]
        asked = self.tol or float(np.max(finite, initial=_ROUNDING))
        low = max(asked / 100, _ROUNDING)
        high = max(10 * asked, float(np.max(finite, initial=0.0)), 1000 * low)
        if self.gap_ax_.lines:
            before = self.gap_ax_.get_ylim()
            low, high = min(low, before[0]), max(high, before[1])
        # A decade is one only up to rounding.
        return 10 ** np.floor(np.log10(low) + 1e-9), 10 ** np.ceil(np.log10(high) - 1e-9)


def _gap_panel(ax: Any) -> Any:
    """Return axes below others, for which these make room; the same whenever they are asked."""
    if ax in _GAP_PANELS and _GAP_PANELS[ax].figure is not None:
        return _GAP_PANELS[ax]
    place = ax.get_subplotspec()
    if place is None:  # axes put anywhere by hand
        box = ax.get_position()
        below = [box.x0, box.y0, box.width, 0.25 * box.height]
        ax.set_position([box.x0, box.y0 + 0.3 * box.height, box.width, 0.7 * box.height])
        panel = ax.figure.add_axes(below, sharex=ax)
    else:
        parts = place.subgridspec(2, 1, height_ratios=(3, 1), hspace=0.08)
        ax.set_subplotspec(parts[0])
        panel = ax.figure.add_subplot(parts[1], sharex=ax)
    ax.tick_params(labelbottom=False)
    _GAP_PANELS[ax] = panel
    return panel


def _name_of_scoring(search: Any) -> str:
    """Return a legend for what a search maximised."""
    if not isinstance(search.scoring, str):
        return "score"
    top = search.scoring.removeprefix("top")
    return f"top-{top}" if top.isdecimal() else search.scoring.replace("_", " ")


class ProjectionDisplay(_Display):
    """Where an operator takes points around the simplex of three classes.

    Parameters
    ----------
    points : array_like of shape (n, 2)
        The points, in the plane of the drawing.
    images : array_like of shape (n, 2)
        Where they go.
    vertices : array_like of shape (v, 3), optional
        The corners of the set, to be shaded.
    name : str, optional
        The title.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.

    Examples
    --------
    >>> from topkopt.plotting import ProjectionDisplay
    >>> from topkopt.projections import project_simplex
    >>> ProjectionDisplay.from_function(project_simplex).images.shape
    (120, 2)
    """

    CORNERS = np.array([[-1.0, -0.5774], [1.0, -0.5774], [0.0, 1.1547]])  # of the simplex, drawn

    def __init__(
        self,
        points: ArrayLike,
        images: ArrayLike,
        *,
        vertices: ArrayLike | None = None,
        name: str | None = None,
    ):
        self.points = _as_matrix(points, "points", 2)
        self.images = _as_matrix(images, "images", 2)
        if len(self.points) != len(self.images):
            raise ValueError(
                f"images must have one row per point ({len(self.points)}), got {len(self.images)}."
            )
        self.vertices = None if vertices is None else _as_matrix(vertices, "vertices", 3)
        self.name = name

    @classmethod
    def from_function(
        cls,
        function: Callable[[NDArray], NDArray],
        *,
        vertices: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
    ) -> ProjectionDisplay:
        """Apply an operator to points around the simplex and draw.

        Parameters
        ----------
        function : callable
            Takes rows of three numbers to rows of three numbers.
        vertices : array_like of shape (v, 3), optional
            The corners of the set, to be shaded.
        name : str, optional
            The title.
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        ProjectionDisplay
        """
        if not callable(function):
            raise TypeError(f"function must be callable, got {function!r}.")
        angle, distance = np.meshgrid(np.linspace(0, 2 * np.pi, 60, endpoint=False), [1.6, 2.2])
        points = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=-1)
        points = points.reshape(-1, 2)
        # In the plane of the simplex, then up so far that the sum reaches its bound in every set.
        result = function(points @ np.linalg.pinv(cls.CORNERS) + 2.0)
        images = as_floating(result, "what function returns")
        if images.shape != (len(points), 3):
            raise ValueError(
                f"function must return rows of three numbers, {(len(points), 3)} in all, "
                f"got {images.shape}."
            )
        return cls(points, images @ cls.CORNERS, vertices=vertices, name=name).plot(ax)

    def plot(self, ax: Any = None) -> ProjectionDisplay:
        """Draw the points, their images and the set.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ProjectionDisplay
        """
        ax = self._open(ax)
        hue = np.arctan2(self.points[:, 1], self.points[:, 0]) / (2 * np.pi) % 1
        hsv = np.stack([hue, np.full(hue.shape, 0.7), np.full(hue.shape, 0.8)], axis=-1)
        colours = require("matplotlib.colors").hsv_to_rgb(hsv)
        ax.fill(*self.CORNERS.T, facecolor="none", edgecolor="0.75")
        if self.vertices is not None:
            ax.fill(*(self.vertices @ self.CORNERS).T, facecolor="0.93", edgecolor="0.35")
        segments = require("matplotlib.collections").LineCollection(
            list(np.stack([self.points, self.images], axis=1)),
            colors=colours,
            alpha=0.4,
            linewidths=0.7,
        )
        ax.add_collection(segments)
        ax.scatter(*self.points.T, color=colours, s=3, linewidths=0)
        ax.scatter(*self.images.T, color=colours, s=16, linewidths=0, zorder=3)
        if self.name:
            ax.set_title(self.name, family="monospace", fontsize=9)
        ax.set(aspect="equal", xlim=(-2.4, 2.4), ylim=(-2.4, 2.4))
        ax.set_axis_off()
        return self
