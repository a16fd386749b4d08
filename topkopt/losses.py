"""The losses of top-k classification, and the registry of their names.

A loss is a small immutable object: it can be compared, pickled and printed, and it evaluates
``value``, ``gradient`` and ``conjugate`` on rows of scores.
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


_REGISTRY = {cls.name: cls for cls in _subclasses(Loss) if cls.name}


def names() -> list[str]:
    """Return the names that `get` knows.

    Returns
    -------
    list of str

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
    """
    if isinstance(loss, Loss):
        if parameters:
            raise ValueError(f"parameters must be left out with a Loss object, got {parameters}.")
        return loss
    if not isinstance(loss, str) or loss not in _REGISTRY:
        raise ValueError(f"loss must be one of {', '.join(names())}, got {loss!r}.")
    try:
        return _REGISTRY[loss](**parameters)
    except TypeError as error:
        given = ", ".join(parameters) or "none"
        raise TypeError(f"loss {loss!r} needs other parameters than {given}: {error}.") from None
