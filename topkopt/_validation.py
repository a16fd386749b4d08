"""The only door from user arrays to kernels: what passes here needs no check further in."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from topkopt._kernels.select import scan_rows
from topkopt._threads import ALONE, Team

if TYPE_CHECKING:
    from topkopt.losses.base import Loss

__all__ = [
    "LabelledRows",
    "Rows",
    "aligned",
    "as_array",
    "as_floating",
    "as_labels",
    "as_rows",
    "as_scores",
    "as_weight",
    "check_csr",
    "check_flag",
    "check_k",
    "check_out",
    "check_profile",
    "check_scalar",
    "check_weights",
    "keep_apart",
    "refuse_masked",
]


# An entry of a loss takes as long as so many numbers that a kernel visits.
_LOSS = 4
# These are no numbers, although float() takes "1" and True.
_NO_NUMBERS = (str, bytes, bool, np.bool_)


def refuse_masked(x: Any, name: str) -> None:
    """Raise if x, or an array in a list x, has masked entries: these would come to light again."""
    if type(x) is np.ndarray:
        return
    parts = x if isinstance(x, (list, tuple)) else (x,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise ValueError(
            f"{name} must not hold masked entries, got a masked array; fill them "
            f"({name}.filled(value)) or drop what holds them (numpy.ma.compress_rows)."
        )


def _from_tensor(x: Any, name: str) -> Any:
    """Return what NumPy can read of a PyTorch tensor; other objects as they are."""
    if type(x).__module__.partition(".")[0] != "torch" or not hasattr(x, "requires_grad"):
        return x
    if x.device.type != "cpu" or x.requires_grad:
        where = "a gradient" if x.requires_grad else f"the device {x.device}"
        raise TypeError(
            f"{name} must be an array or a plain tensor in main memory, got a tensor with {where}; "
            "use the function of this name in topkopt.torch, or pass it detached on the CPU."
        )
    return x.float() if str(x.dtype) == "torch.bfloat16" else x


def as_array(x: Any, name: str) -> NDArray:
    """Return x as an array, which lists of unequal lengths do not make."""
    x = _from_tensor(x, name)
    refuse_masked(x, name)
    try:
        return np.asarray(x)
    except ValueError:
        raise ValueError(f"{name} must be an array, got lists of unequal lengths.") from None


def as_floating(x: ArrayLike, name: str) -> NDArray:
    """Return x as an aligned float32 or float64 array in native byte order, copied if need be."""
    array = as_array(x, name)
    if array.dtype.kind in "biu" or array.dtype == object:
        target: type[np.floating] = np.float64
    elif array.dtype.kind == "f":
        target = np.float32 if array.dtype.itemsize <= 4 else np.float64
    else:
        raise TypeError(
            f"{name} must hold real numbers, got dtype {array.dtype}; convert it first."
        )
    try:
        return np.require(array, dtype=target, requirements="A")
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must hold real numbers, but not every entry converts to a float."
        ) from None


def aligned(held: Any) -> Any:
    """Return arrays, CSR matrices, or tuples of them, at addresses that compiled code can read.

    What comes from a file, a buffer or another process may lie anywhere in it; it is copied then.
    """
    if isinstance(held, np.ndarray):
        return np.require(held, requirements="A")
    if type(held) is tuple:
        return tuple(map(aligned, held))
    if scipy.sparse.issparse(held):
        parts = held.data, held.indices, held.indptr
        if not all([part.flags.aligned for part in parts]):
            return type(held)(aligned(parts), shape=held.shape)
    return held


def check_scalar(
    value: Any,
    name: str,
    *,
    positive: bool = False,
    signed: bool = False,
    finite: bool = True,
    remedy: str = "",
) -> float:
    """Return value as a float that is finite and, unless signed, non-negative (or positive)."""
    try:
        if isinstance(value, _NO_NUMBERS):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a real number, got {value!r}.") from None
    kind = "finite " if finite else ""
    sign = "" if signed else "positive " if positive else "non-negative "
    in_range = signed or number > 0 or (number == 0 and not positive)
    if math.isnan(number) or (finite and math.isinf(number)) or not in_range:
        hint = f" {remedy}" if remedy else ""
        raise ValueError(f"{name} must be a {kind}{sign}number, got {value!r}.{hint}")
    return number


def check_k(
    k: int, most: int, what: str = "the number of entries along axis", *, name: str = "k"
) -> int:
    """Return k as an int with 1 <= k <= most."""
    try:
        if isinstance(k, bool):  # which Python counts as an integer
            raise TypeError
        number = operator.index(k)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {k!r}.") from None
    if not 1 <= number <= most:
        open_end = most == np.iinfo(np.intp).max
        bounds = "at least 1" if open_end else f"between 1 and {what} ({most})"
        raise ValueError(f"{name} must be {bounds}, got {number}.")
    return number


def check_flag(value: bool, name: str, remedy: str = "") -> bool:
    """Return value, which is True or False: the text "no" would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        hint = f" {remedy}" if remedy else ""
        raise TypeError(f"{name} must be True or False, got {value!r}.{hint}")
    return bool(value)


