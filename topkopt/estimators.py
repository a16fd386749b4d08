"""Classifiers for scikit-learn: pipelines, grid searches, sparse data, kernels, certificates."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike, NDArray

from topkopt import losses
from topkopt._extras import require
from topkopt._scores import best_classes
from topkopt._validation import as_array, as_weight, check_k, check_scalar
from topkopt.metrics import _check_metric, tune_threshold
from topkopt.solvers.path import check_Cs, flat_loss

require("sklearn")
from sklearn.metrics import check_scoring  # noqa: E402
from sklearn.model_selection import KFold, check_cv  # noqa: E402
from sklearn.utils.metadata_routing import (  # noqa: E402
    UNUSED,
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.multiclass import type_of_target  # noqa: E402
from sklearn.utils.parallel import Parallel, delayed  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

from topkopt._callbacks import Task, fit_task, with_callbacks  # noqa: E402
from topkopt._classifier import (  # noqa: E402
    CertifiedClassifier,
    all_or_nothing,
    check_container,
    check_targets,
    encode_classes,
)
from topkopt._search import (  # noqa: E402
    Progress,
    Search,
    check_fold_weight,
    folds_of,
    route,
    rows_of,
    weigh,
)

__all__ = ["MultilabelClassifier", "TopKClassifier", "TopKClassifierCV"]

_MULTICLASS = tuple(name for name in losses.names() if not name.startswith("multilabel"))
_MULTILABEL = ("multilabel_hinge", "multilabel_softmax", "ova_hinge", "ova_logistic")


def _check_loss(loss: Any, known: Sequence[str]) -> None:
    name = loss.name if isinstance(loss, losses.Loss) else loss
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"loss must be one of {', '.join(known)}, or an object of such a loss, got {loss!r}."
        )


def _places(loss: losses.Loss) -> int | None:
    """Return how many classes a loss allows to name, if it says so."""
    if "topk" not in loss.name:
        return None
    weights = getattr(loss, "weights", None)
    return loss.k if weights is None else len(weights)  # type: ignore[attr-defined]


def _is_probabilistic(self: Any) -> bool:
    """Return whether the scores have a reading as probabilities; an AttributeError otherwise."""
    name = self.loss.name if isinstance(self.loss, losses.Loss) else self.loss
    if isinstance(name, str) and (name.endswith(("softmax", "entropy")) or name == "ova_logistic"):
        return True
    raise AttributeError(
        f"predict_proba needs loss='softmax', 'topk_entropy', 'truncated_topk_entropy' or "
        f"'ova_logistic', got {self.loss!r}; wrap the classifier in "
        "sklearn.calibration.CalibratedClassifierCV."
    )


class TopKClassifier(CertifiedClassifier):
    """Linear or kernel classifier that may name k classes, trained to a certified optimum.

    Minimises ``1/2 |W|^2 + C * sum_i w_i loss(x_i W, y_i)``, which is scikit-learn's scale, until
    the relative duality gap is at most `tol`. A `fit` that fails or is interrupted (Ctrl-C) leaves
    the classifier as it was.

    Parameters
    ----------
    loss : str or topkopt.losses.Loss, default "topk_hinge"
        "hinge", "topk_hinge", "topk_hinge_beta", "topk_hinge_label", "weighted_topk_hinge",
        "weighted_topk_hinge_label", "softmax", "topk_entropy", "truncated_topk_entropy",
        "ova_hinge" or "ova_logistic"; or a loss object, for the rarer parameters such as
        ``WeightedTopKHinge("exp", 5, smoothing=1.0, envelope="all")``. An object brings its own k,
        smoothing and weights.
    k : int, default 1
        For top-k losses: how many guesses are allowed, less than the number of classes. Others
        ignore it.
    C : float, default 1.0
        Weight of the losses against the penalty; small values regularise strongly.
    smoothing : float, default 0.0
        For hinge losses: above 0 they become differentiable, and training faster.
    weights : array_like or {"flat", "linear", "exp"}, optional
        For "weighted_topk_hinge" and "weighted_topk_hinge_label", and for no others:
        non-increasing weights, or their profile over k places.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default "linear"
        The kernel; a callable gets two matrices of examples and returns the Gram matrix, which
        must be positive semi-definite.
    gamma : {"scale", "auto"} or float, default "scale"
        For "rbf", "poly" and "sigmoid"; "scale" is ``1 / (n_features * X.var())``, "auto"
        ``1 / n_features``.
    degree : int, default 3
        For "poly".
    coef0 : float, default 1.0
        For "poly" and "sigmoid".
    fit_intercept : bool, default True
        Whether the scores have a constant term. It is one more feature, of constant value
        `intercept_scaling`, and so it is penalised like the others. A dense X is copied to append
        it; False trains on X where it is.
    intercept_scaling : float, default 1.0
        The larger, the less the intercept is penalised (and the slower the training).
    class_weight : dict or "balanced", optional
        Weights of the classes, 1 for those not named, multiplied with `sample_weight`;
        "balanced" is ``n / (m * count)``, counting `sample_weight`.
    tol : float, default 1e-3
        The relative duality gap to reach.
    max_epochs : int, default 1000
        The largest number of passes over the data.
    warm_start : bool, default False
        Whether `fit` starts at the last solution, if that too was trained with ``warm_start=True``,
        for the same loss, labels, features and kernel; C and the weights may be others.
    keep_dual : bool, default False
        Whether a linear classifier keeps its dual variables, n * m numbers: as ``dual_coef_`` and
        in ``solution_``. A kernel needs them, and `warm_start`; these keep them anyway.
    random_state : int, RandomState or None, default None
        Draws the order of the examples.
    verbose : int, default 0
        1 shows a line of progress on a terminal, 2 or more prints a line per epoch anywhere.

    Attributes
    ----------
    classes_ : ndarray of shape (m,)
        The classes, sorted.
    coef_ : ndarray of shape (m, n_features), or (1, n_features) for two classes
        The weights of a linear classifier; for two classes, those of the second minus those of the
        first, as in scikit-learn. Absent with a kernel.
    intercept_ : ndarray of shape (m,) or (1,)
        The constant terms.
    dual_coef_ : ndarray of shape (m, n) or (1, n)
        The dual variables: ``coef_ = dual_coef_ @ X``. Only with a kernel, or if kept.
    X_fit_ : ndarray or sparse matrix of shape (n, n_features)
        A copy of the training examples. Only with a kernel that is not precomputed.
    n_iter_ : int
        Passes over the data.
    duality_gap_ : float
        The certificate: the objective is at most this fraction above the optimum. NaN for
        "truncated_topk_entropy", which is not convex.
    history_ : dict of ndarray
        "epoch", "seconds", "primal", "dual" and "gap" of every certificate. The objectives "primal"
        and "dual" are the papers': what is minimised, divided by ``C * n``.
    solution_ : Solution
        All that `topkopt.solve` returned, but the dual variables of a linear classifier unless
        they are kept. ``solution_.objective`` is what is minimised, in the scale above.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of str
        Their names, if X had any.

    See Also
    --------
    TopKClassifierCV : chooses C and k by cross-validation.
    MultilabelClassifier : several labels per example.

    Notes
    -----
    With two classes, ``loss="softmax"`` and C is ``LogisticRegression(C=2 * C)``: two weight
    vectors share the penalty that one has there.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from topkopt import TopKClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = TopKClassifier("softmax", random_state=0).fit(X, y)
    >>> classifier.predict_topk(X[:1], 2)
    array([[0, 1]])
    >>> classifier.duality_gap_ <= 1e-3
    True
    """

    def __init__(
        self,
        loss: str | losses.Loss = "topk_hinge",
        *,
        k: int = 1,
        C: float = 1.0,
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
        warm_start: bool = False,
        keep_dual: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.loss = loss
        self.k = k
        self.C = C
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
        self.warm_start = warm_start
        self.keep_dual = keep_dual
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TopKClassifier:
        """Train the classifier.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel their Gram matrix. float32 is kept.
        y : array_like of shape (n,)
            The classes: numbers or strings.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights: 2 counts an example twice, 0 leaves it out.

        Returns
        -------
        TopKClassifier
            Itself.
        """
        data, labels, weight = self._check_training(X, y, sample_weight)
        check_k(self.k, np.iinfo(np.intp).max)  # also where only predict_topk uses it
        loss = self._loss(self.k)
        task = fit_task(self, self.max_epochs, X, y, sample_weight)
        self._train(data, labels, loss, self.C, weight, task)
        task.end(dict)
        return self

    def _check_training(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray, NDArray | None]:
        check_targets(y)
        X, y = self._validate(X, y)
        self.classes_, labels = encode_classes(y)
        weight = self._example_weights(sample_weight, labels)
        self._prepare(X)
        return X, labels, weight

    def _loss(self, k: int) -> losses.Loss:
        _check_loss(self.loss, _MULTICLASS)
        loss = flat_loss(self.loss, k=k, smoothing=self.smoothing, weights=self.weights)
        m = len(self.classes_)
        places = getattr(loss, "k", k if isinstance(self.weights, str) else None)
        if m >= 2 and places is not None and places >= m:
            raise ValueError(
                f"k must be less than the number of classes ({m}), got {places}: naming all of "
                f"them is never wrong; choose k from 1 to {m - 1}."
            )
        return loss

    def predict(self, X: Any) -> NDArray:
        """Return the class of the highest score.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        best = np.argmax(self._class_scores(X), axis=1)
        return self.classes_[best]

    def predict_topk(self, X: Any, k: int | None = None) -> NDArray:
        """Return the k classes of the highest scores, the best one first.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.
        k : int, optional
            How many, up to the number of classes; by default the k trained for, which is the
            number of weights for a loss that has them.

        Returns
        -------
        ndarray of shape (n, k)
            Classes of equal score are in the order of ``classes_``.

        See Also
        --------
        topkopt.predict_topk : the same for pipelines, searches and other classifiers.
        """
        check_is_fitted(self)
        k = check_k(
            self._default_k() if k is None else k, len(self.classes_), "the number of classes"
        )
        return best_classes(self._class_scores(X), self.classes_, k)

    def _default_k(self) -> int:
        """Return the k trained for; of weights, how many there are."""
        check_is_fitted(self)
        return _places(self.solution_.loss) or self.k

    @available_if(_is_probabilistic)
    def predict_proba(self, X: Any) -> NDArray:
        """Return probabilities of the classes, for entropy losses.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.

        Returns
        -------
        ndarray of shape (n, m)
            For "softmax", "topk_entropy" and "truncated_topk_entropy" the softmax of the scores;
            for "ova_logistic" the logistic function of the scores, divided by its sum.

        Notes
        -----
        "softmax" maximises the likelihood of these probabilities, and "ova_logistic" that of each
        class against the others. The top-k entropies do not for ``k > 1``: they rank the classes
        well, but the probabilities of the first k are not to be trusted. For those, and for hinge
        losses, which have no `predict_proba`, use ``sklearn.calibration.CalibratedClassifierCV``.
        """
        scores = self._class_scores(X)
        name = self.loss.name if isinstance(self.loss, losses.Loss) else self.loss
        if name != "ova_logistic":
            return scipy.special.softmax(scores, axis=1)
        # exp(log sigma - max) does not underflow to 0/0 where every class is improbable.
        return scipy.special.softmax(scipy.special.log_expit(scores), axis=1)

    @available_if(_is_probabilistic)
    def predict_log_proba(self, X: Any) -> NDArray:
        """Return the logarithm of `predict_proba`.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.

        Returns
        -------
        ndarray of shape (n, m)
        """
        return np.log(self.predict_proba(X))


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
    class_weight, tol, max_epochs, keep_dual, random_state
        See `TopKClassifier`.
    verbose : int, default 0
        1 shows a line of progress on a terminal, with the fold, k and C; 2 or more prints such a
        line per epoch anywhere.

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
        keep_dual: bool = False,
        random_state: Any = None,
        verbose: int = 0,
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
        self.keep_dual = keep_dual
        self.random_state = random_state
        self.verbose = verbose

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
        names = ("kernel", "gamma", "degree", "coef0", "fit_intercept", "intercept_scaling")
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
        self.ks_ = np.array([_places(loss) or k for loss, k in zip(tried, ks, strict=True)])
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


