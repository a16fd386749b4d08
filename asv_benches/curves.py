"""Draw the main curves of the recorded benchmarks: ``python asv_benches/curves.py curves.png``.

Shown are counts and bytes, which say the same on a busy machine; times are in the pages of asv.
"""

import json
import sys
from itertools import product
from pathlib import Path

from matplotlib.figure import Figure

RESULTS = Path(__file__).with_name("results")
METHODS = ["frank_wolfe", "away_step", "pairwise", "block_frank_wolfe", "sdca"]
LOSSES = ["hinge", "topk_hinge", "ova_hinge", "topk_hinge, smooth", "topk_entropy"]
# Benchmark, title, the values of its first parameter that have a line, and that of its last.
CURVES = [
    ("frank_wolfe.ToGap.track_epochs", "epochs to a gap, weighted top-k hinge", METHODS, "0.1"),
    ("solvers.ToGap.track_epochs", "epochs to a gap of 1e-6", LOSSES, "1e-06"),
]


def read() -> list[dict]:
    """Return what is recorded, oldest commit first."""
    files = RESULTS.glob("*/*-existing-*.json")
    return sorted((json.loads(path.read_text("utf-8")) for path in files), key=lambda r: r["date"])


def lines(records: list[dict], benchmark: str, last: str) -> dict[str, list]:
    """Return a list of values, one per commit, for every first parameter."""
    found: dict[str, list] = {}
    for place, record in enumerate(records):
        row = record["results"].get(benchmark)
        if row is None or row[0] is None:
            continue
        values = dict(zip(record["result_columns"], row, strict=False))
        cases = zip(product(*values["params"]), values["result"], strict=True)
        for parameters, value in cases:
            if parameters[-1] == last:
                line = found.setdefault(parameters[0].strip("'"), [None] * len(records))
                line[place] = value
    return found


def draw(target: Path) -> None:
    """Write the picture, if anything is recorded."""
    records = read()
    if not records:
        sys.exit(f"nothing is recorded in {RESULTS}: run make bench")
    figure = Figure(figsize=(11, 4), layout="constrained")
    names = [record["commit_hash"][:7] for record in records]
    for ax, (benchmark, title, shown, last) in zip(figure.subplots(1, 2), CURVES, strict=True):
        found = lines(records, benchmark, last)
        for label in filter(found.get, shown):
            ax.plot(names, found[label], "o-", ms=3, label=label)
        ax.set(title=title, yscale="log", xlabel="commit")
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=100)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
