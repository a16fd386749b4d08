"""`solve`: checks what it is given, and has it trained."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from topkopt import losses
from topkopt._validation import check_scalar
from topkopt.solvers.checkpoint import check_checkpoint
from topkopt.solvers.choice import check_method
from topkopt.solvers.data import Data
from topkopt.solvers.problem import as_problem
from topkopt.solvers.row_blocks import is_large_file
from topkopt.solvers.settings import check_settings
from topkopt.solvers.solution import Solution, State
from topkopt.solvers.streams import STREAMED, StreamData
from topkopt.solvers.training import train

__all__ = ["check_kernel", "check_sampling", "check_streamed", "solve"]


def solve(
    X: ArrayLike,
    y: ArrayLike,
    loss: losses.Loss | str,
    *,
    C: float = 1.0,
    sample_weight: ArrayLike | None = None,
    method: str = "auto",
    kernel: bool | str = False,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    check_every: int | str = "auto",
    warm_start: Solution | None = None,
    random_state: Any = None,
    block_size: int | str = "auto",
    callback: Callable[[State], Any] | None = None,
    verbose: int = 0,
    n_classes: int | None = None,
    on_interrupt: str = "raise",
    n_threads: int | None = None,
    keep_dual: bool = True,
    sampling: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
) -> Solution:
    """Train a linear or kernel classifier and certify the result.

    Minimises ``P(W) = 1/n sum_i w_i loss(X_i W, y_i) + 1/(2 C n) |W|^2`` by stochastic dual
    coordinate ascent [1]_, L-BFGS, Newton's method [4]_ or a Frank-Wolfe method [2]_ [3]_, until
    the relative duality gap is at most `tol`. The minimiser is that of
    ``1/2 |W|^2 + C sum_i w_i loss_i``, the objective of scikit-learn, which is ``C n P(W)`` and
    given by `Solution.objective`.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, d), or (n, n) with `kernel`
        The examples as rows, or their Gram matrix. float32 and float64 are kept, a dense X is not
        copied (any memory order, memory-mapped too); sparse formats other than CSR are converted.
        The squared norms of the rows must be finite. An object that is no array, but has `shape`,
        `dtype` and slices of rows, such as a dataset of h5py or an array of Zarr, is read in blocks
        and never held as a whole; see the Notes.
    y : array_like of shape (n,) or (n, m)
        Labels 0, 1, ..., m - 1; for multilabel losses also an indicator matrix.
    loss : Loss or str
        A loss of `topkopt.losses`, or the registry name of one that needs no parameters.
    C : float, default 1.0
        Weight of the losses against the penalty ``1/2 |W|^2``.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights w: 2 counts an example twice, 0 leaves it out.
    method : str, default "auto"
        One of

        - "auto": epochs of "sdca", then what is expected to be first at `tol`; see the Notes;
        - "sdca": the exact maximiser for one example after the other; trains every convex loss, and
          leaves examples alone that have settled;
        - "lbfgs": steps of W along directions that the last steps suggest, with a preconditioner;
          for smooth losses;
        - "newton": Newton's method for a smoothed problem whose smoothing falls to nothing; for
          every convex loss, to as many digits as the arithmetic has;
        - "block_frank_wolfe": one example after the other, each towards its best vertex;
        - "frank_wolfe": all examples at once towards their best vertices, with one step length;
        - "away_step": towards the best vertex or away from the worst one in use, whichever is
          better for an example;
        - "pairwise": from the worst vertex in use to the best one.

        The last four are for `losses.Hinge`, `losses.TopKHinge` and `losses.WeightedTopKHinge`.
    kernel : bool or "psd", default False
        Whether X is a Gram matrix. It must be symmetric and positive semi-definite, or no
        certificate would hold; both are checked, the latter by a Cholesky factorisation (about
        ``n**3 / 3`` operations and a copy of X in float64). "psd" promises that it is by
        construction, as a Gaussian kernel is, and saves the factorisation.
    tol : float, default 1e-3
        The relative duality gap to reach.
    max_epochs : int, default 1000
        The largest number of passes over the data; an evaluation of "lbfgs" is one, as is a step of
        "frank_wolfe", "away_step" or "pairwise", and a system of "newton".
    check_every : int or "auto", default "auto"
        Epochs between two certificates, each of which costs about half an epoch's products. "auto"
        leaves it to the method: the fewer, the further the gap is from `tol`. Only then does "sdca"
        leave examples alone that have settled; with a number every epoch visits all of them.
    warm_start : Solution, optional
        Where to start; of the same examples and classes, but possibly another C or other weights.
    random_state : int, Generator or RandomState, optional
        Draws the order of each epoch; the same seed gives the same bits.
    block_size : int or "auto", default "auto"
        How many dense rows are taken together; affects the speed only.
    callback : callable, optional
        Called with a `State` after each certificate; a true result stops the training. The arrays
        of a state are copies.
    verbose : int, default 0
        1 shows one line of progress on a terminal, 2 or more a line per certificate anywhere. The
        logger "topkopt" always gets the same facts.
    n_classes : int, optional
        The number m of classes; by default the largest label plus 1, of which at least half must
        have an example.
    on_interrupt : {"raise", "return"}, default "raise"
        What Ctrl-C does: raise KeyboardInterrupt, or return what is certified so far.
    n_threads : int, optional
        How many threads work on the rows; by default as many as BLAS would use. Another number
        changes results by rounding, the same one repeats them bit for bit.
    keep_dual : bool, default True
        False returns ``dual=None`` for a linear classifier; then L-BFGS never makes the n times m
        dual variables. The other methods need them while they train.
    sampling : {"auto", "rows", "blocks"}, default "auto"
        How coordinate ascent shuffles: "rows", all rows of an X in memory or in a memory-mapped
        file; or "blocks" of rows and the rows within each, so that a disk is read in sequence.
        "auto" takes blocks for an X that is read in blocks, and with "auto", "sdca" and "lbfgs" for
        a memory-mapped file of 256 MB or more; else rows.
    checkpoint : path, optional
        A .npz that is written every half a minute or so, at the end and on Ctrl-C, in one step: it
        is never half there. If it exists when the training begins, the training goes on from it,
        also after kill -9, also for another `tol` or `max_epochs` (which counts all epochs, those
        before too); a file of another problem, or a damaged one, raises. See the Notes.

    Returns
    -------
    Solution
        Not reaching `tol` also warns with `ConvergenceWarning`.

    Notes
    -----
    A Gram matrix is trained with ``sqrt(n)`` units of its rounding added to the diagonal (at most
    n of them), because rounding leaves it with eigenvalues slightly below 0; the certificate is
    that of the matrix with this addition.

    "auto" trains a loss that is smooth without `smoothing` by L-BFGS if the data are dense and have
    few features (up to 128), or if an epoch would take as long as three evaluations: few classes,
    or float32. Otherwise, and on data so small that an epoch is over before a step of L-BFGS has
    begun, it starts with epochs of coordinate ascent and looks, at every certificate, how many
    passes are left at that pace. If these are many, a smooth loss goes on with L-BFGS (a smoothed
    one only with few features), another one with Newton's method if its systems (of the size of W,
    or of the directions in which the moving examples can move, whichever is smaller) will take
    fewer operations than the passes, or if `max_epochs` would end the passes before. A method that
    gets no further gives way to coordinate ascent. A `warm_start` goes on with the method that
    ended it. The choices follow from counted work alone, so that a seed repeats; the history names
    the method of every step.

    What is read in blocks needs `shape` (n, d), a NumPy `dtype` and ``X[first:last]``, which
    returns rows as a new array (or lists) of that dtype. A block has about 16 MB, in whole chunks
    if X has `chunks` as in Zarr and h5py; a thread reads one ahead. The file may not change during
    the training: a block of another shape or dtype, or with entries that are not finite, raises.
    "auto" trains a smooth loss by L-BFGS then, in the memory of a few W, a few blocks and some 100
    bytes per example, and any other loss by "sdca", which has the n times m dual variables in
    memory twice, before and after a pass. Shuffled blocks converge as fast as
    shuffled rows if every block has examples of most classes: do not sort a file by class. The
    other methods need all rows at once.

    Threads take ranges of the rows of evaluations, certificates and products, and with large
    matrices the products of each block of "sdca"; each has a gradient of its own to add to, of the
    size of W in float64. BLAS uses one thread meanwhile, and where its products are too small to
    gain from more.

    A checkpoint holds W, the dual variables where the method has them, and the history. Nothing in
    it is believed: W = X'A and the certificate are computed anew. What a method has learnt besides,
    such as the last steps of L-BFGS, it learns again, so that the bits differ from those of a
    training in one go. For a loss that is not convex what follows the softmax solution is saved.

    `topkopt.losses.TruncatedTopKEntropy` is not convex: the softmax solution is computed first and
    then improved by L-BFGS; there is no certificate, and the gap is NaN.

    The vertices of a hinge loss are its weights, given to the classes in some order. "away_step"
    and "pairwise" keep those in use as lists of classes. Every example chooses its own direction
    and may stop at its own bound; only the line search is common to all, so that the dual objective
    never falls. A `warm_start` counts as one more vertex of each example.

    References
    ----------
    .. [1] M. Lapin, M. Hein, B. Schiele, "Top-k multiclass SVM", NIPS 2015.
    .. [2] T. Kato, Y. Hirohashi, "Learning weighted top-k support vector machine", ACML 2019.
    .. [3] S. Lacoste-Julien, M. Jaggi, "On the global linear convergence of Frank-Wolfe
           optimization variants", NIPS 2015.
    .. [4] X. Li, D. Sun, K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian
           method for solving Lasso problems", SIAM J. Optim. 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from topkopt import losses, solve
    >>> solution = solve(np.eye(2), [0, 1], losses.Hinge())
    >>> solution.coef
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    >>> solution.gap
    0.0
    """
    loss = losses.get(loss)
    check_method(method, loss)
    C = check_scalar(C, "C", positive=True)
    settings = check_settings(
        method=method,
        tol=tol,
        max_epochs=max_epochs,
        check_every=check_every,
        random_state=random_state,
        block_size=block_size,
        callback=callback,
        verbose=verbose,
        on_interrupt=on_interrupt,
        n_threads=n_threads,
        keep_dual=keep_dual,
        checkpoint=check_checkpoint(checkpoint),
    )
    kernel = check_kernel(kernel)
    sampling = check_sampling(sampling, X, method, kernel)
    problem = as_problem(X, y, loss, C, sample_weight, kernel, n_classes, sampling)
    check_streamed(problem.data, method)
    return train(problem, settings, warm_start)


def check_sampling(sampling: Any, X: Any, method: str, kernel: bool | str) -> str:
    """Return sampling, which is "auto", "rows" or "blocks"; a large file is read in blocks."""
    if sampling not in ("auto", "rows", "blocks"):
        raise ValueError(f"sampling must be auto, rows or blocks, got {sampling!r}.")
    able = method in STREAMED and not kernel
    return "blocks" if sampling == "auto" and able and is_large_file(X) else str(sampling)


def check_streamed(data: Data, method: str) -> None:
    """Raise where a method needs all rows at once and they are read in blocks."""
    if isinstance(data, StreamData) and method not in STREAMED:
        raise ValueError(
            f"method must be one of {', '.join(STREAMED)} for X that is read in blocks, got "
            f"{method!r}; load X with numpy.asarray, or leave sampling at 'rows'."
        )


def check_kernel(kernel: Any) -> bool | str:
    """Return kernel, which is True, False or "psd"."""
    if isinstance(kernel, (bool, np.bool_)) or (isinstance(kernel, str) and kernel == "psd"):
        return kernel if isinstance(kernel, str) else bool(kernel)
    raise TypeError(
        f"kernel must be True or False, or 'psd', got {kernel!r}. Pass a Gram matrix as X, or use "
        "TopKClassifier(kernel=...)."
    )
