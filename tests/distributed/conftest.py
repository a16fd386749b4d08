import contextlib
import logging

import pytest
from distributed import Client, LocalCluster


@contextlib.contextmanager
def small_cluster(n_workers):
    """Start worker processes that nobody else sees, and a client."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def client():
    with small_cluster(2) as client:
        yield client
