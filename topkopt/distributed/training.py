"""`solve` on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from topkopt import losses
from topkopt._extras import require
from topkopt._validation import as_array, check_k, check_scalar
from topkopt.distributed.cluster import Cluster
from topkopt.distributed.partition import Description, Partition, make_partition
from topkopt.distributed.problem import ClusterLBFGS, as_cluster_problem
from topkopt.distributed.rounds import Rounds
from topkopt.distributed.rows import blocks_of, grouped, is_blocks, length_of
from topkopt.solvers.choice import check_method
from topkopt.solvers.lbfgs import make_lbfgs
from topkopt.solvers.method import Method
from topkopt.solvers.settings import Settings, check_settings
from topkopt.solvers.solution import Solution, State
from topkopt.solvers.starts import as_generator, check_start_dual, start_coef
from topkopt.solvers.training import train

__all__ = ["solve"]

_METHODS = ("auto", "lbfgs", "sdca")
_LOCAL_EPOCHS = 2.0


def solve(
    X: Any,
    y: Any,
    loss: losses.Loss | str,
    *,
    client: Any = None,
    n_partitions: int | str = "auto",
    local_epochs: float | str = "auto",
    C: float = 1.0,
    sample_weight: Any = None,
    method: str = "auto",
    tol: float = 1e-3,
    max_epochs: int = 1000,
    check_every: int | str = "auto",
    warm_start: Solution | None = None,
    random_state: Any = None,
    block_size: int | str = "auto",
    callback: Callable[[State], Any] | None = None,
    verbose: int = 0,
    n_classes: int | None = None,
    on_interrupt: str = "raise",
    keep_dual: bool = False,
    n_threads: int | None = None,
) -> Solution:
    """Train a linear classifier on the workers of a Dask cluster and certify the result.

    Minimises what `topkopt.solve` minimises, by L-BFGS for smooth losses and by coordinate ascent
    in rounds (CoCoA+ [1]_, with momentum and shrinking) for all others, until the relative duality
    gap is at most `tol`. The rows stay on the workers; what travels is of the size of W.

    Parameters
    ----------
    X : dask array of shape (n, d), or list of blocks of rows
        The examples as rows. The chunks of an array hold NumPy arrays or CSR matrices; a list holds
        delayed blocks, futures of blocks, or `RowsOfFile`. float32 and float64 are kept.
    y : dask array of shape (n,) or (n, m), list of blocks, or array_like
        Labels 0, 1, ..., m - 1; for multilabel losses also an indicator matrix. Chunks or blocks
        are those of X; what is in memory here is sent to the workers, to each its part.
    loss : Loss or str
        A loss of `topkopt.losses`, or the registry name of one that needs no parameters.
    client : distributed.Client, optional
        Of the cluster; by default the current one.
    n_partitions : int or "auto", default "auto"
        Into how many parts the rows are divided; neighbouring chunks are put together. "auto" is
        the number of workers, or of chunks if there are fewer. The more, the more rounds it takes;
        those above the number of workers can move to workers that come later.
    local_epochs : float or "auto", default "auto"
        How often a round of "sdca" visits a row before the workers tell each other, at the most;
        below 1, the part of the rows that a round visits. "auto" is 2.
    C : float, default 1.0
        Weight of the losses against the penalty ``1/2 |W|^2``.
    sample_weight : dask array of shape (n,), list of blocks, or array_like, optional
        Non-negative weights w: 2 counts an example twice, 0 leaves it out.
    method : {"auto", "lbfgs", "sdca"}, default "auto"
        "lbfgs" trains smooth losses; an evaluation is a sum over the workers. "sdca" trains every
        convex loss. "auto" is "lbfgs" for a smooth loss.
    tol : float, default 1e-3
        The relative duality gap to reach.
    max_epochs : int, default 1000
        The largest number of passes over the data.
    check_every : int or "auto", default "auto"
        Epochs between two certificates. Only with "auto" does "sdca" leave examples alone that have
        settled; with a number every round visits all of them.
    warm_start : Solution, optional
        Where to start; of the same examples and classes, but possibly another C or other weights.
        "sdca" needs one with dual variables.
    random_state : int, Generator or RandomState, optional
        Draws the order of each epoch.
    block_size : int or "auto", default "auto"
        How many dense rows are taken together; affects the speed only.
    callback : callable, optional
        Called with a `State` after each certificate; a true result stops the training.
    verbose : int, default 0
        1 shows one line of progress on a terminal, 2 or more a line per certificate anywhere.
    n_classes : int, optional
        The number m of classes; by default the largest label plus 1, of which at least half must
        have an example.
    on_interrupt : {"raise", "return"}, default "raise"
        What Ctrl-C does: raise KeyboardInterrupt, or return what is certified so far.
    keep_dual : bool, default False
        Whether the n times m dual variables are brought here in the end.
    n_threads : int, optional
        How many threads work on a partition; by default as many as each worker has.

    Returns
    -------
    Solution
        As of `topkopt.solve`. Not reaching `tol` also warns with `ConvergenceWarning`.

    Raises
    ------
    ClusterLostError
        The scheduler is gone, or rows that cannot be made again.

    Notes
    -----
    Sums are added in an order that depends on the number of partitions alone: L-BFGS repeats bit
    for bit on the same partitions, wherever they are.

    A worker that is lost or retired is survived. Dask makes its partitions again from what X and y
    were made of; data that were scattered cannot be made again. "sdca" goes back to the copies of
    their dual variables, which it keeps on other workers and renews when the rounds have moved as
    many bytes as that takes, or to 0; W is then computed anew from all of them, so that every
    certificate is one of what is there. Workers that come later take over partitions from those
    that have more than one.

    References
    ----------
    .. [1] C. Ma et al., "Adding vs. averaging in distributed primal-dual optimization", ICML 2015.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from distributed import Client
    >>> from topkopt import distributed
    >>> X = da.from_array(np.tile(np.eye(2), (3, 1)), chunks=(2, 2))
    >>> with Client(n_workers=1, processes=False, dashboard_address=None) as client:
    ...     solution = distributed.solve(X, [0, 1] * 3, "hinge", tol=1e-6)
    >>> solution.converged
    True
    """
    loss = losses.get(loss)
    if method not in _METHODS:
        raise ValueError(
            f"method must be one of {', '.join(_METHODS)} on a cluster, got {method!r}."
        )
    check_method(method, loss)
    C = check_scalar(C, "C", positive=True)
    epochs = _check_local_epochs(local_epochs)
    settings = check_settings(
        method=method,
        tol=tol,
        max_epochs=max_epochs,
        check_every=check_every,
        random_state=random_state,
        block_size=block_size,
        callback=callback,
        verbose=verbose,
        on_interrupt=on_interrupt,
        keep_dual=keep_dual,
        n_threads=n_threads,
    )
    client = _as_client(client)
    cluster, described = _distribute(client, X, y, sample_weight, n_partitions, n_threads)
    problem = as_cluster_problem(cluster, described, loss, C, n_classes, keep_dual)

    def start(problem: Any, settings: Settings, warm_start: Any, block_size: int) -> Method:
        smooth = problem.loss.smooth and settings.method != "sdca"
        if smooth or not problem.loss.convex:
            coef = start_coef(problem, warm_start)
            return make_lbfgs(problem, coef, settings.keep_dual, ClusterLBFGS)
        rng = as_generator(settings.random_state)
        starts = _starts(problem, warm_start)
        return Rounds(problem, cluster, rng, settings, epochs, starts)

    return train(problem, settings, warm_start, start=start)


def _check_local_epochs(local_epochs: float | str) -> float:
    if isinstance(local_epochs, str):
        if local_epochs != "auto":
            raise ValueError(
                f"local_epochs must be a positive number or 'auto', got {local_epochs!r}."
            )
        return _LOCAL_EPOCHS
    return check_scalar(local_epochs, "local_epochs", positive=True)


def _as_client(client: Any) -> Any:
    """Return the client, or the current one."""
    distributed = require("distributed")
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            raise ValueError(
                "client must be given where there is no current one, got None; start a cluster, "
                "for example with distributed.Client()."
            ) from None
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise TypeError(
            "client must be a distributed.Client that is not asynchronous, got "
            f"{type(client).__name__}."
        )
    return client


# Rows to the workers ------------------------------------------------------------------------------


def _distribute(
    client: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    n_partitions: int | str,
    n_threads: int | None,
) -> tuple[Cluster, list[Description]]:
    """Return the partitions and what they hold; none of them is empty."""
    require("dask.array")
    blocks = blocks_of(X, "X")
    count = _count_partitions(client, n_partitions, len(blocks))
    parts = [_like(X, part, name) for part, name in ((y, "y"), (sample_weight, "sample_weight"))]
    lengths = None
    if not all(part is None or is_blocks(part) for part in parts):
        lengths, blocks = _lengths(client, X, blocks)
    groups = [grouped(_computed(client, blocks), count)]
    for part, name in zip(parts, ("y", "sample_weight"), strict=True):
        groups.append(_groups(client, part, name, len(blocks), lengths, count))
    threads = n_threads or min(client.nthreads().values(), default=1)
    partitions = [
        client.submit(make_partition, *group, threads, pure=False)
        for group in zip(*groups, strict=True)
    ]
    cluster = Cluster(client, partitions)
    described = cluster.attempt(lambda: cluster.gather(cluster.map(Partition.describe)))
    kept = [place for place, part in enumerate(described) if part.n_rows]
    if not kept:
        raise ValueError("X must have at least one row, got none.")
    return Cluster(client, [partitions[place] for place in kept]), [described[i] for i in kept]


def _count_partitions(client: Any, n_partitions: int | str, most: int) -> int:
    if isinstance(n_partitions, str):
        if n_partitions != "auto":
            raise ValueError(
                f"n_partitions must be a positive integer or 'auto', got {n_partitions!r}."
            )
        return max(1, min(most, len(client.nthreads())))
    return check_k(n_partitions, most, "the number of blocks of X", name="n_partitions")


def _like(X: Any, part: Any, name: str) -> Any:
    """Return labels or weights in chunks like those of X, if both are Dask arrays."""
    if part is None or is_blocks(part):
        known = is_blocks(part) and hasattr(part, "chunks") and hasattr(X, "chunks")
        if known and part.chunks[0] != X.chunks[0] and not np.isnan(X.shape[0] + part.shape[0]):
            if part.shape[0] != X.shape[0]:
                raise ValueError(
                    f"{name} must have one entry per row of X ({X.shape[0]}), got {part.shape[0]}."
                )
            return part.rechunk({0: X.chunks[0]})
        return part
    return as_array(part, name)


def _computed(client: Any, blocks: list[Any]) -> list[Any]:
    """Return blocks with futures in place of what is delayed."""
    delayed = [block for block in blocks if hasattr(block, "dask")]
    futures = iter(client.compute(delayed))
    return [next(futures) if hasattr(block, "dask") else block for block in blocks]


def _lengths(client: Any, X: Any, blocks: list[Any]) -> tuple[list[int], list[Any]]:
    """Return how many rows the blocks have, and blocks that are computed if that took it."""
    if hasattr(X, "chunks") and not np.isnan(X.shape[0]):
        return list(X.chunks[0]), blocks
    blocks = _computed(client, blocks)
    return client.gather([client.submit(length_of, block, pure=False) for block in blocks]), blocks


def _groups(
    client: Any, part: Any, name: str, n_blocks: int, lengths: list[int] | None, count: int
) -> list[Any]:
    """Return labels or weights in groups like those of the blocks of X."""
    if part is None:
        return [None] * count
    if is_blocks(part):
        blocks = blocks_of(part, name)
        if len(blocks) != n_blocks:
            raise ValueError(
                f"{name} must have as many blocks as X ({n_blocks}), got {len(blocks)}; give both "
                "the same chunks."
            )
        return grouped(_computed(client, blocks), count)
    n = sum(lengths or [])
    if part.shape[:1] != (n,):
        raise ValueError(f"{name} must have one entry per row of X ({n}), got {part.shape}.")
    if part.dtype.kind in "iu" and part.size:  # they travel with the graph, and in few bytes
        part = part.astype(np.result_type(*map(np.min_scalar_type, (part.min(), part.max()))))
    sizes = [sum(group) for group in grouped(lengths or [], count)]
    return [[piece] for piece in np.split(part, np.cumsum(sizes)[:-1])]


def _starts(problem: Any, warm_start: Any) -> list[tuple[Any, Any]]:
    """Return for each partition dual blocks to start from and their costs; None twice for 0."""
    rows = problem.data
    if warm_start is None:
        return [(None, None)] * len(rows.sizes)
    check_start_dual(problem, warm_start)
    ends = np.cumsum(rows.sizes)[:-1]
    client = rows.cluster.client
    duals = client.scatter(np.split(warm_start.dual, ends), hash=False)
    return list(zip(duals, np.split(warm_start.cost, ends), strict=True))
