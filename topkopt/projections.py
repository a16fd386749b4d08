"""Euclidean projections onto the sets of top-k classification.

Every function solves, for each vector along ``axis``,

    minimise  1/2 |x - b|^2 + bias/2 <1, x>^2   subject to   x in a set,

exactly (up to rounding) and in linear time in practice. The input may be of any shape, of float32
or float64 (kept; integers are promoted), read-only or strided. Entries of -inf get no mass.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.bipartite import project_bipartite_rows
from topkopt._kernels.knapsack import project_boxed_rows, project_capped_rows
from topkopt._kernels.topk import project_topk_rows
from topkopt._kernels.weighted import project_weighted_rows
from topkopt._validation import Rows, as_floating, as_rows, check_k, check_scalar, check_weights

__all__ = [
    "project_bipartite_simplex",
    "project_capped_simplex",
    "project_simplex",
    "project_topk_cone",
    "project_topk_simplex",
    "project_weighted_topk",
]

_TOPK_KINDS = {"alpha": 0, "beta": 1, "label": 2}


def project_simplex(
    x: ArrayLike, radius: float = 1.0, *, axis: int = -1, out: NDArray | None = None
) -> NDArray:
    """Project onto the simplex ``{p >= 0, sum p = radius}``.

    The solution is ``p = max(0, x - t)`` with the one t that gives the sum.

    Parameters
    ----------
    x : array_like
        The vectors to project, along `axis`.
    radius : float, default 1.0
        The sum of each projected vector; non-negative.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; of the shape and dtype of the result, may be `x` itself.

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
    rows = as_rows(x, axis, out)
    project_capped_rows(rows.source, rows.target, 0.0, np.inf, radius, True, 0.0)
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
        The sum of each projected vector, or its upper bound.
    equality : bool, default True
        Whether the sum must equal `total` (True) or may not exceed it (False).
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``; without effect when `equality` is true.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `x` itself.

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
    bias = check_scalar(bias, "bias")
    rows = as_rows(x, axis, out)
    if np.ndim(lower) == 0 and np.ndim(upper) == 0:
        lo, hi = float(lower), float(upper)  # type: ignore[arg-type]
        _check_box(rows, np.array([[lo]]), np.array([[hi]]), total, equality)
        project_capped_rows(rows.source, rows.target, lo, hi, total, equality, bias)
    else:
        box = rows.spread(lower, "lower"), rows.spread(upper, "upper")
        _check_box(rows, *box, total, equality)
        project_boxed_rows(rows.source, rows.target, *box, total, equality, bias)
    return rows.finish()


def _check_box(rows: Rows, lower: NDArray, upper: NDArray, total: float, equality: bool) -> None:
    """Raise unless every row of the box holds a point of the wanted sum."""
    if not np.isfinite(lower).all():
        raise ValueError("lower must be finite; pass a very small number for an open bound.")
    if not (lower <= upper).all():
        raise ValueError("lower must not exceed upper in any entry; swap or widen the bounds.")
    if not rows.source.size:
        return
    if lower.size == 1:
        least = rows.size * lower.item()
        most = rows.fewest_finite * (upper - lower).item() + least
    else:
        least = lower.sum(axis=1).max()
        most = np.where(rows.source == -np.inf, lower, upper).sum(axis=1).min()
    slack = 4 * np.finfo(np.float64).eps * rows.size * abs(total)
    if least > total + slack:
        raise ValueError(
            f"total must be at least the sum of the lower bounds ({least:g}), got {total:g}; "
            "raise total or lower the bounds."
        )
    if equality and most < total - slack:
        raise ValueError(
            f"total must be at most the sum of the upper bounds over the entries above -inf "
            f"({most:g}), got {total:g}; lower total, raise upper or pass equality=False."
        )


def project_topk_cone(
    x: ArrayLike, k: int, *, bias: float = 0.0, axis: int = -1, out: NDArray | None = None
) -> NDArray:
    """Project onto the top-k cone ``{0 <= p_j <= (sum p)/k}``.

    The solution is ``p = clip(x - t, 0, s/k)`` with s its own sum, found by path following.

    Parameters
    ----------
    x : array_like
        The vectors to project, along `axis`.
    k : int
        No entry may hold more than the k-th part of the sum; ``1 <= k <= x.shape[axis]``.
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `x` itself.

    Returns
    -------
    ndarray
        The projections, of the shape of `x`.

    Examples
    --------
    The one large entry may not hold more than half of the sum, so the others are lifted:

    >>> from topkopt.projections import project_topk_cone
    >>> project_topk_cone([10.0, -1.0, -1.0], 2)
    array([6., 3., 3.])
    """
    bias = check_scalar(bias, "bias")
    rows = as_rows(x, axis, out)
    k = check_k(k, rows.size)
    project_topk_rows(rows.source, rows.target, k, np.inf, _TOPK_KINDS["alpha"], bias)
    return rows.finish()


