"""Cross-validation: folds, what is routed to them, the paths through them, and who is told."""

from __future__ import annotations

import copy
import inspect
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metadata_routing import _routing_enabled, process_routing
from sklearn.utils.validation import _check_method_params

from topkopt import losses
from topkopt._validation import as_array, check_scalar
from topkopt.estimators.callbacks import Task
from topkopt.metrics.multiclass import topk_curve
from topkopt.solvers import State
from topkopt.solvers.path import Path, path

__all__ = ["Progress", "Search", "check_fold_weight", "folds_of", "route", "rows_of"]

_LOGGER = logging.getLogger("topkopt")


# Folds ----------------------------------------------------------------------------------------


def folds_of(splitter: Callable[[], Any], cv: Any, X: Any, y: NDArray, options: dict) -> list:
    """Return the folds: one or more, of examples that exist."""
    groups = options.get("groups")
    if groups is not None and as_array(groups, "groups").shape[:1] != (len(y),):
        raise ValueError(
            f"groups must have one entry per example ({len(y)}), got shape {np.shape(groups)}."
        )
    try:
        folds = list(splitter().split(X, y, **options))
    except ValueError as error:
        raise ValueError(
            "cv must be an integer from 2 to the number of examples, a splitter or a list of "
            f"(train, test), got {cv!r}: {error}"
        ) from None
    folds = [tuple(map(_as_indices, fold)) for fold in folds]
    if not folds:
        raise ValueError(f"cv must give at least one fold, got none from {cv!r}.")
    if not all(len(part) for fold in folds for part in fold):
        raise ValueError(f"cv must train and test each fold on some example, got none from {cv!r}.")
    largest = max(np.max(part) for fold in folds for part in fold)
    if largest >= len(y):
        raise ValueError(f"cv must give indices of the {len(y)} examples, got {largest}.")
    return folds


def _as_indices(part: ArrayLike) -> NDArray:
    part = np.asarray(part)
    return np.flatnonzero(part) if part.dtype == bool else part


def check_fold_weight(weight: NDArray | None, part: NDArray, duty: str) -> None:
    """Raise if no example of a part of the data counts."""
    if weight is not None and not weight[part].any():
        raise ValueError(
            f"cv must {duty} an example of positive weight, got none; use fewer folds, or other "
            "sample_weight and class_weight."
        )


def rows_of(X: Any, rows: NDArray, others: NDArray, *, pairwise: bool) -> Any:
    """Return rows of a matrix of examples, or of a Gram matrix their part with the others."""
    return X[np.ix_(rows, others)] if pairwise else X[rows]


# Metadata -------------------------------------------------------------------------------------


def route(
    estimator: Any, scorer: Any, sample_weight: Any, groups: Any, params: dict
) -> tuple[dict, dict]:
    """Return what the splitter gets, and what the scorer gets; a scorer may be None."""
    given = {"sample_weight": sample_weight, "groups": groups}
    given = {name: value for name, value in given.items() if value is not None}
    if _routing_enabled():
        routed = process_routing(estimator, "fit", **given, **params)
        return routed["splitter"]["split"], {} if scorer is None else routed["scorer"]["score"]
    if params:
        raise TypeError(
            f"fit must get X, y, sample_weight and groups, got {', '.join(params)}, too; call "
            "sklearn.set_config(enable_metadata_routing=True) to pass on more."
        )
    weight = given.pop("sample_weight", None)
    return given, weigh(scorer, weight)


def weigh(scorer: Any, sample_weight: Any) -> dict:
    """Return the weights for a scorer that takes them, as far as nothing routes them."""
    if scorer is None or sample_weight is None:
        return {}
    takes = inspect.signature(getattr(scorer, "_score_func", scorer)).parameters
    return {"sample_weight": sample_weight} if "sample_weight" in takes else {}


# Progress -------------------------------------------------------------------------------------


class Progress:
    """Says which training of a search is under way, and how far it is.

    As `solve` does: 1 is one line on a terminal, 2 or more a line per certificate anywhere.
    """

    def __init__(self, verbose: int, place: str):
        self.verbose, self.place = verbose, place
        self.live = verbose == 1 and sys.stderr.isatty()

    @property
    def told(self) -> bool:
        """Whether anybody wants to know."""
        return self.verbose > 0 or _LOGGER.isEnabledFor(logging.INFO)

    def __call__(self, state: State) -> None:
        """Show a state."""
        if state.epoch == 0:
            _LOGGER.info(self.place)
        if not (self.live or self.verbose >= 2):
            return
        certificate = "" if np.isnan(state.gap) else f"  gap {state.gap:.2e}"
        line = f"{self.place}  epoch {state.epoch}{certificate}"
        if self.live:
            sys.stderr.write(f"\r{line:<78}")
            sys.stderr.flush()
        else:
            print(line, flush=True)

    def close(self) -> None:
        """Leave the live line."""
        if self.live:
            sys.stderr.write("\n")


