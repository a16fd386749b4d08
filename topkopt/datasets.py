"""Data to try things on: the papers' synthetic problem."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt._validation import check_k

__all__ = ["make_circle"]

_ENDS = np.array([1.0, 2.0, 3.0, 6.0, 7.0])  # of the five segments of [0, 7]
_PROBABILITY = np.array(  # of each class (row) in each segment (column)
    [
        [0.0, 1.0, 0.4, 0.3, 0.0],
        [1.0, 0.0, 0.1, 0.7, 0.0],
        [0.0, 0.0, 0.5, 0.0, 1.0],
    ]
)


def make_circle(n_samples: int, random_state: Any = None) -> tuple[NDArray, NDArray]:
    """Draw points on the unit circle and their classes 0, 1 and 2, where softmax fails at top-2.

    The circle is cut into five segments. In some of them one class is certain, in others two or
    three classes overlap, so that the best two guesses are not those of the largest probabilities
    that a linear softmax can give.

    Parameters
    ----------
    n_samples : int
        How many.
    random_state : int, Generator or RandomState, optional
        Draws them.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> from topkopt.datasets import make_circle
    >>> X, y = make_circle(5, 0)
    >>> X.shape, y.shape
    ((5, 2), (5,))
    """
    check_k(n_samples, np.iinfo(np.intp).max, name="n_samples")
    rng = np.random.default_rng(random_state)
    place = rng.uniform(0.0, _ENDS[-1], n_samples)
    segment = np.searchsorted(_ENDS, place, side="right")
    cumulative = np.cumsum(_PROBABILITY, axis=0)[:, segment]
    y = np.count_nonzero(rng.uniform(size=n_samples) >= cumulative[:-1], axis=0)
    angle = 2 * np.pi * place / _ENDS[-1]
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), y
