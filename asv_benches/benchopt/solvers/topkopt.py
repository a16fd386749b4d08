"""topkopt, to smaller and smaller duality gaps."""

import warnings

from benchmark_utils import UNTIL_NOTHING_IMPROVES, next_tolerance, start
from benchopt import BaseSolver

import topkopt


class Solver(BaseSolver):
    name = "topkopt"
    sampling_strategy = "tolerance"
    stopping_criterion = UNTIL_NOTHING_IMPROVES
    get_next = staticmethod(next_tolerance)
    requirements = ["pip::topkopt"]
    references = ["M. Lapin, M. Hein, B. Schiele, Top-k multiclass SVM, NIPS 2015."]

    def set_objective(self, X, y, loss, C):
        self.X, self.y, self.C = X, y, C
        self.loss = topkopt.losses.Softmax() if loss == "softmax" else topkopt.losses.Hinge()

    def run(self, tolerance):
        if tolerance > 1:
            self.result = {"coef": start(self.X, self.y)}
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
            solution = topkopt.solve(
                self.X,
                self.y,
                self.loss,
                C=self.C,
                tol=tolerance,
                max_epochs=100_000,
                random_state=0,
            )
        self.result = {"coef": solution.coef, "duality_gap": solution.gap}

    def get_result(self):
        return self.result