def check_csr(X: Any, name: str) -> None:
    """Raise unless the places of all entries of a sparse matrix exist: kernels do not look again.

    Formats other than CSR and CSC are checked by their conversion.
    """
    if X.format not in ("csr", "csc"):
        return
    rows, columns = X.shape if X.format == "csr" else X.shape[::-1]
    start, index = X.indptr, X.indices
    stored = min(len(index), len(X.data))
    if len(start) != rows + 1 or start[0] != 0 or start[-1] > stored or (np.diff(start) < 0).any():
        raise ValueError(
            f"{name} must have an indptr that grows from 0 to at most the {stored} stored entries, "
            f"with one step per {'row' if X.format == 'csr' else 'column'}; build it with "
            "scipy.sparse.coo_array."
        )
    used = index[: start[-1]]
    if used.size and not (used.min() >= 0 and used.max() < columns):
        raise ValueError(
            f"{name} must have indices from 0 to {columns - 1}, got {used.min()} to {used.max()}; "
            "build it with scipy.sparse.coo_array."
        )


def as_weight(sample_weight: ArrayLike | None, n: int) -> NDArray:
    """Return the weights of n examples as float64, 1 by default; a number counts for all."""
    if sample_weight is None:
        return np.ones(n)
    weight = as_floating(sample_weight, "sample_weight").astype(np.float64)
    if weight.ndim == 0:
        weight = np.full(n, weight)
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight must have one entry per example ({n}), got shape {weight.shape}."
        )
    bad = weight[~(np.isfinite(weight) & (weight >= 0))]
    if bad.size or not weight.any():
        raise ValueError(
            "sample_weight must be finite, non-negative and not all zero, got "
            f"{bad[0] if bad.size else 'only zeros'}; 0 leaves an example out."
        )
    return weight


def check_weights(weights: ArrayLike, most: int) -> NDArray:
    """Return the positive part of non-increasing weights as a contiguous float64 array."""
    w = as_floating(weights, "weights").astype(np.float64)
    if w.ndim != 1 or w.size == 0:
        raise ValueError(f"weights must be a non-empty 1-D array, got shape {w.shape}.")
    if not np.isfinite(w).all() or w[-1] < 0 or (np.diff(w) > 0).any():
        raise ValueError(
            f"weights must be finite, non-negative and non-increasing, got {w}; "
            "sort them in descending order."
        )
    w = w[w > 0]
    if w.size > most:
        raise ValueError(
            f"weights must have at most {most} positive entries for this input, got {w.size}; "
            "drop the last ones."
        )
    return w


def check_profile(weights: ArrayLike | str, k: int | None) -> NDArray:
    """Return weights, given as an array or as the name of a profile over k places."""
    if not isinstance(weights, str):
        if k is not None and k != np.size(weights):
            raise ValueError(f"k must be None or the number of weights, got {k}; drop it.")
        w = check_weights(weights, np.size(weights))
        if not w.size:
            raise ValueError("weights must hold a positive number, got only zeros.")
        return w
    if k is None:
        raise ValueError(f"k must be given with weights={weights!r}: the number of places.")
    place = np.arange(1, check_k(k, np.iinfo(np.intp).max) + 1)
    profiles = {"flat": np.ones(k), "linear": k + 1.0 - place, "exp": np.exp(-place / k)}
    if weights not in profiles:
        raise ValueError(
            f"weights must be an array or one of {', '.join(profiles)}, got {weights!r}."
        )
    return profiles[weights] / profiles[weights].sum()


@dataclass
class Rows:
    """A user array seen as rows to project, and where the results go."""

    source: NDArray  # (n, d), C-contiguous; may share memory with the user's array
    target: NDArray  # (n, d), C-contiguous; either source itself or apart from it
    result: NDArray  # what the user gets, of the user's shape
    axis: int
    fewest_finite: int  # the smallest number of entries above -inf in a row
    huge: bool  # whether sums of entries could overflow

    @property
    def size(self) -> int:
        """The length of a row."""
        return self.source.shape[1]

    def spread(self, values: ArrayLike, name: str) -> NDArray:
        """Broadcast values against the user's array and lay them out like the rows."""
        array = as_floating(values, name)
        try:
            full = np.broadcast_to(array, self.result.shape)
        except ValueError:
            raise ValueError(
                f"{name} must broadcast to the input's shape {self.result.shape}, "
                f"got shape {array.shape}."
            ) from None
        rows = np.ascontiguousarray(_by_rows(full, self.axis), dtype=np.float64)
        return _apart(rows, self.target)

    def finish(self) -> NDArray:
        """Return the result, copied into the user's `out` where the kernel could not write."""
        if not np.may_share_memory(self.target, self.result):
            moved = np.moveaxis(np.asarray(self.result), self.axis, -1)
            moved[...] = self.target.reshape(moved.shape)
        return self.result


