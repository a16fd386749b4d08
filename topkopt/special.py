"""Special functions of the entropic losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels import lambert
from topkopt._threads import as_team
from topkopt._validation import as_floating, check_out

__all__ = ["lambertw_exp"]

_EXPONENTIAL = 4  # as many numbers are visited in the time of one with an exponential


def lambertw_exp(
    t: ArrayLike, out: NDArray | None = None, *, n_threads: int | None = None
) -> NDArray:
    """Lambert W of an exponential, ``V(t) = W(exp(t))``, elementwise.

    V is the solution of ``V + log(V) = t``: it behaves like ``exp(t)`` far left and like
    ``t - log(t)`` far right, and never overflows. The relative error is below 4 eps everywhere.

    Parameters
    ----------
    t : array_like
        Real numbers of any shape; float32 and float64 are kept, integers promoted.
    out : ndarray, optional
        Where to write the result; of the shape and dtype of the result, may be `t` itself or
        overlap it.
    n_threads : int, optional
        How many threads share the numbers; by default as many as BLAS would use.

    Returns
    -------
    ndarray
        V(t), of the shape of `t`. NaN gives NaN.

    See Also
    --------
    scipy.special.wrightomega : the same function for complex arguments, slower.

    Examples
    --------
    >>> from topkopt.special import lambertw_exp
    >>> lambertw_exp([-1000.0, 1.0, 1000.0])
    array([  0.        ,   1.        , 993.09916947])
    """
    team = as_team(n_threads)
    array = as_floating(t, "t")
    result = check_out(out, array)
    target = result if result.flags.carray else np.empty(array.shape, array.dtype)
    source = np.ascontiguousarray(array)
    if np.may_share_memory(source, target) and source.ctypes.data != target.ctypes.data:
        source = source.copy()  # out is the input in another order
    flat, flat_target = source.reshape(-1), target.reshape(-1)

    def solve(part: slice) -> None:
        lambert.lambertw_exp(flat[part], flat_target[part])

    team.each_row(solve, flat.size, _EXPONENTIAL)
    if target is not result:
        result[...] = target
    return result
