"""How the projections scale, and how fast the gap falls: the papers' Fig. 3.

    python docs/experiments/runtime.py --data DIR

reads letter.npz, and writes runtime.json, runtime_projections.png, runtime_gap.png and the tables
of runtime.md. Times are CPU seconds of one core.
"""

import time
import warnings

import numpy as np
from common import Cells, arguments, read, save_picture, table, write_block
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

import topkopt
from topkopt import losses, projections, prox

SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
OPERATORS = {
    "np.sort": lambda x: np.sort(x, axis=-1),
    "simplex": projections.project_simplex,
    "top-10 simplex α": lambda x: projections.project_topk_simplex(x, 10),
    "top-10 simplex β": lambda x: projections.project_topk_simplex(x, 10, kind="beta"),
    "top-10 entropy prox": lambda x: prox.prox_topk_entropy(x, 1.0, 10),
}
LOSSES = {
    "SVM-Multi": losses.Hinge(),
    "LR-Multi": losses.Softmax(),
    "top-5 SVM α": losses.TopKHinge(5),
    "top-5 SVM, smooth": losses.TopKHinge(5, smoothing=1.0),
    "top-5 entropy": losses.TopKEntropy(5),
}
TARGETS = tuple(10.0**-e for e in range(1, 7))


def nanoseconds(operator, m, entries):
    """Return the time per entry of rows of length m, the least of three repetitions."""
    X = np.random.default_rng(0).normal(size=(max(entries // m, 1), m))
    times = []
    for _ in range(3):
        start = time.process_time()
        operator(X)
        times.append(time.process_time() - start)
    return {"ns": round(1e9 * min(times) / X.size, 2)}


def seconds_to_gaps(data, loss, C, method, limit):
    """Return when each gap was certified."""
    reached, start = {}, time.process_time()

    def watch(state):
        now = time.process_time() - start
        for target in TARGETS:
            if state.gap <= target:
                reached.setdefault(f"{target:g}", round(now, 3))
        return now > limit

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
        topkopt.solve(
            *data.train,
            loss,
            C=C,
            method=method,
            tol=TARGETS[-1],
            max_epochs=100_000,
            random_state=0,
            callback=watch,
        )
    return {"reached": reached}


def draw_scaling(found, sizes):
    """Draw the time per entry against the length of a row."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name in OPERATORS:
        times = [found[name, m]["ns"] for m in sizes]
        axes.loglog(sizes, times, "o-" if name != "np.sort" else "k--", label=name)
    axes.set(xlabel="length of a row", ylabel="nanoseconds per entry")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure


def draw_gaps(found, methods):
    """Draw the gap against the seconds, one panel per method."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, len(methods), sharex=True, sharey=True)
    for panel, method in zip(panels, methods, strict=True):
        for name in LOSSES:
            reached = found[name, method]["reached"]
            if reached:
                gaps = [float(target) for target in reached]
                panel.loglog(np.maximum(list(reached.values()), 1e-3), gaps, "o-", label=name)
        panel.set(title=f'method="{method}"', xlabel="CPU seconds")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("relative duality gap")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def main():
    """Run both parts."""
    options = arguments(__doc__)
    data = read("letter", options.data)
    cells = Cells(options.out / "runtime.json", data.about())
    sizes = SIZES[:3] if options.quick else SIZES
    entries = 10**3 if options.quick else 10**6
    scaling = {
        (name, m): cells.get(
            f"{name}, m = {m}",
            lambda operator=operator, m=m: nanoseconds(operator, m, entries),
        )
        for m in sizes
        for name, operator in OPERATORS.items()
    }
    rows = [[f"{m:,}", *(scaling[name, m]["ns"] for name in OPERATORS)] for m in sizes]
    write_block(
        options.out / "runtime.md", "projections", table(["length of a row", *OPERATORS], rows)
    )
    save_picture(draw_scaling(scaling, sizes), options.out / "runtime_projections.png")

    methods = ("sdca", "auto")
    falling = {
        (name, method): cells.get(
            f"{name}, {method}",
            lambda loss=loss, method=method: seconds_to_gaps(
                data, loss, 1.0, method, min(options.limit, 30.0)
            ),
        )
        for name, loss in LOSSES.items()
        for method in methods
    }
    rows = [
        [name, f"`{method}`", *(cell["reached"].get(f"{t:g}", "–") for t in TARGETS)]
        for (name, method), cell in falling.items()
    ]
    head = ["loss", "method", *(f"{target:g}" for target in TARGETS)]
    write_block(options.out / "runtime.md", "gap", table(head, rows))
    save_picture(draw_gaps(falling, methods), options.out / "runtime_gap.png")


if __name__ == "__main__":
    main()
