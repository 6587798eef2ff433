"""What a Flux cluster needs is created for it alone, and a failure is reported on its Job only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.builders import JobBuilder, make_job
from support.memory_api import MemoryApi
from support.minicluster_builders import NOW
from support.queue_builders import a_job, an_allocation, around

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.kube.events import EventRecorder
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.miniclusters.owned_objects import OwnedObjects
from fluxqueue.queue.miniclusters.preparations import MiniClusterSettings, Preparations
from fluxqueue.queue.release.blockers import PreparationFailed, ReleaseBlockers
from fluxqueue.queue.store.ledger import Ledger


def solver(**annotations: str) -> JobBuilder:
    labels = {names.JOB_NAME_LABEL: "solver", names.CONTROLLER_UID_LABEL: "job-uid"}
    template = {"annotations": {names.MINICLUSTER_ANNOTATION: "true", **annotations}, "labels": labels}
    return make_job("solver").indexed(2).cpu("2").with_("spec.template.metadata", template)


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def blockers() -> ReleaseBlockers:
    return ReleaseBlockers()


@pytest.fixture
def preparations(api: MemoryApi, blockers: ReleaseBlockers, messages: list[str]) -> Preparations:
    caches = SimpleNamespace(
        cluster_context=lambda _namespace: around(), nodes=SimpleNamespace(get=lambda *_: None)
    )
    recorder = SimpleNamespace(record=lambda _subject, _reason, message, **_: messages.append(message))
    return Preparations(
        OwnedObjects(api.api),
        cast(Caches, caches),
        cast(Ledger, SimpleNamespace(wall=lambda: NOW)),
        blockers,
        cast(EventRecorder, recorder),
        MiniClusterSettings("queue", "cluster.local"),
    )


def read(builder: JobBuilder, generation: int = 1) -> Job:
    return a_job(builder, uid="job-uid", generation=generation)


async def test_an_annotated_job_gets_its_secret_service_and_configmap(
    preparations: Preparations, api: MemoryApi
) -> None:
    job = read(solver())
    assert preparations.has_work_for(job)
    await preparations.reconcile(job)
    assert not preparations.has_work_for(job)
    await preparations.prepare(job, an_allocation(["n1", "n2"]))
    assert [write.resource for write in api.writes] == ["secrets", "services", "configmaps"]


async def test_a_job_that_cannot_be_rendered_is_refused_until_it_is_edited(
    preparations: Preparations, blockers: ReleaseBlockers, messages: list[str]
) -> None:
    job = read(solver(**{names.MINICLUSTER_MODE_ANNOTATION: "odd"}))
    with pytest.raises(PreparationFailed, match="it may be single, launcher, session"):
        await preparations.prepare(job, an_allocation(["n1", "n2"]))
    assert messages == [blockers.of(job)]
    assert blockers.of(read(solver(), generation=2)) == ""


async def test_any_error_of_rendering_blocks_this_job_only(
    preparations: Preparations, blockers: ReleaseBlockers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("metadata")

    job = read(solver())
    await preparations.reconcile(job)
    monkeypatch.setattr("fluxqueue.queue.miniclusters.preparations.shares_for", broken)
    with pytest.raises(PreparationFailed, match="cannot be rendered"):
        await preparations.prepare(job, an_allocation(["n1", "n2"]))
    assert "cannot be rendered" in blockers.of(job)


async def test_a_job_in_a_namespace_without_rights_is_blocked_with_the_remedy_until_they_are_given(
    preparations: Preparations, api: MemoryApi, blockers: ReleaseBlockers
) -> None:
    """Otherwise its release would be tried again and again while it holds its nodes."""
    job = read(solver())
    api.fail_next(
        "create", "secrets", 403, "Forbidden", 'User "queue" cannot create resource "secrets" in API group ""'
    )
    assert await preparations.reconcile(job) == 30
    assert "an administrator adds default to the chart's value miniclusters.namespaces" in blockers.of(job)
    api.fail_next(
        "create", "secrets", 403, "Forbidden", 'User "queue" cannot create resource "secrets" in API group ""'
    )
    with pytest.raises(PreparationFailed, match="miniclusters.namespaces"):
        await preparations.prepare(job, an_allocation(["n1", "n2"]))
    assert preparations.has_work_for(job)
    await preparations.reconcile(job)
    assert blockers.of(job) == ""


async def test_a_name_conflict_blocks_the_job_until_it_has_ended(
    preparations: Preparations, api: MemoryApi, blockers: ReleaseBlockers
) -> None:
    changed: list[str] = []
    blockers.subscribe(changed.append)
    job = read(solver())
    await preparations.reconcile(job)
    (service,) = api.written("create", "services")
    config = service.name + "-flux"
    api.put("configmaps", {"metadata": {"name": config, "uid": "theirs"}, "data": {"theirs": "yes"}})
    with pytest.raises(PreparationFailed, match=f"ConfigMap default/{config} already exists"):
        await preparations.prepare(job, an_allocation(["n1", "n2"]))
    assert api.get("configmaps", config)["data"] == {"theirs": "yes"}
    described = describe_job(job, around(), has_gated_pods=True, blocked_by=blockers.of(job))
    assert described is not None
    assert described.reason is Reason.INVALID_REQUEST
    assert f"ConfigMap default/{config}" in described.message

    assert await preparations.reconcile(job) is not None
    api.remove("configmaps", config)
    assert await preparations.reconcile(job) is None
    assert blockers.of(job) == ""
    assert changed == ["job-uid", "job-uid"]
