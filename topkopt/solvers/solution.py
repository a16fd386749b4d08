"""What training returns, and what a callback sees on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from topkopt import losses
from topkopt.solvers.compact import CompactField

__all__ = ["ConvergenceWarning", "Solution", "State"]


class ConvergenceWarning(UserWarning):
    """The solver stopped before it reached the gap it was asked for."""


@dataclass(frozen=True)
class State:
    """What a callback sees after each certificate; its arrays are its own and do not change later.

    Attributes
    ----------
    epoch : int
        Passes over the data so far.
    seconds : float
        Time since the start.
    primal, dual_value, gap : float
        The two objectives (in the scale of `Solution.primal`) and their relative difference.
    method : str
        The method that came here.
    coef : ndarray of shape (d, m) or None
        The W of that moment; None with a kernel.
    dual : ndarray of shape (n, m)
        The dual variables of that moment.
    """

    epoch: int
    seconds: float
    primal: float
    dual_value: float
    gap: float
    method: str
    _arrays: list[Any] = field(repr=False)  # W and A; the solver's own until copied, or functions
    _copied: list[bool] = field(repr=False, default_factory=lambda: [False, False])

    @property
    def coef(self) -> NDArray | None:
        """The W of that moment, of shape (d, m); None with a kernel."""
        return self._own(0)

    @property
    def dual(self) -> NDArray:
        """The dual variables of that moment, of shape (n, m)."""
        return cast(NDArray, self._own(1))

    def keep(self) -> None:
        """Copy the arrays, which the solver is about to change."""
        self._own(0)
        self._own(1)

    def _own(self, place: int) -> NDArray | None:
        array: Any = self._arrays[place]
        if callable(array):
            self._arrays[place] = array = array()
        if array is not None and not self._copied[place]:
            self._arrays[place] = array = array.copy()
            self._copied[place] = True
        return cast("NDArray | None", array)


@dataclass(frozen=True)
class Solution:
    """What `solve` found, and how far it can be from the optimum.

    Attributes
    ----------
    coef : ndarray of shape (d, m) or None
        The weights W of the linear scores ``X @ W``; None with a kernel.
    dual : ndarray of shape (n, m) or None
        The dual variables A, with ``W = X.T @ A``; the scores of a kernel are ``K @ A``. None
        where they were not kept. If most are 0, as with hinge losses, they are kept and pickled as
        a sparse matrix, and each access makes a new array, which is read-only.
    primal, dual_value : float
        The primal objective P and the dual one D, in the scale of the papers:
        ``P = 1/n sum_i w_i loss_i + 1/(2 C n) |W|^2``. The optimum is between them.
    gap : float
        ``(P - D) / max(|P|, |D|)``: the certificate. NaN for a loss without a dual.
    converged : bool
        Whether the gap asked for was reached.
    n_epochs : int
        Passes over the data.
    history : dict of ndarray
        "epoch", "seconds", "primal", "dual", "gap" and "method" of every certificate.
    loss : Loss
        The loss trained with.
    C : float
        The regularisation parameter.
    tol : float
        The gap asked for.
    cost : ndarray of shape (n,) or None
        C times the sample weights; None where the dual variables were not kept.
    n_examples, n_classes : int
        The numbers n of examples and m of classes.
    objective : float
        P in the scale of scikit-learn, ``1/2 |W|^2 + C sum_i w_i loss_i = C n P``.
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
    cost: NDArray | None = field(repr=False)
    n_examples: int
    n_classes: int

    @property
    def objective(self) -> float:
        """P in the scale of scikit-learn, ``1/2 |W|^2 + C sum_i w_i loss_i = C n P``."""
        return self.primal * self.C * self.n_examples

    def without_dual(self) -> Solution:
        """Return the same solution without what grows with the number of examples.

        Returns
        -------
        Solution
            With ``dual=None`` and ``cost=None``. With a kernel the solution as it is, because its
            scores need the dual variables.
        """
        return self if self.coef is None else replace(self, dual=None, cost=None)

    def report(self) -> str:
        """Return a summary in a few lines.

        Returns
        -------
        str
        """
        seconds = self.history["seconds"][-1]
        if np.isnan(self.gap):
            certificate = "no certificate: the loss is not convex"
        else:
            certificate = (
                f"relative gap {self.gap:.2e} (asked for {self.tol:.2e}): the optimum is between "
                f"{self.dual_value:.10g} and {self.primal:.10g}"
            )
        return (
            f"{self.loss!r}, C = {self.C:g}: {self.n_examples} examples, {self.n_classes} classes\n"
            f"objective {self.primal:.10g}, the mean loss + |W|^2/(2Cn), after {self.n_epochs} "
            f"epochs and {seconds:.3g} s\n"
            f"{certificate}\n"
            f"in the scale of scikit-learn, |W|^2/2 + C * sum of losses: {self.objective:.10g}"
        )


# A field of a dataclass cannot be a descriptor without a default: it becomes one afterwards.
Solution.dual = CompactField("dual")  # type: ignore[assignment]
