"""The curvature of all examples in pieces, one for each range of rows on a thread."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt._threads import Team
from topkopt.solvers.curvature import Curvature
from topkopt.solvers.epochs import Examples

__all__ = ["LOSS_WORK", "SharedCurvature"]

# An entry of a prox, or of its derivative, takes as long as so many numbers that a kernel visits.
LOSS_WORK = 8


class SharedCurvature:
    """What `Curvature` is, with the same answers, on the threads of a team.

    Parameters
    ----------
    team : Team
        Who works on it.
    examples, s, centre, sigma, v, rows
        As for `Curvature`.
    """

    def __init__(
        self,
        team: Team,
        examples: Examples,
        s: NDArray,
        centre: NDArray,
        sigma: float,
        v: NDArray,
        rows: NDArray,
    ):
        self.team, self.n_classes = team, examples.n_classes

        def look(part: slice) -> Curvature:
            own = examples.part(slice(None))
            return Curvature(own, s, centre, sigma, v, rows[part])

        ranges = team.ranges(len(rows), len(rows) * self.n_classes * LOSS_WORK)
        self.pieces = team.run(look, ranges)
        self.rows = np.concatenate([piece.rows for piece in self.pieces])
        self.rank = sum(piece.rank for piece in self.pieces)
        self.starts = np.cumsum([0, *(len(piece.rows) for piece in self.pieces)]).tolist()

    def apply(self, u: NDArray) -> NDArray:
        """Return D u for each of the moving examples; u has a row for each of them."""
        return self._joined(lambda piece, part: piece.apply(u[part]))

    def diagonals(self) -> NDArray:
        """Return the diagonal of D for each of the moving examples."""
        return self._joined(lambda piece, _: piece.diagonals())

    def _joined(self, ask: Callable[[Curvature, slice], NDArray]) -> NDArray:
        parts = [slice(first, last) for first, last in pairwise(self.starts)]
        asked = list(zip(self.pieces, parts, strict=True))
        return np.concatenate(self.team.run(lambda pair: ask(*pair), asked))

    def pairs(self, first: int, last: int) -> NDArray:
        """Return the entries (a, b), a <= b, of D as rows, for some of the moving examples."""
        numbers = (last - first) * self.n_classes**2
        found = self.team.run(
            lambda part: self._some_pairs(first + part.start, first + part.stop),
            self.team.ranges(last - first, numbers),
        )
        return np.concatenate(found, axis=1)

    def _some_pairs(self, first: int, last: int) -> NDArray:
        ends = pairwise(self.starts)
        found = [
            piece.pairs(max(first, start) - start, min(last, stop) - start)
            for piece, (start, stop) in zip(self.pieces, ends, strict=True)
            if first < stop and start < last
        ]
        return np.concatenate(found, axis=1)

    def factors(self) -> tuple[NDArray, NDArray]:
        """Return F, a row for each rank, and the moving example of each: D is its F'F."""
        found: list[Any] = self.team.run(Curvature.factors, self.pieces)
        owners = [owner + start for (_, owner), start in zip(found, self.starts, strict=False)]
        return np.concatenate([rows for rows, _ in found]), np.concatenate(owners)
