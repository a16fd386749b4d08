"""Projections onto the top-k cone and the top-k simplices."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.topk import project_topk_rows
from topkopt._threads import as_team
from topkopt._validation import as_rows, check_k, check_scalar
from topkopt.projections.units import NO_BOUND, check_bias, solve_rows

__all__ = ["project_topk_cone", "project_topk_simplex"]

_TOPK_KINDS = {"alpha": 0, "beta": 1, "label": 2}


def project_topk_cone(
    x: ArrayLike,
    k: int,
    *,
    bias: float = 0.0,
    axis: int = -1,
    out: NDArray | None = None,
    n_threads: int | None = None,
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
    n_threads : int, optional
        How many threads share the rows; by default as many as BLAS would use.

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
    bias = check_bias(bias)
    team = as_team(n_threads)
    rows = as_rows(x, axis, out, team=team)
    k = check_k(k, rows.size)

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_topk_rows(b, p, k, np.inf, _TOPK_KINDS["alpha"], bias)

    solve_rows(kernel, team, rows, longest=0.0)
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
    n_threads: int | None = None,
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
    n_threads : int, optional
        How many threads share the rows; by default as many as BLAS would use.

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
    bias = check_bias(bias)
    team = as_team(n_threads)
    rows = as_rows(x, axis, out, team=team)
    k = check_k(k, rows.size + (kind == "label"))

    def kernel(_: slice, unit: float, b: NDArray, p: NDArray) -> None:
        project_topk_rows(b, p, k, min(radius / unit, NO_BOUND), _TOPK_KINDS[kind], bias)

    solve_rows(kernel, team, rows, longest=0.0, radius=radius)
    return rows.finish()
