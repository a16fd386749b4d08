"""Examples read in blocks: how much memory a training takes at its peak."""

import tracemalloc

import numpy as np
import pytest

from topkopt import losses, solve
from topkopt.solvers import row_blocks

from .trainings import quietly


class Made:
    """Examples around the means of their classes, which do not exist before they are read."""

    dtype = np.dtype(np.float64)

    def __init__(self, y, d, noise):
        self.y, self.shape, self.noise = y, (len(y), d), noise

    def __getitem__(self, rows):
        rng = np.random.default_rng(rows.start)
        X = self.noise * rng.standard_normal((rows.stop - rows.start, self.shape[1]))
        X[np.arange(len(X)), self.y[rows]] += 1.0
        return X


def peak(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", ["lbfgs", "auto", "sdca"])
def test_memory(method, monkeypatch):
    """A few blocks, 100 bytes an example, and the dual variables where the method needs them."""
    monkeypatch.setattr(row_blocks, "_rows_of_block", lambda X, row_bytes: 1000)
    n, d, m = 40000, 50, 40  # 16 MB of X and 12.8 MB of dual variables
    y = np.arange(n) % m
    options = {"method": method, "tol": 0.0, "max_epochs": 4, "keep_dual": False}
    loss = losses.TopKHinge(5, smoothing=1.0)
    dual = n * m * 8 if method == "sdca" else 0
    blocks = 4 * 1000 * (d + 2 * m) * 8
    used = peak(lambda: quietly(Made(y, d, 0.3), y, loss, **options))
    assert used < dual + blocks + 170 * n + (4 << 20)


def test_memory_of_packed_dual_variables(monkeypatch):
    """Those of a hinge loss are held packed while they move: their whole is never there."""
    monkeypatch.setattr(row_blocks, "_rows_of_block", lambda X, row_bytes: 400)
    n, m = 12000, 200
    y, trained = np.arange(n) % m, []
    options = {"method": "sdca", "tol": 0.2, "C": 10.0, "keep_dual": False, "random_state": 0}
    used = peak(lambda: trained.append(solve(Made(y, m, 0.02), y, losses.TopKHinge(2), **options)))
    assert trained[0].converged
    blocks = 3 * 400 * m * 8  # whether the one that is read ahead is there is a matter of time
    assert used < 0.3 * n * m * 8 + blocks
