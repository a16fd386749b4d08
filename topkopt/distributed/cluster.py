"""Partitions that stay on the workers of a cluster, and sums over them, whoever comes and goes.

Faults are left to Dask where it knows what to do: a partition that a worker took with it is made
again from what it was made of, on another worker. What cannot be made again raises there, because
it was sent by the client: then the work is begun anew from here.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from numpy.typing import NDArray

from topkopt._extras import require
from topkopt._validation import aligned
from topkopt.distributed.partition import Sum, add

__all__ = ["Cluster", "ClusterLostError"]

_LOGGER = logging.getLogger("topkopt")
_ATTEMPTS = 12  # how often in a row a piece of work may be begun anew
_PLACES = 1.0  # seconds after which places are looked at again
_WAIT = 60.0  # seconds to wait for a worker when the last one is gone

_Result = TypeVar("_Result")


def copied(data: Any) -> Any:
    """Return the data: a task of its own has a result of its own."""
    return data


def with_aligned(function: Callable[..., _Result], *args: Any) -> _Result:
    """Call a function: arrays may lie anywhere in the message that they came with."""
    return function(*map(aligned, args))


class ClusterLostError(RuntimeError):
    """The scheduler is gone, or what a worker has lost cannot be made again."""


class Cluster:
    """Partitions, where they are, and what is computed of them.

    Parameters
    ----------
    client : distributed.Client
        Speaks to the scheduler.
    partitions : sequence of Future
        The `Partition` objects.
    """

    def __init__(self, client: Any, partitions: Sequence[Any]):
        self.client = client
        self.partitions = list(partitions)
        self.homes: list[str | None] = [None] * len(self.partitions)
        self._shared: tuple[Any, Any] = (None, None)
        self._placed = -math.inf  # when places were looked at last

    def __len__(self) -> int:
        return len(self.partitions)

    # Faults -----------------------------------------------------------------------------------

    def attempt(
        self, work: Callable[[], _Result], restore: Callable[[], None] = lambda: None
    ) -> _Result:
        """Return what the work returns; if a worker took something along, restore it and repeat."""
        distributed = require("distributed")
        gone = (CancelledError, OSError)
        for _ in range(_ATTEMPTS):
            try:
                self._place()
                return work()
            except distributed.KilledWorker as error:
                raise ClusterLostError(
                    f"one partition of X has ended several workers ({error}); mostly they had too "
                    "little memory: use more partitions, or workers with more memory."
                ) from error
            except Exception as error:
                self._check(error)
                if not isinstance(error, gone):
                    raise
                _LOGGER.info("a worker is gone, going on without what it had (%s)", error)
                self._shared, self._placed = (None, None), -math.inf
                self._wait_for_workers(error)
                restore()
        raise ClusterLostError(
            f"the cluster lost workers {_ATTEMPTS} times before a single step was done; look for "
            "what ends them, such as a limit of memory."
        )

    def _check(self, error: BaseException) -> None:
        """Raise if there is no scheduler any more, or if rows are gone for good."""
        if self.client.status != "running":
            raise ClusterLostError(
                "the scheduler of the cluster is gone, and all that the workers had with it; start "
                "a cluster and train again (warm_start takes the coef of a state that a callback "
                "has kept)."
            ) from error
        for place, partition in enumerate(self.partitions):
            if partition.status == "cancelled":
                raise ClusterLostError(
                    f"the rows of partition {place} are gone with their worker and cannot be made "
                    "again; pass X and y as Dask arrays or delayed blocks that are computed or "
                    "read from files, not as scattered data."
                ) from error

    def _wait_for_workers(self, error: BaseException) -> None:
        try:
            self.client.wait_for_workers(1, timeout=_WAIT)
        except TimeoutError:
            raise ClusterLostError(
                f"the cluster has no workers, and none came for {_WAIT:g} seconds; add some, and "
                "train again."
            ) from error

    # Places -----------------------------------------------------------------------------------

    def _place(self) -> None:
        """Find out where everything is, and let workers that have nothing take over some of it.

        Every now and then, because the scheduler is asked; results do not depend on places.
        """
        if time.monotonic() < self._placed + _PLACES:
            return
        self._placed = time.monotonic()
        threads = self.client.nthreads()
        if not threads:
            return
        holders = self.client.who_has(self.partitions)
        for place, partition in enumerate(self.partitions):
            found = [address for address in holders.get(partition.key, ()) if address in threads]
            if self.homes[place] not in found:
                self.homes[place] = found[0] if found else None
        self._balance(list(threads))

    def _balance(self, workers: list[str]) -> None:
        having: dict[str, list[int]] = {worker: [] for worker in workers}
        for place, home in enumerate(self.homes):
            if home is not None:
                having[home].append(place)
        while True:
            most = max(workers, key=lambda worker: len(having[worker]))
            least = min(workers, key=lambda worker: len(having[worker]))
            if len(having[most]) < len(having[least]) + 2:
                return
            place = having[most].pop()
            having[least].append(place)
            self.homes[place] = least

    # Work -------------------------------------------------------------------------------------

    def share(self, array: NDArray) -> Any:
        """Return a future of an array that all workers will need; they get it from each other."""
        if self._shared[0] is not array:
            self._shared = (array, self.client.scatter(array, hash=False, broadcast=False))
        return self._shared[1]

    def submit(self, place: int, function: Callable[..., Any], *args: Any) -> Any:
        """Return the future of a function, to be computed where a partition is."""
        home = self.homes[place]
        pinned = {} if home is None else {"workers": [home], "allow_other_workers": True}
        return self.client.submit(with_aligned, function, *args, pure=False, **pinned)

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return the futures of a function of each partition; lists hold an argument for each."""
        return [
            self.submit(
                place,
                function,
                partition,
                *(arg[place] if isinstance(arg, list) else arg for arg in args),
            )
            for place, partition in enumerate(self.partitions)
        ]

    def total(self, leaves: Sequence[Any]) -> Sum:
        """Return the sum of futures of sums, always added in the same order, two and two."""
        level = list(leaves)
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            level = [self.client.submit(add, *pair, pure=False) for pair in pairs] + (
                level[-1:] if len(level) % 2 else []
            )
        return self.client.gather(level[0])

    def elsewhere(self, futures: Sequence[Any]) -> list[Any]:
        """Return futures of copies on other workers than the homes; none if there are no others."""
        homes = sorted({home for home in self.homes if home is not None})
        if len(homes) < 2:
            return []
        copies = []
        for home, future in zip(self.homes, futures, strict=True):
            other = homes[(homes.index(home) + 1) % len(homes)] if home else homes[0]
            copies.append(
                self.client.submit(
                    copied, future, pure=False, workers=[other], allow_other_workers=True
                )
            )
        require("distributed").wait(copies)
        return copies

    def gather(self, futures: Any) -> Any:
        """Return what futures have become."""
        return self.client.gather(futures)
