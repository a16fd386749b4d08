"""Tables of top-k accuracies: one row per method, C chosen per method and per k on validation."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from common import Cells, percent, save_picture, solve, table, write_block
from matplotlib.figure import Figure

from topkopt import losses
from topkopt.metrics import topk_accuracy_curve

KS = (1, 3, 5, 10)
CS = tuple(10.0**e for e in range(-5, 4))
TOLERANCE = 1e-3


@dataclass(frozen=True)
class GradientSteps:
    """So many steps of gradient descent from the softmax solution, as libsdca_gd takes them.

    That is the program of the papers' authors for the truncated entropies. A step is halved until
    the objective falls, and the next one is twice as long if this one did not have to be halved.
    """

    loss: losses.Loss
    steps: int

    def descend(self, X, y, W, C):
        """Return the weights to which the steps lead from W."""

        def objective(W):
            values, slopes = self.loss.value_and_gradient(X @ W, y)
            return C * values.sum() + 0.5 * np.vdot(W, W), W + C * (X.T @ slopes)

        value, gradient = objective(W)
        length = min(1.0, 1.0 / np.linalg.norm(gradient))
        for _ in range(self.steps):
            enough = 1e-5 * np.linalg.norm(gradient)
            first = length
            lower, slope = objective(W - length * gradient)
            while lower > value - length * enough:
                length /= 2
                if length < 1e-9:
                    return W
                lower, slope = objective(W - length * gradient)
            W = W - length * gradient
            value, gradient = lower, slope
            length *= 2 if length == first else 1
        return W


def methods(ks=KS[1:]):
    """Return the rows of the papers' tables: their names and losses."""
    rows = {
        "SVM-OVA": losses.OneVsAllHinge(),
        "LR-OVA": losses.OneVsAllLogistic(),
        "SVM-Multi": losses.Hinge(),
        "LR-Multi": losses.Softmax(),
    }
    rows |= {f"top-{k} SVM α": losses.TopKHinge(k) for k in ks}
    rows |= {f"top-{k} SVM β": losses.TopKHinge(k, kind="beta") for k in ks}
    rows |= {f"top-{k} SVM, smooth": losses.TopKHinge(k, smoothing=1.0) for k in (1, *ks)}
    rows |= {f"top-{k} entropy": losses.TopKEntropy(k) for k in ks}
    rows |= {f"top-{k} truncated": losses.TruncatedTopKEntropy(k) for k in ks}
    return rows


def train_all(data, rows, options, Cs=CS):
    """Train every method for every C and return the cells."""
    cells = Cells(options.out / f"{data.name}.json", data.about())
    Cs = Cs[3:6] if options.quick else Cs
    rest = {"limit": options.limit, "tol": TOLERANCE}

    @cache
    def softmax(C):
        return solve(*data.train, losses.Softmax(), C=C, **rest)

    for name, loss in rows.items():
        last = None
        for C in Cs:

            def train(loss=loss, C=C):
                nonlocal last
                if isinstance(loss, GradientSteps):
                    coef = loss.descend(*data.train, softmax(C).coef, C)
                    return {**accuracies(data, coef), "reached": True, "steps": loss.steps}
                last = solve(
                    *data.train,
                    loss,
                    C=C,
                    warm_start=last if loss.convex else softmax(C),
                    **rest,
                )
                gap = None if np.isnan(last.gap) else float(f"{last.gap:.2e}")
                ended = {"gap": gap, "reached": bool(last.converged), "epochs": last.n_epochs}
                return {**accuracies(data, last.coef), **ended}

            cells.get(key(name, C), train)
    return cells, Cs


def key(name, C):
    """Return the name of a cell."""
    return f"{name}, C = {C:g}"


def accuracies(data, coef):
    """Return the accuracies that weights have on the validation and on the test part."""
    ks = [k for k in KS if k <= coef.shape[1]]

    def curve(part):
        curve = topk_accuracy_curve(part[1], np.asarray(part[0] @ coef), ks=ks)
        return [round(float(value), 5) for value in curve]

    return {"validation": curve(data.validation), "test": curve(data.test)}


