"""What the solvers have in common: they are run with smaller and smaller tolerances."""

import numpy as np
from benchopt.stopping_criterion import SufficientProgressCriterion

# A tolerance means something else to each solver, and two of them may give the same result.
UNTIL_NOTHING_IMPROVES = SufficientProgressCriterion(eps=1e-9, patience=5, strategy="tolerance")


def next_tolerance(tolerance):
    """Return a tolerance that is four times smaller; benchopt begins with a huge one."""
    return min(1.0, max(tolerance / 4, 1e-12))


def start(X, y):
    """Return where all begin, the answer to the huge tolerance."""
    return np.zeros((X.shape[1], int(y.max()) + 1))
