"""LogisticRegression of scikit-learn, multinomial, with each of its solvers."""

import warnings

import numpy as np
from benchopt import BaseSolver
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression


class Solver(BaseSolver):
    name = "LogisticRegression"
    sampling_strategy = "tolerance"
    requirements = ["pip::scikit-learn"]
    parameters = {"solver": ["lbfgs", "newton-cg", "newton-cholesky", "saga"]}

    def skip(self, X, y, loss, C):
        return loss != "softmax", "it has the softmax loss only"

    def set_objective(self, X, y, loss, C):
        self.X, self.y, self.C = X, y, C

    def run(self, tolerance):
        model = LogisticRegression(
            solver=self.solver,
            C=self.C,
            fit_intercept=False,
            tol=min(tolerance, 1.0),
            max_iter=100_000,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.coef = model.fit(self.X, self.y).coef_.T

    def get_result(self):
        return {"coef": np.ascontiguousarray(self.coef)}
