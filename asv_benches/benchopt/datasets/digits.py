"""The digits that ship with scikit-learn: 1797 images of 64 pixels, 10 classes."""

import numpy as np
from benchopt import BaseDataset
from sklearn.datasets import load_digits


class Dataset(BaseDataset):
    name = "digits"
    requirements = ["pip::scikit-learn"]

    def get_data(self):
        X, y = load_digits(return_X_y=True)
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9) / np.sqrt(X.shape[1])
        return {"X": X, "y": y}
