"""The kernel of a classifier: its parameters, the Gram matrix, and what is known of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from topkopt._validation import as_floating, as_weight, check_k, check_scalar
from topkopt.estimators.weights import weighted_variance

__all__ = ["KernelMixin"]

_KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")


class KernelMixin:
    """What the parameters kernel, gamma, degree and coef0 of a classifier say."""

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    gamma_: float

    def _is_linear(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

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

    def _kernel_promise(self) -> bool | str:
        """Return whether there is a kernel, and if theory says so, that it is semi-definite."""
        if self._is_linear():
            return False
        definite = isinstance(self.kernel, str) and (
            self.kernel == "rbf" or (self.kernel == "poly" and self.coef0 >= 0)
        )
        return "psd" if definite else True

    def _kernel_key(self) -> tuple:
        """Return all that tells kernels apart."""
        return self.kernel, getattr(self, "gamma_", None), self.degree, self.coef0

    def _gamma(self, X: Any, weight: NDArray | None) -> float:
        if self.gamma == "scale":
            variance = weighted_variance(X, as_weight(weight, X.shape[0]))
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
