"""The controller creates a MiniCluster's objects, writes its status, and reports what it cannot create."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.builders import make_minicluster
from support.controller_bench import RecordedEvents, managed_caches, running, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.miniclusters.controller import MiniClusterController
from fluxqueue.queue.miniclusters.preparations import MiniClusterSettings
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import FluxionJobId, WorkloadId
from fluxqueue.queue.release.blockers import ReleaseBlockers


class Evictions:
    """Takes evictions as the requeuer does."""

    def __init__(self) -> None:
        self.all: list[Eviction] = []

    async def evict(self, evictions: Sequence[Eviction]) -> list[WorkloadId]:
        self.all += evictions
        return [eviction.workload for eviction in evictions]


@pytest.fixture
def memory() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def ledger() -> RecordingLedger:
    return RecordingLedger()


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def evictions() -> Evictions:
    return Evictions()


@pytest.fixture(autouse=True)
async def _controller(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents, evictions: Evictions
) -> AsyncIterator[None]:
    settings = MiniClusterSettings("fluxqueue-queue", "cluster.local")
    caches = managed_caches(memory)
    controller = MiniClusterController(
        memory.api, caches, ledger, evictions.evict, events.recorder, settings, ReleaseBlockers()
    )
    subscribe(caches, ledger, controller)
    async with running(controller.run()):
        yield


def put(memory: MemoryApi, size: int = 2, **spec: Any) -> None:
    body = make_minicluster("flux", size, **spec)
    memory.put(
        "miniclusters", {**body, "metadata": {**body["metadata"], "namespace": "default", "uid": "mc-uid"}}
    )


def status(memory: MemoryApi) -> Any:
    return memory.get("miniclusters", "flux").get("status", {})


def job(memory: MemoryApi) -> Any:
    return memory.get("jobs", "flux")


async def test_what_a_minicluster_asks_of_the_topology_is_on_its_job_and_an_edit_of_it_too(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    body = make_minicluster("flux", 2)
    meta = {**body["metadata"], "namespace": "default", "uid": "mc-uid"}
    memory.put(
        "miniclusters",
        {**body, "metadata": {**meta, "annotations": {names.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}}},
    )
    await until(lambda: memory.get("jobs", "flux") is not None)
    assert job(memory)["metadata"]["annotations"][names.REQUIRED_TOPOLOGY_ANNOTATION] == "rack"
    ledger.put(
        a_workload(
            "flux",
            uid=job(memory)["metadata"]["uid"],
            reason=Reason.WAITING_FOR_NODES,
            message="2 nodes are short",
        )
    )
    await until(lambda: status(memory).get("message") == "2 nodes are short")
    current = memory.get("miniclusters", "flux")
    edited = {
        **current["metadata"],
        "annotations": {names.PREFERRED_TOPOLOGY_ANNOTATION: "zone", names.EXCLUSIVE_ANNOTATION: "true"},
    }
    memory.put("miniclusters", {**current, "metadata": edited})
    await until(lambda: names.EXCLUSIVE_ANNOTATION in job(memory)["metadata"]["annotations"])
    annotations = job(memory)["metadata"]["annotations"]
    assert annotations[names.PREFERRED_TOPOLOGY_ANNOTATION] == "zone"
    assert names.REQUIRED_TOPOLOGY_ANNOTATION not in annotations


async def test_the_job_is_created_suspended_and_after_all_other_objects(memory: MemoryApi) -> None:
    put(memory)
    await until(lambda: job(memory))
    assert job(memory)["spec"]["suspend"] is True
    created = [write.resource for write in memory.writes if write.verb == "create"]
    assert created[-1] == "jobs"
    assert {"secrets", "services"} <= set(created[:-1])


async def test_the_reason_to_wait_is_shown_in_the_status(memory: MemoryApi, ledger: RecordingLedger) -> None:
    put(memory)
    await until(lambda: job(memory))
    ledger.put(
        a_workload(
            "flux",
            uid=job(memory)["metadata"]["uid"],
            reason=Reason.WAITING_FOR_NODES,
            message="2 nodes are short",
        )
    )
    await until(lambda: status(memory).get("message") == "2 nodes are short")
    assert status(memory)["state"] == "Queued"


async def test_an_object_of_another_owner_is_reported_and_not_changed(
    memory: MemoryApi, events: RecordedEvents
) -> None:
    memory.put("jobs", {"metadata": {"name": "flux"}, "spec": {"template": {"spec": {"containers": []}}}})
    theirs = job(memory)
    put(memory)
    await until(lambda: status(memory).get("state") == "Invalid")
    assert "Job default/flux already exists and was not created by the queue" in status(memory)["message"]
    assert events.reasons == ["Refused"]
    assert job(memory) == theirs


async def test_in_a_namespace_that_is_not_managed_nothing_is_created(memory: MemoryApi) -> None:
    body = make_minicluster("flux", 2)
    memory.put(
        "miniclusters", {**body, "metadata": {**body["metadata"], "namespace": "other", "uid": "mc-uid"}}
    )
    await until(lambda: memory.get("miniclusters", "flux", "other").get("status"))
    assert f"{names.MANAGED_LABEL}=true" in memory.get("miniclusters", "flux", "other")["status"]["message"]
    assert [write for write in memory.writes if write.verb == "create"] == []


async def test_an_edit_while_it_waits_creates_the_job_again(memory: MemoryApi) -> None:
    put(memory)
    await until(lambda: job(memory))
    before = job(memory)["metadata"]["uid"]
    put(memory, 2, containers=[{"image": "app:2", "command": "hostname"}])
    await until(lambda: job(memory) and job(memory)["metadata"]["uid"] != before)


async def test_a_new_size_is_written_into_the_job(memory: MemoryApi) -> None:
    put(memory, 2, maxSize=4)
    await until(lambda: job(memory))
    before = job(memory)["metadata"]["uid"]
    put(memory, 3, maxSize=4)
    await until(lambda: job(memory) and job(memory)["spec"]["completions"] == 3)
    assert job(memory)["metadata"]["uid"] == before


async def test_brokers_that_do_not_form_in_time_are_evicted(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents, evictions: Evictions
) -> None:
    put(memory, 2, formTimeoutSeconds=60)
    await until(lambda: job(memory))
    row = a_workload(
        "flux",
        uid=job(memory)["metadata"]["uid"],
        state=State.ALLOCATED,
        jobid=FluxionJobId(7),
        hosts="n[1-2]",
    )
    ledger.put(row, replace(an_allocation(["n1", "n2"]), released_at=EPOCH - timedelta(hours=1)))
    await until(lambda: evictions.all)
    assert (evictions.all[0].workload, evictions.all[0].reason) == (row.id, Reason.START_TIMEOUT)
    assert "did not form within 60 s" in evictions.all[0].message
    assert "NotFormed" in events.reasons
