"""Weighted top-k SVMs with flat, linear and exp weights on Letter and Caltech 101 Silhouettes.

    python docs/experiments/weighted.py --data DIR

writes a .json and a .png for each data set and the tables of weighted.md.
"""

from dataclasses import replace

from common import arguments, read
from topk import report

from topkopt import losses

SETS = ("letter", "caltech101_silhouettes")


def rows():
    """Return the names and losses; with flat weights it is the top-k SVM α."""
    weighted = {
        f"top-{k}, {profile} weights": losses.WeightedTopKHinge(profile, k)
        for k in (5, 10)
        for profile in ("flat", "linear", "exp")
    }
    return {"SVM-Multi": losses.Hinge(), **weighted}


if __name__ == "__main__":
    options = arguments(__doc__)
    for name in SETS:
        data = replace(read(name, options.data), name=f"weighted_{name}")
        report(data, rows(), options, {}, page="weighted", shown=rows(), base="SVM-Multi")
