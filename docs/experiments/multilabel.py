"""Multilabel data sets: seven metrics of three methods, linear and with an RBF kernel.

    python docs/experiments/multilabel.py --data DIR [--sets scene yeast]

reads emotions.npz and the others. C, the kernel's width and the threshold are chosen for each
metric by cross-validation on the training part. Writes multilabel.json, multilabel.png
and the tables of multilabel.md.
"""

import time
import warnings

import numpy as np
import scipy.sparse
from common import Cells, arguments, percent, read_parts, save_picture, solve, table, write_block
from matplotlib.figure import Figure
from scipy.stats import rankdata
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold

import topkopt
from topkopt import losses
from topkopt.metrics import THRESHOLDS, rank_loss

SETS = ("emotions", "scene", "yeast", "medical", "enron", "bibtex", "corel5k", "delicious")
LOSSES = {
    "LR-ML": losses.MultilabelSoftmax(),
    "SVM-ML": losses.MultilabelHinge(),
    "smooth SVM-ML": losses.MultilabelHinge(smoothing=1.0),
}
CS = {"linear": 10.0 ** np.arange(-4, 3), "RBF": 4.0 ** np.arange(-1, 4)}
WIDTHS = (0.5, 1.0, 2.0, 4.0)  # times 1 / (n_features * X.var()), which gamma="scale" means
MANY = 2000  # examples: from here on 3 folds instead of 10, and two widths instead of four
TOO_MANY = 5000  # examples: from here on no RBF kernel, whose matrix of all pairs takes too long
LOWER_IS_BETTER = ("rank loss", "Hamming")
METRICS = (*LOWER_IS_BETTER, "accuracy", "subset", "F1 micro", "F1 macro", "F1 instance")
PAPERS = {
    ("scene", "smooth SVM-ML, RBF"): {"rank loss": 6.4, "F1 micro": 74.7},
    ("yeast", "smooth SVM-ML, RBF"): {"rank loss": 15.7, "F1 micro": 68.4},
}


def label_metrics(truth, guess):
    """Return the metrics of predicted labels, all from counts.

    An example without labels for which none is predicted counts as right; a label that no example
    has and that is never predicted counts as 0 in the macro F1.
    """
    both = truth & guess
    hit, said, there = (each.sum(axis=1) for each in (both, guess, truth))
    hits, calls, owners = (each.sum(axis=0) for each in (both, guess, truth))
    either = said + there - hit
    return {
        "Hamming": float(np.mean(truth != guess)),
        "accuracy": float(np.mean(np.where(either > 0, hit / np.maximum(either, 1), 1))),
        "subset": float(np.mean(either == hit)),
        "F1 micro": float(2 * hit.sum() / max(said.sum() + there.sum(), 1)),
        "F1 macro": float(np.mean(2 * hits / np.maximum(calls + owners, 1))),
        "F1 instance": float(
            np.mean(np.where(either > 0, 2 * hit / np.maximum(said + there, 1), 1))
        ),
    }


def held_out(truth, scores):
    """Return for each metric its best value over the thresholds, and the threshold there."""
    ranks = rank_loss(truth, scores, ties="pessimistic")
    found = {"rank loss": [ranks, 0.0]}
    for cut in THRESHOLDS:
        for name, value in label_metrics(truth, scores > cut).items():
            if name not in found or _better(name, value, found[name][0]):
                found[name] = [value, float(cut)]
    return {name: [round(value, 5), cut] for name, (value, cut) in found.items()}


def _better(name, value, other):
    return value < other if name in LOWER_IS_BETTER else value > other


def stop_after(limit):
    """Return a callback that ends each training of a path after so many CPU seconds."""
    begin, last = time.process_time(), np.inf

    def is_over(state):
        nonlocal begin, last
        if state.seconds < last:  # the training with the next C has begun
            begin = time.process_time()
        last = state.seconds
        return time.process_time() - begin > limit

    return is_over