def best(cells, name, Cs):
    """Return for each k the test accuracy and the C, as text, that are best on validation."""
    trained = [cells.held["cells"][key(name, C)] for C in Cs]
    chosen = np.argmax([cell["validation"] for cell in trained], axis=0)
    star = ["" if cell["reached"] else "\\*" for cell in trained]
    return [(trained[c]["test"][place], f"{Cs[c]:g}{star[c]}") for place, c in enumerate(chosen)]


def accuracy_table(cells, rows, Cs, papers):
    """Return Markdown: ours / the papers', and the C of each k."""
    ks = KS[: len(best(cells, next(iter(rows)), Cs))]
    head = ["method", *(f"top-{k}" for k in ks), "C of each k"]
    if papers:
        head.insert(-1, "largest difference")
    lines = []
    for name in rows:
        found, theirs = best(cells, name, Cs), papers.get(name)
        ours = [percent(value) for value, _ in found]
        difference = ["–"] if papers else []
        if theirs:
            gaps = [round(100 * v, 1) - p for (v, _), p in zip(found, theirs, strict=False)]
            difference = [f"{max(gaps, key=abs):+.1f}"]
            ours = [f"{mine} / {p}" for mine, p in zip(ours, theirs, strict=False)]
        lines.append([name, *ours, *difference, ", ".join(C for _, C in found)])
    return table(head, lines)


def draw(cells, rows, Cs, shown, base):
    """Draw top-1 to top-10 accuracy of some methods, less that of another one."""
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    zero = np.array([value for value, _ in best(cells, base, Cs)])
    ks = KS[: len(zero)]
    for name in (name for name in shown if name in rows and name != base):
        ours = np.array([value for value, _ in best(cells, name, Cs)])
        axes.plot(range(len(ks)), 100 * (ours - zero), "o-", label=name)
    axes.axhline(0, color="0.5", linewidth=1)
    axes.set_xticks(range(len(ks)), [f"top-{k}" for k in ks])
    axes.set_yscale("symlog", linthresh=2)  # one point at top-10 is much, ten at top-1 are not
    low, high = axes.get_ylim()
    marks = [mark for mark in (-40, -20, -10, -5, -2, -1, 0, 1, 2, 5) if low <= mark <= high]
    axes.set_yticks(marks, [f"{mark:+d}" if mark else "0" for mark in marks])
    axes.set_ylabel(f"points more than {base}")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(alpha=0.3)
    return figure


SHOWN = (
    "SVM-OVA",
    "SVM-Multi",
    "top-5 SVM α",
    "top-10 SVM α",
    "top-5 entropy",
    "top-10 entropy",
    "top-3 truncated",
    "top-10 truncated",
)


def unfinished(cells):
    """Return a sentence on the trainings that did not reach the gap."""
    trained = {name: c for name, c in cells.held["cells"].items() if "steps" not in c}
    late = [float(name.rpartition(" ")[2]) for name, c in trained.items() if not c["reached"]]
    if not late:
        return f"All {len(trained)} trainings reached their tolerance of {TOLERANCE:g}."
    return (
        f"{len(trained) - len(late)} of {len(trained)} trainings reached their tolerance of "
        f"{TOLERANCE:g}; the others, all with C ≥ {min(late):g}, were stopped by the limit of "
        "seconds. A star marks a C where that happened."
    )


def report(data, rows, options, papers, Cs=CS, page=None, shown=SHOWN, base="LR-Multi"):
    """Train, and write table and picture."""
    cells, Cs = train_all(data, rows, options, Cs)
    page = options.out / f"{page or data.name}.md"
    text = f"{accuracy_table(cells, rows, Cs, papers)}\n\n{unfinished(cells)}"
    write_block(page, data.name, text)
    save_picture(draw(cells, rows, Cs, shown, base), options.out / f"{data.name}.png")
