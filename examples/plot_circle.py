"""
Where softmax fails at top-2
============================

Three classes on a circle, drawn as in the papers: points of [0, 7] in five segments, each with its
own class probabilities, wrapped around the circle; no intercept. With two guesses almost every
point could be right, but only the truncated top-2 entropy finds out how.
"""

import matplotlib.pyplot as plt
import numpy as np

import topkopt
from topkopt.datasets import make_circle
from topkopt.metrics import topk_accuracy

X_train, y_train = make_circle(200, 3)
X_valid, y_valid = make_circle(200, 4)
X_test, y_test = make_circle(20_000, 5)

# %%
# A path of C for each loss; the C with the best top-2 accuracy on the validation points is taken.
LOSSES = {"softmax": "softmax", "top-2 entropy": "topk_entropy"}
LOSSES |= {"truncated top-2 entropy": "truncated_topk_entropy"}
chosen = {}
for name, loss in LOSSES.items():
    path = topkopt.path(X_train, y_train, loss, k=2, Cs=2.0 ** np.arange(-10, 11), random_state=0)
    tuned = [topk_accuracy(y_valid, scores, 2) for scores in path.scores(X_valid)]
    chosen[name] = path[int(np.argmax(tuned))].coef
    print(f"{name}: top-2 accuracy {topk_accuracy(y_test, X_test @ chosen[name], 2):.3f}")

# %%
# The two guesses around the circle (coloured rings: the first two classes by score), and the data.
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
angle = np.linspace(0, 2 * np.pi, 720)
ring = np.column_stack([np.cos(angle), np.sin(angle)])
colours = np.array(["tab:blue", "tab:orange", "tab:green"])
for ax, (name, coef) in zip(axes, chosen.items(), strict=True):
    order = np.argsort(-(ring @ coef), axis=1)
    for place, radius in ((0, 1.25), (1, 1.4)):
        ax.scatter(*(radius * ring.T), c=colours[order[:, place]], s=6)
    spread = 1 + 0.12 * (y_train[:, None] - 2)
    ax.scatter(*(spread * X_train).T, c=colours[y_train], s=6)
    ax.set(aspect="equal", title=f"{name}: {topk_accuracy(y_test, X_test @ coef, 2):.1%}")
    ax.set_axis_off()
plt.show()
