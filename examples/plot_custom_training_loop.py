"""
A training loop of one's own
============================

The losses are ordinary functions of scores: ``value`` and ``gradient`` fit into any optimiser.
Here a small neural network in NumPy is trained by stochastic gradient descent on the top-3
entropy, which a linear solver could not do, and a linear model by both, to see what the
certificate is worth.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import topkopt
from topkopt import losses
from topkopt.metrics import topk_accuracy

X, y = load_digits(return_X_y=True)
X = (X - X.mean()) / X.std()
train, test = np.arange(0, len(y), 2), np.arange(1, len(y), 2)
loss = losses.TopKEntropy(3)
rng = np.random.default_rng(0)

# %%
# One hidden layer; the gradient of the loss with respect to the scores starts the backward pass.
hidden = rng.standard_normal((64, 40)) / 8
output = np.zeros((40, 10))
for _ in range(30):
    for batch in np.array_split(rng.permutation(train), 30):
        active = np.maximum(X[batch] @ hidden, 0)
        pull = loss.gradient(active @ output, y[batch]) / len(batch)
        back = (pull @ output.T) * (active > 0)
        output -= 0.3 * active.T @ pull
        hidden -= 0.3 * X[batch].T @ back
scores = np.maximum(X[test] @ hidden, 0) @ output
first, third = (topk_accuracy(y[test], scores, k) for k in (1, 3))
print(f"network: top-1 {first:.3f}, top-3 {third:.3f}")

# %%
# A linear model by gradient descent, next to the certified optimum of the same objective.
C, n = 0.01, len(train)
exact = topkopt.solve(X[train], y[train], loss, C=C, tol=1e-6, random_state=0)
W = np.zeros((64, 10))
objective = []
for _ in range(100):
    s = X[train] @ W
    objective.append(loss.value(s, y[train]).mean() + (W**2).sum() / (2 * C * n))
    W -= 0.05 * (X[train].T @ loss.gradient(s, y[train]) / n + W / (C * n))
between = f"{exact.dual_value:.6f} and {exact.primal:.6f}"
print(f"gradient descent {objective[-1]:.6f}, optimum between {between}")

figure, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
ax.semilogy(np.array(objective) - exact.dual_value, label="gradient descent, full batches")
history = exact.history
ax.semilogy(history["epoch"], history["primal"] - exact.dual_value, "o-", label="topkopt.solve")
ax.set(
    xlabel="passes over the data", ylabel="objective above the certified bound", ylim=(1e-7, None)
)
ax.legend(frameon=False)
plt.show()
