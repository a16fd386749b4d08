"""
A loss of one's own
===================

`topkopt.losses.CustomLoss` takes a Python function of rows of scores that returns losses and
gradients. It is trained by L-BFGS, and if it is convex, its gradients certify the result: the
optimum is between the two objectives, as for the losses of the library. Here it is the squared
hinge of one problem per class.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from topkopt import TopKClassifier
from topkopt.losses import CustomLoss
from topkopt.metrics import topk_accuracy

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0, stratify=y)


# %%
# The whole loss. Every row counts for itself, and any number of rows may come at once.
def squared_hinge(scores, labels):
    """Return the squared hinges of one problem per class, and their gradients."""
    signs = np.where(np.arange(scores.shape[1]) == labels[:, None], 1.0, -1.0)
    short = np.maximum(0.0, 1.0 - signs * scores)
    return (short**2).sum(axis=1), -2.0 * signs * short


# %%
# It stands where the name of a loss stands; a bound of its second derivative helps the solver.
losses = {
    "squared hinge": CustomLoss(squared_hinge, curvature=2.0),
    "hinge": "hinge",
    "softmax": "softmax",
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for name, loss in losses.items():
    model = TopKClassifier(loss, C=1.0, tol=1e-6, max_epochs=5000, random_state=0)
    model.fit(X_train, y_train)
    history = model.history_
    left.semilogy(history["epoch"][1:], history["gap"][1:], label=name)
    places = np.arange(1, 6)
    accuracy = [topk_accuracy(y_test, model.decision_function(X_test), k) for k in places]
    right.plot(places, accuracy, "o-", label=name)
    print(f"{name}: accuracy {accuracy[0]:.3f}, gap {model.duality_gap_:.1e}")
left.set(xlabel="passes over the data", ylabel="relative duality gap", xscale="log")
right.set(xlabel="k", ylabel="top-k accuracy", xticks=places)
right.legend(frameon=False)
plt.show()