class MultilabelClassifier(CertifiedClassifier):
    """Linear or kernel classifier of examples with several labels, trained to a certified optimum.

    The labels are ranked by their scores; those above a threshold are predicted. Minimises
    ``1/2 |W|^2 + C * sum_i w_i loss(x_i W, y_i)``, which is scikit-learn's scale. A `fit` that
    fails or is interrupted (Ctrl-C) leaves the classifier as it was.

    Parameters
    ----------
    loss : str or topkopt.losses.Loss, default "multilabel_hinge"
        "multilabel_hinge" and "multilabel_softmax" rank labels; "ova_hinge" and "ova_logistic"
        separate each label from its absence (binary relevance).
    C : float, default 1.0
        Weight of the losses against the penalty; small values regularise strongly.
    smoothing : float, default 0.0
        For hinge losses: above 0 they become differentiable, and training faster.
    kernel, gamma, degree, coef0
        See `TopKClassifier`.
    fit_intercept, intercept_scaling
        See `TopKClassifier`; the intercept is penalised.
    class_weight : dict or "balanced", optional
        Weights of the labels, which are the entries of ``classes_``; 1 for those not named. An
        example counts with the mean weight of its labels (1 if it has none), multiplied with
        `sample_weight`. "balanced" is ``n / (m * count)`` for a label of `count` examples, counting
        `sample_weight`. They weigh the training, not the `metric` that chooses the threshold.
    threshold : "cv" or float, default "cv"
        Labels that score more are predicted. "cv" chooses among the 71 values of
        `topkopt.metrics.THRESHOLDS` by the scores of held-out examples.
    metric : str or callable, default "f1_micro"
        What the threshold maximises, see `topkopt.metrics.tune_threshold`.
    cv : int, splitter or iterable, default 5
        The folds of the threshold; an int means that many, shuffled by `random_state`.
    tol, max_epochs, warm_start, keep_dual, random_state, verbose
        See `TopKClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (m,)
        The labels: 0, 1, ..., m - 1 for an indicator matrix.
    multilabel_ : bool
        Whether y was an indicator matrix.
    threshold_ : float
        The threshold in use; absent if y was not an indicator matrix.
    coef_ : ndarray of shape (m, n_features)
        The weights of a linear classifier. Absent with a kernel.
    intercept_ : ndarray of shape (m,)
        The constant terms.
    dual_coef_ : ndarray of shape (m, n)
        The dual variables: ``coef_ = dual_coef_ @ X``. Only with a kernel, or if kept.
    X_fit_, n_iter_, duality_gap_, history_, solution_
        See `TopKClassifier`; the objectives of the history are what is minimised, divided by
        ``C * n``.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of str
        Their names, if X had any.

    Notes
    -----
    y may also name one class per example. Then there is nothing to cut, the highest score is
    predicted, and "multilabel_hinge" and "multilabel_softmax" are the multiclass hinge and softmax.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from topkopt import MultilabelClassifier
    >>> X, Y = make_multilabel_classification(n_samples=60, random_state=0)
    >>> classifier = MultilabelClassifier(smoothing=1.0, C=0.01, random_state=0).fit(X, Y)
    >>> classifier.predict(X).shape
    (60, 5)
    """

    def __init__(
        self,
        loss: str | losses.Loss = "multilabel_hinge",
        *,
        C: float = 1.0,
        smoothing: float = 0.0,
        kernel: str | Callable[..., NDArray] = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: dict | str | None = None,
        threshold: str | float = "cv",
        metric: str | Callable[[NDArray, NDArray], float] = "f1_micro",
        cv: Any = 5,
        tol: float = 1e-3,
        max_epochs: int = 1000,
        warm_start: bool = False,
        keep_dual: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.loss = loss
        self.C = C
        self.smoothing = smoothing
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.threshold = threshold
        self.metric = metric
        self.cv = cv
        self.tol = tol
        self.max_epochs = max_epochs
        self.warm_start = warm_start
        self.keep_dual = keep_dual
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags

    __metadata_request__fit = {"groups": UNUSED}  # noqa: RUF012  it is for the splitter

    @all_or_nothing
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **params: Any,
    ) -> MultilabelClassifier:
        """Train the classifier and choose its threshold.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel their Gram matrix. float32 is kept.
        y : array_like or sparse matrix of shape (n, m), or array_like of shape (n,)
            The labels as an indicator matrix, or one class per example.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights: 2 counts an example twice, 0 leaves it out.
        groups : array_like of shape (n,), optional
            For `cv`, if it keeps the examples of a group together.
        **params
            With ``sklearn.set_config(enable_metadata_routing=True)``, what else `cv` asks for.

        Returns
        -------
        MultilabelClassifier
            Itself.
        """
        _check_loss(self.loss, _MULTILABEL)
        self._check_threshold()
        check_targets(y)
        data, targets = self._validate(X, y, multi_output=True)
        labels = self._encode(targets)
        weight = self._example_weights(sample_weight, labels)
        self._prepare(data)
        split_params, _ = route(self, None, sample_weight, groups, params)
        folds = self._folds(data, labels, split_params)
        n_subtasks = len(folds) + 1 if folds else self.max_epochs
        task = training = fit_task(self, n_subtasks, X, y, sample_weight)
        if folds:
            scored_weight = None if sample_weight is None else as_weight(sample_weight, len(labels))
            self.threshold_ = self._choose_threshold(
                data, labels, weight, scored_weight, folds, task
            )
            training = task.subtask("all examples", self.max_epochs)
        elif self.multilabel_:
            self.threshold_ = float(self.threshold)
        loss = flat_loss(self.loss, smoothing=self.smoothing)
        self._train(data, labels, loss, self.C, weight, training)
        if training is not task:
            training.end(dict)
        task.end(dict)
        return self

    def get_metadata_routing(self) -> Any:
        """Return who asks for what of the parameters of `fit`.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
            The splitter, and this classifier itself.
        """
        fit = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(splitter=self.cv, method_mapping=fit)

    def _check_threshold(self) -> None:
        _check_metric(self.metric)
        if isinstance(self.threshold, str) and self.threshold == "cv":
            return
        try:
            check_scalar(self.threshold, "threshold", signed=True)
        except (TypeError, ValueError):
            raise ValueError(
                f"threshold must be 'cv' or a finite number, got {self.threshold!r}."
            ) from None

    def _encode(self, y: Any) -> NDArray:
        """Return an indicator matrix, or the numbers of the classes."""
        labels = y.toarray() if scipy.sparse.issparse(y) else y
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels.ravel()
        self.multilabel_ = labels.ndim == 2
        if not self.multilabel_:
            self.classes_, encoded = encode_classes(labels)
            return encoded
        if type_of_target(labels) != "multilabel-indicator" or not np.isin(labels, (0, 1)).all():
            raise ValueError(
                "y must be an indicator matrix of 0 and 1, or name one class per example, got "
                f"{type_of_target(labels)} targets; use sklearn.preprocessing.MultiLabelBinarizer."
            )
        self.classes_ = np.arange(labels.shape[1])
        return labels

    def _is_binary(self) -> bool:
        return not self.multilabel_ and len(self.classes_) == 2

    def _choose_threshold(
        self,
        X: Any,
        Y: NDArray,
        weight: NDArray | None,
        scored_weight: NDArray | None,
        folds: list[tuple],
        task: Task,
    ) -> float:
        held_out = np.zeros(len(Y), dtype=bool)  # a splitter need not test every example
        for train, test in folds:
            check_fold_weight(weight, train, "train each fold on")
            held_out[test] = True
        check_fold_weight(scored_weight, held_out, "hold out")
        scores = np.empty(Y.shape)
        # The weights hold the class weights already.
        fixed = {"threshold": 0.0, "class_weight": None, "warm_start": False, "verbose": 0}
        model = type(self)(**{**self.get_params(deep=False), **fixed})
        pairwise = self._is_precomputed()
        for number, (train, test) in enumerate(folds, start=1):
            task.subfit(
                f"fold {number}/{len(folds)}",
                model,
                rows_of(X, train, train, pairwise=pairwise),
                Y[train],
                None if weight is None else weight[train],
            )
            scores[test] = model.decision_function(rows_of(X, test, train, pairwise=pairwise))
        weight = None if scored_weight is None else scored_weight[held_out]
        return tune_threshold(Y[held_out], scores[held_out], self.metric, sample_weight=weight)[0]

    def _folds(self, X: Any, Y: NDArray, split_params: dict) -> list[tuple]:
        """Return the folds of the threshold, none if they are not needed."""
        if not (self.multilabel_ and self.threshold == "cv"):
            return []
        seed = self._random_state().randint(np.iinfo(np.int32).max)

        def splitter() -> Any:
            if isinstance(self.cv, Integral):
                return KFold(self.cv, shuffle=True, random_state=seed)
            return check_cv(self.cv)

        return folds_of(splitter, self.cv, X, Y, split_params)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return how often all labels of an example are predicted, and no others.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.
        y : array_like or sparse matrix of shape (n, m), or array_like of shape (n,)
            Their labels as in training.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights of the examples.

        Returns
        -------
        float
            The accuracy of `predict`. With one class per example and several of the highest score,
            one of t that is right counts 1/t.
        """
        check_is_fitted(self)
        if not self.multilabel_:
            return self._topk_score(X, y, 1, sample_weight)
        check_container(y, "y")
        check_container(sample_weight, "sample_weight")
        return super(CertifiedClassifier, self).score(X, y, sample_weight)

    def decision_function(self, X: Any) -> NDArray:
        """Return by how much the scores of the labels exceed the threshold.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel, the kernel between them and the
            training examples.

        Returns
        -------
        ndarray of shape (n, m), or (n,) for two classes, one per example
            Positive labels are predicted. The scores themselves are this plus ``threshold_``.
        """
        scores = super().decision_function(X)
        return scores - scores.dtype.type(self.threshold_) if self.multilabel_ else scores

    def predict(self, X: Any) -> NDArray:
        """Return the labels that score more than the threshold.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows.

        Returns
        -------
        ndarray of shape (n, m), or (n,)
            An indicator matrix; one class per example if y was like that.
        """
        check_is_fitted(self)
        if self.multilabel_:
            return (self.decision_function(X) > 0).astype(int)
        return self.classes_[np.argmax(self._class_scores(X), axis=1)]
