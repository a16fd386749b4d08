"""Data in a file: what reading it costs beside an array, and what a training holds."""

import tempfile
import threading
import tracemalloc
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np

from topkopt import losses
from topkopt.solvers.problem import as_problem

from .common import QUICK, seconds
from .solvers import clusters, train

SHAPE = (400, 8, 7) if QUICK else (100_000, 256, 100)
LOSSES = {"softmax": losses.Softmax(), "topk_hinge, smooth": losses.TopKHinge(5, smoothing=1.0)}
METHODS = ["lbfgs", "sdca"]


class File:
    """float32 examples in memory and in a file, whose pages the system keeps if it can."""

    timeout = 600

    def setup(self, *_):
        X, self.y = clusters(*SHAPE)
        self.X = X.astype(np.float32)
        self.folder = tempfile.TemporaryDirectory()
        np.save(Path(self.folder.name) / "X.npy", self.X)

    def teardown(self, *_):
        self.folder.cleanup()

    def mapped(self):
        return np.load(Path(self.folder.name) / "X.npy", mmap_mode="r")


class Evaluation(File):
    """Seconds of an evaluation of a file over those of the array."""

    params = (list(LOSSES), ["rows", "blocks"])
    param_names = ("loss", "sampling")

    def track_ratio_to_memory(self, loss, sampling):
        W = np.full((SHAPE[1], SHAPE[2]), 0.1, np.float32)

        def evaluation(X, sampling):
            problem = as_problem(X, self.y, LOSSES[loss], 1.0, None, False, None, sampling)
            examples, pull = problem.examples(), np.empty(W.shape)
            return lambda: problem.data.evaluate(examples, W, pull)

        ours, memory = seconds(evaluation(self.mapped(), sampling), evaluation(self.X, "rows"))
        return ours / memory

    track_ratio_to_memory.unit = "times the array in memory"


class Epoch(File):
    """Seconds of an epoch of coordinate ascent by blocks of a file over one of an array by rows."""

    params = (list(LOSSES),)
    param_names = ("loss",)

    def track_ratio_to_memory(self, loss):
        def epoch(X, sampling):
            marks = []
            options = {"tol": 0.0, "max_epochs": 3, "method": "sdca", "check_every": 1}

            def mark(state):
                marks.append(perf_counter())

            train(X, self.y, LOSSES[loss], sampling=sampling, callback=mark, **options)
            return min(b - a for a, b in pairwise(marks))

        return epoch(self.mapped(), "blocks") / epoch(self.X, "rows")

    track_ratio_to_memory.unit = "times the array in memory"


class Peak(File):
    """The most that a training holds: what Python has allocated, and of the whole process."""

    params = (METHODS, list(LOSSES))
    param_names = ("method", "loss")

    def run(self, method, loss):
        options = {"tol": 0.0, "max_epochs": 4, "keep_dual": method == "sdca"}
        X = self.mapped()
        train(X, self.y, LOSSES[loss], method=method, sampling="blocks", **options)

    def track_allocated(self, method, loss):
        tracemalloc.start()
        self.run(method, loss)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / SHAPE[0]

    track_allocated.unit = "bytes per example"

    def track_process(self, method, loss):
        del self.X
        done, most = threading.Event(), [_anonymous()]

        def watch():
            while not done.wait(0.01):
                most[0] = max(most[0], _anonymous())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self.run(method, loss)
        finally:
            done.set()
            watcher.join()
        return most[0] / 2**10

    track_process.unit = "MB, without what is in files"


def _anonymous():
    """Return the kilobytes of this process that are not pages of files; 0 where nobody tells."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
