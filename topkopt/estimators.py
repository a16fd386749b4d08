"""Classifiers for scikit-learn: pipelines, grid searches, sparse data, kernels, certificates."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike, NDArray

from topkopt import losses
from topkopt._extras import require
from topkopt._path import Path, check_Cs, flat_loss, path
from topkopt._validation import (
    as_array,
    as_floating,
    as_weight,
    check_flag,
    check_k,
    check_scalar,
    refuse_masked,
)
from topkopt.metrics import _check_metric, topk_accuracy_curve, tune_threshold
from topkopt.solvers import Solution, solve

require("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.metrics.pairwise import pairwise_kernels  # noqa: E402
from sklearn.model_selection import KFold, check_cv  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets, type_of_target  # noqa: E402
from sklearn.utils.parallel import Parallel, delayed  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

__all__ = ["MultilabelClassifier", "TopKClassifier", "TopKClassifierCV"]

_MULTICLASS = tuple(name for name in losses.names() if not name.startswith("multilabel"))
_MULTILABEL = ("multilabel_hinge", "multilabel_softmax", "ova_hinge", "ova_logistic")
_KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")

# How messages of scikit-learn begin that do not name a parameter, and what they are about.
_ABOUT = {
    "could not convert string": "X must hold numbers; encode categories first",
    "Complex data": "X and y must hold real numbers",
    "Found input variables": "y must have one entry per row of X",
}


def _check_loss(loss: Any, known: Sequence[str]) -> None:
    name = loss.name if isinstance(loss, losses.Loss) else loss
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"loss must be one of {', '.join(known)}, or an object of such a loss, got {loss!r}."
        )


def _check_shape_of_targets(y: Any) -> None:
    """Raise where scikit-learn would not say that it is y which has an unfit shape."""
    if y is None:
        return
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:
        raise ValueError(
            "y must hold one class per example, or be an indicator matrix, got lists of unequal "
            "lengths; use sklearn.preprocessing.MultiLabelBinarizer."
        ) from None
    if len(shape) not in (1, 2) or 0 in shape[1:]:
        raise ValueError(
            f"y must hold one class per example, or be an indicator matrix, got shape {shape}."
        )


def _encode_classes(y: NDArray) -> tuple[NDArray, NDArray]:
    try:
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold classes, either numbers or strings. {error}") from None
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least two classes, got one class ({classes.tolist()[0]!r}); add "
            "examples of others."
        )
    return classes, labels


def _own_k(loss: Any) -> int | None:
    """Return the k of a top-k loss that is given as an object."""
    named = isinstance(loss, losses.Loss) and "topk" in loss.name
    return getattr(loss, "k", None) if named else None


def _as_indices(part: ArrayLike) -> NDArray:
    part = np.asarray(part)
    return np.flatnonzero(part) if part.dtype == bool else part


def _check_fold_weight(weight: NDArray | None, train: NDArray) -> None:
    if weight is not None and not weight[train].any():
        raise ValueError(
            "cv must train each fold on an example of positive weight, got a fold with none; "
            "use fewer folds, or other sample_weight and class_weight."
        )


def _split(splitter: Callable[[], Any], cv: Any, X: Any, y: NDArray) -> list[tuple]:
    """Return the folds: one or more, of examples that exist."""
    try:
        folds = list(splitter().split(X, y))
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


class _CertifiedClassifier(ClassifierMixin, BaseEstimator):
    """Training, kernels, intercept and scores: what the classifiers share."""

    # What subclasses take in their constructors.
    loss: Any
    C: Any
    class_weight: Any
    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    fit_intercept: bool
    intercept_scaling: float
    tol: float
    max_epochs: int
    warm_start: bool
    random_state: Any
    verbose: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    # Data ------------------------------------------------------------------------------------

    def _validate(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        refuse_masked(X, "X")  # validate_data would drop the mask
        refuse_masked(y, "y")
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

    def _is_linear(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

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
        column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
        if scipy.sparse.issparse(X):
            return scipy.sparse.hstack([X, scipy.sparse.csr_array(column)], format="csr")
        return np.hstack([X, column])

    def _check_kernel(self, X: Any) -> None:
        named = isinstance(self.kernel, str) and self.kernel in _KERNELS
        if not (named or callable(self.kernel)):
            raise ValueError(
                f"kernel must be a function or one of {', '.join(_KERNELS)}, got {self.kernel!r}."
            )
        if not isinstance(self.gamma, str):
            check_scalar(self.gamma, "gamma")
        elif self.gamma not in ("scale", "auto"):
            raise ValueError(f"gamma must be scale, auto or a number, got {self.gamma!r}.")
        check_k(self.degree, np.iinfo(np.intp).max, name="degree")
        check_scalar(self.coef0, "coef0", signed=True)
        if self._is_precomputed() and X.shape[0] != X.shape[1]:
            raise ValueError(
                "X must be a square matrix, the kernel between all pairs of training examples, "
                f"when kernel='precomputed', got shape {X.shape}."
            )

    def _gamma(self, X: Any) -> float:
        if self.gamma == "scale":
            sparse = scipy.sparse.issparse(X)
            variance = X.multiply(X).mean() - X.mean() ** 2 if sparse else X.var()
            return float(1.0 / (X.shape[1] * variance)) if variance > 0 else 1.0
        return 1.0 / X.shape[1] if self.gamma == "auto" else float(self.gamma)

    def _gram(self, A: Any, B: Any) -> NDArray:
        if self._is_precomputed():
            return A
        if callable(self.kernel):
            K = as_floating(self.kernel(A, B), "what kernel returns")
            if K.shape != (A.shape[0], B.shape[0]):
                raise ValueError(
                    f"kernel must return an array of shape {(A.shape[0], B.shape[0])}, "
                    f"got {K.shape}."
                )
        else:
            K = pairwise_kernels(
                A,
                B,
                metric=self.kernel,
                filter_params=True,
                gamma=self.gamma_,
                degree=self.degree,
                coef0=self.coef0,
            )
        if not np.isfinite(K).all():
            raise ValueError(
                f"kernel must give finite numbers, got NaN or infinity from {self.kernel!r}; scale "
                "X or change the parameters of the kernel."
            )
        return K.astype(A.dtype, copy=False)

    # Training --------------------------------------------------------------------------------

    def _prepare(self, X: Any) -> None:
        """Keep of the training data what scores need later."""
        self._check_kernel(X)
        for name in ("coef_", "gamma_", "X_fit_"):  # of a fit with another kernel
            self.__dict__.pop(name, None)
        if self._is_linear():
            return
        self.gamma_ = self._gamma(X)
        if not self._is_precomputed():
            self.X_fit_ = X

    def _solver_options(self) -> dict[str, Any]:
        return {
            "kernel": not self._is_linear(),
            "tol": self.tol,
            "max_epochs": self.max_epochs,
            "random_state": self._random_state(),
            "verbose": self.verbose,
        }

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
        weight = weight * _class_weights(self.class_weight, self.classes_, labels, weight)
        if not weight.any():
            raise ValueError(
                "class_weight must leave some example a positive weight, got "
                f"{self.class_weight!r}."
            )
        return weight

    def _train(self, X: Any, labels: Any, loss: losses.Loss, C: float, weight: Any) -> None:
        """Solve and set the attributes of a fitted classifier."""
        constant = self._constant()
        self.solution_: Solution = solve(
            self._features(X, constant),
            labels,
            loss,
            C=C,
            sample_weight=weight,
            warm_start=self._previous(labels, loss),
            **self._solver_options(),
        )
        self._trained_labels = labels
        self._adopt(self.solution_, constant)

    def _previous(self, labels: Any, loss: losses.Loss) -> Solution | None:
        """Return the last solution if its dual variables are feasible for these labels."""
        last = getattr(self, "solution_", None)
        if not check_flag(self.warm_start, "warm_start") or last is None or last.loss != loss:
            return None
        before = self._trained_labels
        if type(before) is not type(labels) or before.shape != labels.shape:
            return None
        same = (before != labels).nnz == 0 if scipy.sparse.issparse(labels) else None
        return last if (np.array_equal(before, labels) if same is None else same) else None

    def _adopt(self, solution: Solution, constant: float) -> None:
        dual = self._two_classes(solution.dual.T)
        self.dual_coef_ = dual
        self.n_iter_ = solution.n_epochs
        self.duality_gap_ = solution.gap
        self.history_ = solution.history
        if solution.coef is None:
            self.intercept_ = dual.sum(axis=1) * dual.dtype.type(constant**2)
            return
        coef = self._two_classes(solution.coef.T)
        self.coef_ = coef[:, : self.n_features_in_]
        if constant:
            self.intercept_ = coef[:, -1] * coef.dtype.type(constant)
        else:
            self.intercept_ = np.zeros(len(coef), coef.dtype)

    def _two_classes(self, rows: NDArray) -> NDArray:
        """Return one row per class; of two classes the difference, as in scikit-learn."""
        return rows[1:] - rows[:1] if self._is_binary() else rows

    def _is_binary(self) -> bool:
        return len(self.classes_) == 2

    # Scores ----------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> NDArray:
        """Return the scores of the classes.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel, the kernel between them and the
            training examples.

        Returns
        -------
        ndarray of shape (n, m), or (n,) for two classes
            More is better; of two classes, positive means the second one.
        """
        needed = "dual_coef_" if self._is_precomputed() else "X_fit_"
        check_is_fitted(self, "coef_" if self._is_linear() else needed)
        X = self._validate(X, reset=False)
        if self._is_linear():
            scores = np.asarray(X @ self.coef_.T) + self.intercept_
        else:
            K = self._gram(X, None if self._is_precomputed() else self.X_fit_)
            scores = K @ self.dual_coef_.T + self.intercept_
        return scores[:, 0] if self._is_binary() else scores

    def _class_scores(self, X: Any) -> NDArray:
        """Return one column per class, also for two."""
        scores = self.decision_function(X)
        return np.stack([-scores, scores], axis=1) / 2 if scores.ndim == 1 else scores


def _class_weights(
    class_weight: Any, classes: NDArray, labels: NDArray, weight: NDArray
) -> NDArray:
    """Return the weight of each example's class, or the mean over its labels, 1 without any."""
    indicator = labels.ndim == 2
    if isinstance(class_weight, str) and class_weight == "balanced":
        count = weight @ labels if indicator else np.bincount(labels, weight, len(classes))
        # No example of positive weight has a class that is not counted.
        of_class = weight.sum() / (len(classes) * np.where(count > 0, count, np.inf))
    else:
        of_class = _listed_weights(class_weight, classes, every_key=indicator)
    if not indicator:
        return of_class[labels]
    size = labels.sum(axis=1)
    return np.where(size > 0, labels @ of_class / np.maximum(size, 1), 1.0)


