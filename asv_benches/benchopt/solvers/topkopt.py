"""topkopt, to smaller and smaller duality gaps."""

import warnings

from benchopt import BaseSolver

import topkopt


class Solver(BaseSolver):
    name = "topkopt"
    sampling_strategy = "tolerance"
    requirements = ["pip::topkopt"]
    references = ["M. Lapin, M. Hein, B. Schiele, Top-k multiclass SVM, NIPS 2015."]

    def set_objective(self, X, y, loss, C):
        self.X, self.y, self.C = X, y, C
        self.loss = topkopt.losses.Softmax() if loss == "softmax" else topkopt.losses.Hinge()

    def run(self, tolerance):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
            self.solution = topkopt.solve(
                self.X,
                self.y,
                self.loss,
                C=self.C,
                tol=min(tolerance, 0.5),
                max_epochs=100_000,
                random_state=0,
            )

    def get_result(self):
        return {"coef": self.solution.coef, "duality_gap": self.solution.gap}
