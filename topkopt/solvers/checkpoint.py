"""Long trainings that go on where they stopped, whatever stopped them.

A checkpoint holds where a training is (W, and the dual blocks where the method has them), what was
recorded on the way, and enough of the problem to tell it from others. It says nothing that is
believed: W = X'A and the certificate are computed anew.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.compact import pack, unpack
from topkopt.solvers.data import KernelData
from topkopt.solvers.method import Method
from topkopt.solvers.npz import read_arrays, write_arrays
from topkopt.solvers.problem import Problem
from topkopt.solvers.progress import Progress
from topkopt.solvers.solution import Solution

__all__ = ["Checkpoint", "NoCheckpoint", "check_checkpoint"]

_VERSION = 1
# Between two writings so many seconds pass, and so many times as long as the last writing took.
EVERY = 30.0
_COST = 20.0
# Data are told apart by so many of their rows.
_ROWS = 16
# Numbers computed from the same data may differ by this share on another machine.
_SLACK = 1e-4


def check_checkpoint(path: Any) -> str | None:
    """Return the path as text, if there can be a file."""
    if path is None:
        return None
    try:
        name = os.fspath(path)
    except TypeError:
        raise TypeError(f"checkpoint must be the path of a file, got {path!r}.") from None
    name = os.fsdecode(name)
    folder = os.path.dirname(os.path.abspath(name))
    if not name or os.path.isdir(name) or not os.path.isdir(folder):
        raise ValueError(
            f"checkpoint must be the path of a file in a folder that exists, got {name!r}."
        )
    if not os.access(folder, os.W_OK):
        raise ValueError(
            f"checkpoint must be in a folder that can be written to, got {name!r}; a new version "
            "is written beside the old one before it takes its place."
        )
    return name


class NoCheckpoint:
    """A training of which nothing is saved.

    Attributes
    ----------
    passes : float
        What the training has behind it when it goes on.
    """

    passes = 0.0

    def load(self, method: str, progress: Progress) -> Solution | None:
        """Return where the training goes on, if it does."""
        return None

    def save_if_due(self, method: Method, passes: float, progress: Progress) -> None:
        """Save where the training is, if that has not been done for a while."""

    def save(self, method: Method, passes: float, progress: Progress) -> None:
        """Save where the training is."""


class Checkpoint(NoCheckpoint):
    """The file of a training.

    Parameters
    ----------
    path : str
        Where it is, or will be.
    problem : Problem
        What is trained.
    """

    def __init__(self, path: str, problem: Problem):
        self.path, self.problem = path, problem
        self.facts = _facts(problem)
        self.written, self.took = time.perf_counter(), 0.0

    def load(self, method: str, progress: Progress) -> Solution | None:
        """Return where the file ends, if there is one, and let the history go on."""
        if not os.path.exists(self.path):
            return None
        arrays = read_arrays(self.path)
        try:
            self._check(arrays)
            solution = self._solution(arrays)
            progress.resume(_parts(arrays, "history_"))
            self.passes = float(arrays["passes"])
        except KeyError as missing:
            raise ValueError(
                f"checkpoint must be a file that solve has written, but {self.path!r} has no "
                f"{missing.args[0]!r}; delete it to begin anew."
            ) from None
        if solution.dual is None and method not in ("auto", "lbfgs"):
            raise ValueError(
                f"checkpoint must have dual variables for method={method!r}, but {self.path!r} was "
                "written by L-BFGS; take method='lbfgs' or 'auto', or delete it to begin anew."
            )
        return solution

    def _check(self, arrays: dict[str, NDArray]) -> None:
        """Raise unless the file is of this problem."""
        if int(arrays["version"]) != _VERSION:
            raise ValueError(
                f"checkpoint must be of version {_VERSION}, but {self.path!r} is of version "
                f"{int(arrays['version'])}; delete it to begin anew."
            )
        for name, value in self.facts.items():
            found = arrays[name]
            if name == "X":
                same = found.shape == value.shape and np.allclose(found, value, 0.0, _SLACK)
                said = "what was computed from them differs"
            else:
                same = np.array_equal(found, value)
                said = f"it was {found.tolist()}, and is {np.asarray(value).tolist()}"
            if not same:
                raise ValueError(
                    f"checkpoint must be of the same problem, but {self.path!r} was written for "
                    f"another {name}: {said}. Choose another file, or delete it to begin anew."
                )

    def _solution(self, arrays: dict[str, NDArray]) -> Solution:
        """Return what the file holds as a solution to start from."""
        data, m = self.problem.data, self.problem.n_classes
        packed, coef = _parts(arrays, "dual_"), arrays.get("coef")
        dual = unpack(packed) if packed else None
        for name, found, rows in (("dual", dual, data.n_rows), ("coef", coef, data.n_features)):
            if found is not None and not (found.shape == (rows, m) and np.isfinite(found).all()):
                raise ValueError(
                    f"checkpoint must hold finite {name} of shape {(rows, m)}, but {self.path!r} "
                    "does not; delete it to begin anew."
                )
        return Solution(
            coef=coef,
            dual=dual,
            primal=np.nan,
            dual_value=np.nan,
            gap=np.nan,
            converged=False,
            n_epochs=0,
            history={"method": np.array([str(arrays["method"])])},
            loss=self.problem.loss,
            C=self.problem.C,
            tol=np.nan,
            cost=self.problem.cost,
            n_examples=data.n_rows,
            n_classes=m,
        )

    def save_if_due(self, method: Method, passes: float, progress: Progress) -> None:
        """Write the file if it has not been written for a while."""
        if time.perf_counter() - self.written >= max(EVERY, _COST * self.took):
            self.save(method, passes, progress)

    def save(self, method: Method, passes: float, progress: Progress) -> None:
        """Write the file; a training does not end because a disk is full."""
        begin = time.perf_counter()
        arrays: dict[str, Any] = {"version": _VERSION, **self.facts}
        arrays.update(passes=passes, method=method.name)
        kernel = isinstance(self.problem.data, KernelData)
        if not kernel:
            arrays["coef"] = method.coef
        if kernel or method.name != "lbfgs":  # whose dual blocks follow from W
            arrays.update({f"dual_{name}": held for name, held in pack(method.dual).items()})
        arrays.update({f"history_{name}": held for name, held in progress.history().items()})
        try:
            write_arrays(self.path, arrays)
        except OSError as error:
            warnings.warn(
                f"checkpoint {self.path!r} could not be written, and the training goes on without: "
                f"{error}",
                RuntimeWarning,
                stacklevel=2,
            )
        self.written = time.perf_counter()
        self.took = self.written - begin


def _facts(problem: Problem) -> dict[str, Any]:
    """Return what tells a problem from others: its parameters, its labels, a look at its data."""
    data = problem.data
    return {
        "shape": np.array([data.n_rows, data.n_features, problem.n_classes]),
        "dtype": str(data.dtype),
        "kernel": isinstance(data, KernelData),
        "loss": repr(problem.loss),
        "C": problem.C,
        "y": _digest(problem.label_index, problem.label_start),
        "sample_weight": _digest(problem.weight),
        "X": _look_at(problem),
    }


def _parts(arrays: dict[str, NDArray], prefix: str) -> dict[str, NDArray]:
    """Return the arrays whose names begin so, under the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _digest(*arrays: NDArray) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _look_at(problem: Problem) -> NDArray:
    """Return numbers of moderate size that depend on all squared norms, and on a few rows."""
    data = problem.data
    least = np.finfo(float).tiny
    largest = max(float(data.square_norms.max()), least)
    norms, places = data.square_norms / largest, np.arange(data.n_rows)
    sums = [norms.mean(), *(norms @ np.cos(k * places) / np.sqrt(len(norms)) for k in (1, 2, 3))]
    some = np.unique(np.linspace(0, data.n_rows - 1, _ROWS).astype(np.intp))
    seen = data.rows(some) @ np.cos(np.arange(data.n_features, dtype=data.dtype))
    size = max(float(np.abs(seen).max(initial=0.0)), least)
    return np.array([np.log(largest), *sums, *(seen / size)], dtype=np.float64)
