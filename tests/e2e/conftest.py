"""One complete fluxqueue for all end-to-end tests, and a managed namespace for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.end_to_end import Stage, managed_namespace
from support.stage_accounts import Accounts

from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster


@pytest.fixture(scope="session")
def whole_cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """Eight nodes of 8 cpu and 32 GiB, Postgres, webhook, queue and fluxion.

    The pin window is 2 s, and a slot waits 10 s for a replacement pod, so that tests see what happens after
    both.
    """
    prices = {"currency": "EUR", "entries": [{"perHour": {"cpu": 3600, "node": 7200}}]}  # 1 and 2 a second
    config = {"pinWindowSeconds": 2, "successorGraceSeconds": 10, "prices": prices}
    values = {"queue": {"config": config}}
    cluster = InProcessCluster(service_folder / "e2e", ClusterOptions(values=values))
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="session")
def computing_cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """The same, but its pods run as processes of this machine."""
    cluster = InProcessCluster(service_folder / "computing", ClusterOptions(processes=True))
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def computing(computing_cluster: InProcessCluster) -> Iterator[Stage]:
    """A managed namespace whose pods run."""
    with managed_namespace(computing_cluster) as stage:
        yield stage


@pytest.fixture
def stage(whole_cluster: InProcessCluster) -> Iterator[Stage]:
    """A managed namespace. Its objects are deleted after the test, and then Fluxion must hold nothing."""
    with managed_namespace(whole_cluster) as stage:
        yield stage


@pytest.fixture
def accounts(stage: Stage) -> Iterator[Accounts]:
    """FluxAccounts of one test."""
    made = Accounts(stage)
    yield made
    made.delete()
