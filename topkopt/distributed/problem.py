"""A training problem whose rows are on the workers, as the methods see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt import losses
from topkopt._validation import as_labels
from topkopt.distributed.cluster import Cluster
from topkopt.distributed.evaluation import block_of_bound, dual_blocks, evaluate
from topkopt.distributed.partition import Description, Partition, Terms
from topkopt.solvers.lbfgs import LBFGS
from topkopt.solvers.preconditioner import (
    Preconditioner,
    SharedBlock,
    few_features,
)
from topkopt.solvers.problem import Problem

__all__ = ["ClusterLBFGS", "ClusterProblem", "ClusterRows", "as_cluster_problem"]


class ClusterRows:
    """The rows on all workers; to L-BFGS they are data like others.

    Parameters
    ----------
    cluster : Cluster
        Where they are.
    described : sequence of Description
        What is known of each partition.
    """

    X = None

    def __init__(self, cluster: Cluster, described: Sequence[Description]):
        self.cluster = cluster
        self.sizes = [part.n_rows for part in described]
        self.n_rows = sum(self.sizes)
        self.n_features = described[0].n_features
        self.dtype = described[0].dtype
        self.n_entries = self.n_held = sum(part.n_entries for part in described)
        self.dense = all(part.dense for part in described)
        self.square_norms = np.array([part.largest_norm for part in described])  # the largest ones

    def evaluate(
        self,
        terms: Terms,
        coef: NDArray,
        pull: NDArray,
        dual: NDArray | None = None,
        conjugates: bool = False,
    ) -> tuple[float, float]:
        """Fill pull with X'(cost v), v the gradients of the losses, and dual with -cost v."""

        def work() -> Any:
            leaves = self.cluster.map(evaluate, self.cluster.share(coef), terms, conjugates)
            return self.cluster.total(leaves)

        total = self.cluster.attempt(work)
        pull[:] = total.matrix
        if dual is not None:
            np.concatenate(self.blocks(dual_blocks, coef, terms), out=dual)
        return float(total.numbers[0]), float(total.numbers[1])

    def blocks(self, function: Callable[..., NDArray], coef: NDArray, *args: Any) -> list[NDArray]:
        """Return arrays of all partitions, in order."""
        return self.cluster.attempt(
            lambda: self.cluster.gather(self.cluster.map(function, self.cluster.share(coef), *args))
        )

    def on(self, team: Any) -> ClusterRows:
        """Return the rows as they are: what threads there are is the workers' affair."""
        return self

    def auto_block(self, n_classes: int) -> int:
        """Return how many rows to take together, which the workers know better."""
        return 1

    def most_together(self) -> int | None:
        """Return how many rows can be taken together at the most; the workers know."""
        return None

    def product_size(self, n_classes: int, block_size: int) -> float:
        """Return the operations of one matrix product: none is done here."""
        return 0.0


@dataclass(frozen=True)
class ClusterProblem(Problem):
    """A problem whose examples are on the workers; `cost` is there if duals are to be kept."""

    def examples(self, kind: Any = None, *extra: Any) -> Any:
        """Return the terms that workers make examples of."""
        return Terms(self.loss, self.C, self.n_classes)


class ClusterLBFGS(LBFGS):
    """L-BFGS whose evaluations are sums over the workers; nothing else differs."""

    @property
    def dual(self) -> NDArray:  # type: ignore[override]
        """The dual blocks, brought here from the workers, if they are to be kept."""
        return super().dual if self.has_dual else None  # type: ignore[return-value]

    def _preconditioner(self) -> Preconditioner:
        rows: Any = self.data
        if not (rows.dense and few_features(self.problem)):
            return Preconditioner()
        total = rows.cluster.attempt(
            lambda: rows.cluster.total(rows.cluster.map(block_of_bound, self.examples))
        )
        return SharedBlock(total.matrix)


def as_cluster_problem(
    cluster: Cluster,
    described: Sequence[Description],
    loss: losses.Loss,
    C: float,
    n_classes: int | None,
    keep_dual: bool,
) -> ClusterProblem:
    """Check that the partitions belong together, and put them together."""
    for name in ("n_features", "dtype"):
        different = sorted({str(getattr(part, name)) for part in described})
        if len(different) > 1:
            raise ValueError(
                f"X must have blocks of the same {name}, got {' and '.join(different)}; convert "
                "them."
            )
    if not any(part.weight > 0 for part in described):
        raise ValueError("sample_weight must not be all zero; 0 leaves an example out.")
    rows: Any = ClusterRows(cluster, described)
    m = _count_classes(described, loss, n_classes)
    loss.check_classes(m)
    nothing = np.zeros(0)
    cost = nothing
    if keep_dual:
        cost = np.concatenate(
            cluster.attempt(lambda: cluster.gather(cluster.map(Partition.costs, C)))
        )
    return ClusterProblem(rows, loss, nothing, nothing, m, nothing, C, cost)


def _count_classes(
    described: Sequence[Description], loss: losses.Loss, n_classes: int | None
) -> int:
    """Return the number of classes, of which each partition has seen some."""
    widths = {len(part.labels) for part in described if part.indicator}
    if widths and (len(widths) > 1 or not all(part.indicator for part in described)):
        raise ValueError("y must have blocks of as many columns as there are classes.")
    seen = reduce(np.union1d, [part.labels for part in described])
    if widths:
        seen = np.ones((1, widths.pop()), bool)
    _, _, m = as_labels(seen, len(seen), n_classes, multilabel=loss.multilabel)
    if m < 2:
        raise ValueError(f"y must hold at least 2 classes, got {m}; add examples of others.")
    return m
