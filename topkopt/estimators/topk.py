"""One class per example, k guesses: the classifier with given parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from topkopt import losses
from topkopt._scores import best_classes
from topkopt._validation import check_k
from topkopt.estimators.base import CertifiedClassifier, all_or_nothing
from topkopt.estimators.blocks import by_blocks
from topkopt.estimators.callbacks import fit_task, with_callbacks
from topkopt.estimators.checks import check_loss, check_targets, encode_classes
from topkopt.estimators.clusters import check_training, on_cluster

__all__ = ["TopKClassifier"]


def _is_probabilistic(self: Any) -> bool:
    """Return whether the scores have a reading as probabilities; an AttributeError otherwise."""
    declared = losses.declaration_of(self.loss)
    if declared is not None and declared.probabilities is not None:
        return True
    able = [name for name in losses.names("multiclass") if _makes_probabilities(name)]
    raise AttributeError(
        f"predict_proba needs a loss out of {', '.join(able)}, got {self.loss!r}; wrap the "
        "classifier in sklearn.calibration.CalibratedClassifierCV."
    )


def _makes_probabilities(name: str) -> bool:
    declared = losses.declaration_of(name)
    return declared is not None and declared.probabilities is not None


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
        For "rbf", "poly" and "sigmoid"; "scale" is ``1 / (n_features * X.var())``, to which rows
        count with their weights, "auto" ``1 / n_features``.
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
    method : str, default "auto"
        How to train, see `topkopt.solve`; "auto" chooses on the way.
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
    n_threads : int, optional
        How many threads train and predict, see `topkopt.solve`; by default as many as BLAS would
        use.

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
        The dual variables: ``coef_ = dual_coef_ @ X`` with ``method="sdca"``, and otherwise up to
        the gap. Only with a kernel, or if kept.
    X_fit_ : ndarray or sparse matrix of shape (n, n_features)
        A copy of the training examples. Only with a kernel that is not precomputed.
    n_iter_ : int
        Passes over the data.
    duality_gap_ : float
        The certificate: the objective is at most this fraction above the optimum. NaN for
        "truncated_topk_entropy", which is not convex.
    history_ : dict of ndarray
        "epoch", "seconds", "primal", "dual", "gap" and "method" of every certificate. The
        objectives "primal" and "dual" are the papers': what is minimised, divided by ``C * n``.
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
        method: str = "auto",
        warm_start: bool = False,
        keep_dual: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        n_threads: int | None = None,
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
        self.method = method
        self.warm_start = warm_start
        self.keep_dual = keep_dual
        self.random_state = random_state
        self.verbose = verbose
        self.n_threads = n_threads

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TopKClassifier:
        """Train the classifier.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel their Gram matrix. float32 is kept. What
            `topkopt.solve` reads in blocks is read so here, if the kernel is linear, and so is a
            memory-mapped file of 256 MB or more that needs a feature for the intercept. On a Dask
            array `topkopt.distributed.solve` trains, if there is a current client.
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
        if on_cluster(X):
            return check_training(self, X, y, sample_weight)
        check_targets(y)
        X, y = self._validate(X, y)
        self.classes_, labels = encode_classes(y)
        weight = self._example_weights(sample_weight, labels)
        self._prepare(X, weight)
        return X, labels, weight

    def _loss(self, k: int) -> losses.Loss:
        check_loss(self.loss, "multiclass")
        loss = losses.from_flat(self.loss, k=k, smoothing=self.smoothing, weights=self.weights)
        m = len(self.classes_)
        # Weights that are listed have their own check, which names them.
        listed = "weights" in loss.declaration.parameters and not isinstance(self.weights, str)
        places = None if listed else loss.places
        if m >= 2 and places is not None and places >= m:
            raise ValueError(
                f"k must be less than the number of classes ({m}), got {places}: naming all of "
                f"them is never wrong; choose k from 1 to {m - 1}."
            )
        return loss

    @by_blocks
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

    @by_blocks
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
        return self.solution_.loss.places or self.k

    @available_if(_is_probabilistic)
    @by_blocks
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
        declared = losses.declaration_of(self.loss)
        if declared is None or declared.probabilities == "softmax":
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
