"""The table of losses, and the scores and labels that their tests draw."""

from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest

from topkopt import losses, reference

SMOOTHINGS = (0.0, 0.7)


@dataclass(frozen=True)
class Case:
    """A loss, its readable twin and what the tests need to know of it."""

    name: str
    arguments: dict = field(default_factory=dict)

    @property
    def loss(self):
        return getattr(losses, self.name)(**self.arguments)

    @property
    def twin(self):
        return getattr(reference, self.name)(**self.arguments)

    @property
    def smooth(self):
        """Whether the gradient is continuous."""
        return self.loss.smooth and self.loss.convex

    def __str__(self):
        return repr(self.loss)


def _cases():
    weights = [0.5, 0.3, 0.2]
    for smoothing in SMOOTHINGS:
        yield Case("Hinge", {"smoothing": smoothing})
        for k, kind in product((1, 2, 3), ("alpha", "beta", "label")):
            yield Case("TopKHinge", {"k": k, "kind": kind, "smoothing": smoothing})
        for label, envelope in product((False, True), ("others", "all")):
            more = {"label": label, "smoothing": smoothing, "envelope": envelope}
            yield Case("WeightedTopKHinge", {"weights": weights, **more})
        yield Case("WeightedTopKHinge", {"weights": "linear", "k": 3, "smoothing": smoothing})
        yield Case("OneVsAllHinge", {"smoothing": smoothing})
        yield Case("MultilabelHinge", {"smoothing": smoothing})
    yield Case("WeightedTopKHinge", {"weights": "exp", "k": 2, "label": True})
    yield Case("Softmax")
    for k in (1, 2, 3):
        yield Case("TopKEntropy", {"k": k})
        yield Case("TruncatedTopKEntropy", {"k": k})
    yield Case("OneVsAllLogistic")
    yield Case("MultilabelSoftmax")


CASES = list(_cases())
# A loss that the table does not know takes part with the example that it declares.
CASES += [
    Case(cls.__name__, dict(cls.declaration.example))
    for cls in losses.classes()
    if cls.__name__ not in {case.name for case in CASES}
]
CONVEX = [case for case in CASES if case.loss.convex]


def over(table):
    return pytest.mark.parametrize("case", table, ids=str)


everything = over(CASES)
convex = over(CONVEX)
smooth = over([case for case in CASES if case.smooth])

FAMILIES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "wide": lambda rng, shape: 20 * rng.standard_normal(shape),
    "tied": lambda rng, shape: rng.integers(-1, 2, shape).astype(float),
    "equal": lambda rng, shape: np.zeros(shape),
    "margin": lambda rng, shape: rng.integers(0, 2, shape) - 1.0 + np.arange(shape[1]) % 2,
    "tiny": lambda rng, shape: 1e-9 * rng.standard_normal(shape),
    "huge": lambda rng, shape: 1e9 * rng.standard_normal(shape),
    "far": lambda rng, shape: 1e6 + rng.standard_normal(shape),
}


def scores_of(family, n=12, m=6):
    return FAMILIES[family](np.random.default_rng([n, m]), (n, m))


def labels_of(loss, n=12, m=6):
    """Return labels, or label sets of all sizes."""
    rng = np.random.default_rng([m, n])
    if not loss.multilabel:
        return rng.integers(0, m, n)
    order = rng.permuted(np.tile(np.arange(m), (n, 1)), axis=1)
    return order < np.arange(n)[:, None] % (m + 1)


def row_by_row(function, rows, y):
    return np.array([function(row, label) for row, label in zip(rows, y, strict=True)])


def one_wrong_row(loss, m=3):
    """Return scores that are wrong by far, and their label (set)."""
    y = np.arange(m) < 1 if loss.multilabel else 0
    return np.where(np.arange(m) == 0, -40.0, 40.0), y
