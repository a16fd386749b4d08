"""Draw the pictures and print the tables of docs/weighted.md.

``python docs/weighted.py demo.npz text.npz`` reads two archives: ``X_train`` and ``y_train`` in the
first, a CSR matrix as ``X_train_data``, ``X_train_indices``, ``X_train_indptr``, ``X_train_shape``
and ``y_train`` in the second. It writes weighted_demo.png and weighted_text.png next to itself.
"""

import sys
import time
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import scipy.sparse

from topkopt import ConvergenceWarning, solve
from topkopt.losses import WeightedTopKHinge

matplotlib.use("Agg")
from matplotlib import pyplot as plt

METHODS = {
    "sdca": "tab:blue",
    "pairwise": "tab:green",
    "away_step": "tab:orange",
    "block_frank_wolfe": "tab:purple",
    "frank_wolfe": "tab:red",
}
SMOOTHINGS = (0.0, 1e-3, 1e-2, 1e-1)
TARGETS = (1e-2, 1e-3, 1e-6)


def read_demo(path):
    """Return the examples as they are."""
    with np.load(path) as archive:
        return archive["X_train"].astype(float), archive["y_train"]


def read_text(path, every=8):
    """Return every eighth document, with rows of length 1."""
    with np.load(path) as archive:
        parts = (archive[f"X_train_{part}"] for part in ("data", "indices", "indptr"))
        counts = scipy.sparse.csr_array(tuple(parts), shape=archive["X_train_shape"]).astype(float)
        labels = archive["y_train"]
    rows = scipy.sparse.csr_array(counts[::every])
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return scipy.sparse.diags_array(1 / np.maximum(lengths, 1e-300)) @ rows, labels[::every]


def run(X, y, k, C, max_epochs):
    """Return the history of every method and smoothing."""
    histories = {}
    for smoothing in SMOOTHINGS:
        loss = WeightedTopKHinge("exp", k, label=True, smoothing=smoothing, envelope="all")
        for method in METHODS:
            histories[smoothing, method] = train(X, y, loss, C, method, max_epochs)
    return histories


def train(X, y, loss, C, method, max_epochs):
    """Return the history of one training, its seconds replaced by those of the processor."""
    clock = [time.process_time()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solve(
            X,
            y,
            loss,
            C=C,
            method=method,
            tol=1e-6,
            max_epochs=max_epochs,
            random_state=0,
            callback=lambda state: clock.append(time.process_time()),
        )
    return {**solution.history, "seconds": np.array(clock[1:]) - clock[0]}


def reached(history, target):
    """Return how many epochs and seconds it took to reach a gap."""
    hits = np.flatnonzero(history["gap"] <= target)
    if not hits.size:
        return f"– ({history['gap'][-1]:.0e})"
    return f"{history['epoch'][hits[0]]} ({history['seconds'][hits[0]]:.2f} s)"


def table(histories):
    """Print epochs and seconds to each target, as Markdown."""
    print("| smoothing | method | " + " | ".join(f"gap {target:g}" for target in TARGETS) + " |")
    print("|---|---|" + "---|" * len(TARGETS))
    for (smoothing, method), history in histories.items():
        cells = " | ".join(reached(history, target) for target in TARGETS)
        print(f"| {smoothing:g} | `{method}` | {cells} |")


def draw(histories, path):
    """Draw the gap against the epochs, one panel per smoothing."""
    figure, panels = plt.subplots(
        1, len(SMOOTHINGS), figsize=(13, 3.2), sharex=True, sharey=True, layout="constrained"
    )
    for panel, smoothing in zip(panels, SMOOTHINGS, strict=True):
        for method, colour in METHODS.items():
            history = histories[smoothing, method]
            gap = np.maximum(history["gap"][1:], 1e-7)
            panel.loglog(history["epoch"][1:], gap, color=colour, label=method)
        panel.set(title=f"smoothing {smoothing:g}", xlabel="epochs", ylim=(5e-7, 1.5))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("relative duality gap")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main(demo, text):
    """Run both data sets."""
    here = Path(__file__)
    for name, (X, y), k, C, max_epochs in (
        ("demo", read_demo(demo), 3, 10.0, 3000),
        ("text", read_text(text), 5, 1.0, 400),
    ):
        histories = run(X, y, k, C, max_epochs)
        print(f"\n{name}: n = {X.shape[0]}, d = {X.shape[1]}, m = {y.max() + 1}, k = {k}, C = {C}")
        table(histories)
        draw(histories, here.with_name(f"weighted_{name}.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])