def _listed_weights(class_weight: Any, classes: NDArray, *, every_key: bool) -> NDArray:
    """Return the weights of a dict, 1 for a class it does not name.

    A key that is no class is an error if `every_key`, or if a class is not named: then it may be
    misspelt. Otherwise the class may be missing in y only because y is part of the data.
    """
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}.")
    names = classes.tolist()
    known = set(names)
    unknown = [key for key in class_weight if key not in known]
    if unknown and (every_key or not class_weight.keys() >= known):
        shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
        raise ValueError(
            f"class_weight must name classes of y ({shown}), got {unknown[0]!r}; drop that key."
        )
    for key, value in class_weight.items():
        check_scalar(value, f"class_weight[{key!r}]")
    return np.array([class_weight.get(name, 1.0) for name in names], dtype=np.float64)


class TopKClassifier(_CertifiedClassifier):
    """Linear or kernel classifier that may name k classes, trained to a certified optimum.

    Minimises ``1/2 |W|^2 + C * sum_i w_i loss(x_i W, y_i)`` until the relative duality gap is at
    most `tol`.

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
        Whether `fit` starts at the last solution, if that was for the same labels and loss.
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
        The dual variables: ``coef_ = dual_coef_ @ X``.
    n_iter_ : int
        Passes over the data.
    duality_gap_ : float
        The certificate: the objective is at most this fraction above the optimum. NaN for
        "truncated_topk_entropy", which is not convex.
    history_ : dict of ndarray
        "epoch", "seconds", "primal", "dual" and "gap" of every certificate.
    solution_ : Solution
        All that `topkopt.solve` returned.
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
        self.random_state = random_state
        self.verbose = verbose

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
        X, labels, weight = self._check_training(X, y, sample_weight)
        check_k(self.k, np.iinfo(np.intp).max)  # also where only predict_topk uses it
        loss = self._loss(self.k)
        self._train(X, labels, loss, self.C, weight)
        return self

    def _check_training(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray, NDArray | None]:
        _check_shape_of_targets(y)
        X, y = self._validate(X, y)
        self.classes_, labels = _encode_classes(y)
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
            How many, up to the number of classes; by default the k trained for.

        Returns
        -------
        ndarray of shape (n, k)
            Classes of equal score are in the order of ``classes_``.
        """
        check_is_fitted(self)
        wanted = self._default_k() if k is None else k
        k = check_k(wanted, len(self.classes_), "the number of classes")
        scores = self._class_scores(X)
        return self.classes_[np.argsort(-scores, axis=1, kind="stable")[:, :k]]

    def _default_k(self) -> int:
        return _own_k(self.loss) or self.k

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
    last; every model is scored for all numbers of guesses at once.

    Parameters
    ----------
    Cs : int or array_like, default 10
        The values of C, or how many between 1e-4 and 1e4.
    ks : array_like of int, default (1,)
        The values of the parameter k of the loss; one for a loss that has none, or its own.
    loss : str or topkopt.losses.Loss, default "topk_hinge"
        See `TopKClassifier`.
    scoring : str, default "top1"
        The accuracy to maximise: "top1", "top2", ..., up to the number of classes.
    cv : int, splitter or iterable, default 5
        The folds, see ``sklearn.model_selection.check_cv``; an int means stratified ones.
    n_jobs : int, optional
        How many folds to run at the same time (joblib).
    smoothing, weights, kernel, gamma, degree, coef0, fit_intercept, intercept_scaling
        See `TopKClassifier`.
    class_weight, tol, max_epochs, random_state, verbose
        See `TopKClassifier`.

    Attributes
    ----------
    C_ : float
        The best C; of equally good ones the smallest.
    k_ : int
        The best k; of equally good ones the smallest.
    best_score_ : float
        Their accuracy, averaged over the folds.
    Cs_, ks_ : ndarray
        What was tried, increasing.
    scores_ : ndarray of shape (n_Cs, n_ks)
        The accuracy asked for by `scoring`, averaged over the folds.
    cv_accuracy_ : ndarray of shape (n_folds, n_Cs, n_ks, m)
        The top-1, top-2, ..., top-m accuracies of all models.
    cv_gap_ : ndarray of shape (n_folds, n_Cs, n_ks)
        Their certificates.
    classes_, coef_, intercept_, dual_coef_, n_iter_, duality_gap_, history_, solution_
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
        scoring: str = "top1",
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
        self.random_state = random_state
        self.verbose = verbose

    warm_start = False  # the paths start at each other's solutions, the final training anew

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TopKClassifierCV:
        """Choose C and k, and train with them on all examples.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel their Gram matrix. float32 is kept.
        y : array_like of shape (n,)
            The classes: numbers or strings.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights, for training and for the accuracies.

        Returns
        -------
        TopKClassifierCV
            Itself.
        """
        X, labels, weight = self._check_training(X, y, sample_weight)
        self.Cs_, self.ks_ = check_Cs(self.Cs), self._check_ks()
        tried = [self._loss(k) for k in self.ks_]
        if len({repr(loss) for loss in tried}) < len(tried):
            raise ValueError(
                f"ks must hold one value with loss {self.loss!r}, which takes no k from it, got "
                f"{self.ks!r}."
            )
        own = _own_k(self.loss)
        self.ks_ = self.ks_ if own is None else np.array([own])
        place = self._scored_place()
        features = self._features(X, self._constant())
        options = self._solver_options()
        options["random_state"] = options["random_state"].randint(np.iinfo(np.int32).max)
        folds = _split(lambda: check_cv(self.cv, labels, classifier=True), self.cv, X, labels)
        for train, _ in folds:
            _check_fold_weight(weight, train)
        scored_weight = None if sample_weight is None else as_weight(sample_weight, len(labels))
        results = Parallel(n_jobs=self._n_jobs())(
            delayed(_follow_paths)(
                features, labels, weight, scored_weight, train, test, tried, self.Cs_, options
            )
            for train, test in folds
        )
        self.cv_accuracy_ = np.stack([accuracy for accuracy, _ in results])
        self.cv_gap_ = np.stack([gap for _, gap in results])
        self.scores_ = self.cv_accuracy_[..., place - 1].mean(axis=0)
        best_C, best_k = np.unravel_index(np.argmax(self.scores_), self.scores_.shape)
        self.C_, self.k_ = float(self.Cs_[best_C]), int(self.ks_[best_k])
        self.best_score_ = float(self.scores_[best_C, best_k])
        self._train(X, labels, tried[best_k], self.C_, weight)
        return self

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

    def _scored_place(self) -> int:
        m = len(self.classes_)
        name = re.fullmatch(
            "top([1-9][0-9]*)", self.scoring if isinstance(self.scoring, str) else ""
        )
        if name is None or int(name[1]) > m:
            raise ValueError(
                f"scoring must be one of top1, ..., top{m} for {m} classes, got {self.scoring!r}."
            )
        return int(name[1])

    def _default_k(self) -> int:
        return self.k_


