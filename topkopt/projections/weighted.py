"""Projections onto the multiples of the convex hull of all permutations of some weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.weighted import project_weighted_rows
from topkopt._threads import as_team
from topkopt._validation import as_rows, check_scalar, check_weights
from topkopt.projections.units import NO_BOUND, check_bias, solve_rows

__all__ = ["project_weighted_topk"]


def project_weighted_topk(
    x: ArrayLike,
    weights: ArrayLike,
    radius: float = 1.0,
    *,
    label: bool = False,
    bias: float = 0.0,
    axis: int = -1,
    out: NDArray | None = None,
    n_threads: int | None = None,
) -> NDArray:
    """Project onto the weighted top-k set ``{p in z * Perm(weights), 0 <= z <= radius}``.

    ``Perm(weights)`` is the convex hull of all permutations of the weights, padded with zeros to
    the length of a vector. Weights ``(1/k, ..., 1/k)`` give the top-k simplex. The solution is
    ``p = x - v`` with v an isotonic regression of ``x - z * weights`` in sorted order.

    Parameters
    ----------
    x : array_like
        The vectors to project, along `axis`.
    weights : array_like
        Non-increasing, non-negative.
    radius : float, default 1.0
        The largest multiple z of the weights; non-negative. Next to entries beyond 1e240, `radius`
        times the largest weight must be 0 or at least 1e-240.
    label : bool, default False
        Whether one slot belongs to a coordinate that is not in `x` (the label's own) and whose
        value is free; the weights may then have one entry more than a vector.
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``; at most 1e60.
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
    .. [1] T. Kato, Y. Hirohashi, "Learning weighted top-k support vector machine", ACML 2019.

    Examples
    --------
    >>> from topkopt.projections import project_weighted_topk
    >>> project_weighted_topk([3.0, 2.0, -1.0], [0.75, 0.25])
    array([0.75, 0.25, 0.  ])
    >>> project_weighted_topk([3.0, 3.0, -1.0], [0.75, 0.25])
    array([0.5, 0.5, 0. ])
    """
    radius = check_scalar(radius, "radius")
    bias = check_bias(bias)
    team = as_team(n_threads)
    rows = as_rows(x, axis, out, team=team)
    w = check_weights(weights, rows.size + bool(label))
    w, exponent = _normalized(w)

    def length(unit: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(radius, exponent - math.frexp(unit)[1] + 1))

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_weighted_rows(b, p, w, min(length(unit), NO_BOUND), label, bias)

    solve_rows(kernel, team, rows, longest=0.0, radius=length(1.0))
    return rows.finish()


def _normalized(w: NDArray) -> tuple[NDArray, int]:
    """Return weights with a first of about 1, so that no square underflows, and their exponent.

    The last ones stay positive, for their number counts.
    """
    if not w.size:
        return w, 0
    exponent = math.frexp(w[0])[1]
    with np.errstate(under="ignore"):
        return np.maximum(np.ldexp(w, -exponent), np.finfo(np.float64).tiny), exponent
