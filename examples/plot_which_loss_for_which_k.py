"""
Which loss for which k
======================

Every loss trades the first guess for the later ones in its own way. Here 20 classes come in ten
pairs that look alike: a classifier with one guess must choose within a pair, one with two need
not.
"""

import matplotlib.pyplot as plt
import numpy as np

from topkopt import TopKClassifierCV
from topkopt.metrics import topk_accuracy_curve

N_PAIRS, N_FEATURES = 10, 12
rng = np.random.default_rng(0)
centres = np.repeat(rng.standard_normal((N_PAIRS, N_FEATURES)), 2, axis=0)
centres += 0.25 * rng.standard_normal(centres.shape)


def draw(n):
    y = rng.integers(0, 2 * N_PAIRS, n)
    return centres[y] + rng.standard_normal((n, N_FEATURES)), y


X_train, y_train = draw(600)
X_test, y_test = draw(5000)

# %%
# For each number of guesses, C is chosen by cross-validation for just that accuracy.
LOSSES = [
    ("softmax", {"loss": "softmax"}),
    ("hinge", {"loss": "hinge", "smoothing": 1.0}),
    ("top-2 hinge", {"loss": "topk_hinge", "smoothing": 1.0, "ks": [2]}),
    ("top-5 hinge", {"loss": "topk_hinge", "smoothing": 1.0, "ks": [5]}),
    ("top-2 entropy", {"loss": "topk_entropy", "ks": [2]}),
]
GUESSES = [1, 2, 3, 5]
accuracy = np.empty((len(LOSSES), len(GUESSES)))
for i, (name, params) in enumerate(LOSSES):
    for j, k in enumerate(GUESSES):
        search = TopKClassifierCV(
            np.logspace(-3, 0, 4), scoring=f"top{k}", cv=3, tol=1e-2, random_state=0, **params
        ).fit(X_train, y_train)
        scores = search.decision_function(X_test)
        accuracy[i, j] = topk_accuracy_curve(y_test, scores, ks=[k])[0]
    cells = (f"top-{k} {100 * a:.1f}" for k, a in zip(GUESSES, accuracy[i], strict=True))
    print(f"{name:14s}", *cells)

# %%
# Differences to softmax, in percent.
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for (name, _), row in zip(LOSSES, accuracy, strict=True):
    ax.plot(GUESSES, 100 * (row - accuracy[0]), marker="o", label=name)
ax.set(xlabel="guesses k", ylabel="top-k accuracy minus softmax's, percent", xticks=GUESSES)
ax.legend(frameon=False)
plt.show()
