"""LinearSVC of scikit-learn, which is liblinear: the dual method of Keerthi and others."""

import warnings

import numpy as np
from benchmark_utils import UNTIL_NOTHING_IMPROVES, next_tolerance, start
from benchopt import BaseSolver
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC


class Solver(BaseSolver):
    name = "LinearSVC"
    sampling_strategy = "tolerance"
    stopping_criterion = UNTIL_NOTHING_IMPROVES
    get_next = staticmethod(next_tolerance)
    requirements = ["pip::scikit-learn"]

    def skip(self, X, y, loss, C):
        return loss != "crammer_singer", "it has the hinge loss only"

    def set_objective(self, X, y, loss, C):
        self.X, self.y, self.C = X, y, C

    def run(self, tolerance):
        if tolerance > 1:
            self.coef = start(self.X, self.y)
            return
        model = LinearSVC(
            multi_class="crammer_singer",
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
