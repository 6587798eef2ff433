"""JobSets that start their Jobs one after another:
what is still to come, and which places are kept for it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.queue_builders import a_job, a_pod, an_allocation, around

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.jobsets import JobSet
from fluxqueue.api.pods import Pod
from fluxqueue.queue.intake.describe import describe_group
from fluxqueue.queue.model.groups import GatheredGroup, GroupKey, gather_jobset
from fluxqueue.queue.model.later_pods import later_pods, reserved_ranks
from fluxqueue.queue.model.records import SlotState
from fluxqueue.queue.tracking.group_plan import SeenPods, plan_group_slots

TRAIN = GroupKey("default", "train", "JobSet")
COMPLETE = [{"type": "Complete", "status": "True"}]


def role(name: str, replicas: int, pods: int, cpu: str = "1", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": make_job("j").indexed(pods).cpu(cpu).build()["spec"]},
        **more,
    }


def jobset(*roles: dict[str, Any], order: str = "InOrder", status: str = "", **spec: Any) -> JobSet:
    roles = roles or (role("driver", 1, 1), role("workers", 2, 3, "4"))
    conditions = [{"type": status, "status": "True"}] if status else []
    body = {
        "spec": {"replicatedJobs": list(roles), "startupPolicy": {"startupPolicyOrder": order}, **spec},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(body, JobSet)


def job(name: str, pods: int = 1, *, suspended: bool = False, done: bool = False) -> Job:
    builder: JobBuilder = (
        make_job(f"train-{name}")
        .indexed(pods)
        .owned_by("JobSet", "train", api_version="jobset.x-k8s.io/v1alpha2")
    )
    builder = (
        builder.label(names.JOBSET_ROLE_LABEL, name[:-2])
        .label(names.JOBSET_TOTAL_KEY, "3")
        .with_("spec.suspend", suspended)
    )
    return a_job(builder.with_("status.conditions", COMPLETE) if done else builder, uid=name)


def pod(name: str, owner: str, cpu: str = "1") -> Pod:
    builder = (
        make_pod(name)
        .owned_by("Job", owner)
        .label(names.JOBSET_NAME_LABEL, "train")
        .gate("fluxqueue")
        .cpu(cpu)
    )
    return a_pod(builder.with_("spec.restartPolicy", "Never"), uid=name)


def to_come(found: JobSet | None, *jobs: Job) -> list[int]:
    return [each.pods for each in later_pods(found, jobs)]


def test_what_is_to_come_is_told_by_the_jobset_and_the_jobs_that_are_there() -> None:
    assert to_come(jobset()) == [1, 6]
    assert to_come(jobset(), job("driver-0")) == [6]
    assert to_come(jobset(), job("driver-0", done=True), job("workers-0", 3)) == [3]
    assert to_come(
        jobset(), job("driver-0"), job("workers-0", 3, suspended=True), job("workers-1", 3, suspended=True)
    ) == [3, 3]
    assert to_come(jobset(), job("driver-0", done=True), job("workers-0", 3), job("workers-1", 3)) == []


@pytest.mark.parametrize(
    "found",
    [
        None,
        jobset(order="AnyOrder"),
        jobset(status="Failed"),
        jobset(status="Completed"),
        jobset(suspend=True),
        msgspec.structs.replace(
            jobset(),
            metadata=msgspec.convert({"deletionTimestamp": "2026-11-22T00:00:00Z"}, type(jobset().metadata)),
        ),
    ],
    ids=["gone", "any order", "failed", "completed", "suspended", "deleted"],
)
def test_nothing_is_to_come_of_a_jobset_that_starts_all_at_once_or_goes_on_no_more(
    found: JobSet | None,
) -> None:
    assert to_come(found, job("driver-0", done=True)) == []


def test_a_dependency_is_an_order_too() -> None:
    depends = role("workers", 1, 2, dependsOn=[{"name": "driver", "status": "Ready"}])
    assert to_come(jobset(role("driver", 1, 1), depends, order="AnyOrder"), job("driver-0")) == [2]


def gathered(pods: list[Pod], jobs: list[Job], found: JobSet) -> GatheredGroup:
    gathering = gather_jobset(TRAIN, pods, jobs, found)
    assert gathering is not None
    return gathering


def test_places_for_later_jobs_are_matched_with_those_of_the_first() -> None:
    whole = gathered([pod("d", "driver-0")], [job("driver-0")], jobset())
    assert (whole.reason, whole.size) == (Reason.NONE, 7)
    found = describe_group(TRAIN, whole, around())
    assert (found.reason, found.pods) == (Reason.NONE, 7)
    slots = json.loads(found.jobspec)["resources"]
    assert [(slot["label"], slot["count"]) for slot in slots] == [("pod.0", 1), ("pod.1", 6)]


def test_the_pods_of_jobs_that_have_begun_are_waited_for() -> None:
    waiting = gathered(
        [pod("w0", "workers-0", "4")], [job("driver-0", done=True), job("workers-0", 3)], jobset()
    )
    assert waiting.reason is Reason.WAITING_FOR_GROUP
    assert "has 1 of 3 pods" in waiting.message


def test_more_places_than_any_cluster_has_are_refused() -> None:
    refused = gathered(
        [pod("d", "driver-0")],
        [job("driver-0")],
        jobset(role("driver", 1, 1), role("workers", 2**31 - 1, 1000)),
    )
    assert refused.reason is Reason.INVALID_REQUEST
    assert "make it smaller" in refused.message


def test_places_are_kept_by_size_for_pods_to_come() -> None:
    allocation = an_allocation(["n1", "n2", "n3"])
    labels = ("pod.0", "pod.1", "pod.1")
    slots = tuple(replace(slot, label=label) for slot, label in zip(allocation.slots, labels, strict=True))
    allocation = replace(allocation, slots=slots)
    assert reserved_ranks(allocation, Counter({"pod.1": 2}), ()) == {1, 2}
    assert reserved_ranks(allocation, Counter({"pod.1": 1}), ()) == {1}
    assert reserved_ranks(allocation, Counter({"pod.2": 1}), ()) == set()
    assert reserved_ranks(allocation, None, ()) == {0, 1, 2}
    taken = replace(slots[1], state=SlotState.TAKEN, pod_uid="w0")
    allocation = replace(allocation, slots=(slots[0], taken, slots[2]))
    assert reserved_ranks(allocation, Counter({"pod.1": 2}), {"w0"}) == {2}


def test_a_group_runs_when_all_pods_that_have_had_their_turn_are_bound() -> None:
    allocation = an_allocation(["n1", "n2", "n3"])
    driver = a_pod(make_pod("d").label("fluxqueue/pod-group", "train").with_("spec.nodeName", "n1"), uid="d")
    placed = replace(allocation.slots[0], state=SlotState.TAKEN, pod_uid="d")
    allocation = replace(allocation, slots=(placed, *allocation.slots[1:]))
    assert not plan_group_slots([driver], allocation, lambda _pod: "pod", SeenPods()).running
    slot_changes = plan_group_slots([driver], allocation, lambda _pod: "pod", SeenPods(), awaited=2)
    assert (slot_changes.running, slot_changes.end, slot_changes.state) == (True, (), None)
