"""The status of a MiniCluster, from its pods, its row and its Job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterState
from fluxqueue.api.pods import Pod
from fluxqueue.queue.miniclusters.minicluster_status import (
    MiniClusterContext,
    count_brokers,
    exit_code_of,
    status_of,
    time_left_s,
)

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def minicluster(size: int = 4, status: dict[str, Any] | None = None, **spec: Any) -> MiniCluster:
    body = {
        "metadata": {"name": "flux", "namespace": "ada"},
        "spec": {"containers": [{"command": "ls"}], "size": size, **spec},
    }
    return msgspec.convert({**body, "status": status or {}}, MiniCluster)


def pod(index: int, **status: Any) -> Pod:
    meta = {
        "name": f"flux-{index}-abcde",
        "uid": f"pod-{index}",
        "annotations": {names.COMPLETION_INDEX_ANNOTATION: str(index)},
    }
    return msgspec.convert(
        {"metadata": meta, "spec": {"nodeName": f"n{index}"}, "status": {"phase": "Running", **status}}, Pod
    )


def replaced(one: Pod, **spec: Any) -> Pod:
    return msgspec.structs.replace(one, spec=msgspec.convert(spec, type(one.spec)))


def online(index: int) -> Pod:
    return pod(index, conditions=[{"type": "Ready", "status": "True"}])


def waiting(container: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"name": container, "state": {"waiting": {"reason": reason, "message": message}}}


def ended(container: str, code: int, message: str = "") -> dict[str, Any]:
    return {"name": container, "state": {"terminated": {"exitCode": code, "message": message}}}


def created(at: str, one: Pod) -> Pod:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, creation_timestamp=at))


def with_status(context: MiniClusterContext, **status: Any) -> MiniClusterContext:
    cluster = msgspec.structs.replace(
        context.minicluster, status=msgspec.structs.replace(context.minicluster.status, **status)
    )
    return replace(context, minicluster=cluster)


def job(*conditions: str) -> Job:
    return msgspec.convert(
        {"status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}}, Job
    )


def context_of(
    cluster: MiniCluster, *pods: Pod, state: State = State.RUNNING, released_s: float = 5, **more: Any
) -> MiniClusterContext:
    row = a_workload(state=state, hosts="n[0-3]", **more)
    context = replace(
        an_allocation(["n0", "n1", "n2", "n3"]), released_at=NOW - timedelta(seconds=released_s)
    )
    return MiniClusterContext(
        cluster,
        job=job(),
        pods=pods,
        workload=row,
        allocation=context if state is not State.PENDING else None,
    )


def test_all_brokers_are_counted_by_the_readiness_of_their_pods() -> None:
    brokers = count_brokers("flux", 3, [online(0), online(1), online(2)])
    assert (brokers.online, brokers.missing) == (3, ())


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        (None, "not created"),
        (pod(1), "being created"),
        (
            msgspec.structs.replace(
                pod(1), spec=msgspec.convert({"schedulingGates": [{"name": names.GATE}]}, type(pod(1).spec))
            ),
            "to be released",
        ),
        (replaced(pod(1)), "not on a node"),
        (
            pod(
                1, containerStatuses=[{"name": "flux", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
            ),
            "container flux: ImagePullBackOff",
        ),
        (
            pod(
                1,
                initContainerStatuses=[
                    {"name": "flux-view", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
                ],
            ),
            "flux-view",
        ),
        (
            pod(
                1,
                containerStatuses=[
                    {"name": "flux", "restartCount": 3, "lastState": {"terminated": {"exitCode": 213}}}
                ],
            ),
            "restarted 3 times, last after code 213",
        ),
        (pod(1, containerStatuses=[{"name": "flux"}]), "has not joined"),
        (
            pod(
                1,
                phase="Failed",
                containerStatuses=[{"name": "flux", "state": {"terminated": {"exitCode": 7}}}],
            ),
            "ended with code 7",
        ),
        (
            pod(1, phase="Failed", initContainerStatuses=[ended("flux-view", 1, "no space")]),
            "its pod has ended with code 1: no space",
        ),
    ],
)
def test_a_missing_broker_is_named_with_the_reason_that_its_pod_shows(missing: Pod | None, why: str) -> None:
    brokers = count_brokers("flux", 2, [online(0), *([missing] if missing else [])])
    assert brokers.online == 1
    (broker,) = brokers.missing
    assert broker.rank == 1
    assert why in broker.reason


def test_of_an_index_with_two_pods_the_youngest_counts() -> None:
    old, new = created("2030-01-01T00:00:00Z", online(0)), created("2030-01-01T00:00:09Z", pod(0))
    assert count_brokers("flux", 1, [new, old]).online == 0


def test_while_it_waits_the_status_has_the_reason() -> None:
    status = status_of(
        context_of(
            minicluster(),
            state=State.PENDING,
            reason=Reason.WAITING_FOR_NODES,
            message="2 of 4 nodes are free",
        ),
        NOW,
    )
    assert (status.state, status.message, status.brokers, status.nodes) == (
        "Queued",
        "2 of 4 nodes are free",
        "",
        "",
    )


def test_while_it_forms_the_status_names_the_missing_broker() -> None:
    status = status_of(context_of(minicluster(), online(0), online(1), online(2), state=State.ALLOCATED), NOW)
    assert (status.state, status.brokers, status.brokers_online) == ("Starting", "3/4", 3)
    assert status.message.startswith("3/4 brokers online, waiting for flux-3: its pod is not created yet")
    assert [missing.rank for missing in status.missing or ()] == [3]


def test_with_its_quorum_it_runs_though_brokers_are_missing() -> None:
    status = status_of(context_of(minicluster(minSize=2), online(0), online(1)), NOW)
    assert (status.state, status.brokers) == ("Running", "2/4")
    assert status.formed_at == "2030-01-01T12:00:00Z"


def test_once_formed_it_runs_until_it_ends_whatever_its_brokers_do() -> None:
    context = with_status(context_of(minicluster(), online(0)), formed_at="2030-01-01T11:00:00Z", jobid="7")
    status = status_of(context, NOW)
    assert (status.state, status.formed_at) == ("Running", "2030-01-01T11:00:00Z")


def test_the_end_is_shown_with_the_exit_code_of_the_application() -> None:
    leader = pod(
        0, phase="Failed", containerStatuses=[{"name": "flux", "state": {"terminated": {"exitCode": 3}}}]
    )
    status = status_of(MiniClusterContext(minicluster(), job=job("Failed"), pods=(leader,)), NOW)
    assert (status.state, status.exit_code, status.finished_at) == ("Failed", 3, "2030-01-01T12:00:00Z")
    assert exit_code_of([leader], "other") is None


def test_an_exit_code_outlives_the_pod() -> None:
    before = minicluster(status={"exitCode": 0, "finishedAt": "2030-01-01T11:00:00Z"})
    status = status_of(MiniClusterContext(before, job=job("Complete")), NOW)
    assert (status.state, status.exit_code, status.finished_at) == ("Succeeded", 0, "2030-01-01T11:00:00Z")


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_the_end_stays_when_the_job_is_deleted_after_it(end: str) -> None:
    """Otherwise it would be run again: a MiniCluster that has not ended gets another Job."""
    over = replace(
        context_of(minicluster(), pod(0, phase="Failed", containerStatuses=[ended("flux", 3)])), job=job(end)
    )
    status = status_of(over, NOW)
    without = MiniClusterContext(msgspec.structs.replace(over.minicluster, status=status))
    later = status_of(without, NOW + timedelta(seconds=5))
    assert later.finished_at == status.finished_at is not None
    assert (later.state, later.message, later.exit_code) == (status.state, status.message, 3)
    assert msgspec.structs.replace(later, size=0, conditions=None) == msgspec.structs.replace(
        status, size=0, conditions=None
    )


def test_a_spec_that_cannot_be_realised_is_a_condition() -> None:
    status = status_of(MiniClusterContext(minicluster(), problems=("spec.size is 0",)), NOW)
    assert (status.state, status.message) == ("Invalid", "spec.size is 0")
    valid = next(condition for condition in status.conditions or () if condition.type == "Valid")
    assert (valid.status, valid.message) == ("False", "spec.size is 0")


def test_the_same_objects_give_the_same_status_again() -> None:
    context = context_of(minicluster(), online(0), online(1), online(2), online(3))
    first = status_of(context, NOW)
    again = replace(context, minicluster=msgspec.structs.replace(context.minicluster, status=first))
    assert status_of(again, NOW + timedelta(hours=1)) == first


def test_a_gang_that_does_not_form_is_late_and_one_that_has_formed_never_is() -> None:
    cluster = minicluster(formTimeoutSeconds=60)
    assert time_left_s(context_of(cluster, online(0), released_s=10), NOW) == 50
    assert time_left_s(context_of(cluster, online(0), released_s=70), NOW) == -10
    assert (
        time_left_s(context_of(cluster, *(online(index) for index in range(4)), released_s=70), NOW) is None
    )
    assert time_left_s(context_of(cluster, state=State.PENDING), NOW) is None


def test_states_are_the_closed_set() -> None:
    assert (
        MiniClusterState(status_of(MiniClusterContext(minicluster()), NOW).state) is MiniClusterState.QUEUED
    )


def test_the_services_pod_has_no_rank_and_is_reported_once_all_brokers_are_online() -> None:
    cluster, brokers = minicluster(2), (online(0), online(1))
    context = context_of(cluster, *brokers)
    allocation = an_allocation(["n0", "n1", "n7"])
    slots = (*allocation.slots[:2], replace(allocation.slots[2], label="services"))
    context = replace(context, allocation=replace(allocation, released_at=NOW, slots=slots))
    larger = replace(context, minicluster=minicluster(3))
    assert status_of(larger, NOW).nodes == "n[0-1]"
    pulling = pod(2, containerStatuses=[{"name": "db", "state": {"waiting": {"reason": "ErrImagePull"}}}])
    status = status_of(replace(context, services=pulling), NOW)
    assert (status.state, status.message) == (
        MiniClusterState.RUNNING,
        "its services do not run, flux-2-abcde: container db: ErrImagePull",
    )
    assert status_of(replace(context, services=online(2)), NOW).message == ""
    assert (
        "not ready"
        in status_of(replace(context, services=pod(2, containerStatuses=[{"name": "db"}])), NOW).message
    )


def test_a_failed_minicluster_says_what_the_scripts_wrote() -> None:
    failing = replace(
        context_of(
            minicluster(),
            created(
                "2030-01-01T11:00:00Z",
                pod(0, phase="Failed", containerStatuses=[ended("flux", 213, "stopped")]),
            ),
            created(
                "2030-01-01T11:30:00Z",
                pod(0, phase="Failed", containerStatuses=[ended("flux", 1, "set logs of the container")]),
            ),
        ),
        job=msgspec.convert(
            {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "exit code 1"}]}}, Job
        ),
    )
    assert status_of(failing, NOW).message == "exit code 1: set logs of the container"
