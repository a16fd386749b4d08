"""The losses of top-k classification, and the registry of their names.

A loss is a small immutable object: it can be compared, pickled and printed, and it evaluates
``value``, ``gradient`` and ``conjugate`` on rows of scores. Its class is compiled and final: what a
subclass overrides would never be called, and so subclassing is an error.
"""

from __future__ import annotations

from typing import Any

from topkopt._losses import (
    Hinge,
    Loss,
    MultilabelHinge,
    MultilabelSoftmax,
    OneVsAllHinge,
    OneVsAllLogistic,
    Softmax,
    TopKEntropy,
    TopKHinge,
    TruncatedTopKEntropy,
    WeightedTopKHinge,
)

__all__ = [
    "Hinge",
    "Loss",
    "MultilabelHinge",
    "MultilabelSoftmax",
    "OneVsAllHinge",
    "OneVsAllLogistic",
    "Softmax",
    "TopKEntropy",
    "TopKHinge",
    "TruncatedTopKEntropy",
    "WeightedTopKHinge",
    "get",
    "names",
]


def _subclasses(cls: type[Loss]) -> list[type[Loss]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in _subclasses(child))]


# A name stands for a class and some of its parameters: so a grid search reaches variants by name.
_REGISTRY: dict[str, tuple[type[Loss], dict[str, Any]]] = {
    **{cls.name: (cls, {}) for cls in _subclasses(Loss) if cls.name},
    "topk_hinge_beta": (TopKHinge, {"kind": "beta"}),
    "topk_hinge_label": (TopKHinge, {"kind": "label"}),
    "weighted_topk_hinge_label": (WeightedTopKHinge, {"label": True}),
}


def _find(loss: Any) -> tuple[type[Loss], dict[str, Any]]:
    """Return the class of a name and the parameters that the name implies."""
    if not isinstance(loss, str) or loss not in _REGISTRY:
        raise ValueError(
            f"loss must be one of {', '.join(names())}, or a Loss object, got {loss!r}."
        )
    return _REGISTRY[loss]


def names() -> list[str]:
    """Return the names that `get` knows.

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
    """
    return sorted(_REGISTRY)


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
