"""What comes with a message may lie anywhere in it; compiled code takes aligned numbers."""

import pickle

import numpy as np
import pytest
import scipy.sparse

from topkopt import losses
from topkopt.distributed.ascent import begin
from topkopt.distributed.cluster import with_aligned
from topkopt.distributed.partition import Terms, make_partition

from ..test_arrays import unaligned
from .test_distributed_solve import examples


def sent(held):
    """Return what arrives of an object whose arrays begin at odd addresses of a message."""
    buffers = []
    message = pickle.dumps(held, protocol=5, buffer_callback=buffers.append)
    assert buffers
    odd = [unaligned(np.frombuffer(buffer, np.uint8)) for buffer in buffers]
    return pickle.loads(message, buffers=odd)


def arrays_of(held):
    """Return all arrays in an object, however deep."""
    if isinstance(held, np.ndarray):
        return [held]
    if isinstance(held, tuple):
        return [array for part in held for array in arrays_of(part)]
    if scipy.sparse.issparse(held):
        return [held.data, held.indices, held.indptr]
    known = getattr(held, "__dict__", {}).values()
    return [array for part in known for array in arrays_of(part)]


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
def test_partitions_and_dual_blocks_are_aligned_where_they_arrive(container):
    X, y = examples()
    partition = make_partition([container(X)], [y], None)
    ascent = begin(partition, Terms(losses.Hinge(), 1.0, 3), 2.0)
    for held in (partition, ascent):
        arrived = sent(held)
        assert len(arrays_of(arrived)) >= 4
        assert all(array.flags.aligned for array in arrays_of(arrived))
        for array, original in zip(arrays_of(arrived), arrays_of(held), strict=True):
            np.testing.assert_array_equal(array, original)


def test_arguments_are_aligned():
    W = np.arange(6.0).reshape(2, 3)
    assert not sent(W).flags.aligned
    assert with_aligned(lambda coef, place: (coef.flags.aligned, place), sent(W), 7) == (True, 7)
