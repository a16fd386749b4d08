"""Training: an epoch over the matrix products it must do, the way to a gap, memory, and others.

Data are class means plus noise with rows of unit norm, and C = 1; figures that compare are ratios
within one run.
"""

import tracemalloc
import warnings
from functools import cache
from time import perf_counter

import numpy as np
import scipy.sparse

from topkopt import ConvergenceWarning, losses, reference, solve

from .common import QUICK, seconds


def table():
    """Return every loss of the registry with k = 5, hinge losses also smoothed."""
    found = {}
    for name in losses.names():
        takes = losses.declaration_of(name).parameters
        weights = "linear" if "weights" in takes else None
        found[name] = losses.from_flat(name, k=5, weights=weights)
        if "smoothing" in takes:
            smooth = losses.from_flat(name, k=5, weights=weights, smoothing=1.0)
            found[f"{name}, smooth"] = smooth
    return found


EVERY_LOSS = table()
LOSSES = {name: loss for name, loss in EVERY_LOSS.items() if loss.convex}
WITHOUT_DUAL = {name: loss for name, loss in EVERY_LOSS.items() if not loss.convex}
MAIN = ["topk_hinge", "topk_hinge, smooth", "softmax", "topk_entropy"]
SHAPES = [
    (5_000, 784, 101),
    (2_000, 4_096, 397),
    (2_000, 4_096, 1_000),
    (20_000, 128, 1_000),
    (15_000, 16, 26),
]
EPOCHS = 3  # so many to warm up (first steps search from nowhere), and so many timed
BUDGET = 4.0  # seconds to look for the best time


def clusters(n, d, m, seed=0):
    """Return class means plus noise and the classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    X = rng.standard_normal((m, d))[y]
    X += rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, y


def small(shape):
    """Return a shape, or a small one for a quick run."""
    return (40, 8, 7) if QUICK else shape


@cache
def digits():
    """Return the data set of scikit-learn: 1,797 examples, 64 features, 10 classes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = np.ascontiguousarray(X / np.linalg.norm(X, axis=1, keepdims=True))
    return (X[:60], y[:60]) if QUICK else (X, y)


