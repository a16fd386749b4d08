"""LogisticRegression of scikit-learn, multinomial, with each of its solvers."""

import warnings

import numpy as np
from benchmark_utils import UNTIL_NOTHING_IMPROVES, next_tolerance, start
from benchopt import BaseSolver
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression


class Solver(BaseSolver):
    name = "LogisticRegression"
    sampling_strategy = "tolerance"
    stopping_criterion = UNTIL_NOTHING_IMPROVES
    get_next = staticmethod(next_tolerance)
    requirements = ["pip::scikit-learn"]
    parameters = {"solver": ["lbfgs", "newton-cg", "newton-cholesky", "saga"]}

    def skip(self, X, y, loss, C):
        return loss != "softmax", "it has the softmax loss only"

    def set_objective(self, X, y, loss, C):
        self.X, self.y, self.C = X, y, C

    def run(self, tolerance):
        if tolerance > 1:
            self.coef = start(self.X, self.y)
            return
        model = LogisticRegression(
            solver=self.solver,
            C=self.C,
            fit_intercept=False,
            tol=tolerance,
            max_iter=100_000,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.coef = model.fit(self.X, self.y).coef_.T

    def get_result(self):
        return {"coef": np.ascontiguousarray(self.coef)}
