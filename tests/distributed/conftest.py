import contextlib
import logging

import pytest
from distributed import Client, LocalCluster


@contextlib.contextmanager
def small_cluster(n_workers):
    """Start worker processes that nobody else sees, and a client."""
    cluster = LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    )
    try:
        with Client(cluster) as client:
            yield client
    finally:
        # Where a test has killed workers, LocalCluster may hear of the end of one whose beginning
        # it has missed, and looks it up in vain.
        with contextlib.suppress(KeyError):
            cluster.close()


@pytest.fixture(scope="session")
def client():
    with small_cluster(2) as client:
        yield client
