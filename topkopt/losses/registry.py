"""The names of the losses: all that is declared on the classes, by name."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from topkopt.losses.base import Loss
from topkopt.losses.declaration import Declaration

__all__ = ["check_complete", "classes", "declaration_of", "from_flat", "get", "names"]


def classes() -> list[type[Loss]]:
    """Return the classes of all losses that have a name."""

    def below(cls: type[Loss]) -> list[type[Loss]]:
        return [cls, *(leaf for child in cls.__subclasses__() for leaf in below(child))]

    declared = [cls for cls in below(Loss) if "declaration" in vars(cls) and cls is not Loss]
    declared = [cls for cls in declared if cls.declaration.named]
    return sorted(declared, key=lambda cls: cls.__name__)


@cache
def _registry() -> dict[str, tuple[type[Loss], dict[str, Any]]]:
    """Return for each name its class and the parameters that it implies.

    A grid search reaches variants of a loss by name.
    """
    known: dict[str, tuple[type[Loss], dict[str, Any]]] = {}
    for cls in classes():
        known[cls.declaration.name] = cls, {}
        for name, implied in cls.declaration.variants.items():
            known[name] = cls, dict(implied)
    return known


def check_complete(cls: type[Loss]) -> None:
    """Raise unless a loss computes all that its declaration promises.

    What a class forgets to define is inherited and gives NaN.
    """
    loss = cls(**cls.declaration.example)
    scores = np.array([0.5, 0.25, 1.0, -1.0])
    _require(cls, "row_value", loss.value(scores, 0))
    gradient = loss.gradient(scores, 0)
    _require(cls, "row_prox", gradient.sum())
    if loss.convex:
        _require(cls, "row_conjugate and row_violation", loss.conjugate(gradient, 0))
        _require(cls, "row_derivative", loss.prox_derivative(scores, 0, 1.0).sum())


def _require(cls: type[Loss], method: str, value: Any) -> None:
    if not np.isfinite(value):
        raise TypeError(f"{cls.__name__} must define {method}: it gives {value} on an example.")


def _find(loss: Any) -> tuple[type[Loss], dict[str, Any]]:
    """Return the class of a name and the parameters that the name implies."""
    if not isinstance(loss, str) or loss not in _registry():
        raise ValueError(
            f"loss must be one of {', '.join(names())}, or a Loss object, got {loss!r}."
        )
    return _registry()[loss]


def declaration_of(loss: Any) -> Declaration | None:
    """Return what a loss, or the class that a name stands for, declares; None if it is neither."""
    if isinstance(loss, Loss):
        return loss.declaration
    return _find(loss)[0].declaration if isinstance(loss, str) and loss in _registry() else None


def names(task: str | None = None) -> list[str]:
    """Return the names that `get` knows.

    Parameters
    ----------
    task : {"multiclass", "multilabel"}, optional
        Only those of losses for one label per example, or for any number of labels.

    Returns
    -------
    list of str
        One for every class, and those of variants: "topk_hinge_beta" and "topk_hinge_label" are
        `TopKHinge` of that kind, "weighted_topk_hinge_label" is `WeightedTopKHinge` with
        ``label=True``.

    Examples
    --------
    >>> from topkopt import losses
    >>> "topk_hinge" in losses.names()
    True
    >>> losses.names("multilabel")
    ['multilabel_hinge', 'multilabel_softmax', 'ova_hinge', 'ova_logistic']
    """
    if task not in (None, "multiclass", "multilabel"):
        raise ValueError(f"task must be multiclass, multilabel or None, got {task!r}.")
    return sorted(
        name for name, (cls, _) in _registry().items() if task in (None, *cls.declaration.tasks)
    )


def get(loss: str | Loss, **parameters: Any) -> Loss:
    """Return the loss of a registry name.

    Parameters
    ----------
    loss : str or Loss
        One of `names`; a Loss is returned as it is.
    **parameters
        Passed to the class, such as ``k=5, smoothing=1.0``.

    Returns
    -------
    Loss

    Examples
    --------
    >>> from topkopt import losses
    >>> losses.get("topk_hinge", k=5, smoothing=1.0)
    TopKHinge(k=5, kind='alpha', smoothing=1.0)
    >>> losses.get("topk_hinge_beta", k=5)
    TopKHinge(k=5, kind='beta', smoothing=0.0)
    """
    if isinstance(loss, Loss):
        if parameters:
            raise ValueError(f"parameters must be left out with a Loss object, got {parameters}.")
        return loss
    cls, implied = _find(loss)
    try:
        return cls(**implied, **parameters)
    except TypeError as error:
        if "argument" not in str(error):  # a parameter of the wrong type, which the error names
            raise
        given = ", ".join(parameters) or "none"
        raise TypeError(f"loss {loss!r} needs other parameters than {given}: {error}.") from None


def from_flat(
    loss: Loss | str,
    *,
    k: int | None = None,
    smoothing: float = 0.0,
    weights: ArrayLike | str | None = None,
) -> Loss:
    """Return a loss by name, given parameters of which it may take only some.

    >>> from_flat("topk_hinge", k=3, smoothing=1.0)
    TopKHinge(k=3, kind='alpha', smoothing=1.0)
    >>> from_flat("topk_hinge_beta", k=3)
    TopKHinge(k=3, kind='beta', smoothing=0.0)
    >>> from_flat("softmax", k=3, smoothing=1.0)
    Softmax()
    """
    known = () if isinstance(loss, Loss) else _find(loss)[0].declaration.parameters
    takes = [name for name in ("k", "smoothing", "weights") if name in known]
    if weights is None and "weights" in takes:
        raise ValueError(
            f"weights must be given with loss={loss!r}: an array, or one of flat, linear, exp."
        )
    if weights is not None and "weights" not in takes:
        raise ValueError(
            f"weights must be None with loss={loss!r}, got {weights!r}; they belong to "
            "loss='weighted_topk_hinge'."
        )
    given: dict[str, Any] = {"k": k, "smoothing": smoothing, "weights": weights}
    if not isinstance(weights, str | None):
        given["k"] = None  # the array has its own length
    return get(loss, **{name: given[name] for name in takes})
