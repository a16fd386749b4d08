"""One objective for all: 1/2 |W|^2 + C * sum of losses, in float64."""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "Multiclass linear classification"
    url = "https://github.com/topkopt/topkopt"
    min_benchopt_version = "1.7"
    requirements = ["pip::numpy"]
    parameters = {"loss": ["softmax", "crammer_singer"], "C": [0.1, 1.0, 10.0]}

    def set_data(self, X, y):
        self.X, self.y = X, y
        self.n_classes = int(y.max()) + 1

    def get_objective(self):
        return {"X": self.X, "y": self.y, "loss": self.loss, "C": self.C}

    def get_one_result(self):
        return {"coef": np.zeros((self.X.shape[1], self.n_classes))}

    def evaluate_result(self, coef, duality_gap=np.nan):
        """`coef` has a column per class; a solver that certifies adds its relative gap."""
        scores = np.asarray(self.X @ coef, dtype=np.float64)
        rows = np.arange(len(self.y))
        own = scores[rows, self.y]
        if self.loss == "softmax":
            losses = np.logaddexp.reduce(scores, axis=1) - own
        else:
            margins = 1.0 + scores - own[:, None]
            margins[rows, self.y] = 0.0
            losses = margins.max(axis=1)
        value = 0.5 * float((np.asarray(coef, dtype=np.float64) ** 2).sum())
        return {
            "value": value + self.C * float(losses.sum()),
            "duality_gap": duality_gap,
            "train_accuracy": float((scores.argmax(axis=1) == self.y).mean()),
        }
