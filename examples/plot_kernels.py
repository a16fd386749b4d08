"""
Kernels
=======

The dual solver never needs the features, only their inner products: any kernel will do, by name,
as a function, or precomputed.
"""

import matplotlib.pyplot as plt
import numpy as np

from topkopt import TopKClassifier

rng = np.random.default_rng(0)
y = np.repeat(np.arange(3), 80)
radius = 0.6 + 0.6 * y + 0.12 * rng.standard_normal(len(y))
angle = rng.uniform(0, 2 * np.pi, len(y))
X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def laplacian(A, B):
    return np.exp(-np.abs(A[:, None, :] - B[None, :, :]).sum(axis=2))


MODELS = {
    "linear": {"kernel": "linear"},
    "polynomial, degree 2": {"kernel": "poly", "degree": 2},
    "RBF": {"kernel": "rbf", "gamma": 2.0},
    "own function": {"kernel": laplacian},
}

# %%
# The colours are the predictions, on a grid around the examples.
side = np.linspace(-2.3, 2.3, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 4, figsize=(12, 3.3), layout="constrained")
for ax, (name, params) in zip(axes, MODELS.items(), strict=True):
    model = TopKClassifier("hinge", smoothing=0.5, random_state=0, **params).fit(X, y)
    ax.pcolormesh(side, side, model.predict(grid).reshape(120, 120), alpha=0.35, cmap="viridis")
    ax.scatter(*X.T, c=y, s=5, cmap="viridis")
    ax.set(title=f"{name}: {model.score(X, y):.0%}", aspect="equal", xticks=[], yticks=[])
    print(f"{name}: accuracy {model.score(X, y):.3f}, gap {model.duality_gap_:.1e}")

# %%
# A precomputed kernel: train on the Gram matrix, score by the kernel with the training examples.
given = TopKClassifier("hinge", smoothing=0.5, kernel="precomputed", random_state=0)
given.fit(laplacian(X, X), y)
print("precomputed:", given.score(laplacian(X, X), y))
plt.show()