def train(*args, **kwargs):
    """Train, and not complain about a gap that was not asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(*args, random_state=0, **kwargs)


def epoch_and_certificate(X, y, loss, **options):
    """Return the seconds of an epoch, the fourth or a later one, and those of a certificate."""

    def span(every):
        marks = {}
        train(
            X,
            y,
            loss,
            tol=0.0,
            max_epochs=2 * EPOCHS,
            check_every=every,
            callback=lambda state: marks.update({state.epoch: perf_counter()}),
            **options,
        )
        last = max(marks)  # no gap is left earlier only in a quick run
        return max(marks[last] - marks[min(EPOCHS, last)], 1e-9)

    # EPOCHS epochs with as many certificates, and the same with one: in turns, the best of many
    often = seldom = np.inf
    stop = perf_counter() + BUDGET
    for done in range(100):
        often, seldom = min(often, span(1)), min(seldom, span(EPOCHS))
        if QUICK or (done >= 2 and perf_counter() > stop):
            break
    certificate = (often - seldom) / (EPOCHS - 1)
    return max(seldom - certificate, 1e-9) / EPOCHS, certificate


def epoch_seconds(X, y, loss, **options):
    """Return the seconds of an epoch alone."""
    return epoch_and_certificate(X, y, loss, **options)[0]


class Products:
    """Seconds per epoch over those of the products X @ W and X.T @ A of the same shapes."""

    timeout = 600

    def prepare(self, shape):
        n, d, m = small(shape)
        self.X, self.y = clusters(n, d, m)
        self.W, self.A = np.ones((d, m)), np.ones((n, m))

    def ratio(self, loss):
        scores, update = seconds(lambda: self.X @ self.W, lambda: self.X.T @ self.A)
        return epoch_seconds(self.X, self.y, LOSSES[loss]) / (scores + update)


class Epoch(Products):
    """The main losses on all shapes."""

    params = (SHAPES, MAIN)
    param_names = ("n, d, m", "loss")

    def setup(self, shape, loss):
        self.prepare(shape)

    def track_ratio_to_products(self, shape, loss):
        return self.ratio(loss)

    track_ratio_to_products.unit = "times X @ W and X.T @ A"


class EveryEpoch(Products):
    """All losses that have a dual on one shape."""

    params = (list(LOSSES),)
    param_names = ("loss",)

    def setup(self, loss):
        self.prepare(SHAPES[0])

    def track_ratio_to_products(self, loss):
        return self.ratio(loss)

    track_ratio_to_products.unit = "times X @ W and X.T @ A"


class Certificate:
    """What a certificate after every epoch adds to the epochs."""

    params = (SHAPES, MAIN)
    param_names = ("n, d, m", "loss")
    timeout = 600

    def setup(self, shape, loss):
        self.X, self.y = clusters(*small(shape))

    def track_share_of_epoch(self, shape, loss):
        epoch, certificate = epoch_and_certificate(self.X, self.y, LOSSES[loss])
        return certificate / epoch

    track_share_of_epoch.unit = "times an epoch"


class ToGap:
    """The way to a certified gap on the handwritten digits."""

    params = (list(LOSSES), [1e-3, 1e-6])
    param_names = ("loss", "gap")
    timeout = 600
    most = 20 if QUICK else 3000

    def setup(self, loss, gap):
        self.X, self.y = digits()

    def solve(self, loss, gap):
        return train(self.X, self.y, LOSSES[loss], tol=gap, max_epochs=self.most, check_every=5)

    def track_epochs(self, loss, gap):
        solution = self.solve(loss, gap)
        return solution.n_epochs if solution.converged or QUICK else np.nan

    track_epochs.unit = "epochs"

    def track_seconds(self, loss, gap):
        solution = self.solve(loss, gap)
        return solution.history["seconds"][-1] if solution.converged or QUICK else np.nan

    track_seconds.unit = "s"


class WithoutDual:
    """The loss that is not convex: L-BFGS from the solution of the softmax loss."""

    params = (list(WITHOUT_DUAL),)
    param_names = ("loss",)

    def setup(self, loss):
        self.X, self.y = digits()

    def track_ratio_to_softmax(self, loss):
        options = {"tol": 1e-3, "max_epochs": 20 if QUICK else 1000}
        ours, softmax = seconds(
            lambda: train(self.X, self.y, WITHOUT_DUAL[loss], **options),
            lambda: train(self.X, self.y, LOSSES["softmax"], **options),
        )
        return ours / softmax

    track_ratio_to_softmax.unit = "times softmax alone"


class SpeedUp:
    """How many times faster than the reference, both for the same epochs."""

    params = (list(LOSSES),)
    param_names = ("loss",)
    shape = (200, 64, 20)

    def setup(self, loss):
        self.X, self.y = clusters(*small(self.shape))
        if LOSSES[loss].multilabel:
            self.y = self.y[:, None] == np.arange(self.y.max() + 1)

    def track_speed_up(self, loss):
        ours = LOSSES[loss]
        twin = getattr(reference, type(ours).__name__)(**dict(ours._parameters()))
        options = {"tol": 0.0, "max_epochs": 1}
        fast, slow = seconds(
            lambda: train(self.X, self.y, ours, **options),
            lambda: reference.solve(self.X, self.y, twin, random_state=0, **options),
        )
        return slow / fast

    track_speed_up.unit = "times faster"


class Evaluation:
    """The value and the gradient of every loss, in units of exp of the same scores."""

    params = (list(EVERY_LOSS), ["value", "gradient"], [10, 1000])
    param_names = ("loss", "what", "classes")

    def setup(self, loss, what, classes):
        rng = np.random.default_rng(0)
        self.scores = rng.standard_normal((4 if QUICK else 100_000 // classes, classes))
        self.y = rng.integers(0, classes, len(self.scores))

    def track_ratio_to_exp(self, loss, what, classes):
        method = getattr(EVERY_LOSS[loss], what)
        ours, exp = seconds(lambda: method(self.scores, self.y), lambda: np.exp(self.scores))
        return ours / exp

    track_ratio_to_exp.unit = "times np.exp"


class Memory:
    """What training needs at its peak beyond X, W and the dual variables."""

    params = (SHAPES, MAIN)
    param_names = ("n, d, m", "loss")

    def setup(self, shape, loss):
        self.X, self.y = clusters(*small(shape))

    def track_work(self, shape, loss):
        tracemalloc.start()
        solution = train(self.X, self.y, LOSSES[loss], tol=0.5, max_epochs=2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return (peak - solution.coef.nbytes - solution.dual.nbytes) / 2**20

    track_work.unit = "MB"


class Sparse:
    """Seconds per epoch, stored entry and class; a flat curve is a cost per stored entry."""

    params = ([10_000, 100_000], [0.001, 0.01], MAIN)
    param_names = ("features", "density", "loss")
    n, m = 2_000, 20

    def setup(self, features, density, loss):
        n = 50 if QUICK else self.n
        rng = np.random.default_rng(0)
        stored = int(features * density)
        indices = np.sort(rng.integers(0, features, (n, stored)), axis=1).ravel()
        data = rng.standard_normal(indices.size) / np.sqrt(stored)
        start = np.arange(0, indices.size + 1, stored)
        self.X = scipy.sparse.csr_array((data, indices, start), shape=(n, features))
        self.X.sum_duplicates()
        self.y = rng.permutation(np.arange(n) % self.m)

    def track_time(self, features, density, loss):
        numbers = self.X.nnz * self.m
        return 1e9 * epoch_seconds(self.X, self.y, LOSSES[loss]) / numbers

    track_time.unit = "ns/(entry and class)"


class Kernel:
    """Seconds per epoch over those of the product K @ A."""

    params = (MAIN,)
    param_names = ("loss",)
    shape = (4_000, 64, 100)

    def setup(self, loss):
        self.X, self.y = clusters(*small(self.shape))
        self.K, self.A = self.X @ self.X.T, np.ones((len(self.X), self.y.max() + 1))

    def track_ratio_to_product(self, loss):
        (product,) = seconds(lambda: self.K @ self.A)
        return epoch_seconds(self.K, self.y, LOSSES[loss], kernel=True) / product

    track_ratio_to_product.unit = "times K @ A"
