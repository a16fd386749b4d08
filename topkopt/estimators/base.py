"""What the classifiers share: data, training, scores, and fits that are all or nothing."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from topkopt import losses
from topkopt._threads import as_team
from topkopt._validation import as_weight, check_flag, check_scalar
from topkopt.distributed import solve as solve_on_cluster
from topkopt.estimators.blocks import (
    WithConstant,
    by_blocks,
    refuse_stream,
    validate_stream,
)
from topkopt.estimators.callbacks import CallbackSupportMixin, EpochTasks, Task
from topkopt.estimators.checks import check_container
from topkopt.estimators.clusters import on_cluster, with_constant
from topkopt.estimators.fingerprint import fingerprint
from topkopt.estimators.kernels import KernelMixin
from topkopt.estimators.search import Progress
from topkopt.estimators.weights import class_weights
from topkopt.metrics.multiclass import topk_curve
from topkopt.solvers import Solution, State, solve
from topkopt.solvers.products import product
from topkopt.solvers.row_blocks import RowBlocks, is_large_file, is_stream
from topkopt.solvers.streams import STREAMED

__all__ = ["CertifiedClassifier", "all_or_nothing"]

# How messages of scikit-learn begin that do not name a parameter, and what they are about.
_ABOUT = {
    "could not convert string": "X must hold numbers; encode categories first",
    "Complex data": "X and y must hold real numbers",
    "Found input variables": "y must have one entry per row of X",
}


def all_or_nothing(fit: Any) -> Any:
    """Leave the classifier as it was if its fit fails or is interrupted."""

    @functools.wraps(fit)
    def whole(self: Any, *args: Any, **params: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *args, **params)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return whole


# scikit-learn has no types: its classes are Any.
class CertifiedClassifier(KernelMixin, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Data, training, intercept and scores: what the classifiers share."""

    # What subclasses take in their constructors.
    loss: Any
    C: Any
    class_weight: Any
    fit_intercept: bool
    intercept_scaling: float
    tol: float
    max_epochs: int
    method: str
    warm_start: bool
    keep_dual: bool
    random_state: Any
    verbose: int
    n_threads: int | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    # coef_ is a view of the solution's, unless somebody has replaced it: a pickle holds it once.

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        coef = getattr(state.get("solution_"), "coef", None)
        own = getattr(state.get("coef_"), "__array_interface__", None)
        if coef is None or own != self._feature_rows(coef).__array_interface__:
            return state
        return {name: value for name, value in state.items() if name != "coef_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        coef = getattr(state.get("solution_"), "coef", None)
        if coef is not None and "coef_" not in state:
            self.coef_ = self._feature_rows(coef)

    # Data ------------------------------------------------------------------------------------

    def _validate(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        check_container(X, "X")
        if is_stream(X):
            if not self._is_linear():
                refuse_stream(X, f"kernel={self.kernel!r}")
            reset, multi = options.get("reset", True), options.get("multi_output", False)
            return validate_stream(self, X, y, reset, multi)
        try:
            return validate_data(
                self,
                X,
                y,
                accept_sparse=False if self._is_precomputed() else "csr",
                dtype=[np.float64, np.float32],
                **options,
            )
        except ValueError as error:
            about = [rule for start, rule in _ABOUT.items() if str(error).startswith(start)]
            if not about:
                raise
            raise ValueError(f"{about[0]}. {error}") from None

    def _constant(self) -> float:
        """Return the feature that stands for the intercept, 0 for none."""
        if not check_flag(self.fit_intercept, "fit_intercept"):
            return 0.0
        return check_scalar(self.intercept_scaling, "intercept_scaling", positive=True)

    def _features(self, X: Any, constant: float) -> Any:
        """Return what the solver trains on: X with a constant feature, or a Gram matrix."""
        if not self._is_linear():
            return self._gram(X, X) + X.dtype.type(constant**2)
        if not constant:
            return X
        if on_cluster(X):
            return with_constant(X, constant)
        if is_stream(X) or (is_large_file(X) and self.method in STREAMED):
            return WithConstant(X, constant)
        column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
        if scipy.sparse.issparse(X):
            return scipy.sparse.hstack([X, scipy.sparse.csr_array(column)], format="csr")
        return np.hstack([X, column])

    # Training --------------------------------------------------------------------------------

    def _prepare(self, X: Any, weight: NDArray | None) -> None:
        """Check what belongs to the kernel, and forget the last one."""
        self._check_kernel(X)
        for name in ("coef_", "gamma_", "X_fit_"):
            self.__dict__.pop(name, None)
        if not self._is_linear():
            self.gamma_ = self._gamma(X, weight)

    def _remember(self, X: Any) -> None:
        """Keep of the training data what scores need later, as it is now."""
        self.n_features_in_ = X.shape[1]
        if not (self._is_linear() or self._is_precomputed()):
            self.X_fit_ = X.copy()

    def _solver_options(self) -> dict[str, Any]:
        return {
            "kernel": self._kernel_promise(),
            "tol": self.tol,
            "max_epochs": self.max_epochs,
            "method": self.method,
            "random_state": self._random_state(),
            "verbose": self._verbose(),
            "n_threads": self.n_threads,
        }

    def _verbose(self) -> int:
        try:
            return operator.index(self.verbose)
        except TypeError:
            raise TypeError(f"verbose must be an integer, got {self.verbose!r}.") from None

    def _random_state(self) -> np.random.RandomState:
        try:
            return check_random_state(self.random_state)
        except ValueError:
            raise ValueError(
                "random_state must be None, an integer from 0 to 2**32 - 1 or a RandomState, got "
                f"{self.random_state!r}."
            ) from None

    def _example_weights(self, sample_weight: ArrayLike | None, labels: NDArray) -> NDArray | None:
        """Return the product of the two kinds of weights, None if all are 1."""
        if sample_weight is None and self.class_weight is None:
            return None
        weight = as_weight(sample_weight, len(labels))
        if self.class_weight is None:
            return weight
        weight = weight * class_weights(self.class_weight, self.classes_, labels, weight)
        if not weight.any():
            raise ValueError(
                "class_weight must leave some example a positive weight, got "
                f"{self.class_weight!r}."
            )
        return weight

    def _train(
        self,
        X: Any,
        labels: NDArray,
        loss: losses.Loss,
        C: float,
        weight: NDArray | None,
        task: Task,
        progress: Progress | None = None,
    ) -> None:
        """Solve and set the attributes of a fitted classifier; epochs are parts of the task."""
        constant = self._constant()
        going_on = check_flag(self.warm_start, "warm_start")
        kept = check_flag(self.keep_dual, "keep_dual") or going_on
        features = self._features(X, constant)
        trained_on = (self._kernel_key(), fingerprint(features, labels)) if going_on else None
        previous = self._previous(trained_on, loss)
        self._remember(X)
        options = self._solver_options()
        epochs = EpochTasks(
            task, self.tol, self.max_epochs, lambda state: self._as_of(state, loss, constant)
        )
        watchers: list[Any] = [epochs] if task.watched else []
        if progress is not None and progress.told:
            watchers.append(progress)
            options["verbose"] = 0

        def callback(state: State) -> bool:
            return any([watcher(state) for watcher in watchers])

        train: Any = solve
        if on_cluster(features):
            train = solve_on_cluster
            del options["kernel"]
        solution = train(
            features,
            labels,
            loss,
            C=C,
            sample_weight=weight,
            warm_start=previous,
            callback=callback if watchers else None,
            keep_dual=kept,
            **options,
        )
        for watcher in watchers:
            watcher.close()
        self._trained_on = trained_on
        self._adopt(solution, constant)

    def _previous(self, trained_on: Any, loss: losses.Loss) -> Solution | None:
        """Return the last solution if it is for this loss and these features and labels.

        For other labels its dual variables would not be feasible; for other features they would
        be, but they would say nothing.
        """
        last = getattr(self, "solution_", None)
        if trained_on is None or last is None or last.loss != loss:
            return None
        return last if getattr(self, "_trained_on", None) == trained_on else None

    def _adopt(self, solution: Solution, constant: float) -> None:
        self.n_iter_ = solution.n_epochs
        self.duality_gap_ = solution.gap
        self.history_ = solution.history
        self.__dict__.update(self._score_attributes(solution, constant))

    def _score_attributes(self, solution: Any, constant: float) -> dict[str, Any]:
        """Return the attributes that make scores out of coef, or of dual with a kernel."""
        if solution.coef is None:
            total = self._two_classes(solution.dual.T).sum(axis=1)
            return {"solution_": solution, "intercept_": total * total.dtype.type(constant**2)}
        coef = self._two_classes(solution.coef.T)
        intercept = coef[:, -1] * coef.dtype.type(constant) if constant else np.zeros(len(coef))
        return {
            "solution_": solution,
            "coef_": self._feature_rows(solution.coef),
            "intercept_": intercept.astype(coef.dtype, copy=False),
        }

    def _adopt_part(self, solution: Solution, present: NDArray) -> None:
        """Adopt a solution for some of the classes; the others score less than all of them."""
        m = len(self.classes_)

        def spread(columns: NDArray | None) -> NDArray | None:
            if columns is None:
                return None
            full = np.zeros((len(columns), m), columns.dtype)
            full[:, present] = columns
            return full

        whole = replace(solution, coef=spread(solution.coef), dual=spread(solution.dual))
        self._adopt(whole, self._constant())
        if len(present) < m:
            lowest = np.finfo(self.intercept_.dtype).min / 4  # finite, as scikit-learn wants it
            self.intercept_[np.setdiff1d(np.arange(m), present)] = lowest

    def _as_of(self, state: State, loss: losses.Loss, constant: float) -> dict[str, Any]:
        """Return the attributes of the classifier that training has come to."""
        linear = state.coef is not None
        now = SimpleNamespace(
            coef=np.array(state.coef) if linear else None,
            dual=None if linear else np.array(state.dual),
            loss=loss,
        )
        return self._score_attributes(now, constant)

    @property
    def dual_coef_(self) -> NDArray:
        """The dual variables, one row per class; of two classes the difference."""
        solution = getattr(self, "solution_", None)
        if solution is None or solution.dual is None:
            raise AttributeError(
                f"{type(self).__name__} has no dual_coef_ unless it is fitted with a kernel, or "
                "with keep_dual=True."
            )
        return self._two_classes(solution.dual.T)

    def _feature_rows(self, coef: NDArray) -> NDArray:
        """Return the weights of the features without that of the intercept, one row per class."""
        return self._two_classes(coef.T)[:, : self.n_features_in_]

    def _two_classes(self, rows: NDArray) -> NDArray:
        """Return one row per class; of two classes the difference, as in scikit-learn."""
        return rows[1:] - rows[:1] if self._is_binary() else rows

    def _is_binary(self) -> bool:
        return len(self.classes_) == 2

    # Scores ----------------------------------------------------------------------------------

    @by_blocks
    def decision_function(self, X: Any) -> NDArray:
        """Return the scores of the classes.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel, the kernel between them and the
            training examples. What `topkopt.solve` reads in blocks is read so here, and by all
            that predicts.

        Returns
        -------
        ndarray of shape (n, m), or (n,) for two classes
            More is better; of two classes, positive means the second one.
        """
        needed = "dual_coef_" if self._is_precomputed() else "X_fit_"
        check_is_fitted(self, "coef_" if self._is_linear() else needed)
        X = self._validate(X, reset=False)
        if self._is_linear():
            scores = product(X, self.coef_.T, as_team(self.n_threads)) + self.intercept_
        else:
            K = self._gram(X, None if self._is_precomputed() else self.X_fit_)
            scores = product(K, self.dual_coef_.T, as_team(self.n_threads)) + self.intercept_
        return scores[:, 0] if self._is_binary() else scores

    def _class_scores(self, X: Any) -> NDArray:
        """Return one column per class, also for two."""
        scores = self.decision_function(X)
        return np.stack([-scores, scores], axis=1) / 2 if scores.ndim == 1 else scores

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of the highest score.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.
        y : array_like of shape (n,)
            Their classes; one that was not in the training data is never right.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights of the examples.

        Returns
        -------
        float
            Where several classes share the highest score, one of t that is right counts 1/t, see
            `topkopt.metrics.topk_accuracy`; else this is the accuracy of `predict`.
        """
        return self._topk_score(X, y, 1, sample_weight)

    def _topk_score(self, X: Any, y: Any, k: int, sample_weight: Any) -> float:
        if is_stream(X):
            return self._stream_score(X, y, k, sample_weight)
        scores = self._class_scores(X)
        check_container(y, "y")
        y = column_or_1d(y)
        if len(y) != len(scores):
            raise ValueError(f"y must have one entry per row of X ({len(scores)}), got {len(y)}.")
        kinds = {values.dtype.kind for values in (y, self.classes_)}
        if "O" not in kinds and len({kind in "SU" for kind in kinds}) == 2:
            raise ValueError(
                f"y must hold classes like those of the training data, such as "
                f"{self.classes_.tolist()[0]!r}, got {y.tolist()[0]!r}."
            )
        weight = as_weight(sample_weight, len(y))
        known = np.isin(y, self.classes_)
        if not weight[known].any():
            return 0.0
        columns = np.searchsorted(self.classes_, y[known])
        right = topk_curve(scores[known], columns, weight[known], np.array([k]))[0]
        return float(right * (weight[known].sum() / weight.sum()))

    def _stream_score(self, X: Any, y: Any, k: int, sample_weight: Any) -> float:
        """Return the mean of the scores of all blocks, each with the weight of its examples."""
        check_container(y, "y")
        y = column_or_1d(y)
        check_consistent_length(X, y)
        weight, right = as_weight(sample_weight, len(y)), 0.0
        for rows, part in RowBlocks(X):
            if weight[rows].any():
                share = float(weight[rows].sum())
                right += share * self._topk_score(part, y[rows], k, weight[rows])
        return right / float(weight.sum())
