"""
Several labels, and where to cut
================================

A multilabel classifier ranks the labels; which of them to predict is a matter of a threshold, and
the best threshold depends on what is measured. ``threshold="cv"`` chooses it on held-out scores.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import f1_score, hamming_loss
from sklearn.model_selection import train_test_split

from topkopt import MultilabelClassifier
from topkopt.metrics import THRESHOLDS, rank_loss

X, Y = make_multilabel_classification(
    n_samples=1200, n_features=30, n_classes=10, n_labels=3, random_state=0
)
X = X / np.linalg.norm(X, axis=1, keepdims=True)
X_train, X_test, Y_train, Y_test = train_test_split(X, Y, random_state=0)

models = {
    metric: MultilabelClassifier(smoothing=1.0, C=10.0, metric=metric, random_state=0)
    for metric in ("f1_micro", "subset_accuracy")
}
for metric, model in models.items():
    guess = model.fit(X_train, Y_train).predict(X_test)
    print(
        f"cut for {metric}: threshold {model.threshold_:.3g}, "
        f"micro F1 {f1_score(Y_test, guess, average='micro'):.3f}, "
        f"subset accuracy {(guess == Y_test).all(axis=1).mean():.3f}, "
        f"Hamming loss {hamming_loss(Y_test, guess):.3f}"
    )

# %%
# The ranking, and so the rank loss, does not depend on the threshold.
model = models["f1_micro"]
print(f"rank loss {rank_loss(Y_test, model.decision_function(X_test)):.3f}")

scores = model.decision_function(X_test) + model.threshold_
grid = THRESHOLDS[np.abs(THRESHOLDS) <= 2]
f1 = [f1_score(Y_test, scores > cut, average="micro", zero_division=0) for cut in grid]
subset = [((scores > cut) == Y_test).all(axis=1).mean() for cut in grid]
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (metric, model), curve in zip(models.items(), (f1, subset), strict=True):
    (line,) = ax.plot(grid, curve, label=f"{metric} on test data")
    ax.axvline(model.threshold_, color=line.get_color(), linestyle="--")
ax.set(xlabel="threshold (dashed: chosen by cross-validation)", ylabel="test metric")
ax.legend(frameon=False)
plt.show()
