"""Euclidean projections onto the sets of top-k classification.

Every function solves, for each vector along ``axis``,

    minimise  1/2 |x - b|^2 + bias/2 <1, x>^2   subject to   x in a set,

exactly (up to rounding) and in linear time in practice. The input may be of any shape, of float32
or float64 (kept; integers are promoted), read-only or strided. Entries of -inf get no mass.

``out`` may be an input, or overlap one in any way: the result is that of separate arrays.

Entries may be of any size that their dtype has; refused are results that it cannot hold, and
lengths (a radius, a total, bounds) below 1e-240, but not 0, next to numbers beyond 1e240.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.bipartite import project_bipartite_rows
from topkopt._kernels.knapsack import project_boxed_rows, project_capped_rows
from topkopt._kernels.topk import project_topk_rows
from topkopt._kernels.weighted import project_weighted_rows
from topkopt._validation import (
    Rows,
    as_floating,
    as_rows,
    check_k,
    check_scalar,
    check_weights,
    keep_apart,
)

__all__ = [
    "project_bipartite_simplex",
    "project_capped_simplex",
    "project_simplex",
    "project_topk_cone",
    "project_topk_simplex",
    "project_weighted_topk",
]

_TOPK_KINDS = {"alpha": 0, "beta": 1, "label": 2}

# Kernels take lengths up to _LONG, and a bias or its inverse up to _MOST_BIAS: no sum, difference
# or quotient overflows. What is longer is measured in units of _UNIT.
_LONG, _UNIT = 2.0**800, 2.0**224
_MOST_BIAS = 2.0**200
_MOST = {4: float(np.finfo(np.float32).max), 8: float(np.finfo(np.float64).max)}  # by item size
_NO_BOUND = 2.0**900  # of a sum that may stay below it: no sum of entries up to _LONG gets there


def _longest(*lengths: NDArray) -> float:
    """Return the largest finite magnitude."""
    sizes = [max(float(length.max()), -float(length.min())) for length in lengths if length.size]
    if any(math.isinf(size) for size in sizes):
        return _longest(*(length[np.isfinite(length)] for length in lengths))
    return max(sizes, default=0.0)


def _solve(kernel: Callable[..., None], *sides: Rows, longest: float, **lengths: Any) -> None:
    """Call kernel(part, unit, *sources, *targets) for parts of the rows, with a unit of length.

    Projections are homogeneous. So a row that could overflow, by itself or next to the longest
    length of the set, is measured in another unit: a power of two, so that nothing is rounded.
    """
    most = _MOST[sides[0].source.dtype.itemsize]
    if longest <= min(_LONG, most) and not any([side.huge for side in sides]):
        kernel(slice(None), 1.0, *[s.source for s in sides], *[s.target for s in sides])
        return
    results = [np.empty(side.source.shape) for side in sides]
    for i in range(len(results[0])):
        part = slice(i, i + 1)
        sources = [side.source[part].astype(np.float64) for side in sides]
        unit = _unit(max(longest, _longest(*sources)), **lengths)
        targets = [result[part] for result in results]
        kernel(part, unit, *(source / unit for source in sources), *targets)
        if any((np.abs(target) > most / unit).any() for target in targets):
            raise ValueError(
                f"x must have a projection that {sides[0].source.dtype} can hold (at most "
                f"{most:.2g}), but row {i} has none; scale the input and the set down."
            )
        for target in targets:
            target *= unit
    for result, side in zip(results, sides, strict=True):
        side.target[...] = result


def _in_unit(length: NDArray, unit: float) -> NDArray:
    return length if unit == 1.0 else length / unit


def _unit(longest: float, **lengths: Any) -> float:
    """Return a unit for the longest length in which the others, if not 0, keep their digits."""
    if longest <= _LONG:
        return 1.0
    least = np.finfo(np.float64).tiny * _UNIT
    for name, length in lengths.items():
        size = np.abs(length)
        short = size[(size > 0) & (size < least)]
        if short.size:
            raise ValueError(
                f"{name} must be 0 or at least {least:.2g} next to numbers beyond {_LONG:.2g}, got "
                f"{short.flat[0]:.2g}; use -inf to exclude entries, or scale large numbers down."
            )
    return _UNIT


def _check_bias(bias: float) -> float:
    bias = check_scalar(bias, "bias")
    if bias > _MOST_BIAS:
        raise ValueError(
            f"bias must be at most {_MOST_BIAS:.2g}, got {bias!r}; a larger one leaves nothing of "
            "the sum."
        )
    return bias if bias >= 1 / _MOST_BIAS else 0.0  # below, it is lost next to 1


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
        The sum of each projected vector; non-negative, and 0 or at least 1e-240 next to entries
        beyond 1e240.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; of the shape and dtype of the result, may be `x` itself
        or overlap it.

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

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_capped_rows(b, p, 0.0, np.inf, radius / unit, True, 0.0)

    _solve(kernel, rows, longest=radius, radius=radius)
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
    bias = _check_bias(bias)
    rows = as_rows(x, axis, out)
    shared = np.ndim(lower) == 0 and np.ndim(upper) == 0
    if shared:
        lo, hi = (np.array([[float(bound)]]) for bound in (lower, upper))  # type: ignore[arg-type]
    else:
        lo, hi = rows.spread(lower, "lower"), rows.spread(upper, "upper")
    bounds = max(_longest(lo, hi), abs(total) if equality else 0.0)
    unit = _unit(bounds, lower=lo, upper=hi, total=total)
    _check_box(rows, lo, hi, total, equality, unit)

    def kernel(part: slice, unit: float, b: NDArray, p: NDArray) -> None:
        most = total / unit if equality else min(total / unit, _NO_BOUND)
        if shared:
            ends = lo.item() / unit, hi.item() / unit
            project_capped_rows(b, p, *ends, most, equality, bias)
        else:
            box = _in_unit(lo[part], unit), _in_unit(hi[part], unit)
            project_boxed_rows(b, p, *box, most, equality, bias)

    _solve(kernel, rows, longest=bounds, lower=lo, upper=hi, total=total)
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
    lower, upper = _in_unit(lower, unit), _in_unit(upper, unit)
    if lower.size == 1:
        least = rows.size * lower.item()
        most = rows.fewest_finite * (upper - lower).item() + least
    else:
        least = lower.sum(axis=1).max()
        most = np.where(rows.source == -np.inf, lower, upper).sum(axis=1).min()
    # Bounds add up to their total only up to rounding.
    size = max(abs(total) / unit, _longest(lower))
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
        Weight of the extra term ``bias/2 * (sum p)**2``; at most 1e60.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `x` itself or overlap it.

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
    bias = _check_bias(bias)
    rows = as_rows(x, axis, out)
    k = check_k(k, rows.size)

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_topk_rows(b, p, k, np.inf, _TOPK_KINDS["alpha"], bias)

    _solve(kernel, rows, longest=0.0)
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
        The largest sum; non-negative, and 0 or at least 1e-240 next to entries beyond 1e240.
    kind : {"alpha", "beta", "label"}, default "alpha"
        Which of the sets.
    bias : float, default 0.0
        Weight of the extra term ``bias/2 * (sum p)**2``; at most 1e60.
    axis : int, default -1
        The axis along which the vectors lie.
    out : ndarray, optional
        Where to write the result; may be `x` itself or overlap it.

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
    bias = _check_bias(bias)
    rows = as_rows(x, axis, out)
    k = check_k(k, rows.size + (kind == "label"))

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_topk_rows(b, p, k, min(radius / unit, _NO_BOUND), _TOPK_KINDS[kind], bias)

    _solve(kernel, rows, longest=0.0, radius=radius)
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
    bias = _check_bias(bias)
    rows = as_rows(x, axis, out)
    w = check_weights(weights, rows.size + bool(label))
    w, exponent = _normalized(w)

    def length(unit: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(radius, exponent - math.frexp(unit)[1] + 1))

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_weighted_rows(b, p, w, min(length(unit), _NO_BOUND), label, bias)

    _solve(kernel, rows, longest=0.0, radius=length(1.0))
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
        The largest common sum; non-negative, and 0 or at least 1e-240 next to entries beyond
        1e240.
    axis : int, default -1
        The axis along which the vectors lie.
    out : tuple of two ndarrays, optional
        Where to write the results; may be ``(x, y)`` or overlap them, but not each other.

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
        project_bipartite_rows(b, c, p, q, min(radius / unit, _NO_BOUND))

    _solve(kernel, *rows, longest=0.0, radius=radius)
    return rows[0].finish(), rows[1].finish()


def _check_pair(out: Any) -> tuple[NDArray | None, NDArray | None]:
    if out is None:
        return None, None
    if not isinstance(out, tuple) or len(out) != 2:
        got = f"a tuple of {len(out)}" if isinstance(out, tuple) else f"one {type(out).__name__}"
        raise ValueError(f"out must be a tuple of two arrays, got {got}; pass out=(p, q).")
    return out
