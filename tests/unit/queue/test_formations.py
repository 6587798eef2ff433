"""What a MiniCluster's status says, from its pods, its row and its Job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from queue_builders import a_workload, an_allocation

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterState
from fluxqueue.api.objects import Job, Pod
from fluxqueue.queue.formations import Standing, exit_code_of, formation_of, status_of, time_left_s

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def minicluster(size: int = 4, status: dict[str, Any] | None = None, **spec: Any) -> MiniCluster:
    body = {"metadata": {"name": "flux", "namespace": "ada"}, "spec": {"containers": [{"command": "ls"}], "size": size, **spec}}
    return msgspec.convert({**body, "status": status or {}}, MiniCluster)


def pod(index: int, **status: Any) -> Pod:
    meta = {"name": f"flux-{index}-abcde", "uid": f"pod-{index}", "annotations": {names.COMPLETION_INDEX_ANNOTATION: str(index)}}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": f"n{index}"}, "status": {"phase": "Running", **status}}, Pod)


def online(index: int) -> Pod:
    return pod(index, conditions=[{"type": "Ready", "status": "True"}])


def waiting(container: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"name": container, "state": {"waiting": {"reason": reason, "message": message}}}


def made(at: str, one: Pod) -> Pod:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, creation_timestamp=at))


def with_status(held: Standing, **status: Any) -> Standing:
    cluster = msgspec.structs.replace(held.minicluster, status=msgspec.structs.replace(held.minicluster.status, **status))
    return replace(held, minicluster=cluster)


def job(*conditions: str) -> Job:
    return msgspec.convert({"status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}}, Job)


def standing(cluster: MiniCluster, *pods: Pod, state: State = State.RUNNING, released_s: float = 5, **more: Any) -> Standing:
    row = a_workload(state=state, hosts="n[0-3]", **more)
    held = replace(an_allocation(["n0", "n1", "n2", "n3"]), released_at=NOW - timedelta(seconds=released_s))
    return Standing(cluster, job=job(), pods=pods, workload=row, allocation=held if state is not State.PENDING else None)


def test_all_brokers_are_counted_by_the_readiness_of_their_pods() -> None:
    formation = formation_of("flux", 3, [online(0), online(1), online(2)])
    assert (formation.online, formation.missing) == (3, ())


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        (None, "not been made"),
        (pod(1), "being made"),
        (msgspec.structs.replace(pod(1), spec=msgspec.convert({"schedulingGates": [{"name": names.GATE}]}, type(pod(1).spec))), "let go"),
        (msgspec.structs.replace(pod(1), spec=msgspec.convert({}, type(pod(1).spec))), "not on a node"),
        (
            pod(1, containerStatuses=[{"name": "flux", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]),
            "container flux: ImagePullBackOff",
        ),
        (
            pod(1, initContainerStatuses=[{"name": "flux-view", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]),
            "flux-view",
        ),
        (
            pod(1, containerStatuses=[{"name": "flux", "restartCount": 3, "lastState": {"terminated": {"exitCode": 213}}}]),
            "started again 3 times, last after code 213",
        ),
        (pod(1, containerStatuses=[{"name": "flux"}]), "has not joined"),
        (pod(1, phase="Failed", containerStatuses=[{"name": "flux", "state": {"terminated": {"exitCode": 7}}}]), "ended with code 7"),
    ],
)
def test_a_missing_broker_is_named_with_the_reason_its_pod_tells(missing: Pod | None, why: str) -> None:
    formation = formation_of("flux", 2, [online(0), *([missing] if missing else [])])
    assert formation.online == 1
    (broker,) = formation.missing
    assert broker.rank == 1
    assert why in broker.reason


def test_of_an_index_with_two_pods_the_youngest_counts() -> None:
    old, new = made("2030-01-01T00:00:00Z", online(0)), made("2030-01-01T00:00:09Z", pod(0))
    assert formation_of("flux", 1, [new, old]).online == 0


def test_while_it_waits_the_status_says_why() -> None:
    status = status_of(standing(minicluster(), state=State.PENDING, reason=Reason.WAITING_FOR_NODES, message="2 of 4 nodes are free"), NOW)
    assert (status.state, status.message, status.brokers, status.nodes) == ("Queued", "2 of 4 nodes are free", "", "")


def test_while_it_forms_the_status_names_who_is_missing() -> None:
    status = status_of(standing(minicluster(), online(0), online(1), online(2), state=State.ALLOCATED), NOW)
    assert (status.state, status.brokers, status.brokers_online) == ("Starting", "3/4", 3)
    assert status.message.startswith("3/4 brokers online, waiting for flux-3: its pod has not been made")
    assert [missing.rank for missing in status.missing or ()] == [3]


def test_with_its_quorum_it_runs_though_brokers_are_missing() -> None:
    status = status_of(standing(minicluster(minSize=2), online(0), online(1)), NOW)
    assert (status.state, status.brokers) == ("Running", "2/4")
    assert status.formed_at == "2030-01-01T12:00:00Z"


def test_once_formed_it_runs_until_it_ends_whatever_its_brokers_do() -> None:
    held = with_status(standing(minicluster(), online(0)), formed_at="2030-01-01T11:00:00Z", jobid="7")
    status = status_of(held, NOW)
    assert (status.state, status.formed_at) == ("Running", "2030-01-01T11:00:00Z")


def test_the_end_is_told_with_the_applications_exit_code() -> None:
    leader = pod(0, phase="Failed", containerStatuses=[{"name": "flux", "state": {"terminated": {"exitCode": 3}}}])
    status = status_of(Standing(minicluster(), job=job("Failed"), pods=(leader,)), NOW)
    assert (status.state, status.exit_code, status.finished_at) == ("Failed", 3, "2030-01-01T12:00:00Z")
    assert exit_code_of([leader], "other") is None


def test_an_exit_code_outlives_the_pod() -> None:
    before = minicluster(status={"exitCode": 0, "finishedAt": "2030-01-01T11:00:00Z"})
    status = status_of(Standing(before, job=job("Complete")), NOW)
    assert (status.state, status.exit_code, status.finished_at) == ("Succeeded", 0, "2030-01-01T11:00:00Z")


def test_what_cannot_be_made_says_so_as_a_condition() -> None:
    status = status_of(Standing(minicluster(), problems=("spec.size is 0",)), NOW)
    assert (status.state, status.message) == ("Invalid", "spec.size is 0")
    valid = next(condition for condition in status.conditions or () if condition.type == "Valid")
    assert (valid.status, valid.message) == ("False", "spec.size is 0")


def test_the_same_things_give_the_same_status_again() -> None:
    held = standing(minicluster(), online(0), online(1), online(2), online(3))
    first = status_of(held, NOW)
    again = replace(held, minicluster=msgspec.structs.replace(held.minicluster, status=first))
    assert status_of(again, NOW + timedelta(hours=1)) == first


def test_a_gang_that_does_not_form_is_late_and_one_that_has_formed_never_is() -> None:
    cluster = minicluster(formTimeoutSeconds=60)
    assert time_left_s(standing(cluster, online(0), released_s=10), NOW) == 50
    assert time_left_s(standing(cluster, online(0), released_s=70), NOW) == -10
    assert time_left_s(standing(cluster, *(online(index) for index in range(4)), released_s=70), NOW) is None
    assert time_left_s(standing(cluster, state=State.PENDING), NOW) is None


def test_states_are_the_closed_set() -> None:
    assert MiniClusterState(status_of(Standing(minicluster()), NOW).state) is MiniClusterState.QUEUED


def test_a_place_beside_the_brokers_is_no_rank_and_what_is_missing_there_is_told_once_they_are_online() -> None:
    cluster, brokers = minicluster(2), (online(0), online(1))
    held = standing(cluster, *brokers)
    allocation = an_allocation(["n0", "n1", "n7"])
    slots = (*allocation.slots[:2], replace(allocation.slots[2], label="services"))
    held = replace(held, allocation=replace(allocation, released_at=NOW, slots=slots))
    larger = replace(held, minicluster=minicluster(3))
    assert status_of(larger, NOW).nodes == "n[0-1]"
    pulling = pod(2, containerStatuses=[{"name": "db", "state": {"waiting": {"reason": "ErrImagePull"}}}])
    told = status_of(replace(held, services=pulling), NOW)
    assert (told.state, told.message) == (MiniClusterState.RUNNING, "its services do not run, flux-2-abcde: container db: ErrImagePull")
    assert status_of(replace(held, services=online(2)), NOW).message == ""
    assert "not ready" in status_of(replace(held, services=pod(2, containerStatuses=[{"name": "db"}])), NOW).message
