"""What happens to pods and nodes after the release: retry, scaling, drain and deletion.
Only affected pods move; their siblings continue to run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from support.builders import Json, make_job, make_minicluster, make_owner
from support.end_to_end import Stage, scheduler_paused

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pinwindows import pin_until
from fluxqueue.api.pods import Pod

RUN_SECONDS = "fluxqueue.local/run-seconds"


def active_pods(stage: Stage, label: str, value: str) -> list[Pod]:
    """Return the active pods with a label, ordered by index or name."""
    unsorted = [pod for pod in stage.items("pods", Pod) if pod.metadata.label(label) == value and pod.active]
    return sorted(unsorted, key=lambda pod: (pod.completion_index or 0, pod.metadata.name))


def of_job(stage: Stage, name: str) -> list[Pod]:
    return active_pods(stage, names.JOB_NAME_LABEL, name)


def until_bound(
    stage: Stage, pods: Callable[[], list[Pod]], count: int, *, besides: str = "", within_s: float = 120
) -> list[Pod]:
    """Wait until this many pods are bound, each to a node of its own."""

    def all_bound() -> list[Pod] | None:
        now = pods()
        bound = [pod for pod in now if pod.spec.node_name and pod.spec.node_name != besides]
        return now if len(now) == len(bound) == count else None

    bound_pods = stage.until(
        f"{count} pods are on nodes other than {besides!r}",
        all_bound,
        within_s,
        lambda: [(p.metadata.name, p.spec) for p in pods()],
    )
    assert bound_pods is not None
    return bound_pods


def scale(stage: Stage, name: str, **spec: Any) -> None:
    stage.kubectl("patch", "job", name, "-p", json.dumps({"spec": spec}))


def booked(stage: Stage) -> dict[str, int]:
    """Return the number of booked slots on each node, of all workloads."""
    nodes: dict[str, int] = {}
    for job in stage.fluxion_jobs():
        for share in job.shares:
            nodes[share.node] = nodes.get(share.node, 0) + sum(share.slots.values())
    return nodes


def closed(stage: Stage, name: str) -> bool:
    """True if the pin window of a Job is closed."""
    return pin_until(stage.job(name).spec.template.metadata) < datetime.now(UTC)


@contextmanager
def drained(stage: Stage, node: str) -> Iterator[None]:
    """``kubectl drain`` a node, and ``uncordon`` it at the end."""
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    try:
        stage.kubectl("drain", node, *flags)
        yield
    finally:
        stage.kubectl("uncordon", node)


@contextmanager
def cordoned(stage: Stage, node: str) -> Iterator[None]:
    """Cordon a node through the API, because kubectl takes a while to start."""
    client, path = stage.cluster.control_plane.client, f"/api/v1/nodes/{node}"
    client.request("PATCH", path, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        client.request("PATCH", path, {"spec": {"unschedulable": None}})


def forever(name: str, pods: int, cpu: str = "8") -> Json:
    return (
        make_job(name)
        .indexed(pods)
        .cpu(cpu)
        .pod_annotation(RUN_SECONDS, "forever")
        .with_("spec.backoffLimit", 3)
        .build()
    )


def test_a_retried_pod_returns_to_its_own_slot_after_the_pin_window(stage: Stage) -> None:
    stage.apply(forever("retried", 3))
    row = stage.until_state("retried", State.RUNNING)
    first = of_job(stage, "retried")
    stage.until("the pin window has closed", lambda: closed(stage, "retried"))
    stage.kubectl("delete", "pod", first[1].metadata.name, "--wait=false")
    stage.until(
        "its successor is there",
        lambda: first[1].metadata.uid not in {pod.metadata.uid for pod in of_job(stage, "retried")},
    )
    again = until_bound(stage, lambda: of_job(stage, "retried"), 3)
    assert [pod.spec.node_name for pod in again] == row.hosts
    assert [again[index].metadata.uid for index in (0, 2)] == [first[index].metadata.uid for index in (0, 2)]
    assert (stage.row("retried").requeues, stage.row("retried").state) == (0, State.RUNNING)
    stage.until_consistent()


def test_a_job_that_shrinks_and_grows_does_not_return_to_nodes_granted_to_others(stage: Stage) -> None:
    stage.apply(forever("waves", 4))
    stage.until_state("waves", State.RUNNING)
    scale(stage, "waves", parallelism=1, completions=1)
    stage.apply(forever("others", 7))
    stage.until_state("others", State.RUNNING)
    scale(stage, "waves", parallelism=4, completions=4)
    stage.until("the new pods are there", lambda: len(of_job(stage, "waves")) == 4)
    stage.until_consistent()
    assert [bool(pod.spec.node_name) for pod in of_job(stage, "waves")] == [True, False, False, False]
    assert all(pod.spec.gated_by(names.GATE) for pod in of_job(stage, "waves")[1:])
    stage.kubectl("delete", "job", "others")
    until_bound(stage, lambda: of_job(stage, "waves"), 4)
    assert max(booked(stage).values()) == 1
    stage.until_consistent()


def test_a_job_scaled_to_zero_waits_and_is_matched_as_a_gang_when_scaled_up(stage: Stage) -> None:
    stage.apply(make_job("idle").pods(3, 6).cpu("8").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("idle", State.RUNNING)
    scale(stage, "idle", parallelism=0)
    waiting = stage.until_reason("idle", "UserSuspended")
    assert "has spec.parallelism 0: raise it and the Job can start" in waiting.status.message
    stage.until("nothing is booked", lambda: booked(stage) == {})
    scale(stage, "idle", parallelism=2)
    stage.until_state("idle", State.RUNNING)
    until_bound(stage, lambda: of_job(stage, "idle"), 2)
    stage.until_consistent()


def test_pods_of_a_drained_node_move_one_by_one_and_their_siblings_keep_running(stage: Stage) -> None:
    stage.apply(
        forever("gang", 2, cpu="5"),
        make_owner("Deployment", "web", 2, "2"),
        make_owner("StatefulSet", "db", 1, "1"),
    )
    stage.until_state("gang", State.RUNNING)
    web, db = partial(active_pods, stage, "app", "web"), partial(active_pods, stage, "app", "db")
    placed = [*of_job(stage, "gang"), *until_bound(stage, web, 2), *until_bound(stage, db, 1)]
    before = {pod.metadata.uid: pod.spec.node_name for pod in placed}
    gang = of_job(stage, "gang")
    stage.until("the pin window has closed", lambda: closed(stage, "gang"))
    node = str(gang[0].spec.node_name)
    with drained(stage, node):
        now = until_bound(stage, lambda: of_job(stage, "gang"), 2, besides=node)
        assert (now[1].metadata.uid, now[1].spec.node_name) == (gang[1].metadata.uid, gang[1].spec.node_name)
        until_bound(stage, web, 2, besides=node)
        until_bound(stage, db, 1, besides=node)
        stayed = {uid for uid, where in before.items() if where != node}
        assert stayed <= {pod.metadata.uid for pod in (*now, *web(), *db())}
        assert (stage.row("gang").requeues, stage.row("gang").state) == (0, State.RUNNING)
        stage.until("nothing is booked on it", lambda: node not in booked(stage))
        stage.until_consistent()


def test_a_job_whose_only_pod_moved_from_a_drained_node_can_be_suspended_and_resumed(stage: Stage) -> None:
    stage.apply(forever("moved", 1))
    row = stage.until_state("moved", State.RUNNING)
    stage.until("the pin window has closed", lambda: closed(stage, "moved"))
    with drained(stage, row.hosts[0]):
        until_bound(stage, lambda: of_job(stage, "moved"), 1, besides=row.hosts[0])
        stage.until("its own slot has ended", lambda: list(booked(stage).values()) == [1])
        scale(stage, "moved", suspend=True)
        stage.until_reason("moved", "UserSuspended")
        stage.until("nothing is booked", lambda: booked(stage) == {})
        scale(stage, "moved", suspend=False)
        stage.until(
            "it runs again", lambda: stage.row("moved").state == State.RUNNING and bool(booked(stage))
        )
    stage.until_consistent()


def test_a_pod_of_a_drained_node_waits_with_a_reason_while_other_nodes_are_full(stage: Stage) -> None:
    stage.apply(forever("gang", 2))
    stage.until_state("gang", State.RUNNING)
    stage.apply(make_owner("Deployment", "web", 1, "8"))
    (web,) = until_bound(stage, lambda: active_pods(stage, "app", "web"), 1)
    stage.apply(forever("blocker", 5))
    stage.until_state("blocker", State.RUNNING)
    gang = of_job(stage, "gang")
    stage.until("the pin window has closed", lambda: closed(stage, "gang"))
    with drained(stage, str(gang[0].spec.node_name)), drained(stage, str(web.spec.node_name)):

        def waits(pods: list[Pod]) -> bool:
            shown = {found.spec.object_ref.uid: found.status for found in stage.fluxjobs()}
            gated = [pod for pod in pods if pod.spec.gated_by(names.GATE)]
            return len(gated) == 1 and bool(
                (status := shown.get(gated[0].metadata.uid)) and status.reason and status.message
            )

        stage.until(
            "the evicted pod of the Job waits with a reason", lambda: waits(of_job(stage, "gang")), 60
        )
        stage.until(
            "the evicted pod of the Deployment waits with a reason",
            lambda: waits(active_pods(stage, "app", "web")),
            60,
        )
        assert of_job(stage, "gang")[1].metadata.uid == gang[1].metadata.uid
        assert (stage.row("gang").requeues, stage.row("gang").state) == (0, State.RUNNING)
    until_bound(stage, lambda: of_job(stage, "gang"), 2)
    until_bound(stage, lambda: active_pods(stage, "app", "web"), 1)
    stage.until_consistent()


@pytest.mark.parametrize("annotations", [{}, {names.GANG_ANNOTATION: "true"}], ids=["alone", "gang"])
def test_a_pod_whose_node_is_cordoned_before_its_bind_is_matched_again_at_once(
    annotations: Json, stage: Stage
) -> None:
    """The start time-out is five minutes on this cluster, so the eviction is not caused by it."""
    web = make_owner("Deployment", "web", 1, "1")
    web["spec"]["template"]["metadata"] |= {"annotations": annotations}
    with scheduler_paused(stage):
        stage.apply(web)

        def released() -> Pod | None:
            return next(
                (
                    pod
                    for pod in stage.items("pods", Pod)
                    if pod.metadata.annotation(names.ALLOCATION_ANNOTATION)
                ),
                None,
            )

        pod = stage.until("it is released", released)
        assert pod is not None
        node = str(pod.metadata.annotation(names.NODES_ANNOTATION))
        with cordoned(stage, node):
            replacement = stage.until(
                "another is released",
                lambda: (now := released()) and now.metadata.uid != pod.metadata.uid and now,
            )
            assert replacement
            assert replacement.metadata.annotation(names.NODES_ANNOTATION) != node
    until_bound(stage, lambda: active_pods(stage, "app", "web"), 1)


def test_a_broker_and_a_group_member_leave_a_drained_node_while_others_keep_running(stage: Stage) -> None:
    minicluster = make_minicluster("flux", 2, pod={"annotations": {RUN_SECONDS: "forever"}})
    minicluster["spec"]["containers"][0] |= {"resources": {"requests": {"cpu": "8"}}}
    ring = make_owner("StatefulSet", "ring", 2, podManagementPolicy="Parallel")
    ring["spec"]["template"]["metadata"] |= {"annotations": {names.POD_GROUP_SIZE_ANNOTATION: "2"}}
    ring["spec"]["template"]["metadata"]["labels"] |= {names.POD_GROUP_LABEL: "ring"}
    stage.apply(minicluster, ring)
    brokers, members = partial(of_job, stage, "flux"), partial(active_pods, stage, "app", "ring")
    leader, follower = until_bound(stage, brokers, 2)
    stays, goes = until_bound(stage, members, 2)
    nodes = [str(pod.spec.node_name) for pod in (follower, goes)]
    with drained(stage, nodes[0]), drained(stage, nodes[1]):
        for pods, kept, node in ((brokers, leader, nodes[0]), (members, stays, nodes[1])):
            now = until_bound(stage, pods, 2, besides=node)
            assert kept.metadata.uid in {pod.metadata.uid for pod in now}
        stage.until("nothing is booked on the drained nodes", lambda: not set(nodes) & set(booked(stage)))
        stage.until_consistent()


def test_a_job_deleted_in_the_foreground_frees_each_node_as_its_pod_ends(stage: Stage) -> None:
    stage.apply(make_job("going").indexed(4).cpu("8").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("going", State.RUNNING)
    stuck = of_job(stage, "going")[0]
    stage.kubectl(
        "patch",
        "pod",
        stuck.metadata.name,
        "--type=merge",
        "-p",
        '{"metadata":{"finalizers":["example.com/stuck"]}}',
    )
    stage.kubectl("delete", "job", "going", "--cascade=foreground", "--wait=false")
    try:
        stage.until("three nodes are back", lambda: booked(stage) == {stuck.spec.node_name: 1})
        assert stage.job("going").metadata.deletion_timestamp
    finally:
        stage.kubectl(
            "patch", "pod", stuck.metadata.name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
        )
    stage.until("the last one follows", lambda: booked(stage) == {})
