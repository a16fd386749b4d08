"""Small problems for threads to share."""

import numpy as np
import scipy.sparse

from topkopt import _threads
from topkopt.solvers import threads as worth
from topkopt.solvers.problem import as_problem

from .loss_cases import labels_of

N, D, M = 43, 7, 6
KINDS = ("dense", "sparse", "kernel")


def share_small_work(monkeypatch):
    """Let threads have a part of problems as small as those here."""
    monkeypatch.setattr(_threads, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(worth, "_WORTH_THREADS", 1.0)


def features(kind="dense", dtype=np.float64, n=N):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, D)).astype(dtype)
    X[::5] *= rng.random(D) < 0.5
    return {"dense": X, "sparse": scipy.sparse.csr_array(X), "kernel": X @ X.T}[kind]


def problem_of(loss, kind="dense", dtype=np.float64, n=N):
    y, weight = labels_of(loss, n, M), 0.5 + np.random.default_rng(2).random(n)
    return as_problem(features(kind, dtype, n), y, loss, 2.0, weight, kind == "kernel", M)
