"""
Projections in a solver of one's own
====================================

Projections take arrays of any shape and write where told, which is what an iterative method wants.
A group of 200 users each splits its attention over 30 offers; nobody gives one offer more than a
fifth of it (the top-5 simplex), and neighbours want similar choices. Projected gradient descent
finds them.
"""

import matplotlib.pyplot as plt
import numpy as np

from topkopt.plotting import ProjectionDisplay
from topkopt.projections import project_topk_simplex

N_USERS, N_OFFERS, K = 200, 30, 5
rng = np.random.default_rng(0)
taste = rng.standard_normal((N_USERS, N_OFFERS)) + 2 * rng.standard_normal(N_OFFERS)
smooth = 2.0  # weight of the differences between neighbours


def objective(P):
    return -(taste * P).sum() + 0.5 * (P**2).sum() + 0.5 * smooth * (np.diff(P, axis=0) ** 2).sum()


def gradient(P):
    slope = P - taste
    steps = smooth * np.diff(P, axis=0)
    slope[1:] += steps
    slope[:-1] -= steps
    return slope


# %%
# Accelerated projected gradient: one line projects all users, in place.
step = 1 / (1 + 4 * smooth)
P = np.zeros_like(taste)
Q, momentum, values = P.copy(), 1.0, []
for _ in range(60):
    moved = Q - step * gradient(Q)
    project_topk_simplex(moved, K, out=moved)
    following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
    Q = moved + (momentum - 1) / following * (moved - P)
    P, momentum = moved, following
    values.append(objective(P))
print(f"objective {values[-1]:.6f}, largest share {P.max():.3f}, sums to {P.sum(axis=1).max():.3f}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
axes[0].semilogy(np.array(values) - min(values) + 1e-12)
axes[0].set(xlabel="iterations", ylabel="objective above the best")
axes[1].imshow(P.T, aspect="auto", cmap="Greys")
axes[1].set(xlabel="users", ylabel="offers", title="shares")
ProjectionDisplay.from_function(
    lambda x: project_topk_simplex(x, 2),
    vertices=(1 - np.eye(3)) / 2,
    name="project_topk_simplex(x, 2)",
    ax=axes[2],
)
plt.show()