def _by_rows(array: NDArray, axis: int) -> NDArray:
    moved = array if axis == array.ndim - 1 else np.moveaxis(array, axis, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def _apart(source: NDArray, target: NDArray) -> NDArray:
    """Return source, copied if writing to target would change it."""
    return source.copy() if np.may_share_memory(source, target) else source


def _check_axis(axis: int, ndim: int, name: str) -> int:
    if ndim == 0:
        raise ValueError(f"{name} must have at least one dimension, got a scalar; pass a list.")
    if not -ndim <= operator.index(axis) < ndim:
        raise ValueError(
            f"axis must be between {-ndim} and {ndim - 1} for {name} of {ndim} dimensions, "
            f"got {axis}."
        )
    return axis % ndim


def _overlaps_itself(array: NDArray) -> bool:
    """Whether two indices may lead to the same number: strides that do not reach far enough."""
    extent = 0
    for stride, length in sorted(
        (abs(stride), length)
        for stride, length in zip(array.strides, array.shape, strict=True)
        if length > 1
    ):
        if array.size and stride < extent + array.itemsize:
            return True
        extent += stride * (length - 1)
    return False


def check_out(out: NDArray | None, like: NDArray, *, name: str = "out") -> NDArray:
    """Return out, or a new array like the input."""
    if out is None:
        return np.empty(like.shape, like.dtype)
    if (
        not isinstance(out, np.ndarray)
        or isinstance(out, np.ma.MaskedArray)
        or out.shape != like.shape
        or out.dtype != like.dtype
    ):
        got = (
            f"shape {out.shape} and dtype {out.dtype}"
            if type(out) is np.ndarray
            else type(out).__name__
        )
        raise ValueError(
            f"{name} must be an array of shape {like.shape} and {like.dtype}, got {got}."
        )
    if not out.flags.writeable:
        raise ValueError(f"{name} must be writeable, got a read-only array; pass a copy.")
    if _overlaps_itself(out):
        raise ValueError(
            f"{name} must have a place of its own for every entry, got strides {out.strides} for "
            f"shape {out.shape}; pass a copy."
        )
    return out


def _scan(rows: NDArray, team: Team) -> tuple[int, int, bool]:
    """Return a bad row or -1, the fewest finite entries of a row, and whether any is huge."""
    ranges = team.ranges(len(rows), rows.size)
    found = team.run(lambda part: scan_rows(rows[part]), ranges)
    bad = [part.start + row for part, (row, _, _) in zip(ranges, found, strict=True) if row >= 0]
    return bad[0] if bad else -1, min(few for _, few, _ in found), any(h for _, _, h in found)


def _check_entries(rows: NDArray, name: str, team: Team) -> tuple[int, bool]:
    bad, fewest, huge = _scan(rows, team)
    if bad >= 0:
        found = "NaN" if np.isnan(rows[bad]).any() else "+inf"
        raise ValueError(
            f"{name} must not hold NaN or +inf, found {found} in row {bad}; "
            "clean the input (-inf is allowed and excludes an entry)."
        )
    if fewest == 0 and rows.size:
        raise ValueError(
            f"{name} must have an entry above -inf in every row; a row of -inf has no projection."
        )
    return fewest, huge


def as_rows(
    x: ArrayLike,
    axis: int,
    out: NDArray | None = None,
    *,
    name: str = "x",
    out_name: str = "out",
    empty_rows: bool = False,
    team: Team = ALONE,
) -> Rows:
    """Check an input of any shape and lay it out as contiguous rows along axis."""
    array = as_floating(x, name)
    axis = _check_axis(axis, array.ndim, name)
    if array.shape[axis] == 0 and not empty_rows:
        raise ValueError(f"{name} must have at least one entry along axis {axis}, got none.")
    result = check_out(out, array, name=out_name)
    source = np.ascontiguousarray(_by_rows(array, axis))
    fewest, huge = _check_entries(source, name, team)
    target = _by_rows(np.asarray(result), axis)
    if not (target.flags.carray and np.may_share_memory(target, result)):
        target = np.empty_like(source)
    elif np.may_share_memory(source, target) and source.ctypes.data != target.ctypes.data:
        source = source.copy()  # out is the input in another order, or a part of it
    return Rows(source, target, result, axis, fewest, huge)


def keep_apart(one: Rows, other: Rows) -> None:
    """Refuse results that overlap each other; copy sources that either result would overwrite."""
    if np.shares_memory(one.result, other.result):
        raise ValueError("out must hold two arrays that do not overlap; copy one of them.")
    one.source = _apart(one.source, other.target)
    other.source = _apart(other.source, one.target)


@dataclass
class LabelledRows:
    """Rows of scores with their labels, as the compiled losses take them."""

    scores: NDArray  # (n, m) float64, C-contiguous
    label_index: NDArray  # the labels of row i are label_index[label_start[i]:label_start[i + 1]]
    label_start: NDArray
    dtype: np.dtype
    single: bool  # the user passed one row
    team: Team

    def each(self, work: Callable[[NDArray, NDArray, NDArray, slice], Any], times: int = 1) -> None:
        """Call work(scores, label_index, label_start, part) for parts of the rows, on threads.

        Each entry counts for so many times one of a gradient.
        """

        def solve(part: slice) -> None:
            start = self.label_start[part.start : part.stop + 1]
            work(self.scores[part], self.label_index, start, part)

        n, m = self.scores.shape
        self.team.each_row(solve, n, _LOSS * times * m)

    def finish(self, out: NDArray) -> NDArray | float:
        """Return results in the user's precision; for a single row without the row axis."""
        out = out.astype(self.dtype, copy=False)
        if not self.single:
            return out
        return out[0].item() if out.ndim == 1 else out[0]


def _label_pointers(indicator: NDArray) -> tuple[NDArray, NDArray]:
    start = np.zeros(indicator.shape[0] + 1, dtype=np.intp)
    np.cumsum(np.count_nonzero(indicator, axis=1), out=start[1:])
    return np.ascontiguousarray(np.nonzero(indicator)[1], dtype=np.intp), start


def as_labels(
    y: Any, n: int, m: int | None = None, *, multilabel: bool
) -> tuple[NDArray, NDArray, int]:
    """Return (label_index, label_start, m) of labels 0..m-1 or of an indicator matrix."""
    if m is not None:
        m = check_k(m, np.iinfo(np.intp).max, name="n_classes")
    if scipy.sparse.issparse(y):
        check_csr(y, "y")
        y = y.toarray()
    labels = as_array(y, "y")
    if labels.shape[:1] != (n,):
        raise ValueError(f"y must have one entry per row of the data ({n}), got {labels.shape}.")
    if labels.ndim == 2 and multilabel:
        if m is not None and labels.shape[1] != m:
            raise ValueError(f"y must have one column per class ({m}), got {labels.shape[1]}.")
        if labels.dtype != bool and not np.isin(labels, (0, 1)).all():
            raise ValueError("y must be an indicator matrix of 0 and 1, got other values.")
        return *_label_pointers(labels), labels.shape[1]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        expected = "integers, or an indicator matrix" if multilabel else "integers"
        raise ValueError(
            f"y must be one-dimensional and hold {expected}, got {labels.dtype} of shape "
            f"{labels.shape}; encode the labels as 0, 1, 2, ..."
        )
    lowest, highest = (int(labels.min()), int(labels.max())) if labels.size else (0, -1)
    classes = highest + 1 if m is None else m
    if lowest < 0 or highest >= classes:
        raise ValueError(
            f"y must hold labels from 0 to {classes - 1}, got {lowest} to {highest}; "
            "encode the labels as 0, 1, 2, ..."
        )
    seen = len(np.unique(labels)) if m is None else classes
    if classes > 2 * seen:
        raise ValueError(
            f"y must have examples of at least half of its classes, got {seen} of {classes}, "
            f"because the largest label is {highest}; encode the labels as 0, 1, 2, ..., or pass "
            "n_classes if you mean it."
        )
    return np.require(labels, np.intp, ["C", "A"]), np.arange(n + 1, dtype=np.intp), classes


def as_scores(
    scores: ArrayLike, y: Any, loss: Loss, team: Team, *, name: str = "scores"
) -> LabelledRows:
    """Check scores and labels of one row or many."""
    array = as_floating(scores, name)
    single = array.ndim == 1
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (n, m) or (m,), got {array.shape}.")
    given = np.atleast_2d(array)
    ready = given.dtype == np.float64 and given.flags.c_contiguous
    rows = given if ready else np.empty(given.shape)

    def take(part: slice) -> None:
        if not ready:
            rows[part] = given[part]
        if not np.isfinite(rows[part]).all():
            raise ValueError(
                f"{name} must be finite, got NaN or infinite entries; clean the input."
            )

    team.each_row(take, *rows.shape)
    loss.check_classes(rows.shape[1])
    index, start, _ = as_labels(
        [y] if single else y, len(rows), rows.shape[1], multilabel=loss.multilabel
    )
    return LabelledRows(rows, index, start, array.dtype, single, team)
