"""Accuracy against the number of guesses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from topkopt._scores import scores_of
from topkopt._validation import as_floating, check_k
from topkopt.metrics import topk_accuracy_curve
from topkopt.plotting.common import (
    Display,
    name_of,
)

__all__ = ["TopKAccuracyDisplay"]


class TopKAccuracyDisplay(Display):
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
        estimator : estimator
            A fitted classifier, of any library, with ``classes_`` and ``decision_function`` or
            ``predict_proba``.
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
            name=name or name_of(estimator),
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
