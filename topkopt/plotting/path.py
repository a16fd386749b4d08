"""Accuracies and certificates along a path of C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from topkopt._scores import final_step
from topkopt._validation import as_floating, check_scalar
from topkopt.metrics import topk_accuracy_curve
from topkopt.metrics.inputs import check_ks
from topkopt.plotting.common import (
    ROUNDING,
    Display,
)
from topkopt.solvers.path import Path

__all__ = ["PathDisplay"]

# The panel for the gap that belongs to axes on which a path was drawn.
_GAP_PANELS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class PathDisplay(Display):
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
            accuracy = {f"top-{k}": mean[:, k - 1] for k in check_ks(ks, len(model.classes_))}
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
        ks = check_ks(ks, len(labels)).tolist()
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
        asked = self.tol or float(np.max(finite, initial=ROUNDING))
        low = max(asked / 100, ROUNDING)
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
