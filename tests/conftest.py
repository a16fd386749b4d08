"""Settings that all tests share."""

import os
import signal
import time
from importlib.util import find_spec

# The tests run on all cores already, and BLAS threads that wait for each other would only stand in
# their way. The libraries look at this when NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import matplotlib.image
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Reproducible on every machine: the same examples in the same order, however slow it is.
settings.register_profile(
    "topkopt",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("topkopt")

# A shell starts background jobs deaf to Ctrl-C, and the tests of it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


HAS_TORCH = find_spec("torch") is not None


class WithoutTorch:
    """Leaves out what imports PyTorch, and says so."""

    def pytest_ignore_collect(self, collection_path):
        return True if collection_path.name == "torch" and collection_path.is_dir() else None

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.write_line(
            "The tests of topkopt.torch were left out: PyTorch is not installed here. "
            "`make test-torch` runs them."
        )


def pytest_configure(config):
    if not HAS_TORCH:
        config.pluginmanager.register(WithoutTorch())


def pytest_addoption(parser):
    parser.addoption(
        "--fuzz-seconds", type=float, default=60.0, help="how long each fuzzer runs (60)"
    )
    parser.addoption("--fuzz-seed", type=int, default=0, help="the first seed of each fuzzer (0)")


@pytest.fixture
def is_drawn():
    """Return a function that says whether a picture shows more than its background."""

    def look(path):
        pixels = matplotlib.image.imread(path)[..., :3]
        return np.any(pixels != pixels[0, 0], axis=-1).mean() > 0.01

    return look


@pytest.fixture
def fuzz_rounds(request):
    """Yield (seed, generator) pairs until the time is up: a failure names the seed to repeat it."""
    seconds = request.config.getoption("--fuzz-seconds")
    first = request.config.getoption("--fuzz-seed")

    def rounds():
        end = time.monotonic() + seconds
        seed = first
        while seed == first or time.monotonic() < end:
            yield seed, np.random.default_rng(seed)
            seed += 1

    return rounds()
