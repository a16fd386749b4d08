"""Projections onto the simplex, with and without bounds on each entry."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.knapsack import project_boxed_rows, project_capped_rows
from topkopt._threads import as_team
from topkopt._validation import Rows, as_rows, check_scalar
from topkopt.projections.units import (
    NO_BOUND,
    check_bias,
    in_unit,
    longest_of,
    solve_rows,
    unit_for,
)

__all__ = ["project_capped_simplex", "project_simplex"]


def project_simplex(
    x: ArrayLike,
    radius: float = 1.0,
    *,
    axis: int = -1,
    out: NDArray | None = None,
    n_threads: int | None = None,
) -> NDArray:
    """Project onto the simplex ``{p >= 0, sum p = radius}``.

    The solution is ``p = max(0, x - t)`` with the one t that gives the sum.

    Parameters
    ----------
    x : array_like
        The vectors to project, along `axis`.
    radius : float, default 1.0
        The sum of each projected vector; non-negative, and 0 or at least 1e-240 next to entries
        beyond 1e240.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; of the shape and dtype of the result, may be `x` itself
        or overlap it.
    n_threads : int, optional
        How many threads share the rows; by default as many as BLAS would use.

    Returns
    -------
    ndarray
        The projections, of the shape of `x`.

    See Also
    --------
    project_capped_simplex : with bounds on each entry.
    topkopt.prox.prox_entropy_simplex : the entropic counterpart.

    Examples
    --------
    >>> from topkopt.projections import project_simplex
    >>> project_simplex([0.5, 1.0, -1.0])
    array([0.25, 0.75, 0.  ])
    """
    radius = check_scalar(radius, "radius")
    team = as_team(n_threads)
    rows = as_rows(x, axis, out, team=team)

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_capped_rows(b, p, 0.0, np.inf, radius / unit, True, 0.0)

    solve_rows(kernel, team, rows, longest=radius, radius=radius)
    return rows.finish()


def project_capped_simplex(
    x: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    total: float,
    *,
    equality: bool = True,
    bias: float = 0.0,
    axis: int = -1,
    out: NDArray | None = None,
    n_threads: int | None = None,
) -> NDArray:
    """Project onto ``{lower <= p <= upper, sum p = total}``, a continuous quadratic knapsack.

    The solution is ``p = clip(x - t, lower, upper)``, found by variable fixing [1]_.

    Parameters
    ----------
    x : array_like
        The vectors to project, along `axis`.
    lower, upper : float or array_like
        Bounds on each entry; arrays are broadcast to the shape of `x`. `upper` may be infinite.
    total : float
        The sum of each projected vector, or its upper bound. It and the bounds must be 0 or at
        least 1e-240 next to numbers beyond 1e240.
    equality : bool, default True
        Whether the sum must equal `total` (True) or may not exceed it (False).
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``, at most 1e60; without effect when
        `equality` is true.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `x` itself or overlap it.
    n_threads : int, optional
        How many threads share the rows; by default as many as BLAS would use.

    Returns
    -------
    ndarray
        The projections, of the shape of `x`.

    References
    ----------
    .. [1] K. C. Kiwiel, "Variable fixing algorithms for the continuous quadratic knapsack
       problem", J. Optim. Theory Appl. 136 (2008). :doi:`10.1007/s10957-007-9317-7`

    Examples
    --------
    >>> from topkopt.projections import project_capped_simplex
    >>> project_capped_simplex([3.0, 1.0, 0.5], 0.0, 1.0, 1.5)
    array([1. , 0.5, 0. ])
    >>> project_capped_simplex([0.5, 0.25], 0.0, 1.0, 2.0, equality=False)
    array([0.5 , 0.25])
    """
    total = check_scalar(total, "total", signed=True)
    bias = check_bias(bias)
    team = as_team(n_threads)
    rows = as_rows(x, axis, out, team=team)
    shared = np.ndim(lower) == 0 and np.ndim(upper) == 0
    if shared:
        lo, hi = (np.array([[float(bound)]]) for bound in (lower, upper))  # type: ignore[arg-type]
    else:
        lo, hi = rows.spread(lower, "lower"), rows.spread(upper, "upper")
    bounds = max(longest_of(lo, hi), abs(total) if equality else 0.0)
    unit = unit_for(bounds, lower=lo, upper=hi, total=total)
    _check_box(rows, lo, hi, total, equality, unit)

    def kernel(part: slice, unit: float, b: NDArray, p: NDArray) -> None:
        most = total / unit if equality else min(total / unit, NO_BOUND)
        if shared:
            ends = lo.item() / unit, hi.item() / unit
            project_capped_rows(b, p, *ends, most, equality, bias)
        else:
            box = in_unit(lo[part], unit), in_unit(hi[part], unit)
            project_boxed_rows(b, p, *box, most, equality, bias)

    solve_rows(kernel, team, rows, longest=bounds, lower=lo, upper=hi, total=total)
    return rows.finish()


def _check_box(
    rows: Rows, lower: NDArray, upper: NDArray, total: float, equality: bool, unit: float
) -> None:
    """Raise unless every row of the box holds a point of the wanted sum."""
    if not np.isfinite([lower.min(initial=0.0), lower.max(initial=0.0)]).all():
        raise ValueError("lower must be finite; pass a very small number for an open bound.")
    if not (lower <= upper).all():
        raise ValueError("lower must not exceed upper in any entry; swap or widen the bounds.")
    if not rows.source.size:
        return
    lower, upper = in_unit(lower, unit), in_unit(upper, unit)
    if lower.size == 1:
        least = rows.size * lower.item()
        most = rows.fewest_finite * (upper - lower).item() + least
    else:
        least = lower.sum(axis=1).max()
        most = np.where(rows.source == -np.inf, lower, upper).sum(axis=1).min()
    # Bounds add up to their total only up to rounding.
    size = max(abs(total) / unit, longest_of(lower))
    slack = 4 * np.finfo(np.float64).eps * rows.size * size
    if least > total / unit + slack:
        raise ValueError(
            f"total must be at least the sum of the lower bounds ({least * unit:g}), got "
            f"{total:g}; raise total or lower the bounds."
        )
    if equality and most < total / unit - slack:
        raise ValueError(
            f"total must be at most the sum of the upper bounds over the entries above -inf "
            f"({most * unit:g}), got {total:g}; lower total, raise upper or pass equality=False."
        )
