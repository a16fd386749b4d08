"""The five methods on one weighted top-k problem, in units of SDCA and of the reference."""

import warnings

import numpy as np

from topkopt import ConvergenceWarning, losses, reference, solve

from .common import seconds

METHODS = ["sdca", "frank_wolfe", "away_step", "pairwise", "block_frank_wolfe"]
SMOOTHINGS = [0.0, 0.1]


def examples(n, d, m, seed=0):
    """Return noisy clusters, one per class."""
    rng = np.random.default_rng(seed)
    y = np.append(rng.integers(0, m, n - 1), m - 1)
    X = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((m, d))[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def train(X, y, loss, method, **options):
    """Train, whether or not the tolerance is reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # There may be more classes than examples; the last example is of the last one.
        options["n_classes"] = int(y[-1]) + 1
        return solve(X, y, loss, C=1.0, method=method, random_state=0, **options)


class ToGap:
    """What it takes to reach a relative gap of 1 %."""

    params = (METHODS, SMOOTHINGS)
    param_names = ("method", "smoothing")

    def setup(self, method, smoothing):
        self.data = examples(200, 40, 20)
        self.loss = losses.WeightedTopKHinge("exp", 3, label=True, smoothing=smoothing)

    def run(self, method):
        return train(*self.data, self.loss, method, tol=1e-2, max_epochs=5000)

    def track_epochs(self, method, smoothing):
        return self.run(method).n_epochs

    track_epochs.unit = "epochs"

    def track_ratio_to_sdca(self, method, smoothing):
        ours, sdca = seconds(lambda: self.run(method), lambda: self.run("sdca"))
        return ours / sdca

    track_ratio_to_sdca.unit = "times SDCA"


class SpeedUp:
    """Ten epochs, against the same ten epochs in NumPy."""

    params = (METHODS,)
    param_names = ("method",)

    def setup(self, method):
        self.data = examples(60, 20, 10)

    def track_speed_up(self, method):
        options = {"C": 1.0, "tol": 0.0, "max_epochs": 10, "random_state": 0}
        twin = reference.WeightedTopKHinge("exp", 3, label=True)
        loss = losses.WeightedTopKHinge("exp", 3, label=True)

        def theirs():
            if method == "sdca":
                reference.solve(*self.data, twin, **options)
            else:
                reference.solve_frank_wolfe(*self.data, twin, method=method, **options)

        slow, fast = seconds(
            theirs, lambda: train(*self.data, loss, method, tol=0.0, max_epochs=10)
        )
        return slow / fast

    track_speed_up.unit = "times faster"


class WeightedStep:
    """An epoch of exact steps with 1000 classes and 10 weights, over one with equal weights."""

    params = ([False, True], [0.1, 10.0])
    param_names = ("label", "scale")

    def setup(self, label, scale):
        X, self.y = examples(500, 8, 1000)
        self.X = np.sqrt(scale) * X

    def epochs(self, loss):
        # Epochs without a certificate in between: the difference of two runs
        return [
            lambda n=n: train(self.X, self.y, loss, "sdca", tol=0.0, max_epochs=n, check_every=n)
            for n in (2, 6)
        ]

    def track_ratio_to_equal_weights(self, label, scale):
        few, many, few_equal, many_equal = seconds(
            *self.epochs(losses.WeightedTopKHinge("exp", 10, label=label)),
            *self.epochs(losses.TopKHinge(10)),
        )
        return (many - few) / (many_equal - few_equal)

    track_ratio_to_equal_weights.unit = "times the unweighted step"
