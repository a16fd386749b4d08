"""Rounds of coordinate ascent on all partitions at once, certified and safe from faults.

What a round does to a partition stands in ``ascent``. Rounds come in turns: a certificate of all
rows tells which rows still move or have a part of the gap that matters, and the rounds of a turn
visit those alone until most of the gap is closed. A round moves W to the workers, and its change
back, whatever the number of rows.

Dual blocks are on one worker each. When they are lost with it, the last copy on another worker
takes their place, or 0, which is feasible as well; then W = X'A is computed anew from all, and
nothing is certified but what is there. Copies are made when rounds have moved as many bytes as they
will take.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from topkopt.distributed.ascent import (
    Sweep,
    begin,
    dual_of,
    moving_gap,
    packed,
    pull_of,
    resume,
    sums_of,
    visit,
)
from topkopt.distributed.cluster import Cluster
from topkopt.distributed.partition import Sum, add
from topkopt.solvers.certificate import Certificate, certify
from topkopt.solvers.data import inner_product
from topkopt.solvers.method import Method
from topkopt.solvers.problem import Problem

__all__ = ["Rounds"]

_Result = TypeVar("_Result")

_NOTHING = 1e-3  # part of the mean gap of an example below which it may be left alone
_TURN = 0.2  # part of the gap at which a turn ends
_ENOUGH = 0.8  # part of the gap asked for at which a turn ends in any case
_PATIENCE = 1.5  # factor between the rounds after which the gap of the moving rows is looked at
_LOOK = 0.5  # passes that a look at the gap costs


class Rounds(Method):
    """CoCoA+: every partition climbs on its own for a while, and the changes of W are added.

    Parameters
    ----------
    problem : ClusterProblem
        What is trained.
    cluster : Cluster
        Where the rows are.
    rng : Generator or RandomState
        Draws the orders.
    settings : Settings
        How to train.
    local_epochs : float
        The visits of a row in a round; below 1 the part of the rows that is visited in one.
    start : list
        For each partition dual blocks and the costs that belong to them, or None twice for 0.
    """

    name = "sdca"

    def __init__(
        self,
        problem: Problem,
        cluster: Cluster,
        rng: Any,
        settings: Any,
        local_epochs: float,
        start: list[tuple[Any, Any]],
    ):
        super().__init__(problem)
        self.cluster, self.terms = cluster, problem.examples()
        self.draw = getattr(rng, "integers", None) or rng.randint
        self.has_dual, self.tol = settings.keep_dual, settings.tol
        self.shrinks = settings.check_every == "auto"
        self.block_size = settings.block_size
        self.passes = max(1, round(local_epochs))
        self.parts = max(1, round(1 / local_epochs))
        self.scale = float(len(cluster))
        self.coef = np.zeros((problem.data.n_features, problem.n_classes), problem.data.dtype)
        self.found: Certificate | None = None
        self.gaps: list[Any] = [None] * len(cluster)  # of each row, with the last certificate
        self.saved: list[Any] = [None] * len(cluster)
        self.traffic = 0.0  # bytes moved by rounds since the last copy
        self.copy_bytes = float(problem.data.n_rows * self.coef[:1].nbytes)
        self.pace = 1.0  # from which momentum follows
        self.change = self.coef  # of W, in the last round
        self.stale = self.lost = False  # whether W belongs to other dual blocks; a fault happened
        self.ascents: list[Any] = []
        self._safely(lambda: self._begin(start))
        self.settle()

    def _begin(self, start: list[tuple[Any, Any]]) -> None:
        duals, costs = ([pair[side] for pair in start] for side in (0, 1))
        self.ascents = self.cluster.map(begin, self.terms, self.scale, duals, costs)

    # What is vouched for ----------------------------------------------------------------------

    @property
    def dual(self) -> NDArray | None:  # type: ignore[override]
        """The dual blocks, brought here from the workers, if they are to be kept."""
        if not self.has_dual:
            return None
        return np.concatenate(
            self._safely(
                lambda: self.cluster.gather(self.cluster.map(dual_of, self.ascents, self.terms))
            )
        )

    def certificate(self) -> Certificate:
        """Return the certificate of A and W = X'A."""
        answers = self._safely(self._look_at_all)
        numbers = [math.fsum(column) for column in zip(*answers, strict=True)]
        self.copy_bytes = numbers[3]
        square = inner_product(self.coef, self.coef)
        self.found = certify(self.problem, numbers[0], square, numbers[1], square)
        return self.found

    def _look_at_all(self) -> list[NDArray]:
        looks = self.cluster.map(sums_of, self.ascents, self.cluster.share(self.coef), self.terms)
        self.gaps = self._items(looks, 1)
        return self.cluster.gather(self._items(looks, 0))

    def _items(self, pairs: list[Any], which: int) -> list[Any]:
        return [
            self.cluster.submit(place, operator.itemgetter(which), pair)
            for place, pair in enumerate(pairs)
        ]

    def settle(self) -> None:
        """Compute W = X'A anew on the workers."""
        self.coef = self._safely(self._pull)

    def _pull(self) -> NDArray:
        return self.cluster.total(self.cluster.map(pull_of, self.ascents)).matrix

    # How it moves -----------------------------------------------------------------------------

    def advance(self, budget: float) -> float:
        """Go on with rounds until most of the gap is closed; with all rows, if that is unknown."""
        found, self.found = self.found, None
        if found is None or not self.shrinks or self.gaps[0] is None:
            return min(self._sweep(-1.0).numbers[0] / self.data.n_rows, budget)
        n = self.data.n_rows
        gap = abs(found.primal - found.dual_value) / self.problem.scale
        asked = self.tol * max(abs(found.primal), abs(found.dual_value)) / self.problem.scale
        return self._turn(_NOTHING * gap / n, max(_TURN * gap, _ENOUGH * asked), budget)

    def _turn(self, threshold: float, target: float, budget: float) -> float:
        """Visit the rows that move until their gap is on target; return the passes."""
        done, look, n = 0.0, 1, self.data.n_rows
        wanted: float | None = threshold
        for rounds in count(1):
            self.lost = False
            visits, moving, _ = self._sweep(wanted).numbers
            done += visits / n
            if self.lost or not moving or done >= budget:
                break
            wanted = None
            if rounds >= look:
                if moving == n:  # then the certificate of all shows as much
                    break
                done += _LOOK * moving / n
                if self._moving_gap() <= target:
                    break
                look = max(rounds + 1, int(_PATIENCE * rounds))
        return min(done, budget)

    def _moving_gap(self) -> float:
        return math.fsum(
            self._safely(
                lambda: self.cluster.gather(
                    self.cluster.map(
                        moving_gap, self.ascents, self.cluster.share(self.coef), self.terms
                    )
                )
            )
        )

    def _sweep(self, threshold: float | None) -> Sum:
        """Visit the rows in as many rounds as it takes; return the sum of these."""
        seed = int(self.draw(2**31 - 1))
        total = self._round(threshold, seed, 0)
        for part in range(1, self.parts):
            total = add(total, self._round(None, seed, part))
        return total

    def _round(self, threshold: float | None, seed: int, part: int) -> Sum:
        total = self._safely(lambda: self._visit(threshold, seed, part))
        self.coef = self.coef + total.matrix
        self.change = total.matrix
        after = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.pace**2))
        self.pace = 1.0 if total.numbers[2] > 0 else after
        self.traffic += 2.0 * len(self.cluster) * self.coef.nbytes
        if self.traffic >= self.copy_bytes:
            self._safely(self._copy)
        return total

    def _visit(self, threshold: float | None, seed: int, part: int) -> Sum:
        # (t - 1) / t_after of Nesterov's method, where t is the pace
        momentum = 2.0 * (self.pace - 1.0) / (1.0 + math.sqrt(1.0 + 4.0 * self.pace**2))
        ahead = self.coef
        if momentum > 0:
            ahead = (self.coef + momentum * self.change).astype(self.coef.dtype)
        sweeps = [
            Sweep(
                self.passes, part, self.parts, (seed, place), self.block_size, momentum, threshold
            )
            for place in range(len(self.cluster))
        ]
        steps = self.cluster.map(
            visit, self.ascents, self.cluster.share(ahead), self.gaps, self.terms, sweeps
        )
        after = self._items(steps, 0)
        total = self.cluster.total(self._items(steps, 1))
        self.ascents = after
        return total

    # Faults -----------------------------------------------------------------------------------

    def _safely(self, work: Callable[[], _Result]) -> _Result:
        """Return what the work returns, with W = X'A of the dual blocks that there are by then."""

        def fresh() -> _Result:
            if self.stale:
                self.coef, self.stale = self._pull(), False
            return work()

        return self.cluster.attempt(fresh, self._restore)

    def _restore(self) -> None:
        """Go back to copies of dual blocks that are lost, or to 0; W and momentum are lost too."""
        for place, (ascent, saved) in enumerate(zip(self.ascents, self.saved, strict=True)):
            if ascent.status in ("cancelled", "error"):
                there = saved is not None and saved.status == "finished"
                self.ascents[place] = self.cluster.submit(
                    place,
                    resume,
                    self.cluster.partitions[place],
                    self.terms,
                    self.scale,
                    saved if there else None,
                )
        self.gaps = [None] * len(self.cluster)
        self.pace, self.stale, self.lost = 1.0, True, True

    def _copy(self) -> None:
        """Keep a copy of the dual blocks of each partition on another worker than theirs."""
        self.traffic = 0.0
        copies = self.cluster.elsewhere(self.cluster.map(packed, self.ascents))
        if copies:
            self.saved = copies