def cross_validate(X, Y, loss, kernel, Cs, limit):
    """Return for each C what is best for each metric on the examples that were left out."""
    truth, scores = Y.astype(bool), np.empty((len(Cs), *Y.shape))
    folds = 10 if len(Y) <= MANY else 3
    for train, test in KFold(folds, shuffle=True, random_state=0).split(X):
        grid = (np.ix_(train, train), np.ix_(test, train)) if kernel else (train, test)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
            path = topkopt.path(
                X[grid[0]],
                Y[train],
                loss,
                Cs=Cs,
                kernel="psd" if kernel else False,
                tol=1e-2,
                max_epochs=200,
                random_state=0,
                callback=stop_after(limit),
            )
        scores[:, test] = path.scores(X[grid[1]])
    return {f"{C:g}": held_out(truth, each) for C, each in zip(Cs, scores, strict=True)}


def scale_of(X):
    """Return the gamma that scikit-learn calls "scale"."""
    mean_square = X.multiply(X).mean() if scipy.sparse.issparse(X) else np.mean(X * X)
    return 1 / (X.shape[1] * (mean_square - X.mean() ** 2))


def choose(searched):
    """Return for each metric the (width, C, threshold) that is best on held-out examples."""
    chosen = {}
    for name in METRICS:
        sign = 1 if name in LOWER_IS_BETTER else -1
        options = [
            (sign * found[name][0], width, float(C), found[name][1])
            for width, cell in searched.items()
            for C, found in cell["held out"].items()
        ]
        chosen[name] = min(options)[1:]
    return chosen


def evaluate(train, test, features, loss, Cs, cuts, limit):
    """Train once more on all training examples and return the metrics that chose the last C.

    As in the cross-validation each C starts from the solution of the one before, which for large C
    takes far less time than a start from nothing.
    """
    kernel = features is not None
    X, X_test = (features(train[0]), features(test[0])) if kernel else (train[0], test[0])
    last = None
    for C in Cs:
        last = solve(
            X,
            train[1],
            loss,
            C=C,
            tol=1e-3 if Cs[-1] == C else 1e-2,
            max_epochs=10**6,  # the seconds are the limit
            kernel="psd" if kernel else False,
            warm_start=last,
            limit=limit,
        )
    scores = np.asarray(X_test @ (last.dual if kernel else last.coef))
    truth, values = test[1].astype(bool), {}
    for name, cut in cuts.items():
        if name == "rank loss":
            values[name] = rank_loss(truth, scores, ties="pessimistic")
        else:
            values[name] = label_metrics(truth, scores > cut)[name]
    values = {name: round(value, 5) for name, value in values.items()}
    return {"test": values, "gap": float(f"{last.gap:.2e}"), "reached": bool(last.converged)}


def widths_for(n, quick):
    """Return the widths to try, fewer for many examples."""
    if quick:
        return WIDTHS[1:2]
    return WIDTHS if n <= MANY else WIDTHS[:2]


def run(cells, name, train, test, method, kernel, options):
    """Return the seven test figures of one method, each with whether its training was finished."""
    X, Y = train
    widths = widths_for(len(Y), options.quick) if kernel == "RBF" else (0.0,)
    Cs = CS[kernel][2:4] if options.quick else CS[kernel]
    loss, searched = LOSSES[method], {}

    def features_of(width):
        return (lambda Z: rbf_kernel(Z, X, gamma=width * scale_of(X))) if width else None

    def title(width):
        return f"{name}, {method}, {kernel}" + (f", width {width:g}" if width else "")

    for width in widths:

        def search(width=width):
            Z = features_of(width)(X) if width else X
            return {"held out": cross_validate(Z, Y, loss, bool(width), Cs, options.limit)}

        searched[width] = cells.get(title(width), search)
    figures, chosen = {}, choose(searched)
    for width, C in sorted({place[:2] for place in chosen.values()}):
        cuts = {m: cut for m, (w, c, cut) in chosen.items() if (w, c) == (width, C)}
        cell = cells.get(
            f"{title(width)}, C = {C:g}, all training examples",
            lambda width=width, C=C, cuts=cuts: evaluate(
                train, test, features_of(width), loss, Cs[Cs <= C], cuts, options.limit
            ),
        )
        figures |= {m: (value, cell["reached"]) for m, value in cell["test"].items()}
    return figures


