"""Workers that die, leave and come, and a scheduler that is gone: on clusters of their own."""

import dataclasses
import os
import signal
import threading
import time

import numpy as np
import pytest

from topkopt import ConvergenceWarning, losses, solve
from topkopt.distributed import ClusterLostError
from topkopt.distributed import solve as solve_on_cluster
from topkopt.distributed.ascent import Sweep, begin, packed, pull_of, resume, visit
from topkopt.distributed.cluster import Cluster
from topkopt.distributed.partition import Terms, make_partition

from .conftest import small_cluster
from .test_distributed_solve import examples, in_chunks

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*socket")


class Once:
    """A callback that does something once, when a training is on its way."""

    def __init__(self, act, after=3):
        self.act, self.after, self.calls, self.later = act, after, 0, None

    def __call__(self, state):
        self.calls += 1
        if self.calls == self.after:
            self.later = self.act()

    def wait(self):
        """Let what was to happen a moment later happen before the test is over."""
        if self.later is not None:
            self.later.join()


def kill(client, count=1):
    """End worker processes as a crash or the kernel does."""
    for process in list(client.run(os.getpid).values())[:count]:
        os.kill(process, signal.SIGKILL)


def kill_while_it_works(client):
    """The same, a moment later: in the middle of a round."""
    timer = threading.Timer(0.05, kill, [client])
    timer.start()
    return timer


def leave(client):
    """Retire a worker, which hands over what it has."""
    client.cluster.scale(1)


@pytest.fixture(scope="module")
def cluster():
    with small_cluster(2) as client:
        yield client


@pytest.fixture
def client(cluster):
    """Two workers again, whatever happened before."""
    cluster.cluster.scale(2)
    while True:
        cluster.wait_for_workers(2, timeout=60)
        try:
            if len(cluster.run(os.getpid)) == 2:
                return cluster
        except OSError:  # the scheduler has not yet noticed that one is gone
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("loss", "fault"),
    [
        ("hinge", kill),
        ("hinge", kill_while_it_works),
        ("hinge", leave),
        ("softmax", kill_while_it_works),
    ],
)
def test_a_worker_that_is_lost_is_survived(client, loss, fault):
    X, y = examples()
    callback = Once(lambda: fault(client))
    found = solve_on_cluster(
        *in_chunks(X, y),
        loss,
        client=client,
        tol=1e-4,
        C=0.03,
        callback=callback,
        keep_dual=True,
        random_state=0,
    )
    callback.wait()
    assert callback.calls >= callback.after
    assert found.converged
    best = solve(X, y, loss, C=0.03, tol=1e-7, random_state=0)
    assert found.primal == pytest.approx(best.primal, rel=1e-4)
    assert found.dual_value == pytest.approx(best.primal, rel=1e-4)
    if loss == "hinge":
        assert X.T @ found.dual == pytest.approx(found.coef, abs=1e-9)


def test_a_copy_of_the_dual_variables_takes_their_place(client, monkeypatch):
    X, y = examples(d=40)  # the larger W is, the sooner a copy costs no more than the rounds
    submit, copies = Cluster.submit, []

    def recording(self, place, function, *args):
        if function is resume:
            copies.append(args[-1])
        return submit(self, place, function, *args)

    monkeypatch.setattr(Cluster, "submit", recording)

    def forget_and_kill():
        copies.clear()  # of faults before, of which the cluster may still recover
        kill(client)

    callback = Once(forget_and_kill, after=5)
    with pytest.warns(ConvergenceWarning):
        found = solve_on_cluster(
            *in_chunks(X, y),
            "hinge",
            client=client,
            tol=0,
            max_epochs=30,
            check_every=1,
            C=0.03,
            callback=callback,
        )
    assert any(copy is not None for copy in copies)
    assert found.gap < 0.01


def test_a_copy_is_what_it_is_a_copy_of():
    X, y = examples()
    terms = Terms(losses.Hinge(), 0.1, 3)
    partition = make_partition([X], [y], None)
    sweep = Sweep(1, 0, 1, (0,), "auto", 0.0, -1.0)
    ascent, _ = visit(partition, begin(partition, terms, 2.0), np.zeros((4, 3)), None, terms, sweep)
    mostly_zero = dataclasses.replace(
        ascent, blocks=ascent.blocks * (np.arange(len(X)) < 9)[:, None]
    )
    for original in (ascent, mostly_zero):
        copy = resume(partition, terms, 2.0, packed(partition, original))
        assert np.array_equal(copy.blocks, original.blocks)
        assert np.array_equal(pull_of(partition, copy).matrix, pull_of(partition, original).matrix)


def test_workers_that_come_take_partitions_over(client):
    X, y = examples()
    client.cluster.scale(1)
    while len(client.nthreads()) > 1:
        time.sleep(0.05)
    seen = set()

    def callback(state):
        if len(seen) == 0:
            client.cluster.scale(2)
            client.wait_for_workers(2, timeout=60)
        seen.update(address for address, keys in client.has_what().items() if keys)
        time.sleep(0.2)
        return len(seen) > 1

    with pytest.warns(ConvergenceWarning, match="stopped by the callback"):
        solve_on_cluster(
            *in_chunks(X, y),
            "hinge",
            client=client,
            tol=0,
            max_epochs=10**6,
            n_partitions=4,
            callback=callback,
        )
    assert len(seen) > 1


def test_ctrl_c_returns_what_is_certified(client):
    X, y = examples()
    act = Once(lambda: threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start())
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        found = solve_on_cluster(
            *in_chunks(X, y),
            "hinge",
            client=client,
            tol=0,
            max_epochs=10**6,
            check_every=1,
            callback=act,
            on_interrupt="return",
        )
    assert 0 < found.gap < 0.5


def test_rows_that_cannot_be_made_again(client):
    X, y = examples()
    blocks = client.scatter([X[:45], X[45:]], hash=False)
    with pytest.raises(ClusterLostError, match="cannot be made again"):
        solve_on_cluster(
            blocks,
            y,
            "hinge",
            client=client,
            tol=0,
            callback=Once(lambda: kill(client, 2)),
        )


def test_a_scheduler_that_is_gone_gives_one_clear_exception():
    X, y = examples()
    begin = time.monotonic()
    with small_cluster(1) as client:
        close = Once(client.cluster.close)
        with pytest.raises(ClusterLostError, match="scheduler of the cluster is gone"):
            solve_on_cluster(*in_chunks(X, y), "hinge", client=client, tol=0, callback=close)
    assert time.monotonic() - begin < 120
