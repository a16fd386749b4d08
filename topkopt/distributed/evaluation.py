"""What L-BFGS asks of a partition: sums of losses, and the matrices that go with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topkopt.distributed.partition import Partition, Sum, Terms
from topkopt.solvers.preconditioner import bound_block

__all__ = ["block_of_bound", "dual_blocks", "evaluate"]


def evaluate(partition: Partition, coef: NDArray, terms: Terms, conjugates: bool) -> Sum:
    """Return the sums of costs times losses and, if asked for, conjugates, and X'(cost v)."""
    pull = np.empty(coef.shape)
    with partition.lock:
        examples = partition.examples(terms)
        numbers = partition.data.evaluate(examples, coef, pull, None, conjugates)
    return Sum(np.array(numbers), pull)


def dual_blocks(partition: Partition, coef: NDArray, terms: Terms) -> NDArray:
    """Return the dual blocks -cost v."""
    dual = np.empty((partition.data.n_rows, terms.n_classes), partition.data.dtype)
    with partition.lock:
        partition.data.evaluate(partition.examples(terms), coef, np.empty(coef.shape), dual, True)
    return dual


def block_of_bound(partition: Partition, terms: Terms) -> Sum:
    """Return X' diag(cost h) X, where h is half the bound of the second derivatives."""
    block = bound_block(partition.data, terms.loss, partition.costs(terms.C))
    return Sum(np.zeros(0), block)