def _follow_paths(
    features: Any,
    labels: NDArray,
    weight: NDArray | None,
    scored_weight: NDArray | None,
    train: NDArray,
    test: NDArray,
    tried: list[losses.Loss],
    Cs: NDArray,
    options: dict[str, Any],
) -> tuple[NDArray, NDArray]:
    """Return the accuracies (C, loss, number of guesses) and gaps (C, loss) of one fold."""
    m = int(labels.max()) + 1
    fit_on = features[np.ix_(train, train)] if options["kernel"] else features[train]
    score_on = features[np.ix_(test, train)] if options["kernel"] else features[test]
    present, fold_labels = np.unique(labels[train], return_inverse=True)
    accuracy, gap = np.empty((len(Cs), len(tried), m)), np.empty((len(Cs), len(tried)))
    for column, loss in enumerate(tried):
        solutions: Path = path(
            fit_on,
            fold_labels,
            loss,
            Cs=Cs,
            sample_weight=None if weight is None else weight[train],
            **options,
        )
        gap[:, column] = solutions.gaps
        # A class that the fold was not trained on comes last.
        scores = np.full((len(Cs), len(test), m), -np.inf)
        scores[..., present] = solutions.scores(score_on)
        for row in range(len(Cs)):
            accuracy[row, column] = topk_accuracy_curve(
                labels[test],
                scores[row],
                labels=np.arange(m),
                sample_weight=None if scored_weight is None else scored_weight[test],
            )
    return accuracy, gap


