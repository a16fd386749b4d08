"""Training to a duality gap that the user asks for.

`solve` is policy: when to stop, what to certify, what to record and to say. The steps themselves
are compiled, see ``_sdca``.
"""

from __future__ import annotations

import logging
import operator
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

from topkopt import losses
from topkopt._ascent import Ascent, check_method, make_ascent
from topkopt._data import Data, KernelData, as_data
from topkopt._sdca import Examples
from topkopt._validation import as_labels, as_weight, check_flag, check_k, check_scalar

__all__ = ["ConvergenceWarning", "Solution", "State", "solve"]

_LOGGER = logging.getLogger("topkopt")


class ConvergenceWarning(UserWarning):
    """The solver stopped before it reached the gap it was asked for."""


@dataclass(frozen=True)
class State:
    """What a callback sees after each certificate.

    Attributes
    ----------
    epoch : int
        Passes over the data so far.
    seconds : float
        Time since the start.
    primal, dual_value, gap : float
        The two objectives, and their relative difference.
    coef : ndarray of shape (d, m) or None
        The current W, to look at and not to change; None with a kernel.
    dual : ndarray of shape (n, m)
        The current dual variables, to look at and not to change.
    """

    epoch: int
    seconds: float
    primal: float
    dual_value: float
    gap: float
    coef: NDArray | None = field(repr=False)
    dual: NDArray = field(repr=False)


@dataclass(frozen=True)
class Solution:
    """What `solve` found, and how far it can be from the optimum.

    Attributes
    ----------
    coef : ndarray of shape (d, m) or None
        The weights W of the linear scores ``X @ W``; None with a kernel.
    dual : ndarray of shape (n, m)
        The dual variables A, with ``W = X.T @ A``; the scores of a kernel are ``K @ A``.
    primal, dual_value : float
        The primal objective P and the dual one D. The optimum is between them.
    gap : float
        ``(P - D) / max(|P|, |D|)``: the certificate. NaN for a loss without a dual.
    converged : bool
        Whether the gap asked for was reached.
    n_epochs : int
        Passes over the data.
    history : dict of ndarray
        "epoch", "seconds", "primal", "dual" and "gap" of every certificate.
    loss : Loss
        The loss trained with.
    C : float
        The regularisation parameter.
    tol : float
        The gap asked for.
    cost : ndarray of shape (n,)
        C times the sample weights.
    """

    coef: NDArray | None = field(repr=False)
    dual: NDArray | None = field(repr=False)
    primal: float
    dual_value: float
    gap: float
    converged: bool
    n_epochs: int
    history: dict[str, NDArray] = field(repr=False)
    loss: losses.Loss
    C: float
    tol: float
    cost: NDArray = field(repr=False)

    @property
    def objective(self) -> float:
        """The objective in scikit-learn's scale, ``1/2 |W|^2 + C * sum_i w_i loss_i``."""
        return self.primal * self.C * len(self.cost)

    def without_dual(self) -> Solution:
        """Return the same without the dual variables."""
        if self.coef is None:
            raise ValueError("the dual variables of a kernel must stay: its scores need them.")
        return replace(self, dual=None)

    def report(self) -> str:
        """Return a summary in a few lines.

        Returns
        -------
        str
        """
        n = len(self.cost)
        m = (self.dual if self.coef is None else self.coef).shape[1]  # type: ignore[union-attr]
        seconds = self.history["seconds"][-1]
        if np.isnan(self.gap):
            certificate = "no certificate: the loss is not convex"
        else:
            certificate = (
                f"relative gap {self.gap:.2e} (asked for {self.tol:.2e}): the optimum is between "
                f"{self.dual_value:.10g} and {self.primal:.10g}"
            )
        return (
            f"{self.loss!r}, C = {self.C:g}: {n} examples, {m} classes\n"
            f"objective {self.primal:.10g} after {self.n_epochs} epochs and {seconds:.3g} s\n"
            f"{certificate}"
        )


