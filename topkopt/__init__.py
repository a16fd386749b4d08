"""Certified top-k classification: exact projections, losses and solvers."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from topkopt import datasets, losses, metrics, projections, prox, special
from topkopt._config import show_config
from topkopt._scores import predict_topk
from topkopt.solvers import ConvergenceWarning, Solution, solve
from topkopt.solvers.path import Path, path

if TYPE_CHECKING:
    from topkopt.estimators import MultilabelClassifier, TopKClassifier, TopKClassifierCV

__version__ = version("topkopt")

__all__ = [
    "ConvergenceWarning",
    "MultilabelClassifier",
    "Path",
    "Solution",
    "TopKClassifier",
    "TopKClassifierCV",
    "datasets",
    "losses",
    "metrics",
    "path",
    "predict_topk",
    "projections",
    "prox",
    "show_config",
    "solve",
    "special",
]

# They need scikit-learn, which is imported when one of them is first used.
_ESTIMATORS = ("MultilabelClassifier", "TopKClassifier", "TopKClassifierCV")


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(import_module("topkopt.estimators"), name)
    raise AttributeError(f"module 'topkopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
