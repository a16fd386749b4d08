"""Where an operator takes points around the simplex of three classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._extras import require
from topkopt._validation import as_floating
from topkopt.plotting.common import (
    Display,
    as_matrix,
)

__all__ = ["ProjectionDisplay"]


class ProjectionDisplay(Display):
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
        self.points = as_matrix(points, "points", 2)
        self.images = as_matrix(images, "images", 2)
        if len(self.points) != len(self.images):
            raise ValueError(
                f"images must have one row per point ({len(self.points)}), got {len(self.images)}."
            )
        self.vertices = None if vertices is None else as_matrix(vertices, "vertices", 3)
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
