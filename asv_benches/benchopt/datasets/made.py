"""Class means plus noise, rows of length 1: classes that overlap."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "made"
    parameters = {
        "n_samples, n_features, n_classes": [(15000, 16, 26), (5000, 784, 101), (2000, 4096, 397)]
    }

    def get_data(self):
        rng = np.random.default_rng(0)
        y = rng.permutation(np.arange(self.n_samples) % self.n_classes)
        X = rng.standard_normal((self.n_classes, self.n_features))[y]
        X += 2.0 * rng.standard_normal(X.shape)
        return {"X": X / np.linalg.norm(X, axis=1, keepdims=True), "y": y}
