"""The synthetic circle of the papers, drawn 20 times.

    python docs/experiments/circle.py

needs no data. Each draw has 200 points to train with and 200 to choose C with, for each metric its
own; all are tested on the same 200,000. Writes circle.json, circle.png and the table of circle.md.
"""

import warnings
from functools import partial

import numpy as np
from common import Cells, arguments, save_picture, table, write_block
from matplotlib.figure import Figure

import topkopt
from topkopt.datasets import make_circle
from topkopt.metrics import topk_accuracy

CS = 2.0 ** np.arange(-18, 19)
LOSSES = {
    "softmax": ("softmax", {}),
    "hinge": ("hinge", {}),
    "one-vs-all logistic": ("ova_logistic", {}),
    "top-2 hinge": ("topk_hinge", {"k": 2}),
    "top-2 hinge, smooth": ("topk_hinge", {"k": 2, "smoothing": 1.0}),
    "top-2 entropy": ("topk_entropy", {"k": 2}),
    "truncated top-2 entropy": ("truncated_topk_entropy", {"k": 2}),
}


def test_accuracy(loss, params, train, validation, test):
    """Return top-1 and top-2 accuracy on test data, each with the C that is best for it."""
    with warnings.catch_warnings():
        # Far out on the grid C is so large that 200 epochs are not enough, nor is it ever chosen.
        warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
        path = topkopt.path(*train, loss, Cs=CS, max_epochs=200, random_state=0, **params)
    best = {}
    for k in (1, 2):
        tuned = [topk_accuracy(validation[1], s, k) for s in path.scores(validation[0])]
        chosen = path[int(np.argmax(tuned))]
        best[f"top-{k}"] = topk_accuracy(test[1], test[0] @ chosen.coef, k)
    return best


def run(options):
    """Return accuracies of shape (draws, losses, 2)."""
    draws, points = (2, 2000) if options.quick else (20, 200_000)
    cells = Cells(options.out / "circle.json", {"test points": points})
    test = make_circle(points, 10**6)
    results = np.empty((draws, len(LOSSES), 2))
    for draw in range(draws):
        parts = make_circle(200, 2 * draw), make_circle(200, 2 * draw + 1), test
        for i, (title, loss) in enumerate(LOSSES.items()):
            cell = cells.get(f"{title}, draw {draw}", partial(test_accuracy, *loss, *parts))
            results[draw, i] = cell["top-1"], cell["top-2"]
    return results


def accuracy_table(results):
    """Return mean and range in Markdown."""
    rows = [
        [title]
        + [f"{v.mean():.1f} ({v.min():.1f} to {v.max():.1f})" for v in 100 * results[:, i].T]
        for i, title in enumerate(LOSSES)
    ]
    return table(["loss", "top-1 accuracy", "top-2 accuracy"], rows)


def draw_picture(results):
    """Draw the data and the top-2 accuracies."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.8])
    X, y = make_circle(200, 0)
    for label in range(3):
        radius = 1 + 0.12 * label  # apart, to be seen
        left.scatter(*(radius * X[y == label].T), s=9, label=f"class {label + 1}")
    left.set(aspect="equal", title="200 points, classes set apart")
    left.legend(frameon=False, loc="center")
    left.set_axis_off()
    top2 = 100 * results[..., 1]
    places = np.arange(len(LOSSES))
    for draw in top2:
        right.plot(draw, places, "o", color="0.75", markersize=3)
    right.plot(top2.mean(axis=0), places, "D", color="#c44e52", label="mean of the draws")
    right.set_yticks(places, list(LOSSES))
    right.set_xlabel("top-2 accuracy in percent, C tuned on 200 points")
    right.legend(frameon=False, loc="upper right")
    right.invert_yaxis()
    return figure


if __name__ == "__main__":
    options = arguments(__doc__)
    accuracies = run(options)
    write_block(options.out / "circle.md", "circle", accuracy_table(accuracies))
    save_picture(draw_picture(accuracies), options.out / "circle.png")
