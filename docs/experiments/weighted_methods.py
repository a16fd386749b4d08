"""Five ways to train a weighted top-k SVM: the gap against the epochs.

    python docs/experiments/weighted_methods.py --data DIR

reads wtopk_demo450_01.npz and banking77.npz, and writes weighted_methods.json, a picture for each
data set and the tables of weighted_methods.md.
"""

import time
import warnings

import numpy as np
import scipy.sparse
from common import Cells, arguments, read_training_part, save_picture, table, write_block
from matplotlib.figure import Figure

from topkopt import ConvergenceWarning, solve
from topkopt.losses import WeightedTopKHinge

METHODS = {
    "sdca": "tab:blue",
    "pairwise": "tab:green",
    "away_step": "tab:orange",
    "block_frank_wolfe": "tab:purple",
    "frank_wolfe": "tab:red",
}
SMOOTHINGS = (0.0, 1e-3, 1e-2, 1e-1)
TARGETS = (1e-2, 1e-3, 1e-6)
POINTS = 25  # of a curve that are kept


def read_text(folder, every=8):
    """Return every eighth document, with rows of length 1."""
    counts, labels = read_training_part("banking77", folder)
    rows = scipy.sparse.csr_array(counts[::every])
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return scipy.sparse.diags_array(1 / np.maximum(lengths, 1e-300)) @ rows, labels[::every]


def train(X, y, loss, C, method, max_epochs):
    """Return when each target was reached, and some points of the curve; seconds are of the CPU."""
    clock = [time.process_time()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        history = solve(
            X,
            y,
            loss,
            C=C,
            method=method,
            tol=1e-6,
            max_epochs=max_epochs,
            random_state=0,
            callback=lambda state: clock.append(time.process_time()),
        ).history
    seconds = np.array(clock[1:]) - clock[0]
    reached = {}
    for target in TARGETS:
        hits = np.flatnonzero(history["gap"] <= target)
        if hits.size:
            reached[f"{target:g}"] = [int(history["epoch"][hits[0]]), round(seconds[hits[0]], 3)]
    places = np.unique(np.geomspace(1, len(seconds) - 1, POINTS).astype(int))
    curve = [[int(history["epoch"][p]), float(f"{history['gap'][p]:.2e}")] for p in places]
    return {"reached": reached, "curve": curve}


def run(cells, name, X, y, k, C, max_epochs):
    """Return the cell of every method and smoothing."""
    return {
        (smoothing, method): cells.get(
            f"{name}, smoothing {smoothing:g}, {method}",
            lambda smoothing=smoothing, method=method: train(
                X,
                y,
                WeightedTopKHinge("exp", k, label=True, smoothing=smoothing, envelope="all"),
                C,
                method,
                max_epochs,
            ),
        )
        for smoothing in SMOOTHINGS
        for method in METHODS
    }


def cell_text(cell, target):
    """Return how many epochs and seconds it took to reach a gap, or the last gap."""
    if target not in cell["reached"]:
        return f"– ({cell['curve'][-1][1]:.0e})"
    epochs, seconds = cell["reached"][target]
    return f"{epochs} ({seconds:.2f} s)"


def draw(found):
    """Draw the gap against the epochs, one panel per smoothing."""
    figure = Figure(figsize=(13, 3.2), layout="constrained")
    panels = figure.subplots(1, len(SMOOTHINGS), sharex=True, sharey=True)
    for panel, smoothing in zip(panels, SMOOTHINGS, strict=True):
        for method, colour in METHODS.items():
            epochs, gaps = np.array(found[smoothing, method]["curve"]).T
            panel.loglog(epochs, np.maximum(gaps, 1e-7), color=colour, label=method)
        panel.set(title=f"smoothing {smoothing:g}", xlabel="epochs", ylim=(5e-7, 1.5))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("relative duality gap")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def main():
    """Run both data sets."""
    options = arguments(__doc__)
    cells = Cells(options.out / "weighted_methods.json", {"quick": options.quick})
    for name, (X, y), k, C, max_epochs in (
        ("demo", read_training_part("wtopk_demo450_01", options.data), 3, 10.0, 3000),
        ("text", read_text(options.data), 5, 1.0, 400),
    ):
        found = run(cells, name, X, y, k, C, 20 if options.quick else max_epochs)
        names = [f"{target:g}" for target in TARGETS]
        rows = [
            [f"{smoothing:g}", f"`{method}`", *(cell_text(cell, target) for target in names)]
            for (smoothing, method), cell in found.items()
        ]
        head = ["smoothing", "method", *(f"gap {target}" for target in names)]
        write_block(options.out / "weighted_methods.md", name, table(head, rows))
        save_picture(draw(found), options.out / f"weighted_methods_{name}.png")


if __name__ == "__main__":
    main()