def rows_of(name, figures):
    """Return lines of Markdown: ours, and the papers' where they are known."""
    lines = []
    for (method, kernel), found in figures.items():
        row = f"{method}, {kernel}"
        theirs = PAPERS.get((name, row), {})
        line = [row]
        for metric in METRICS:
            value, reached = found[metric]
            their = f" / {theirs[metric]}" if metric in theirs else ""
            line.append(percent(value) + ("" if reached else "\\*") + their)
        lines.append(line)
    return lines


def mean_ranks(results):
    """Return lines of Markdown: for each metric the mean rank of a row over the data sets."""
    rows = list(next(iter(results.values())))
    ranks = np.empty((len(results), len(METRICS), len(rows)))
    for place, figures in enumerate(results.values()):
        for which, metric in enumerate(METRICS):
            sign = 1 if metric in LOWER_IS_BETTER else -1
            ranks[place, which] = rankdata([sign * figures[row][metric][0] for row in rows])
    means = np.vstack([ranks.mean(axis=0), ranks.mean(axis=(0, 1))]).T
    shown = [[f"{rank:.1f}" for rank in line] for line in means]
    return [[", ".join(row), *line] for row, line in zip(rows, shown, strict=True)]


def draw(results):
    """Draw the rank loss of every method, as a share of the best one of the data set."""
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for row in dict.fromkeys(row for figures in results.values() for row in figures):
        held = [(name, figures) for name, figures in results.items() if row in figures]
        shares = [
            figures[row]["rank loss"][0] / min(f["rank loss"][0] for f in figures.values())
            for _, figures in held
        ]
        mark = "o" if row[1] == "linear" else "s"
        axes.plot([name for name, _ in held], shares, mark, label=", ".join(row))
    axes.set_ylabel("rank loss / the lowest one")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def standardised(train, test):
    """Return features with mean 0 and variance 1 over the training examples."""
    mean, deviation = train[0].mean(axis=0), train[0].std(axis=0)
    return tuple(((X - mean) / deviation, Y) for X, Y in (train, test))


def main():
    """Run the command line."""
    options = arguments(__doc__, sets=SETS)
    cells = Cells(options.out / "multilabel.json", {"sets": "as published"})
    page, results = options.out / "multilabel.md", {}
    for name in options.sets:
        train, test = read_parts(name, options.data)
        if name == "medical":  # as the papers: the larger part is the one to train with
            train, test = test, train
        if name == "emotions":  # its features have deviations from 0.01 to more than 100
            train, test = standardised(train, test)
        kernels = ["linear", "RBF"] if train[0].shape[0] <= TOO_MANY else ["linear"]
        start = time.process_time()
        results[name] = {
            (method, kernel): run(cells, name, train, test, method, kernel, options)
            for kernel in kernels
            for method in LOSSES
        }
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)
        text = table(["method", *METRICS], rows_of(name, results[name]))
        write_block(page, name, text)
    if options.quick or set(options.sets) == set(SETS):  # or else there is more than was looked at
        summarise(results, page, options)


def summarise(results, page, options):
    """Write the mean ranks and draw the rank losses."""
    both = {name: figures for name, figures in results.items() if len(figures) == 2 * len(LOSSES)}
    text = table(["method", *METRICS, "all"], mean_ranks(both))
    write_block(page, "mean ranks", f"{text}\n\nOver {', '.join(both)}.")
    save_picture(draw(results), options.out / "multilabel.png")


if __name__ == "__main__":
    main()