def solve(
    X: ArrayLike,
    y: ArrayLike,
    loss: losses.Loss | str,
    *,
    C: float = 1.0,
    sample_weight: ArrayLike | None = None,
    method: str = "sdca",
    kernel: bool | str = False,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    check_every: int = 1,
    warm_start: Solution | None = None,
    random_state: Any = None,
    block_size: int | str = "auto",
    callback: Callable[[State], Any] | None = None,
    verbose: int = 0,
    on_interrupt: str = "raise",
    n_classes: int | None = None,
) -> Solution:
    """Train a linear or kernel classifier and certify the result.

    Minimises ``P(W) = 1/n sum_i w_i loss(X_i W, y_i) + 1/(2 C n) |W|^2`` by stochastic dual
    coordinate ascent [1]_ or by a Frank-Wolfe method [2]_ [3]_, until the relative duality gap is
    at most `tol`.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, d), or (n, n) with `kernel`
        The examples as rows, or their Gram matrix. float32 and float64 are kept, a dense X is not
        copied (any memory order, memory-mapped too); sparse formats other than CSR are converted.
    y : array_like of shape (n,) or (n, m)
        Labels 0, 1, ..., m - 1; for multilabel losses also an indicator matrix.
    loss : Loss or str
        A loss of `topkopt.losses`, or the registry name of one that needs no parameters.
    C : float, default 1.0
        Weight of the losses: ``1/2 |W|^2 + C * sum_i w_i loss_i`` is minimised (up to a factor).
    sample_weight : array_like of shape (n,), optional
        Non-negative weights w: 2 counts an example twice, 0 leaves it out.
    method : str, default "sdca"
        One of

        - "sdca": the exact maximiser for one example after the other; trains every loss, and is the
          fastest;
        - "block_frank_wolfe": one example after the other, each towards its best vertex;
        - "frank_wolfe": all examples at once towards their best vertices, with one step length;
        - "away_step": towards the best vertex or away from the worst one in use, whichever is
          better for an example;
        - "pairwise": from the worst vertex in use to the best one.

        All but the first are for `losses.Hinge`, `losses.TopKHinge` and `losses.WeightedTopKHinge`.
    kernel : bool, default False
        Whether X is a Gram matrix; it must be symmetric and positive semi-definite, or the
        certificate means nothing.
    tol : float, default 1e-3
        The relative duality gap to reach.
    max_epochs : int, default 1000
        The largest number of passes over the data; a step of "frank_wolfe", "away_step" or
        "pairwise" is one.
    check_every : int, default 1
        Epochs between two certificates, each of which costs about half an epoch's products.
    warm_start : Solution, optional
        Where to start; of the same examples and classes, but possibly another C or other weights.
    random_state : int, Generator or RandomState, optional
        Draws the order of each epoch; the same seed gives the same bits.
    block_size : int or "auto", default "auto"
        How many dense rows are taken together; affects the speed only.
    callback : callable, optional
        Called with a `State` after each certificate; a true result stops the training.
    verbose : int, default 0
        1 shows one line of progress on a terminal, 2 or more a line per certificate anywhere. The
        logger "topkopt" always gets the same facts.

    Returns
    -------
    Solution
        Not reaching `tol` also warns with `ConvergenceWarning`. Ctrl-C returns what is certified
        so far.

    Notes
    -----
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
    tol = check_scalar(tol, "tol", remedy="0 trains for max_epochs.")
    max_epochs = check_k(max_epochs, np.iinfo(np.intp).max, "any number", name="max_epochs")
    check_every = check_k(check_every, np.iinfo(np.intp).max, "any number", name="check_every")
    verbose = _check_verbose(verbose)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of a State, or None, got {callback!r}.")
    checked = kernel is True
    kernel = True if isinstance(kernel, str) and kernel == "psd" else kernel
    check_flag(
        kernel,  # type: ignore[arg-type]
        "kernel",
        "Pass a Gram matrix as X, or use TopKClassifier(kernel=...).",
    )
    data = as_data(X, bool(kernel))
    if checked and isinstance(data, KernelData):
        lowest = np.linalg.eigvalsh(data.X)[0] if data.n_rows else 0.0
        if lowest < -1e-4:
            raise ValueError(f"X must be positive semi-definite, got an eigenvalue {lowest:g}.")
    if data.n_rows == 0:
        raise ValueError("X must have at least one row, got none.")
    index, start, m = as_labels(y, data.n_rows, n_classes, multilabel=loss.multilabel)
    if m < 2:
        raise ValueError(f"y must hold at least 2 classes, got {m}; add examples of others.")
    loss.check_classes(m)
    problem = _Problem(data, loss, index, start, m, C, C * as_weight(sample_weight, data.n_rows))
    problem.on_interrupt = on_interrupt
    budget = _Budget(tol, max_epochs, check_every)
    progress = _Progress(tol, verbose, callback)
    if loss.convex:
        return _ascend(problem, budget, progress, warm_start, random_state, block_size, method)
    return _descend(problem, budget, progress, warm_start, random_state, block_size)


@dataclass
class _Problem:
    data: Data
    loss: losses.Loss
    label_index: NDArray
    label_start: NDArray
    n_classes: int
    C: float
    cost: NDArray  # C times the sample weights
    on_interrupt: str = "raise"

    def examples(self, kind: type[Examples] = Examples, *extra: Any) -> Any:
        return kind(
            self.loss,
            self.label_index,
            self.label_start,
            self.cost,
            self.data.square_norms,
            self.n_classes,
            *extra,
        )


@dataclass
class _Budget:
    tol: float
    max_epochs: int
    check_every: int


def _check_verbose(verbose: int) -> int:
    try:
        return operator.index(verbose)
    except TypeError:
        raise TypeError(f"verbose must be an integer, got {verbose!r}.") from None


def _as_generator(random_state: Any) -> Any:
    if hasattr(random_state, "permutation"):
        return random_state
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            "random_state must be None, a non-negative integer, a Generator or a RandomState, got "
            f"{random_state!r}."
        ) from None


def _labels_of(problem: _Problem) -> NDArray:
    """Return the labels of a loss that takes one per example."""
    return problem.label_index[problem.label_start[:-1]]


def _check_block_size(block_size: int | str, data: Data, m: int) -> int:
    if isinstance(block_size, str):
        if block_size != "auto":
            raise ValueError(
                f"block_size must be a positive integer or 'auto', got {block_size!r}."
            )
        return data.auto_block(m)
    return check_k(block_size, np.iinfo(np.int32).max, "2**31 - 1", name="block_size")


def _check_warm_start(problem: _Problem, warm_start: Solution) -> None:
    if not isinstance(warm_start, Solution):
        raise TypeError(f"warm_start must be a Solution or None, got {type(warm_start).__name__}.")
    shape = (problem.data.n_rows, problem.n_classes)
    if warm_start.dual is None:
        raise ValueError("warm_start must be a Solution with its dual variables.")
    if warm_start.dual.shape != shape:
        raise ValueError(
            f"warm_start must be a Solution for {shape[0]} examples and {shape[1]} classes, "
            f"got one for {warm_start.dual.shape[0]} and {warm_start.dual.shape[1]}."
        )


def _start_dual(problem: _Problem, warm_start: Solution | None) -> NDArray:
    """Return dual variables to start from; -a_i/C_i stays as it was, and so feasible."""
    if warm_start is None:
        return np.zeros((problem.data.n_rows, problem.n_classes), problem.data.dtype)
    _check_warm_start(problem, warm_start)
    if warm_start.loss != problem.loss:
        raise ValueError(
            f"warm_start must be a Solution for the same loss, got {warm_start.loss!r} for "
            f"{problem.loss!r}; its dual variables are not feasible here."
        )
    ratio = np.divide(
        problem.cost,
        warm_start.cost,
        out=np.zeros_like(problem.cost),
        where=warm_start.cost > 0,
    )
    assert warm_start.dual is not None
    return (warm_start.dual * ratio[:, None]).astype(problem.data.dtype)


def _certify(problem: _Problem, ascent: Ascent) -> tuple[float, float, float]:
    """Return P, D and the relative gap."""
    scale = 1.0 / (problem.C * problem.data.n_rows)
    losses_sum, conjugates, inner = ascent.sums()
    square = inner if ascent.coef is ascent.dual else float(np.vdot(ascent.coef, ascent.coef))
    if square < 0 and -square > 1e-6 * abs(losses_sum):
        raise ValueError(
            "X must be positive semi-definite when kernel=True, but it gives |W|^2 < 0; check the "
            "kernel."
        )
    primal = scale * (losses_sum + 0.5 * square)
    dual_value = scale * (-conjugates - 0.5 * square)
    size = max(abs(primal), abs(dual_value))
    return primal, dual_value, (primal - dual_value) / size if size > 0 else 0.0


def _ascend(
    problem: _Problem,
    budget: _Budget,
    progress: _Progress,
    warm_start: Solution | None,
    random_state: Any,
    block_size: int | str,
    method: str = "sdca",
) -> Solution:
    """Climb the dual with the gap as the only stopping rule."""
    ascent = make_ascent(
        method,
        problem,
        _start_dual(problem, warm_start),
        warm_start is not None,
        _as_generator(random_state),
        _check_block_size(block_size, problem.data, problem.n_classes),
    )
    epoch, stop, fresh = 0, False, True
    try:
        while True:
            if epoch % budget.check_every == 0 or epoch == budget.max_epochs:
                primal, dual_value, gap = _certify(problem, ascent)
                if gap <= budget.tol and not fresh:
                    # Before the result is vouched for, what rounding added to W is removed.
                    ascent.refresh()
                    fresh = True
                    primal, dual_value, gap = _certify(problem, ascent)
                stop = progress.check(
                    State(
                        epoch,
                        progress.seconds(),
                        primal,
                        dual_value,
                        gap,
                        None if ascent.coef is ascent.dual else ascent.coef,
                        ascent.dual,
                    )
                )
                if stop or gap <= budget.tol or epoch == budget.max_epochs:
                    break
            ascent.advance()
            epoch += 1
            fresh = False
    except KeyboardInterrupt:
        if problem.on_interrupt == "raise":
            raise
        ascent.refresh()
        primal, dual_value, gap = _certify(problem, ascent)
        progress.note(State(epoch, progress.seconds(), primal, dual_value, gap, None, ascent.dual))
        stop = True
    coef, dual = ascent.coef, ascent.dual
    progress.close()
    if gap > budget.tol:
        reason = "stopped" if stop else f"max_epochs={budget.max_epochs} reached"
        warnings.warn(
            f"{reason} with relative duality gap {gap:.3e} > tol={budget.tol:.3e}; raise "
            "max_epochs or tol, or scale the features.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Solution(
        coef=None if coef is dual else coef,
        dual=dual,
        primal=primal,
        dual_value=dual_value,
        gap=gap,
        converged=gap <= budget.tol,
        n_epochs=epoch,
        history=progress.history(),
        loss=problem.loss,
        C=problem.C,
        tol=budget.tol,
        cost=problem.cost,
    )


def _descend(
    problem: _Problem,
    budget: _Budget,
    progress: _Progress,
    warm_start: Solution | None,
    random_state: Any,
    block_size: int | str,
) -> Solution:
    """Train a loss without a dual: L-BFGS from the solution of the softmax loss."""
    data, loss, C = problem.data, problem.loss, problem.C
    if warm_start is None:
        softmax = replace(problem, loss=losses.Softmax())
        quiet = _Progress(budget.tol, 0, None)
        warm_start = _ascend(softmax, budget, quiet, None, random_state, block_size)
    _check_warm_start(problem, warm_start)
    linear = not isinstance(data, KernelData)
    begin = warm_start.coef if linear else warm_start.dual
    if begin is None or (linear and begin.shape[0] != data.n_features):
        raise ValueError(
            f"warm_start must be a Solution with coef of shape ({data.n_features}, "
            f"{problem.n_classes}), got {None if begin is None else begin.shape}."
        )
    labels = _labels_of(problem)
    scale = 1.0 / (C * data.n_rows)
    latest: dict[str, Any] = {}

    def objective(flat: NDArray) -> tuple[float, NDArray]:
        parameters = flat.reshape(begin.shape).astype(data.dtype, copy=False)
        scores = data.scores(parameters)
        pull = problem.cost[:, None] * loss.gradient(scores, labels)
        penalty, direction = parameters, data.coef_from(pull.astype(data.dtype, copy=False))
        if not linear:  # the parameters are A, the metric is K
            penalty, direction = scores, data.scores(direction)
        total = float(problem.cost @ loss.value(scores, labels))
        primal = scale * (total + 0.5 * float(np.vdot(parameters, penalty)))
        latest.update(dual=-pull, size=scale * float(np.abs(direction).max()))
        return primal, (scale * (penalty + direction)).astype(np.float64).ravel()

    def iterate(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        latest.update(
            n=latest["n"] + 1, x=intermediate_result.x.copy(), fun=intermediate_result.fun
        )
        coef = intermediate_result.x.reshape(begin.shape) if linear else None
        state = State(
            latest["n"],
            progress.seconds(),
            intermediate_result.fun,
            np.nan,
            np.nan,
            coef,
            latest["dual"],
        )
        if progress.check(state):
            raise StopIteration

    flat = begin.astype(np.float64).ravel()
    first, _ = objective(flat)
    shown = begin if linear else None
    begun = State(0, progress.seconds(), first, np.nan, np.nan, shown, latest["dual"])
    latest.update(x=flat, fun=first, n=0)
    result = scipy.optimize.OptimizeResult(success=False, message="stopped")
    try:
        if not progress.check(begun):
            result = scipy.optimize.minimize(
                objective,
                flat,
                jac=True,
                method="L-BFGS-B",
                callback=iterate,
                # The gradient is the difference of two terms; it is to vanish next to them.
                options={
                    "maxiter": budget.max_epochs,
                    "gtol": budget.tol * latest["size"],
                    "ftol": 0.0,
                },
            )
    except KeyboardInterrupt:
        if problem.on_interrupt == "raise":
            raise
    result = scipy.optimize.OptimizeResult(
        {"x": latest["x"], "fun": latest["fun"], "nit": latest["n"], **result}
    )
    progress.close()
    coef = result.x.reshape(begin.shape).astype(data.dtype)
    if not result.success:
        warnings.warn(
            f"L-BFGS stopped after {result.nit} iterations before its gradient fell to "
            f"{budget.tol:g} of the pull of the losses: {result.message}; raise max_epochs or tol.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Solution(
        coef=coef if linear else None,
        dual=latest["dual"].astype(data.dtype) if linear else coef,
        primal=float(result.fun),
        dual_value=np.nan,
        gap=np.nan,
        converged=bool(result.success),
        n_epochs=int(result.nit),
        history=progress.history(),
        loss=loss,
        C=C,
        tol=budget.tol,
        cost=problem.cost,
    )


class _Progress:
    """Records every certificate and tells people about it."""

    def __init__(self, tol: float, verbose: int, callback: Callable[[State], Any] | None):
        self.tol, self.verbose, self.callback = tol, verbose, callback
        self.begin = time.perf_counter()
        self.states: list[State] = []
        self.live = verbose == 1 and sys.stderr.isatty()

    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def check(self, state: State) -> bool:
        """Take note of a state; true if the callback asks to stop."""
        self.note(state)
        return bool(self.callback and self.callback(state))

    def note(self, state: State) -> None:
        """Record a state and show it."""
        self.states.append(replace(state, coef=None, dual=np.empty(0)))
        line = self._line(state)
        _LOGGER.info(line)
        if self.live:
            sys.stderr.write(f"\r{line:<78}")
            sys.stderr.flush()
        elif self.verbose >= 2:
            print(line, flush=True)

    def close(self) -> None:
        if self.live:
            sys.stderr.write("\n")

    def history(self) -> dict[str, NDArray]:
        fields = {
            "epoch": "epoch",
            "seconds": "seconds",
            "primal": "primal",
            "dual": "dual_value",
            "gap": "gap",
        }
        return {
            key: np.array([getattr(state, name) for state in self.states])
            for key, name in fields.items()
        }

    def _line(self, state: State) -> str:
        if np.isnan(state.gap):
            return f"iteration {state.epoch}  objective {state.primal:.8g}  {state.seconds:.1f} s"
        left = self._seconds_left()
        estimate = f"  about {left:.1f} s left" if left is not None else ""
        return (
            f"epoch {state.epoch}  gap {state.gap:.2e} -> {self.tol:.1e}  "
            f"{state.seconds:.1f} s{estimate}"
        )

    def _seconds_left(self) -> float | None:
        """Extrapolate the recent fall of the logarithm of the gap."""
        recent = [s for s in self.states[-6:] if s.gap > 0]
        if len(recent) < 2 or self.tol <= 0 or recent[-1].gap <= self.tol:
            return None
        fall = np.log(recent[0].gap / recent[-1].gap)
        if fall <= 0:
            return None
        span = recent[-1].seconds - recent[0].seconds
        return float(span / fall * np.log(recent[-1].gap / self.tol))
