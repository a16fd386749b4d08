"""The synthetic circle of the papers: the figures and the picture of docs/circle.md.

``python docs/circle.py`` draws the data 20 times (200 points to train on, 200 to choose C with, for
each metric its own, 200,000 to test on), prints a table and writes docs/circle.png.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import topkopt
from topkopt.datasets import make_circle
from topkopt.metrics import topk_accuracy

CS = 2.0 ** np.arange(-18, 19)
LOSSES = [
    ("softmax", "softmax", {}),
    ("hinge", "hinge", {}),
    ("one-vs-all logistic", "ova_logistic", {}),
    ("top-2 hinge", "topk_hinge", {"k": 2}),
    ("top-2 hinge, smooth", "topk_hinge", {"k": 2, "smoothing": 1.0}),
    ("top-2 entropy", "topk_entropy", {"k": 2}),
    ("truncated top-2 entropy", "truncated_topk_entropy", {"k": 2}),
]


def test_accuracy(loss, params, train, validation, test):
    """Return top-1 and top-2 accuracy on test data, each with the C that is best for it."""
    with warnings.catch_warnings():
        # Far out on the grid C is so large that 200 epochs are not enough, nor is it ever chosen.
        warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
        path = topkopt.path(*train, loss, Cs=CS, max_epochs=200, random_state=0, **params)
    best = []
    for k in (1, 2):
        tuned = [topk_accuracy(validation[1], s, k) for s in path.scores(validation[0])]
        chosen = path[int(np.argmax(tuned))]
        best.append(topk_accuracy(test[1], test[0] @ chosen.coef, k))
    return best


def run(draws):
    """Return accuracies of shape (draws, losses, 2)."""
    results = np.empty((draws, len(LOSSES), 2))
    test = make_circle(200_000, 10**6)
    for draw in range(draws):
        train, validation = make_circle(200, 2 * draw), make_circle(200, 2 * draw + 1)
        for i, (_, loss, params) in enumerate(LOSSES):
            results[draw, i] = test_accuracy(loss, params, train, validation, test)
        print(f"draw {draw + 1} of {draws}", flush=True)
    return results


def table(results):
    """Return mean and range in Markdown."""
    lines = ["| loss | top-1 accuracy | top-2 accuracy |", "|---|---|---|"]
    for i, (title, *_) in enumerate(LOSSES):
        cells = [
            f"{100 * v.mean():.1f} ({100 * v.min():.1f} to {100 * v.max():.1f})"
            for v in results[:, i].T
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
    right.set_yticks(places, [title for title, *_ in LOSSES])
    right.set_xlabel("top-2 accuracy in percent, C tuned on 200 points")
    right.legend(frameon=False, loc="upper right")
    right.invert_yaxis()
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    accuracies = run(parser.parse_args().draws)
    print(table(accuracies))
    draw_picture(accuracies).savefig(Path(__file__).with_name("circle.png"), dpi=100)
