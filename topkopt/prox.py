"""Entropic proximal operators: the steps of the softmax and top-k entropy losses.

They follow the conventions of `topkopt.projections`: vectors along ``axis``, any shape, float32 or
float64, -inf for an entry that must stay empty, and an ``out`` that may overlap the input.

Finite entries may be as large as their dtype has numbers, and parameters as small; ``alpha`` (times
the radius) must be at most 1e144: beyond, the entropy is below rounding.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.entropy import prox_entropy_rows
from topkopt._kernels.topk_entropy import prox_topk_entropy_rows
from topkopt._threads import as_team
from topkopt._validation import Rows, as_rows, check_k, check_scalar

__all__ = ["prox_entropy_simplex", "prox_topk_entropy"]

_EXPONENTIAL = 4  # as many numbers are visited in the time of one with an exponential
_MOST_ALPHA = 2.0**480  # squares of such numbers do not overflow


def _check_alpha(alpha: float, radius: float, projection: str) -> float:
    alpha = check_scalar(alpha, "alpha")
    if alpha * radius > _MOST_ALPHA:
        raise ValueError(
            f"alpha times the sum of a solution must be at most {_MOST_ALPHA:.2g}, got {alpha!r} "
            f"times {radius!r}; use {projection} of b / alpha, for the entropy is below rounding."
        )
    return alpha


def _drawn_in(rows: Rows, rank: int) -> NDArray:
    """Return the rows with huge entries drawn in, so that no difference or sum overflows.

    The threshold of a solution is near the entry of that rank, the largest first. What is 2**900
    or more away from it has reached its bound, whatever alpha: of such entries nothing counts but
    their order and the sign of their sums.
    """
    b = rows.source
    if not rows.huge or b.dtype != np.float64:
        return b
    near = -np.partition(-b, rank - 1, axis=1)[:, rank - 1, None]
    clipped = np.where(np.isfinite(b), np.clip(b, -(2.0**1000), 2.0**1000), b)
    return np.where(np.abs(near) > 2.0**964, b * 2.0**-64, clipped)


def prox_entropy_simplex(
    b: ArrayLike,
    alpha: float,
    radius: float = 1.0,
    *,
    upper: float | None = None,
    axis: int = -1,
    out: NDArray | None = None,
    n_threads: int | None = None,
) -> NDArray:
    """Entropic prox on the (capped) simplex.

    Minimises ``alpha/2 |x|^2 - <b, x> + <x, log x>`` over ``x >= 0, sum x = radius, x <= upper``.
    The solution is ``x = min(V(b - t)/alpha, upper)`` with V from `topkopt.special.lambertw_exp`;
    for ``alpha = 0`` it is the (capped) softmax ``min(exp(b - t), upper)``.

    Parameters
    ----------
    b : array_like
        The vectors of linear terms, along `axis`.
    alpha : float
        Weight of the quadratic term; non-negative, and at most 1e144 when multiplied by `radius`.
    radius : float, default 1.0
        The sum of each solution; non-negative.
    upper : float, optional
        The largest value of an entry; ``upper * b.shape[axis]`` must reach `radius`.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `b` itself or overlap it.
    n_threads : int, optional
        How many threads share the rows; by default as many as BLAS would use.

    Returns
    -------
    ndarray
        The solutions, of the shape of `b`.

    See Also
    --------
    topkopt.projections.project_capped_simplex : the same without the entropy.

    Examples
    --------
    >>> import numpy as np
    >>> from topkopt.prox import prox_entropy_simplex
    >>> prox_entropy_simplex(np.log([1.0, 2.0, 5.0]), 0.0)
    array([0.125, 0.25 , 0.625])
    >>> prox_entropy_simplex(np.log([1.0, 2.0, 5.0]), 0.0, upper=0.4)
    array([0.2, 0.4, 0.4])
    """
    radius = check_scalar(radius, "radius")
    alpha = _check_alpha(alpha, radius, "project_capped_simplex")
    team = as_team(n_threads)
    rows = as_rows(b, axis, out, name="b", team=team)
    largest = float(np.finfo(rows.source.dtype).max)
    if radius > largest:
        raise ValueError(
            f"radius must be at most {largest:.2g} for {rows.source.dtype}, got {radius!r}; "
            "pass b as float64."
        )
    cap = np.inf if upper is None else check_scalar(upper, "upper", finite=False)
    most = rows.fewest_finite * cap if cap > 0 else 0.0
    if rows.source.size and most < radius * (1 - 4 * np.finfo(np.float64).eps * rows.size):
        raise ValueError(
            f"upper must let the entries above -inf reach radius: {rows.fewest_finite} * "
            f"{cap:g} < {radius:g}; raise upper or lower radius."
        )
    if radius == 0:
        rows.target[...] = 0
    elif rows.source.size:
        rank = math.ceil(max(1.0, min(radius / cap, rows.size)))
        source, target = _drawn_in(rows, rank), rows.target

        def solve(part: slice) -> None:
            prox_entropy_rows(source[part], target[part], alpha, radius, cap)

        team.each_row(solve, len(source), _EXPONENTIAL * rows.size)
    return rows.finish()


def prox_topk_entropy(
    b: ArrayLike,
    alpha: float,
    k: int = 1,
    *,
    axis: int = -1,
    out: NDArray | None = None,
    n_threads: int | None = None,
) -> NDArray:
    """Entropic prox on the top-k simplex, the step of the top-k entropy loss.

    Minimises ``alpha/2 (|x|^2 + s^2) - <b, x> + <x, log x> + (1 - s) log(1 - s)`` over
    ``0 <= x_j <= s/k`` with ``s = sum x``; equation (11) of [1]_. The solution is
    ``x = min(V(b - t)/alpha, s/k)`` with V from `topkopt.special.lambertw_exp`.

    Parameters
    ----------
    b : array_like
        The vectors of linear terms, along `axis`.
    alpha : float
        Weight of the quadratic terms; non-negative, at most 1e144.
    k : int, default 1
        No entry may hold more than the k-th part of the sum; ``1 <= k <= b.shape[axis]``.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `b` itself or overlap it.
    n_threads : int, optional
        How many threads share the rows; by default as many as BLAS would use.

    Returns
    -------
    ndarray
        The solutions, of the shape of `b`.

    References
    ----------
    .. [1] M. Lapin, M. Hein, B. Schiele, "Analysis and optimization of loss functions for
       multiclass, top-k, and multilabel classification", TPAMI 40 (2018).
       :doi:`10.1109/TPAMI.2017.2751607`

    Examples
    --------
    >>> import numpy as np
    >>> from topkopt.prox import prox_topk_entropy
    >>> prox_topk_entropy(np.log([1.0, 2.0]), 0.0)
    array([0.25, 0.5 ])
    >>> prox_topk_entropy([0.0, 0.0], 0.0, 2)
    array([0.33333333, 0.33333333])
    """
    alpha = _check_alpha(alpha, 1.0, "project_topk_simplex (bias 1)")
    team = as_team(n_threads)
    rows = as_rows(b, axis, out, name="b", team=team)
    k = check_k(k, rows.size)
    source, target = _drawn_in(rows, k), rows.target

    def solve(part: slice) -> None:
        prox_topk_entropy_rows(source[part], target[part], alpha, k)

    team.each_row(solve, len(source), _EXPONENTIAL * rows.size)
    return rows.finish()
