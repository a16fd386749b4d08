"""Print a table of ratios: ``python asv_benches/summary.py``, on a quiet machine."""

from statistics import median

from benchmarks.common import CASES, ROWS, Problem

COLUMNS = ("limit", "numpy_sort", "reference")
SHOWN = [
    "simplex",
    "capped_simplex lower=0 upper=0.1 total=1",
    "topk_cone k=10",
    "topk_simplex k=10 kind=alpha",
    "topk_simplex k=10 kind=beta",
    "topk_simplex k=10 kind=label",
    "topk_simplex k=10 bias=1",
    "weighted_topk weights=linear10",
    "bipartite_simplex radius=10",
    "prox_entropy_simplex alpha=1",
    "prox_topk_entropy alpha=1 k=10",
]


def ratios(case, dimension):
    """Return time over the limit, and speed-up over sorting and over the reference."""
    problem = Problem(case, ROWS[dimension], dimension)
    runs = [problem.seconds_per_number("compiled", *COLUMNS) for _ in range(3)]
    limit, sort, reference = (median(run[i] / run[0] for run in runs) for i in (1, 2, 3))
    return f"{1 / limit:.1f}", f"{sort:.0f}", f"{reference:.0f}"


print("| operator | times the limit | times faster than sorting | than the reference |")
print("|---|---|---|---|")
for label in SHOWN:
    cells = zip(*(ratios(CASES[label], dimension) for dimension in ROWS), strict=True)
    print(f"| `{label}` | " + " | ".join(" / ".join(cell) for cell in cells) + " |", flush=True)
