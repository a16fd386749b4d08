"""Training on the workers of a Dask cluster; needs the extra `dask`.

In the order in which the modules build on each other: `rows` (the forms in which rows come),
`partition` (what a worker holds), `evaluation` and `ascent` (what it computes), `cluster` (where
partitions are, sums over them, and faults), `problem` (L-BFGS over them), `rounds` (coordinate
ascent over them) and `training` (`solve`).
"""

from topkopt.distributed.cluster import ClusterLostError
from topkopt.distributed.rows import RowsOfFile
from topkopt.distributed.training import solve

__all__ = ["ClusterLostError", "RowsOfFile", "solve"]
