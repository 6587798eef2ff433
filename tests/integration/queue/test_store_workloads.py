"""The contract of workloads on Postgres."""

from __future__ import annotations

import pytest
from support.queue_records import Leader
from support.workload_contract import WorkloadContract

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Store


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


class TestWorkloadsInPostgres(WorkloadContract):
    """The tests of the store in memory."""
