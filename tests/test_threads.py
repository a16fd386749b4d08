"""The GIL is released, and a thread pool gives the same bits as a loop."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from topkopt.special import lambertw_exp

from .cases import OPERATORS
from .test_arrays import apply

elementwise = SimpleNamespace(name="lambertw_exp")
everything = pytest.mark.parametrize("op", [*OPERATORS, elementwise], ids=lambda op: op.name)


def run(op, x):
    return lambertw_exp(x) if op is elementwise else apply(op, x)


@everything
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_as_a_loop(op, dtype):
    chunks = np.random.default_rng(2).standard_normal((64, 20, 300)).astype(dtype)
    expected = [run(op, chunk) for chunk in chunks]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda chunk: run(op, chunk), np.repeat(chunks, 3, axis=0)))
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, expected[i // 3])


@everything
def test_same_bits_again(op):
    x = np.random.default_rng(4).standard_normal((50, 300))
    np.testing.assert_array_equal(run(op, x), run(op, x))


def slow_input(op, seconds=0.03):
    """Return an input that keeps the kernel busy for a while."""
    x = np.random.default_rng(6).standard_normal((200, 300))
    while True:
        start = time.perf_counter()
        run(op, x)
        if time.perf_counter() - start > seconds:
            return x
        x = np.concatenate([x, x])


def longest_pause(op, x):
    """Return for which share of the time a thread that counts has to stop while the kernel runs."""
    worker = threading.Thread(target=run, args=(op, x))
    ticks = [time.perf_counter()]
    worker.start()
    while worker.is_alive():
        ticks.append(time.perf_counter())
    ticks.append(time.perf_counter())  # the only one if the kernel was over before the loop began
    return np.diff(ticks).max() / (ticks[-1] - ticks[0])


@everything
def test_gil_is_released(op):
    """Another thread goes on while the kernel runs. With the GIL held it never could.

    A busy machine may stop it too, but not every time.
    """
    x = slow_input(op)
    assert any(longest_pause(op, x) < 0.5 for _ in range(20))
