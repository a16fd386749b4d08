"""Momentum: a pass of coordinate ascent begins where the last ones lead.

Passes in random orders are steps of a gradient method for the dual, and gain from momentum as such
a method does: the next one starts from

    Y = A + b (A - A_before),    b = k / (k + 2) in pass k = 0, 1, ...,

with the W = X'Y that belongs to it. Y may be outside the dual sets. The exact step of an example
depends on the dual blocks of the others alone, and puts its own block into its set, so that a pass
has to visit every row that was moved on. What has not changed is not moved on either.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from topkopt.solvers.data import Data, Trail
from topkopt.solvers.epochs import Examples

__all__ = ["Momentum"]

_DELAY = 2.0  # passes after which momentum is half of what it can be


class Momentum:
    """Where the passes over some data lead.

    Parameters
    ----------
    data : Data
        What the passes go over.
    """

    def __init__(self, data: Data):
        self.data, self.passes, self.on = data, 0, True
        self.trail: Trail | None = None

    def begin(self, on: bool) -> None:
        """Forget where passes have led; the next ones have momentum if it is on."""
        self.passes, self.on = 0, on

    def lead_on(self, examples: Examples, coef: NDArray, dual: Any, rows: NDArray) -> NDArray:
        """Move dual blocks and W on before a pass; return the rows that it has to visit.

        These are those that the pass before has changed, which had the same momentum.
        """
        if self.trail is None:
            self.trail = Trail(self.data.held_dual(None, examples.n_classes))
        first, moved = self.passes == 0, examples.moved_rows
        self.trail.momentum = self.passes / (self.passes + _DELAY) if self.on else 0.0
        self.passes += 1
        self.data.lead_on(self.trail, coef, dual, rows, moved)
        return rows if first else rows[moved[rows] != 0]

    def take_back(self, dual: Any, rows: NDArray) -> None:
        """Return to earlier dual blocks, in their sets, when a pass has not visited all rows.

        W is to be computed anew then.
        """
        if self.trail is not None:
            dual[rows] = self.trail.dual[rows]