class MultilabelClassifier(_CertifiedClassifier):
    """Linear or kernel classifier of examples with several labels, trained to a certified optimum.

    The labels are ranked by their scores; those above a threshold are predicted.

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
    tol, max_epochs, warm_start, random_state, verbose
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
        The dual variables: ``coef_ = dual_coef_ @ X``.
    n_iter_, duality_gap_, history_, solution_
        See `TopKClassifier`.
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
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> MultilabelClassifier:
        """Train the classifier and choose its threshold.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            The examples as rows; for a precomputed kernel their Gram matrix. float32 is kept.
        y : array_like or sparse matrix of shape (n, m), or array_like of shape (n,)
            The labels as an indicator matrix, or one class per example.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights: 2 counts an example twice, 0 leaves it out.

        Returns
        -------
        MultilabelClassifier
            Itself.
        """
        _check_loss(self.loss, _MULTILABEL)
        self._check_threshold()
        _check_shape_of_targets(y)
        X, y = self._validate(X, y, multi_output=True)
        labels = self._encode(y)
        weight = self._example_weights(sample_weight, labels)
        self._prepare(X)
        if self.multilabel_:
            scored_weight = None if sample_weight is None else as_weight(sample_weight, len(labels))
            self.threshold_ = self._choose_threshold(X, labels, weight, scored_weight)
        loss = flat_loss(self.loss, smoothing=self.smoothing)
        self._train(X, labels, loss, self.C, weight)
        return self

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
            self.classes_, encoded = _encode_classes(labels)
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
        self, X: Any, Y: NDArray, weight: NDArray | None, scored_weight: NDArray | None
    ) -> float:
        if self.threshold != "cv":
            return float(self.threshold)
        scores = np.empty(Y.shape)
        held_out = np.zeros(len(Y), dtype=bool)  # a splitter need not test every example
        # The weights hold the class weights already.
        fixed = {"threshold": 0.0, "class_weight": None, "warm_start": False, "verbose": 0}
        model = type(self)(**{**self.get_params(deep=False), **fixed})
        for train, test in self._folds(X, Y):
            if self._is_precomputed():
                fit_on, score_on = X[np.ix_(train, train)], X[np.ix_(test, train)]
            else:
                fit_on, score_on = X[train], X[test]
            _check_fold_weight(weight, train)
            model.fit(fit_on, Y[train], None if weight is None else weight[train])
            scores[test] = model.decision_function(score_on)
            held_out[test] = True
        weight = None if scored_weight is None else scored_weight[held_out]
        return tune_threshold(Y[held_out], scores[held_out], self.metric, sample_weight=weight)[0]

    def _folds(self, X: Any, Y: NDArray) -> list[tuple]:
        seed = self._random_state().randint(np.iinfo(np.int32).max)

        def splitter() -> Any:
            if isinstance(self.cv, Integral):
                return KFold(self.cv, shuffle=True, random_state=seed)
            return check_cv(self.cv)

        return _split(splitter, self.cv, X, Y)

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
