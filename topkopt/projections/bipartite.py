"""Projections of pairs of vectors onto the bipartite simplex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.bipartite import project_bipartite_rows
from topkopt._threads import as_team
from topkopt._validation import as_floating, as_rows, check_scalar, keep_apart
from topkopt.projections.units import NO_BOUND, solve_rows

__all__ = ["project_bipartite_simplex"]


def project_bipartite_simplex(
    x: ArrayLike,
    y: ArrayLike,
    radius: float = 1.0,
    *,
    axis: int = -1,
    out: tuple[NDArray, NDArray] | None = None,
    n_threads: int | None = None,
) -> tuple[NDArray, NDArray]:
    """Project pairs onto the bipartite simplex ``{p, q >= 0, sum p = sum q <= radius}``.

    The solution is ``p = max(0, x - t), q = max(0, y + t)`` with equal sums if these do not exceed
    `radius`, else the two projections onto simplices of that radius.

    Parameters
    ----------
    x, y : array_like
        The pairs of vectors to project, along `axis`; equal shapes but for that axis. A side
        without entries makes the other one zero.
    radius : float, default 1.0
        The largest common sum; non-negative, and 0 or at least 1e-240 next to entries beyond
        1e240.
    axis : int, default -1
        The axis along which the vectors lie.
    out : tuple of two ndarrays, optional
        Where to write the results; may be ``(x, y)`` or overlap them, but not each other.
    n_threads : int, optional
        How many threads share the rows; by default as many as BLAS would use.

    Returns
    -------
    p, q : ndarray
        The projections, of the shapes of `x` and `y`.

    Examples
    --------
    >>> from topkopt.projections import project_bipartite_simplex
    >>> p, q = project_bipartite_simplex([0.5, 0.0], [0.0, -1.0, -1.0])
    >>> p, q
    (array([0.25, 0.  ]), array([0.25, 0.  , 0.  ]))
    """
    radius = check_scalar(radius, "radius")
    team = as_team(n_threads)
    outs = _check_pair(out)
    sides = [as_floating(side, name) for name, side in zip("xy", (x, y), strict=True)]
    dtype = np.result_type(*sides)
    rows = [
        as_rows(
            side.astype(dtype, copy=False),
            axis,
            target,
            name=name,
            out_name=out_name,
            empty_rows=True,
            team=team,
        )
        for name, side, out_name, target in zip(
            "xy", sides, ("out[0]", "out[1]"), outs, strict=True
        )
    ]
    outer = [np.delete(side.result.shape, side.axis).tolist() for side in rows]
    if outer[0] != outer[1]:
        raise ValueError(
            f"x and y must have equal shapes but for the axis {axis}, "
            f"got {rows[0].result.shape} and {rows[1].result.shape}."
        )
    keep_apart(*rows)

    def kernel(_: slice, unit: float, b: NDArray, c: NDArray, p: NDArray, q: NDArray) -> None:
        project_bipartite_rows(b, c, p, q, min(radius / unit, NO_BOUND))

    solve_rows(kernel, team, *rows, longest=0.0, radius=radius)
    return rows[0].finish(), rows[1].finish()


def _check_pair(out: Any) -> tuple[NDArray | None, NDArray | None]:
    if out is None:
        return None, None
    if not isinstance(out, tuple) or len(out) != 2:
        got = f"a tuple of {len(out)}" if isinstance(out, tuple) else f"one {type(out).__name__}"
        raise ValueError(f"out must be a tuple of two arrays, got {got}; pass out=(p, q).")
    return out