def project_topk_simplex(
    x: ArrayLike,
    k: int,
    radius: float = 1.0,
    *,
    kind: Literal["alpha", "beta", "label"] = "alpha",
    bias: float = 0.0,
    axis: int = -1,
    out: NDArray | None = None,
) -> NDArray:
    """Project onto one of the three top-k simplices.

    ====== ==================================================== ===================================
    kind   set (s = sum p)                                      dual set of the top-k hinge loss
    ====== ==================================================== ===================================
    alpha  ``0 <= p_j <= s/k``, ``s <= radius``                 over the other classes
    beta   ``0 <= p_j <= radius/k``, ``s <= radius``            that sums the k largest hinges
    label  beta, and ``p_j <= s/(k-1)``                         with the label's own slot counted
    ====== ==================================================== ===================================

    alpha is contained in label, and label in beta; all three agree for ``k = 1``.

    Parameters
    ----------
    x : array_like
        The vectors to project, along `axis`.
    k : int
        ``1 <= k <= x.shape[axis]`` (one more for kind "label", which has a slot for the label).
    radius : float, default 1.0
        The largest sum; non-negative.
    kind : {"alpha", "beta", "label"}, default "alpha"
        Which of the sets.
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `x` itself.

    Returns
    -------
    ndarray
        The projections, of the shape of `x`.

    References
    ----------
    .. [1] M. Lapin, M. Hein, B. Schiele, "Top-k multiclass SVM", NIPS 2015.
    .. [2] M. Lapin, M. Hein, B. Schiele, "Analysis and optimization of loss functions for
       multiclass, top-k, and multilabel classification", TPAMI 40 (2018).
       :doi:`10.1109/TPAMI.2017.2751607`

    Examples
    --------
    >>> from topkopt.projections import project_topk_simplex
    >>> project_topk_simplex([2.0, 0.5, 0.25, -1.0], 2)
    array([0.5  , 0.375, 0.125, 0.   ])
    >>> project_topk_simplex([2.0, -0.5, -0.75, -1.0], 2, kind="beta")
    array([0.5, 0. , 0. , 0. ])
    """
    if kind not in _TOPK_KINDS:
        raise ValueError(f"kind must be one of {', '.join(_TOPK_KINDS)}, got {kind!r}.")
    radius = check_scalar(radius, "radius", remedy="Use project_topk_cone for no bound.")
    bias = check_scalar(bias, "bias")
    rows = as_rows(x, axis, out)
    k = check_k(k, rows.size + (kind == "label"))
    project_topk_rows(rows.source, rows.target, k, radius, _TOPK_KINDS[kind], bias)
    return rows.finish()


def project_weighted_topk(
    x: ArrayLike,
    weights: ArrayLike,
    radius: float = 1.0,
    *,
    label: bool = False,
    bias: float = 0.0,
    axis: int = -1,
    out: NDArray | None = None,
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
        The largest multiple z of the weights; non-negative.
    label : bool, default False
        Whether one slot belongs to a coordinate that is not in `x` (the label's own) and whose
        value is free; the weights may then have one entry more than a vector.
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `x` itself.

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
    bias = check_scalar(bias, "bias")
    rows = as_rows(x, axis, out)
    w = check_weights(weights, rows.size + bool(label))
    project_weighted_rows(rows.source, rows.target, w, radius, label, bias)
    return rows.finish()


def project_bipartite_simplex(
    x: ArrayLike,
    y: ArrayLike,
    radius: float = 1.0,
    *,
    axis: int = -1,
    out: tuple[NDArray, NDArray] | None = None,
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
        The largest common sum; non-negative.
    axis : int, default -1
        The axis along which the vectors lie.
    out : tuple of two ndarrays, optional
        Where to write the results; may be ``(x, y)``.

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
    sides = [as_floating(side, name) for name, side in zip("xy", (x, y), strict=True)]
    dtype = np.result_type(*sides)
    rows = [
        as_rows(side.astype(dtype, copy=False), axis, target, name=name, empty_rows=True)
        for name, side, target in zip("xy", sides, out or (None, None), strict=True)
    ]
    outer = [np.delete(side.result.shape, side.axis).tolist() for side in rows]
    if outer[0] != outer[1]:
        raise ValueError(
            f"x and y must have equal shapes but for the axis {axis}, "
            f"got {rows[0].result.shape} and {rows[1].result.shape}."
        )
    project_bipartite_rows(rows[0].source, rows[1].source, rows[0].target, rows[1].target, radius)
    return rows[0].finish(), rows[1].finish()
