"""Strong scaling: the same training step on one thread and on two, float32, as a ratio."""

import numpy as np

from topkopt import losses
from topkopt._threads import Team, blas_threads
from topkopt.solvers.problem import as_problem

from .common import seconds
from .solvers import clusters, small

# What a loss is scaled on: many features and classes, a linear probe, and few features.
STEPS = {
    "epoch": ("topk_hinge", (4_000, 4_096, 1_000)),
    "certificate": ("topk_hinge", (4_000, 4_096, 1_000)),
    "evaluation": ("softmax", (20_000, 512, 100)),
    "evaluation, few features": ("topk_entropy", (15_000, 16, 26)),
}


class Scaling:
    """Two threads over one: an epoch, a certificate, an evaluation of L-BFGS."""

    params = (list(STEPS), ["float32", "float64"])
    param_names = ("step", "dtype")

    def setup(self, step, dtype):
        name, shape = STEPS[step]
        n, d, m = small(shape)
        X, y = clusters(n, d, m)
        loss = losses.from_flat(name, k=5)
        self.problem = as_problem(X.astype(dtype), y, loss, 1.0, None, False, m)
        self.examples = self.problem.examples()
        self.dual = np.zeros((n, m), dtype)
        self.coef, self.pull = np.zeros((d, m), dtype), np.empty((d, m))
        self.order = np.random.default_rng(0).permutation(n).astype(np.intp)
        self.block_size = self.problem.data.auto_block(m)
        self.take(step, 1)  # away from W = 0

    def take(self, step, n_threads):
        data = self.problem.data.on(Team(n_threads))
        if step == "epoch":
            data.epoch(self.examples, self.coef, self.dual, self.order, self.block_size)
        elif step == "certificate":
            data.sums(self.examples, self.coef, self.dual, np.arange(data.n_rows))
        else:
            data.evaluate(self.examples, self.coef, self.pull)

    def track_scaling(self, step, dtype):
        with blas_threads(1):
            one, two = seconds(lambda: self.take(step, 1), lambda: self.take(step, 2), budget=2.0)
        return one / two

    track_scaling.unit = "times faster"
