"""A regularisation path: one training for each C, each started where the last one ended."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from topkopt import losses
from topkopt._threads import as_team
from topkopt._validation import as_array, as_floating, check_csr, check_flag, check_k
from topkopt.solvers.choice import check_method
from topkopt.solvers.problem import as_problem
from topkopt.solvers.products import product
from topkopt.solvers.row_blocks import RowBlocks, is_stream
from topkopt.solvers.settings import check_settings
from topkopt.solvers.solution import Solution, State
from topkopt.solvers.solve import check_kernel, check_sampling, check_streamed
from topkopt.solvers.training import train

__all__ = ["Path", "check_Cs", "path"]

# From one C to so many times as much W goes along a line; further it bends too much.
_SHORT = 3.2


@dataclass(frozen=True)
class Path:
    """Solutions for increasing C.

    Attributes
    ----------
    Cs : ndarray of shape (p,)
        The values of C, increasing.
    solutions : list of Solution
        One for each C; with dual variables if they were kept, or with a kernel.
    """

    Cs: NDArray
    solutions: list[Solution] = field(repr=False)

    def __len__(self) -> int:
        return len(self.solutions)

    def __getitem__(self, place: int) -> Solution:
        return self.solutions[place]

    @property
    def coefs(self) -> NDArray | None:
        """The weights W of each C, of shape (p, d, m); None with a kernel."""
        if self.solutions[0].coef is None:
            return None
        return np.stack([solution.coef for solution in self.solutions])  # type: ignore[misc]

    @property
    def gaps(self) -> NDArray:
        """The certificate of each C."""
        return np.array([solution.gap for solution in self.solutions])

    @property
    def n_epochs(self) -> NDArray:
        """The passes over the data that each C took."""
        return np.array([solution.n_epochs for solution in self.solutions])

    def scores(self, X: Any) -> NDArray:
        """Return the scores of examples under every C.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; with a kernel, the kernel between them and the training examples.
            What `topkopt.solve` reads in blocks is read so here.

        Returns
        -------
        ndarray of shape (p, n, m)
        """
        weights: list[Any] = [s.dual if s.coef is None else s.coef for s in self.solutions]
        rows = _as_matrix(X)
        width = weights[0].shape[0]
        if len(rows.shape) != 2 or rows.shape[1] != width:
            raise ValueError(
                f"X must have one row per example and {width} columns, as in training, got shape "
                f"{rows.shape}."
            )
        if isinstance(rows, RowBlocks):
            parts = [self.scores(part) for _, part in rows]
            return np.concatenate(parts, axis=1) if parts else np.empty((len(self), 0, width))
        return np.stack([product(rows, each, as_team(None)) for each in weights])


def _as_matrix(X: Any) -> Any:
    """Return examples as something that has a shape and is multiplied, or read in blocks."""
    if is_stream(X):
        return RowBlocks(X)
    if scipy.sparse.issparse(X):
        check_csr(X, "X")
        return X
    return as_floating(X, "X")


def path(
    X: ArrayLike,
    y: ArrayLike,
    loss: losses.Loss | str = "topk_hinge",
    *,
    Cs: int | ArrayLike = 10,
    k: int = 1,
    smoothing: float = 0.0,
    weights: ArrayLike | str | None = None,
    sample_weight: ArrayLike | None = None,
    kernel: bool | str = False,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    method: str = "auto",
    random_state: Any = None,
    callback: Callable[[State], Any] | None = None,
    verbose: int = 0,
    n_classes: int | None = None,
    keep_dual: bool = False,
    n_threads: int | None = None,
    title: str = "",
    sampling: str = "auto",
) -> Path:
    """Train for several C, each from the solution of the one before.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, d), or (n, n) with `kernel`
        The examples as rows, or their Gram matrix; see `topkopt.solve`.
    y : array_like of shape (n,) or (n, m)
        Labels 0, 1, ..., m - 1; for multilabel losses also an indicator matrix.
    loss : str or Loss, default "topk_hinge"
        A registry name of `topkopt.losses`, or a loss object.
    Cs : int or array_like, default 10
        The values of C, in any order, or how many between 1e-4 and 1e4.
    k : int, default 1
        For top-k losses: how many guesses are allowed. Others ignore it.
    smoothing : float, default 0.0
        For hinge losses: how smooth. Others ignore it.
    weights : array_like or {"flat", "linear", "exp"}, optional
        For "weighted_topk_hinge" and "weighted_topk_hinge_label", and for no others: the weights,
        or their profile over k places.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of the examples.
    kernel : bool or "psd", default False
        Whether X is a Gram matrix, see `topkopt.solve`; it is checked once for all C.
    tol, max_epochs, method, random_state, callback, verbose, n_classes
        As in `topkopt.solve`, for each C; a line of progress names its C.
    keep_dual : bool, default False
        Whether solutions of a linear path keep their dual variables, n times m numbers for each C.
        Without them "auto" goes all the way by L-BFGS if the loss is smooth, X dense and not small:
        from the last W it has only a few evaluations to go.
    n_threads : int, optional
        As in `topkopt.solve`.
    title : str, default ""
        What every line of progress begins with.
    sampling : {"auto", "rows", "blocks"}, default "auto"
        As in `topkopt.solve`.

    Returns
    -------
    Path
        The solutions, for increasing C.

    Examples
    --------
    >>> import numpy as np
    >>> import topkopt
    >>> path = topkopt.path(np.eye(3), [0, 1, 2], "topk_hinge", Cs=[10.0, 0.1], k=2)
    >>> path.Cs
    array([ 0.1, 10. ])
    >>> path.coefs.shape
    (2, 3, 3)
    >>> bool((path.gaps <= 1e-3).all())
    True
    """
    trained = losses.from_flat(loss, k=k, smoothing=smoothing, weights=weights)
    check_method(method, trained)
    grid = check_Cs(Cs)
    check_flag(keep_dual, "keep_dual")
    settings = check_settings(
        tol=tol,
        max_epochs=max_epochs,
        method=method,
        random_state=random_state,
        callback=callback,
        verbose=verbose,
        keep_dual=keep_dual,
        along_path=True,
        n_threads=n_threads,
    )
    # Where a loss that is not convex ends depends on its start: the softmax solution for that C.
    ascended = trained if trained.convex else losses.Softmax()
    kernel = check_kernel(kernel)
    sampling = check_sampling(sampling, X, method, kernel)
    first = float(grid[0])
    problem = as_problem(X, y, ascended, first, sample_weight, kernel, n_classes, sampling)
    check_streamed(problem.data, method)
    trained.check_classes(problem.n_classes)
    solutions: list[Solution] = []
    last: Solution | None = None
    before: Solution | None = None
    for place, C in enumerate(grid, start=1):
        line = f"{title}C = {C:.3g} ({place} of {len(grid)})  "
        at = problem.at(float(C))
        begin = _led_on(before, last, float(C))
        before, last = last, train(at, settings, begin, title=line)
        end = last if trained.convex else train(at.of(trained), settings, last, title=line)
        solutions.append(end if keep_dual else end.without_dual())
    return Path(grid, solutions)


def _led_on(before: Solution | None, last: Solution | None, C: float) -> Solution | None:
    """Return where the last two W lead: a straight line in log C is close to their curve.

    It is followed for short steps, and no further than the last one went. Dual variables would
    leave their sets, and are gone on from as they are.
    """
    if before is None or last is None or last.dual is not None or C > _SHORT * last.C:
        return last
    ahead = min(1.0, math.log(C / last.C) / math.log(last.C / before.C))
    step = last.coef - before.coef  # type: ignore[operator]
    return replace(last, coef=last.coef + ahead * step)


def check_Cs(Cs: Any) -> NDArray:
    """Return distinct increasing values of C.

    >>> check_Cs(3)
    array([1.e-04, 1.e+00, 1.e+04])
    """
    values = as_array(Cs, "Cs")
    if values.ndim == 0:
        return np.logspace(-4, 4, check_k(Cs, np.iinfo(np.intp).max, "any number", name="Cs"))
    grid = np.unique(as_floating(values, "Cs"))
    if values.ndim != 1 or not grid.size or not np.isfinite(grid).all() or grid[0] <= 0:
        raise ValueError(f"Cs must be an integer or a list of positive numbers, got {Cs!r}.")
    return grid
