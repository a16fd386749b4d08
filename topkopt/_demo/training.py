"""The demonstration: six losses on two data sets, their accuracies and their certificates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topkopt import __version__
from topkopt._demo.layout import as_table, new_figure
from topkopt._extras import require
from topkopt.datasets import make_circle
from topkopt.metrics import topk_accuracy_curve
from topkopt.plotting import ConvergenceDisplay, TopKAccuracyDisplay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from topkopt.estimators import TopKClassifier

# What is trained: title, loss and its parameters.
LOSSES: list[tuple[str, str, dict[str, Any]]] = [
    ("softmax", "softmax", {}),
    ("hinge", "hinge", {}),
    ("top-2 hinge", "topk_hinge", {"k": 2}),
    ("top-2 hinge, smooth", "topk_hinge", {"k": 2, "smoothing": 1.0}),
    ("top-2 entropy", "topk_entropy", {"k": 2}),
    ("truncated top-2 entropy", "truncated_topk_entropy", {"k": 2}),
]
GUESSES = (1, 2, 3, 5)


class Problem(NamedTuple):
    """Examples to train on and to test on."""

    title: str
    X: NDArray
    y: NDArray
    X_test: NDArray
    y_test: NDArray
    options: dict[str, Any]  # of the classifier


class Result(NamedTuple):
    """One line of the table."""

    title: str
    classifier: TopKClassifier
    accuracy: NDArray  # top-1, top-2, ...
    seconds: float


def problems() -> list[Problem]:
    """Return the digits of scikit-learn, and the circle of the papers."""
    digits = require("sklearn.datasets").load_digits()
    X, y = digits.data / 16, digits.target
    train = np.arange(len(y)) % 2 == 0
    return [
        Problem(
            "digits: handwritten, 64 pixels, 10 classes",
            X[train],
            y[train],
            X[~train],
            y[~train],
            {"C": 0.1},
        ),
        Problem(
            "circle: 2 features, 3 overlapping classes, no intercept",
            *make_circle(200, 0),
            *make_circle(20_000, 1),
            {"C": 1.0, "fit_intercept": False},
        ),
    ]


def train(problem: Problem) -> list[Result]:
    """Train and score every loss."""
    from topkopt.estimators import TopKClassifier

    results = []
    for title, loss, parameters in LOSSES:
        start = perf_counter()
        classifier = TopKClassifier(loss, **parameters, **problem.options, random_state=0)
        classifier.fit(problem.X, problem.y)
        seconds = perf_counter() - start
        scores = classifier.decision_function(problem.X_test)
        accuracy = topk_accuracy_curve(problem.y_test, scores, labels=classifier.classes_)
        results.append(Result(title, classifier, accuracy, seconds))
    return results


def table(results: Sequence[Result]) -> str:
    """Lay the results out as text."""
    guesses = [k for k in GUESSES if k <= len(results[0].accuracy)]
    rows = [["loss", *(f"top-{k}" for k in guesses), "certified gap", "epochs", "seconds"]]
    for title, classifier, accuracy, seconds in results:
        gap = classifier.duality_gap_
        rows.append(
            [
                title,
                *(f"{100 * accuracy[k - 1]:.1f} %" for k in guesses),
                "not convex" if np.isnan(gap) else f"{gap:.1e}",
                str(classifier.n_iter_),
                f"{seconds:.2f}",
            ]
        )
    return as_table(rows, text_columns=1)


def draw(problem: Problem, results: Sequence[Result]) -> Figure:
    """Draw the gaps during the training, and the accuracies."""
    figure = new_figure(11, 4)
    left, right = figure.subplots(1, 2)
    certified = {r.title: r.classifier.history_ for r in results if r.classifier.duality_gap_ >= 0}
    ConvergenceDisplay(certified).plot(left)
    left.set_xscale("symlog", linthresh=1)
    left.set_xlim(left=0)
    for result in results:
        TopKAccuracyDisplay(result.accuracy, name=result.title).plot(right, most=max(GUESSES))
    figure.suptitle(problem.title)
    return figure


def run(output: str, picture: bool) -> None:
    """Train, print the tables and save the pictures."""
    print(f"topkopt {__version__}: accuracy on test data, certificate of the training\n")
    for problem in problems():
        n, d = problem.X.shape
        print(f"{problem.title} ({n} examples of {d} features, {len(problem.y_test)} to test)\n")
        results = train(problem)
        print(table(results), end="\n\n")
        if picture:
            target = Path(output)
            name = target.with_stem(f"{target.stem}-{problem.title.partition(':')[0]}")
            draw(problem, results).savefig(name, dpi=100)
            print(f"Picture saved to {name}\n")
    print(
        "certified gap: the objective is at most this fraction above the optimum; epochs: passes "
        "over the\ndata (L-BFGS iterations for the loss that is not convex)."
    )