class _Trainings:
    """A callback of `path` that knows which C it is at: a training begins with epoch 0."""

    def __init__(self, Cs: NDArray, place: str, verbose: int, task: Task):
        self.Cs = iter(Cs)
        self.place, self.verbose, self.task = place, verbose, task
        self.progress: Progress | None = None
        self.running = Task()

    def __call__(self, state: State) -> None:
        if state.epoch == 0 or self.progress is None:
            self.running.end()
            place = f"{self.place}  C = {next(self.Cs):g}"
            self.progress = Progress(self.verbose, place)
            self.running = self.task.subtask(place)
        self.progress(state)

    def close(self) -> None:
        self.running.end()
        if self.progress is not None:
            self.progress.close()


# The search -----------------------------------------------------------------------------------


@dataclass
class Search:
    """What all folds have in common: data, what to try, how to train and how to score."""

    model: Any  # a classifier that lacks nothing but a solution
    X: Any  # as the scorer gets it
    features: Any  # as the solver gets it
    labels: NDArray
    weight: NDArray | None  # for training
    scored_weight: NDArray | None  # for the accuracies
    tried: list[losses.Loss]
    ks: NDArray
    Cs: NDArray
    options: dict[str, Any]  # of the solver
    scorer: Callable[..., float] | None  # besides the accuracies
    score_params: dict[str, Any]
    n_folds: int

    def begin(self, fit: Task, number: int) -> Task:
        """Begin the task of a fold."""
        phases = sum(1 if loss.convex else 2 for loss in self.tried)
        return fit.subtask(f"fold {number}/{self.n_folds}", phases * len(self.Cs))

    def fold(
        self, number: int, train: NDArray, test: NDArray, task: Task
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Return accuracies (C, loss, number of guesses), gaps and scores (C, loss) of a fold."""
        m = int(self.labels.max()) + 1
        pairwise = bool(self.options["kernel"])
        fit_on = rows_of(self.features, train, train, pairwise=pairwise)
        score_on = rows_of(self.features, test, train, pairwise=pairwise)
        present, fold_labels = np.unique(self.labels[train], return_inverse=True)
        weight = np.ones(len(test)) if self.scored_weight is None else self.scored_weight[test]
        trained_on: Any = None if self.scorer is None else self._model_of(train)
        shape = len(self.Cs), len(self.tried)
        accuracy, gap, score = np.empty((*shape, m)), np.empty(shape), np.full(shape, np.nan)
        for column, (loss, k) in enumerate(zip(self.tried, self.ks, strict=True)):
            place = f"fold {number}/{self.n_folds}  k = {k}"
            solutions = self._follow(fit_on, fold_labels, train, loss, column == 0, place, task)
            gap[:, column] = solutions.gaps
            # A class that the fold was not trained on comes last.
            scores = np.full((len(self.Cs), len(test), m), -np.inf)
            scores[..., present] = solutions.scores(score_on)
            for row in range(len(self.Cs)):
                accuracy[row, column] = topk_curve(
                    scores[row], self.labels[test], weight, np.arange(1, m + 1)
                )
                if self.scorer is not None:
                    model = copy.copy(trained_on).set_params(loss=loss, k=int(k))
                    model._adopt_part(solutions[row], present)
                    score[row, column] = self._score(model, train, test)
        task.end()
        return accuracy, gap, score

    def _follow(
        self,
        fit_on: Any,
        labels: NDArray,
        train: NDArray,
        loss: losses.Loss,
        first: bool,
        place: str,
        task: Task,
    ) -> Path:
        options = dict(self.options)
        if options["kernel"] and not first:
            options["kernel"] = "psd"  # the path before had the same matrix and has looked
        verbose = options.pop("verbose")
        told = task.watched or Progress(verbose, place).told
        # A loss that is not convex has two trainings for each C.
        Cs = np.repeat(self.Cs, 1 if loss.convex else 2)
        trainings = _Trainings(Cs, place, verbose, task)
        solutions = path(
            fit_on,
            labels,
            loss,
            Cs=self.Cs,
            sample_weight=None if self.weight is None else self.weight[train],
            callback=trainings if told else None,
            **options,
        )
        trainings.close()
        return solutions

    def _model_of(self, train: NDArray) -> Any:
        """Return a classifier of the examples of a fold that lacks a solution."""
        model = copy.copy(self.model)
        model._remember(rows_of(self.X, train, train, pairwise=model._is_precomputed()))
        return model

    def _score(self, model: Any, train: NDArray, test: NDArray) -> float:
        assert self.scorer is not None
        rows = rows_of(self.X, test, train, pairwise=model._is_precomputed())
        truth = model.classes_[self.labels[test]]
        params = _check_method_params(self.X, self.score_params, indices=test)
        try:
            value = self.scorer(model, rows, truth, **params)
        except ValueError as error:
            raise ValueError(
                f"scoring must suit the classes of every fold, got {self.scorer!r}: {error}"
            ) from error
        return check_scalar(value, "what scoring returns", signed=True)
