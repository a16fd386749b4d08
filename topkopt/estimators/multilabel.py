"""Several labels per example."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import KFold, check_cv
from sklearn.utils.metadata_routing import (
    UNUSED,
    MetadataRouter,
    MethodMapping,
)
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from topkopt import losses
from topkopt._validation import as_weight, check_scalar
from topkopt.estimators.base import CertifiedClassifier, all_or_nothing
from topkopt.estimators.blocks import by_blocks, refuse_stream
from topkopt.estimators.callbacks import Task, fit_task, with_callbacks
from topkopt.estimators.checks import check_container, check_loss, check_targets, encode_classes
from topkopt.estimators.search import (
    check_fold_weight,
    folds_of,
    route,
    rows_of,
)
from topkopt.metrics import tune_threshold
from topkopt.metrics.threshold import check_metric

__all__ = ["MultilabelClassifier"]


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
    tol, max_epochs, method, warm_start, keep_dual, random_state, verbose, n_threads
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
        The dual variables: ``coef_ = dual_coef_ @ X`` with ``method="sdca"``, and otherwise up to
        the gap. Only with a kernel, or if kept.
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
        method: str = "auto",
        warm_start: bool = False,
        keep_dual: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        n_threads: int | None = None,
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
        self.method = method
        self.warm_start = warm_start
        self.keep_dual = keep_dual
        self.random_state = random_state
        self.verbose = verbose
        self.n_threads = n_threads

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
        check_loss(self.loss, "multilabel")
        self._check_threshold()
        check_targets(y)
        data, targets = self._validate(X, y, multi_output=True)
        labels = self._encode(targets)
        weight = self._example_weights(sample_weight, labels)
        self._prepare(data, weight)
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
        loss = losses.from_flat(self.loss, smoothing=self.smoothing)
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
        check_metric(self.metric)
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
        held_out = np.zeros(len(Y), dtype=bool)  # A splitter need not test every example.
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
        refuse_stream(X, "threshold='cv'")
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

    @by_blocks
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

    @by_blocks
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
