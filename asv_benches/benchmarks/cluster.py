"""Partitions on the workers of a cluster: what the rounds cost that one machine does not need."""

import contextlib
import resource
import sys
import warnings

import cloudpickle
import dask.array as da
from distributed import Client, LocalCluster

from topkopt import ConvergenceWarning, losses, solve
from topkopt.distributed import solve as solve_on_cluster

from .common import QUICK
from .solvers import clusters

SHAPE = (400, 8, 7) if QUICK else (20_000, 32, 10)
LOSSES = {"softmax": losses.Softmax(), "topk_hinge": losses.TopKHinge(2)}
WORD = 8  # bytes of a number

# The workers cannot import the benchmarks, so what they are asked to run comes with its body.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def moved(dask_worker):
    """Return the bytes that a worker has got from others and given to them, as Dask counts."""
    incoming = sum(entry["total"] for entry in dask_worker.transfer_incoming_log)
    return incoming + dask_worker.transfer_outgoing_bytes_total


def peak():
    """Return the most memory that a process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Partitions:
    """A worker process for each partition."""

    params = (list(LOSSES), [1, 2, 4])
    param_names = ("loss", "partitions")
    timeout = 600

    def setup(self, loss, partitions):
        self.X, self.y = clusters(*SHAPE)
        self.rest = contextlib.ExitStack()
        options = {"n_workers": partitions, "threads_per_worker": 1, "host": "127.0.0.1"}
        cluster = LocalCluster(processes=True, dashboard_address="127.0.0.1:0", **options)
        self.rest.enter_context(cluster)
        self.client = self.rest.enter_context(Client(cluster))

    def teardown(self, *_):
        self.rest.close()

    def train(self, loss, partitions, **options):
        rows = -(-len(self.X) // partitions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return solve_on_cluster(
                da.from_array(self.X, chunks=(rows, -1)),
                da.from_array(self.y, chunks=rows),
                LOSSES[loss],
                client=self.client,
                random_state=0,
                **options,
            )

    def track_epochs_to_one_machine(self, loss, partitions):
        alone = solve(self.X, self.y, LOSSES[loss], tol=1e-4, random_state=0)
        return self.train(loss, partitions, tol=1e-4).n_epochs / alone.n_epochs

    def track_bytes_of_a_round(self, loss, partitions):
        seen = []

        def callback(state):
            seen.append(max(self.client.run(moved).values()))

        self.train(loss, partitions, tol=0.0, max_epochs=20, check_every=1, callback=callback)
        rounds = len(seen) - 2
        return (seen[-1] - seen[1]) / rounds / (WORD * SHAPE[1] * SHAPE[2])

    def track_peak_memory_of_a_worker(self, loss, partitions):
        self.train(loss, partitions, tol=1e-3)
        return max(self.client.run(peak).values())

    def track_peak_memory_of_the_client(self, loss, partitions):
        self.train(loss, partitions, tol=1e-3)
        return peak()


Partitions.track_epochs_to_one_machine.unit = "times the epochs of one machine"
Partitions.track_bytes_of_a_round.unit = "times the bytes of W, of one worker"
Partitions.track_peak_memory_of_a_worker.unit = "MB"
Partitions.track_peak_memory_of_the_client.unit = "MB"
