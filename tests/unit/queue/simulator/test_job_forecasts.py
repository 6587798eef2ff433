"""What would become of a Job that was submitted now (`kubectl fluxqueue submit --test-only`)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from msgspec import structs
from support.builders import JobBuilder, make_job, make_node, make_queue

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta, PriorityClass
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.simulator.cluster_snapshot import SiteObjects
from fluxqueue.queue.simulator.job_forecasts import ClusterObjects, JobForecast, forecast_job

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AT = int(NOW.timestamp())


def a_fluxjob(name: str, pods: int, duration_s: int, *, hosts: str = "") -> FluxJob:
    """A job with pods of four cores.
    With hosts it has run for a minute, without it waits, in the order of names.
    """
    text = jobspec_of(name, [SizedPods({"cpu": Decimal(4)}, pods)], duration_s=duration_s)
    return FluxJob(
        ObjectMeta(name=name, namespace="team", uid=name),
        FluxJobSpec(ObjectRef("batch/v1", "Job", name), "default", 0, duration_s, pods, text),
        FluxJobStatus(
            state=State.RUNNING if hosts else State.PENDING,
            nodes=hosts,
            submitted_at=f"2026-11-21T11:0{name[-1]}:00Z",
            allocated_at="2026-11-21T11:59:00Z" if hosts else None,
            jobid=7,
        ),
    )


def objects(*fluxjobs: FluxJob, nodes: int = 2, **queue: Any) -> ClusterObjects:
    made = [msgspec.convert(make_node(f"n{number}", cpu="4").build(), Node) for number in range(nodes)]
    queues = [msgspec.convert(make_queue("default", **{"policy": "easy", **queue}), FluxQueue)]
    classes = [PriorityClass(ObjectMeta(name="urgent"), value=1_000)]
    return ClusterObjects(made, (), fluxjobs, SiteObjects(queues), classes)


def a_job(pods: int, duration: str) -> JobBuilder:
    """A Job of pods of four cores, as a dry run of the API server returns it."""
    held = make_job("mine").indexed(pods).cpu("4").suspended().annotation(names.DURATION_ANNOTATION, duration)
    return (
        held.annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
        .with_("metadata.uid", "mine")
        .with_("metadata.creationTimestamp", "2026-11-21T12:00:00Z")
    )


def forecast_of(cluster: ClusterObjects, job: JobBuilder) -> JobForecast:
    return asyncio.run(forecast_job(cluster, msgspec.convert(job.build(), Job), NOW))


def test_a_job_that_fits_starts_now_and_its_nodes_are_named() -> None:
    found = forecast_of(objects(a_fluxjob("run-0", 1, 600, hosts="n0")), a_job(1, "1h"))
    assert (found.start, found.nodes, found.ahead, found.delayed) == (AT, ["n1"], 0, [])


def test_a_job_that_does_not_fit_starts_when_running_work_has_ended() -> None:
    found = forecast_of(objects(a_fluxjob("run-0", 1, 600, hosts="n0")), a_job(2, "1h"))
    assert (found.start, sorted(found.nodes)) == (AT + 540, ["n0", "n1"])


def test_a_job_waits_behind_what_is_ahead_of_it_and_delays_nothing() -> None:
    found = forecast_of(
        objects(a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("wide-1", 2, 300)), a_job(1, "1h")
    )
    assert (found.start, found.ahead, found.delayed) == (AT + 840, 1, [])


def test_work_of_the_same_second_is_ahead_of_a_job_that_does_not_exist_yet() -> None:
    wide = a_fluxjob("wide-1", 2, 300)
    wide = structs.replace(
        wide,
        metadata=structs.replace(wide.metadata, creation_timestamp="2026-11-21T12:00:00Z"),
        status=structs.replace(wide.status, submitted_at="2026-11-21T12:00:00Z"),
    )
    found = forecast_of(objects(a_fluxjob("run-0", 1, 600, hosts="n0"), wide), a_job(1, "1h"))
    assert (found.start, found.ahead) == (AT + 840, 1)


def test_an_urgent_job_says_which_work_it_delays_until_when() -> None:
    urgent = a_job(2, "10m").with_("spec.template.spec.priorityClassName", "urgent")
    found = forecast_of(objects(a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("wide-1", 2, 300)), urgent)
    assert (found.start, found.ahead) == (AT + 540, 0)
    assert [(each.name, each.start, each.later) for each in found.delayed] == [
        ("wide-1", AT + 540, AT + 1_140)
    ]


def test_a_job_that_fits_no_node_says_why() -> None:
    found = forecast_of(objects(), a_job(3, "1h"))
    assert found.start is None
    assert "wants 3 pods" in found.reason


def test_what_a_job_says_to_the_scheduler_of_the_cluster_holds_in_its_forecast() -> None:
    together = {"topology": [{"key": names.HOSTNAME_LABEL}]}
    found = forecast_of(
        objects(), a_job(2, "1h").with_("spec.scheduling", {"schedulingConstraints": together})
    )
    assert found.start is None


@pytest.mark.parametrize(
    ("job", "queue", "reason"),
    [
        (a_job(1, "soon"), {}, "soon"),
        (a_job(1, "1h").label(names.QUEUE_LABEL, "gone"), {}, "gone"),
        (a_job(2, "1h"), {"limits": {"nodes": 1}}, "may use 1 nodes at once"),
        (a_job(2, "1h"), {"limits": {"perWorkload": {"nodes": 1}}}, "allows one workload 1 nodes"),
        (a_job(1, "1h"), {"state": "held"}, "is held: open it"),
        (a_job(1, "1h"), {"limits": {"running": 0}}, "may run 0 workloads at once"),
    ],
)
def test_a_job_that_cannot_start_says_why(job: JobBuilder, queue: dict[str, Any], reason: str) -> None:
    found = forecast_of(objects(**queue), job)
    assert (found.start, found.unknown) == (None, "")
    assert reason in found.reason


_CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
_DEVICE = [{"name": "gpu", "resourceClaimName": "gpu"}]


@pytest.mark.parametrize(
    ("job", "queue", "why"),
    [
        (
            a_job(1, "1h").annotation(names.BEGIN_ANNOTATION, "2026-11-21T13:00:00Z"),
            {},
            "waits for other work or for a time",
        ),
        (a_job(1, "1h").label(names.MANAGED_LABEL, "false"), {}, "leave it alone"),
        (a_job(1, "1h").with_("spec.template.spec.volumes", _CLAIM), {}, "it has volumes"),
        (a_job(1, "1h").with_("spec.template.spec.resourceClaims", _DEVICE), {}, "it claims devices"),
        (a_job(1, "1h").annotation(names.REQUIRED_TOPOLOGY_ANNOTATION, "row"), {}, "a level of the topology"),
    ],
)
def test_what_is_not_forecast_is_not_called_impossible(
    job: JobBuilder, queue: dict[str, Any], why: str
) -> None:
    found = forecast_of(objects(**queue), job)
    assert (found.start, found.reason) == (None, "")
    assert why in found.unknown


def test_a_sentence_that_sounds_like_an_unknown_level_is_not_taken_for_one() -> None:
    found = forecast_of(objects(), a_job(1, "is no level of this cluster"))
    assert found.unknown == ""
    assert "'is no level of this cluster' is not a duration" in found.reason


def test_work_that_cannot_start_as_it_is_holds_nobody_up() -> None:
    waits = a_fluxjob("wide-1", 2, 3_600)
    blocked = msgspec.structs.replace(
        waits, status=msgspec.structs.replace(waits.status, reason="UserSuspended")
    )
    found = forecast_of(objects(blocked), a_job(1, "1h"))
    assert (found.start, found.ahead, found.left_out) == (
        AT,
        0,
        (("cannot start as it is (UserSuspended)", 1),),
    )


def test_the_class_that_counts_where_none_is_named_counts() -> None:
    cluster = objects(a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("wide-1", 2, 300))
    usual = PriorityClass(metadata=ObjectMeta(name="usual"), value=10, global_default=True)
    assert forecast_of(replace(cluster, priority_classes=[usual]), a_job(2, "10m")).ahead == 0


def test_a_deadline_that_would_be_missed_and_preemption_are_said() -> None:
    late = a_job(1, "2h").annotation(names.DEADLINE_ANNOTATION, "2026-11-21T13:00:00Z")
    found = forecast_of(objects(preemption="lowerPriority"), late)
    assert (found.start, found.misses, found.may_preempt) == (AT, AT + 3_600, True)
    in_time = forecast_of(
        objects(), a_job(1, "30m").annotation(names.DEADLINE_ANNOTATION, "2026-11-21T13:00:00Z")
    )
    assert (in_time.misses, in_time.may_preempt) == (None, False)


def test_what_a_forecast_leaves_out_is_counted() -> None:
    held = msgspec.structs.replace(
        a_fluxjob("held-1", 1, 60), spec=msgspec.structs.replace(a_fluxjob("held-1", 1, 60).spec, hold=True)
    )
    assert forecast_of(objects(held), a_job(1, "1h")).left_out == (("is held", 1),)


def test_the_labels_of_the_namespace_decide_as_in_the_queue() -> None:
    cluster = replace(objects(), namespace_labels={names.QUEUE_LABEL: "gone"})
    assert "gone" in forecast_of(cluster, a_job(1, "1h")).reason
