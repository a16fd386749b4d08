"""One class per example, k guesses: C and k chosen by cross-validation."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import (
    UNUSED,
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from topkopt import losses
from topkopt._validation import as_array, as_weight
from topkopt.estimators.base import all_or_nothing
from topkopt.estimators.blocks import refuse_stream
from topkopt.estimators.callbacks import fit_task, with_callbacks
from topkopt.estimators.search import (
    Progress,
    Search,
    check_fold_weight,
    folds_of,
    route,
    weigh,
)
from topkopt.estimators.topk import TopKClassifier
from topkopt.solvers.path import check_Cs

__all__ = ["TopKClassifierCV"]


class TopKClassifierCV(TopKClassifier):
    """A `TopKClassifier` that chooses C and k by cross-validation.

    Each fold follows one path along C for each k, starting every training at the solution of the
    last; every model is scored for all numbers of guesses at once. A `fit` that fails or is
    interrupted (Ctrl-C) leaves the classifier as it was.

    Parameters
    ----------
    Cs : int or array_like, default 10
        The values of C, or how many between 1e-4 and 1e4.
    ks : array_like of int, default (1,)
        The values of the parameter k of the loss; one for a loss that has none, or its own.
    loss : str or topkopt.losses.Loss, default "topk_hinge"
        See `TopKClassifier`.
    scoring : str or callable, default "top1"
        What to maximise: "top1", "top2", ..., the accuracy with that many guesses, up to the number
        of classes; or the name of a scorer of scikit-learn, or a scorer, a function of a
        classifier, X and y.
    cv : int, splitter or iterable, default 5
        The folds, see ``sklearn.model_selection.check_cv``; an int means stratified ones.
    n_jobs : int, optional
        How many folds to run at the same time (joblib).
    smoothing, weights, kernel, gamma, degree, coef0, fit_intercept, intercept_scaling
        See `TopKClassifier`.
    class_weight, tol, max_epochs, method, keep_dual, random_state
        See `TopKClassifier`.
    verbose : int, default 0
        1 shows a line of progress on a terminal, with the fold, k and C; 2 or more prints such a
        line per epoch anywhere.
    n_threads : int, optional
        How many threads each training uses; by default as many as BLAS would, which in processes
        of joblib is their share of the cores.

    Attributes
    ----------
    C_ : float
        The best C; of equally good ones the smallest.
    k_ : int
        The best k; of equally good ones the smallest.
    best_score_ : float
        Their score, averaged over the folds.
    Cs_, ks_ : ndarray
        What was tried, increasing.
    scores_ : ndarray of shape (n_Cs, n_ks)
        What `scoring` asks for, averaged over the folds.
    cv_score_ : ndarray of shape (n_folds, n_Cs, n_ks)
        The same of every fold.
    cv_accuracy_ : ndarray of shape (n_folds, n_Cs, n_ks, m)
        The top-1, top-2, ..., top-m accuracies of all models, whatever `scoring` is. Equal scores
        get their expected credit, see `topkopt.metrics.topk_accuracy`; so do the classes that a
        fold was not trained on, which come last together.
    cv_gap_ : ndarray of shape (n_folds, n_Cs, n_ks)
        Their certificates.
    classes_, coef_, intercept_, dual_coef_, X_fit_, n_iter_, duality_gap_, history_, solution_
        Of the classifier trained on all examples with the best C and k, see `TopKClassifier`.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of str
        Their names, if X had any.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from topkopt import TopKClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = TopKClassifierCV([0.01, 1.0], [1, 2], loss="topk_entropy", scoring="top2")
    >>> search.fit(X, y).scores_.shape
    (2, 2)
    >>> search.predict_topk(X[:1], 2)
    array([[0, 1]])
    """

    def __init__(
        self,
        Cs: int | ArrayLike = 10,
        ks: Sequence[int] = (1,),
        *,
        loss: str | losses.Loss = "topk_hinge",
        scoring: str | Callable[..., float] = "top1",
        cv: Any = 5,
        n_jobs: int | None = None,
        smoothing: float = 0.0,
        weights: ArrayLike | str | None = None,
        kernel: str | Callable[..., NDArray] = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: dict | str | None = None,
        tol: float = 1e-3,
        max_epochs: int = 1000,
        method: str = "auto",
        keep_dual: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        n_threads: int | None = None,
    ):
        self.Cs = Cs
        self.ks = ks
        self.loss = loss
        self.scoring = scoring
        self.cv = cv
        self.n_jobs = n_jobs
        self.smoothing = smoothing
        self.weights = weights
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.tol = tol
        self.max_epochs = max_epochs
        self.method = method
        self.keep_dual = keep_dual
        self.random_state = random_state
        self.verbose = verbose
        self.n_threads = n_threads

    warm_start = False  # the paths start at each other's solutions, the final training anew

    __metadata_request__fit = {"groups": UNUSED}  # noqa: RUF012  it is for the splitter

    @all_or_nothing
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **params: Any,
    ) -> TopKClassifierCV:
        """Choose C and k, and train with them on all examples.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel their Gram matrix. float32 is kept.
        y : array_like of shape (n,)
            The classes: numbers or strings.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights, for training, for the accuracies, and for a scorer that takes
            them.
        groups : array_like of shape (n,), optional
            For `cv`, if it keeps the examples of a group together.
        **params
            With ``sklearn.set_config(enable_metadata_routing=True)``, what `cv` and a scorer ask
            for, `sample_weight` of the scorer included.

        Returns
        -------
        TopKClassifierCV
            Itself.
        """
        refuse_stream(X, "cross-validation")
        data, labels, weight = self._check_training(X, y, sample_weight)
        self.Cs_ = check_Cs(self.Cs)
        tried = self._check_tried()
        scorer = self._scorer()
        split_params, score_params = route(self, scorer, sample_weight, groups, params)
        folds = folds_of(
            lambda: check_cv(self.cv, labels, classifier=True), self.cv, data, labels, split_params
        )
        scored_weight = None if sample_weight is None else as_weight(sample_weight, len(labels))
        for train, test in folds:
            check_fold_weight(weight, train, "train each fold on")
            check_fold_weight(scored_weight, test, "score each fold on")
        options = self._solver_options()
        options["random_state"] = options["random_state"].randint(np.iinfo(np.int32).max)
        search = Search(
            model=self._without_solution(),
            X=None if scorer is None else data,
            features=self._features(data, self._constant()),
            labels=labels,
            weight=weight,
            scored_weight=scored_weight,
            tried=tried,
            ks=self.ks_,
            Cs=self.Cs_,
            options=options,
            scorer=scorer,
            score_params=score_params,
            n_folds=len(folds),
        )
        task = fit_task(self, len(folds) + 1, X, y, sample_weight)
        results = Parallel(n_jobs=self._n_jobs())(
            delayed(search.fold)(number, train, test, search.begin(task, number))
            for number, (train, test) in enumerate(folds, start=1)
        )
        self.cv_accuracy_, self.cv_gap_, scores = map(np.stack, zip(*results, strict=True))
        self.cv_score_ = scores if scorer else self.cv_accuracy_[..., self._guesses() - 1]
        self.scores_ = self.cv_score_.mean(axis=0)
        best_C, best_k = np.unravel_index(np.argmax(self.scores_), self.scores_.shape)
        self.C_, self.k_ = float(self.Cs_[best_C]), int(self.ks_[best_k])
        self.best_score_ = float(self.scores_[best_C, best_k])
        place = f"all examples  k = {self.k_}  C = {self.C_:g}"
        refit = task.subtask("all examples", self.max_epochs)
        progress = Progress(options["verbose"], place)
        self._train(data, labels, tried[best_k], self.C_, weight, refit, progress)
        refit.end(dict)
        task.end(dict)
        return self

    def _without_solution(self) -> TopKClassifier:
        """Return a classifier like those that are tried, to be given a solution."""
        kernel = ("kernel", "gamma", "degree", "coef0")
        names = (*kernel, "fit_intercept", "intercept_scaling", "n_threads")
        model = TopKClassifier(**{name: getattr(self, name) for name in names})
        model.classes_ = self.classes_
        if not self._is_linear():
            model.gamma_ = self.gamma_
        return model

    def get_metadata_routing(self) -> Any:
        """Return who asks for what of the parameters of `fit` and `score`.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
            The splitter and the scorer, if there is one, and this classifier itself.
        """
        fit = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(splitter=self.cv, method_mapping=fit)
        scorer = None if self._guesses() else self._scorer()
        if scorer is None:
            return router
        both = MethodMapping().add(caller="fit", callee="score").add(caller="score", callee="score")
        return router.add(scorer=scorer, method_mapping=both)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return what `scoring` says of examples.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.
        y : array_like of shape (n,)
            Their classes.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights of the examples, for an accuracy or a scorer that takes them.

        Returns
        -------
        float
            For "top1", "top2", ... the accuracy with that many guesses.
        """
        check_is_fitted(self)
        scorer = self._scorer()
        if scorer is None:
            return self._topk_score(X, y, self._guesses(), sample_weight)
        if _routing_enabled():
            given = {} if sample_weight is None else {"sample_weight": sample_weight}
            return scorer(self, X, y, **process_routing(self, "score", **given)["scorer"]["score"])
        return scorer(self, X, y, **weigh(scorer, sample_weight))

    def _check_tried(self) -> list[losses.Loss]:
        """Return the losses to try, and set the k of each."""
        ks = self._check_ks()
        tried = [self._loss(k) for k in ks]
        if len({repr(loss) for loss in tried}) < len(tried):
            raise ValueError(
                f"ks must hold one value with loss {self.loss!r}, which takes no k from it, got "
                f"{self.ks!r}."
            )
        self.ks_ = np.array([loss.places or k for loss, k in zip(tried, ks, strict=True)])
        return tried

    def _check_ks(self) -> NDArray:
        ks = as_array(self.ks, "ks")
        if ks.ndim != 1 or not ks.size or ks.dtype.kind not in "iu":
            raise ValueError(f"ks must be a non-empty list of integers, got {self.ks!r}.")
        return np.unique(ks)

    def _n_jobs(self) -> int | None:
        try:
            return None if self.n_jobs is None else operator.index(self.n_jobs)
        except TypeError:
            raise TypeError(f"n_jobs must be None or an integer, got {self.n_jobs!r}.") from None

    def _guesses(self) -> int:
        """Return N of the scoring "topN", 0 of any other."""
        name = self.scoring if isinstance(self.scoring, str) else ""
        top = re.fullmatch("top([1-9][0-9]*)", name)
        return 0 if top is None else int(top[1])

    def _scorer(self) -> Callable[..., float] | None:
        """Return the scorer, None for an accuracy."""
        m = len(self.classes_) if hasattr(self, "classes_") else np.iinfo(np.intp).max
        if 0 < self._guesses() <= m:
            return None
        why = ""
        if not self._guesses() and (isinstance(self.scoring, str) or callable(self.scoring)):
            try:
                return check_scoring(self, scoring=self.scoring)
            except ValueError as error:
                why = f" {error}"
        raise ValueError(
            f"scoring must be one of top1, ..., top{m} for {m} classes, the name of a scorer of "
            f"scikit-learn or a function of a classifier, X and y, got {self.scoring!r}.{why}"
        )

    def _default_k(self) -> int:
        check_is_fitted(self)
        return self.k_
