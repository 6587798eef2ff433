"""A new leader adopts released objects that the tables do not have, if the queue admitted them,
and no forged ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs
from support.builders import Builder, make_job, make_node, make_pod
from support.queue_bench import Bench, a_leader, a_node

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State, fluxjob_name
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.records import FluxionJobId, NewWorkload
from fluxqueue.queue.recovery.adoption import adopt_released
from fluxqueue.queue.store import Database, Store


@pytest.fixture
async def bench(pool: Database) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(Store(pool), nodes, matcher) as made:
        yield made
    await matcher.close()


@pytest.fixture
def caches(bench: Bench) -> Caches:
    """A managed and an unmanaged namespace without objects."""
    caches = Caches(cast("Api", None))  # nothing is read from a cluster
    caches.nodes.replace(bench.nodes.list())
    labels = {"managed": {names.MANAGED_LABEL: "true"}, "unmanaged": {}}
    caches.namespaces.replace(
        [
            msgspec.convert({"metadata": {"name": name, "labels": own}}, Namespace)
            for name, own in labels.items()
        ]
    )
    return caches


def running(name: str, node: str = "n1", jobid: int = 7, namespace: str = "managed") -> Job:
    """A Job with the keys of a release to this node."""
    job = (
        make_job(name).namespace(namespace).indexed(1).cpu("8").uid(name).label(names.JOBID_LABEL, str(jobid))
    )
    job = job.pod_annotation(names.ALLOCATION_ANNOTATION, str(jobid)).pod_annotation(
        names.NODES_ANNOTATION, node
    )
    job = job.pod_annotation(names.PIN_UNTIL_ANNOTATION, "2100-01-01T00:00:00Z")
    return msgspec.convert(job.build(), Job)


def fluxjob_of(name: str, jobid: int | None = 7, namespace: str = "managed", kind: str = "Job") -> FluxJob:
    """The FluxJob of an object, with the id of its allocation."""
    reference = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": name}
    metadata = {"name": fluxjob_name(kind, name, name), "namespace": namespace, "uid": f"fj-{name}"}
    body = {"metadata": metadata, "spec": {"objectRef": reference}}
    return msgspec.convert({**body, "status": {"jobid": jobid} if jobid else {}}, FluxJob)


async def test_a_job_that_the_queue_released_is_adopted(bench: Bench, caches: Caches) -> None:
    caches.jobs.replace([running("honest")])
    caches.fluxjobs.replace([fluxjob_of("honest")])
    assert await adopt_released(caches, bench.ledger) == 1
    assert (bench.row("honest").jobid, bench.row("honest").hosts) == (7, "n1")


@pytest.mark.parametrize(
    ("job", "fluxjob"),
    [
        pytest.param(running("forged"), None, id="that the queue never admitted"),
        pytest.param(
            running("forged", namespace="unmanaged"),
            fluxjob_of("forged", namespace="unmanaged"),
            id="in an unmanaged namespace",
        ),
        pytest.param(
            running("forged"), fluxjob_of("forged", namespace="unmanaged"), id="whose FluxJob is elsewhere"
        ),
        pytest.param(running("forged", node="n9"), fluxjob_of("forged"), id="on a node that does not exist"),
    ],
)
async def test_a_forged_running_job_is_not_adopted_by_a_new_leader(
    bench: Bench, caches: Caches, job: Job, fluxjob: FluxJob | None
) -> None:
    caches.jobs.replace([job])
    caches.fluxjobs.replace([fluxjob] if fluxjob else [])
    assert await adopt_released(caches, bench.ledger) == 0
    assert bench.ledger.by_uid("forged") is None


async def test_a_job_that_copies_the_keys_of_another_is_not_adopted(bench: Bench, caches: Caches) -> None:
    caches.jobs.replace([running("copy"), running("honest")])
    caches.fluxjobs.replace([fluxjob_of("copy", None), fluxjob_of("honest")])
    with capture_logs() as logs:
        assert await adopt_released(caches, bench.ledger) == 1
    assert bench.ledger.by_uid("copy") is None
    assert bench.row("honest").state is not State.PENDING
    (refused,) = [each for each in logs if each["event"] == "adoption.refused"]
    assert "copy" in refused["reasons"][0]


async def test_pods_that_the_queue_admitted_are_adopted_if_they_are_bound(
    bench: Bench, caches: Caches
) -> None:
    def pod(name: str, jobid: int) -> Builder:
        return (
            make_pod(name)
            .namespace("managed")
            .uid(name)
            .cpu("2")
            .annotation(names.ALLOCATION_ANNOTATION, str(jobid))
        )

    pods = [
        pod("bound", 7).with_("spec.nodeName", "n1"),
        pod("nowhere", 8),
        pod("forged", 9).with_("spec.nodeName", "n2"),
    ]
    caches.pods.replace([msgspec.convert(each.build(), Pod) for each in pods])
    caches.fluxjobs.replace([fluxjob_of("bound", kind="Pod"), fluxjob_of("nowhere", 8, kind="Pod")])
    assert await adopt_released(caches, bench.ledger) == 1
    assert bench.row("bound").hosts == "n1"
    assert bench.ledger.by_uid("nowhere") is None
    assert bench.ledger.by_uid("forged") is None


async def test_a_pod_that_a_growing_job_added_is_adopted_with_its_own_slot(
    bench: Bench, caches: Caches
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "honest", "uid": "honest", "controller": True}
    grown = (
        make_pod("grown")
        .namespace("managed")
        .uid("grown")
        .cpu("8")
        .index(1)
        .with_("metadata.ownerReferences", [owner])
    )
    grown = grown.annotation(names.ALLOCATION_ANNOTATION, "8").with_("spec.nodeName", "n2")
    caches.jobs.replace([running("honest")])
    caches.pods.replace([msgspec.convert(grown.build(), Pod)])
    caches.fluxjobs.replace([fluxjob_of("honest"), fluxjob_of("grown", 8, kind="Pod")])
    assert await adopt_released(caches, bench.ledger) == 2
    assert (bench.row("honest").hosts, bench.row("grown").hosts) == ("n1", "n2")
    assert bench.row("grown").kind == "Pod"


async def test_new_ids_follow_the_highest_admitted_id_and_not_a_forged_one(
    bench: Bench, caches: Caches
) -> None:
    caches.nodes.replace([msgspec.convert(make_node("n1").build(), Node)])
    caches.jobs.replace([running("honest", jobid=70), running("forged", jobid=10**18 - 1)])
    caches.fluxjobs.replace([fluxjob_of("honest", 70), fluxjob_of("ended", 90)])
    await adopt_released(caches, bench.ledger)
    (jobid,) = await bench.ledger.next_jobids(1)
    assert jobid == FluxionJobId(10_091), (
        "with room for what was released in the last seconds and has no FluxJob"
    )


@pytest.mark.parametrize("forged", [2**63 - 1, 2**63 - 10_000, 10**18 - 1])
async def test_an_id_that_no_queue_can_have_given_keeps_no_leader_from_starting(
    bench: Bench, caches: Caches, forged: int
) -> None:
    caches.jobs.replace([running("honest", jobid=70)])
    caches.fluxjobs.replace([fluxjob_of("honest", 70), fluxjob_of("ended", forged)])
    assert await adopt_released(caches, bench.ledger) == 1
    (jobid,) = await bench.ledger.next_jobids(1)
    assert jobid == FluxionJobId(10_071)


async def test_an_object_that_cannot_be_read_keeps_no_other_from_being_adopted(
    bench: Bench, caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(job: Job, *args: Any, **others: Any) -> NewWorkload | None:
        if job.metadata.name == "broken":
            raise KeyError("a value that nobody thought of")
        return describe_job(job, *args, **others)

    monkeypatch.setattr("fluxqueue.queue.recovery.adoption.describe_job", read)
    caches.jobs.replace([running("broken", "n2", jobid=8), running("honest")])
    caches.fluxjobs.replace([fluxjob_of("broken", 8), fluxjob_of("honest")])
    before = OBJECT_FAILURES.labels("adoption")._value.get()
    assert await adopt_released(caches, bench.ledger) == 1
    assert (bench.row("honest").jobid, bench.ledger.by_uid("broken")) == (7, None)
    assert OBJECT_FAILURES.labels("adoption")._value.get() == before + 1
