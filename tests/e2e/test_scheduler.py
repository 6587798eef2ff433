"""Workloads that the project's scheduler binds, and what happens if a node does not accept a pod: a local
cluster of 12 nodes of 8 cpu.

A node refuses a pod if something changed after the match. So the scheduler is stopped while workloads are
released; then pods outside the queue, or people, take the nodes; then the scheduler starts again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from support.builders import (
    JobBuilder,
    Json,
    PodBuilder,
    make_job,
    make_minicluster,
    make_owner,
    make_pod,
    make_queue,
)
from support.crash_suite import crash_environment
from support.end_to_end import Stage, managed_namespace
from support.invariants import violations

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import FluxQueue, SchedulerName
from fluxqueue.api.pinwindows import pin_until
from fluxqueue.api.pods import Pod
from fluxqueue.api.schedulers import DEFAULT_SCHEDULER_NAME
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.queue.crashpoints import CrashPoint

RUN_SECONDS = "fluxqueue.local/run-seconds"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    values = {"queue": {"config": {"successorGraceSeconds": 5, "pinWindowSeconds": 1}}}
    cluster = InProcessCluster(
        service_folder / "scheduler",
        ClusterOptions(nodes=12, durable=False, scheduler="fluxion", values=values),
        extra_environment=crash_environment(service_folder),
    )
    cluster.start()
    yield cluster
    assert violations(cluster) == []
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage


@pytest.fixture
def filled() -> Iterator[ExitStack]:
    """Contexts that take nodes from the workloads until the test ends."""
    with ExitStack() as stack:
        yield stack


def job(name: str, nodes: int = 1) -> JobBuilder:
    """A Job of whole nodes, one pod on each, that runs without an end."""
    return make_job(name).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, "forever")


def pod(name: str) -> PodBuilder:
    """A pod that takes a whole node and runs without an end."""
    return make_pod(name).cpu("8").annotation(RUN_SECONDS, "forever")


@contextmanager
def scheduler_away(stage: Stage) -> Iterator[None]:
    """Stop the project's scheduler, and start it again, without state, at the end."""
    program = stage.cluster.programs["scheduler"]
    program.stop(graceful=False)
    try:
        yield
    finally:
        program.revive()


@contextmanager
def foreign_pods(stage: Stage, *nodes: str) -> Iterator[None]:
    """Fill nodes with pods outside the queue."""
    client, path = stage.cluster.control_plane.client, "/api/v1/namespaces/default/pods"
    made = [f"foreign-{next(_numbers)}" for _ in nodes]
    for name, node in zip(made, nodes, strict=True):
        client.request("POST", path, pod(name).on_node(node).build())
    try:
        yield
    finally:
        for name in made:
            client.request("DELETE", f"{path}/{name}?gracePeriodSeconds=0")


def pods(stage: Stage) -> list[Pod]:
    """Return the active pods of the namespace."""
    return [each for each in stage.items("pods", Pod) if each.active]


def nodes(stage: Stage) -> dict[str, str]:
    """Return the node of each bound pod, by the pod's name."""
    return {each.metadata.name: each.spec.node_name for each in pods(stage) if each.spec.node_name}


def uids(stage: Stage) -> set[str]:
    return {each.metadata.uid for each in pods(stage)}


def released(stage: Stage, count: int) -> dict[str, str]:
    """Wait until this many pods are released and not bound; return the node of each, by the pod's name."""

    def nodes_of_released() -> dict[str, str]:
        given = {
            each.metadata.name: each.metadata.annotation(names.NODES_ANNOTATION) or ""
            for each in pods(stage)
            if each.revocable
        }
        return given if len(given) == count else {}

    return {
        name: hostlists.decode(node)[0]
        for name, node in stage.until(f"{count} pods are released", nodes_of_released).items()
    }


def bound_elsewhere(stage: Stage, count: int, *taken: str) -> Callable[[], bool]:
    return lambda: len(nodes(stage)) == count and not set(nodes(stage).values()) & set(taken)


def events_of(stage: Stage, about: str) -> list[str]:
    """Return reason and message of each Event about an object."""
    path = f"/api/v1/namespaces/{stage.namespace}/events"
    items: list[Json] = stage.cluster.control_plane.client.get(path)["items"]
    return [
        f"{each['reason']}: {each['message']}" for each in items if each["involvedObject"]["name"] == about
    ]


def has_event(stage: Stage, about: str, reason: str, words: str) -> Callable[[], bool]:
    return lambda: any(each.startswith(reason) and words in each for each in events_of(stage, about))


def test_our_scheduler_binds_a_gang_to_the_nodes_of_its_allocation(stage: Stage) -> None:
    stage.apply(job("gang", 3).build())
    row = stage.until_state("gang", State.RUNNING)
    assert row.ran_on == row.hosts
    assert all(each.fluxion_binds and not each.spec.affinity for each in pods(stage))
    stage.until_consistent()


def test_a_bare_pod_whose_node_was_filled_is_bound_elsewhere_and_is_the_same_pod(
    stage: Stage, filled: ExitStack
) -> None:
    with scheduler_away(stage):
        stage.apply(pod("bare").build())
        (node,) = released(stage, 1).values()
        before = uids(stage)
        filled.enter_context(foreign_pods(stage, node))
    stage.until("it runs elsewhere", bound_elsewhere(stage, 1, node))
    assert uids(stage) == before
    stage.until("an Event gives the reason", has_event(stage, "bare", "Requeued", node))
    stage.until(
        "its FluxJob gives the reason",
        lambda: f"could not be bound to {node}" in stage.plugin("explain", "pod/bare").stdout,
    )
    assert stage.until_state("bare", State.RUNNING).fluxjob is not None
    stage.until_consistent()


def test_a_job_without_a_bound_pod_is_matched_again_as_a_whole(stage: Stage, filled: ExitStack) -> None:
    with scheduler_away(stage):
        stage.apply(job("pair", 2).with_("spec.backoffLimit", 0).build())
        taken = next(node for name, node in released(stage, 2).items() if name.startswith("pair-0-"))
        filled.enter_context(foreign_pods(stage, taken))
    stage.until("both run elsewhere", bound_elsewhere(stage, 2, taken))
    stage.until("the Job has an Event with the reason", has_event(stage, "pair", "Requeued", taken))
    stage.until("it was requeued once", lambda: stage.row("pair").requeues == 1)
    stage.until(
        "its FluxJob gives the reason",
        lambda: f"could not be bound to {taken}" in stage.plugin("explain", "job/pair").stdout,
    )
    stage.until_consistent()


def test_a_pod_whose_siblings_run_is_matched_alone_and_its_job_counts_no_failure(
    stage: Stage, filled: ExitStack
) -> None:
    grows = job("grows", 2).with_("spec.backoffLimit", 0).annotation(names.REPLACE_ANNOTATION, "pod").build()
    stage.apply(grows)
    stage.until_state("grows", State.RUNNING)
    before = uids(stage)
    with scheduler_away(stage):
        stage.kubectl("patch", "job", "grows", "-p", '{"spec":{"parallelism":3,"completions":3}}')
        (taken,) = released(stage, 1).values()
        filled.enter_context(foreign_pods(stage, taken))
        (new,) = uids(stage) - before
    stage.until("all three run", bound_elsewhere(stage, 3, taken))
    assert uids(stage) == before | {new}
    assert (stage.row("grows").requeues, stage.job("grows").status.failed) == (0, 0)
    stage.until_consistent()


def test_a_pod_of_a_deployment_is_bound_elsewhere_and_is_the_same_pod(
    stage: Stage, filled: ExitStack
) -> None:
    with scheduler_away(stage):
        stage.apply(make_owner("Deployment", "web", 1))
        ((name, taken),) = released(stage, 1).items()
        filled.enter_context(foreign_pods(stage, taken))
    stage.until("it runs elsewhere", bound_elsewhere(stage, 1, taken))
    assert name in nodes(stage)
    stage.until("it has an Event with the reason", has_event(stage, name, "Requeued", taken))
    stage.until_consistent()


def test_a_pod_group_without_a_bound_pod_is_matched_again_as_a_whole(stage: Stage, filled: ExitStack) -> None:
    with scheduler_away(stage):
        members = [
            pod(f"member-{n}")
            .label(names.POD_GROUP_LABEL, "trio")
            .annotation(names.POD_GROUP_SIZE_ANNOTATION, "3")
            for n in range(3)
        ]
        stage.apply_all(*(member.build() for member in members))
        taken = released(stage, 3)["member-1"]
        filled.enter_context(foreign_pods(stage, taken))
        before = uids(stage)
    stage.until("all run elsewhere", bound_elsewhere(stage, 3, taken))
    assert uids(stage) == before
    stage.until("its pods have Events with the reason", has_event(stage, "member-0", "Requeued", taken))
    assert not [
        fluxjob for fluxjob in stage.fluxjobs() if fluxjob.spec.object_ref.name.startswith("member")
    ], "none was matched alone"
    stage.until_consistent()


def replaced(stage: Stage, victim: str, *, create: Json | None = None) -> tuple[str, str]:
    """Delete a pod whose siblings run, while the scheduler is stopped;
    return name and node of its replacement, which is released.
    """
    before = {each.metadata.name for each in pods(stage)}
    stage.kubectl("delete", "pod", victim, "--wait=true", "--grace-period=0", "--force")
    if create is not None:
        stage.apply(create)
    ((name, node),) = released(stage, 1).items()
    assert name not in before - {victim}
    return name, node


def test_a_retried_pod_of_a_running_job_leaves_the_slot_that_was_filled(
    stage: Stage, filled: ExitStack
) -> None:
    stage.apply(job("retries", 2).build())
    stage.until_state("retries", State.RUNNING)
    stage.until(
        "its pin window is over",
        lambda: datetime.now(UTC) > pin_until(stage.job("retries").spec.template.metadata),
    )
    victim = next(name for name in nodes(stage) if name.startswith("retries-1-"))
    with scheduler_away(stage):
        name, taken = replaced(stage, victim)
        filled.enter_context(foreign_pods(stage, taken))
    stage.until("both run", bound_elsewhere(stage, 2, taken))
    assert name in nodes(stage)
    stage.until("the Job has an Event with the reason", has_event(stage, "retries", "BindFailed", taken))
    assert stage.row("retries").requeues == 0
    stage.until_consistent()


def test_a_broker_of_a_minicluster_is_matched_alone_and_the_others_stay(
    stage: Stage, filled: ExitStack
) -> None:
    flux = make_minicluster("flux", 2, pod={"annotations": {RUN_SECONDS: "forever"}})
    flux["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "8"}, "limits": {"cpu": "8"}}
    stage.apply(flux)
    stage.until("both brokers run", lambda: len(nodes(stage)) == 2)
    (leader,) = [name for name in nodes(stage) if name.startswith("flux-0-")]
    (victim,) = nodes(stage).keys() - {leader}
    with scheduler_away(stage):
        name, taken = replaced(stage, victim)
        filled.enter_context(foreign_pods(stage, taken))
    stage.until("both run", bound_elsewhere(stage, 2, taken))
    assert nodes(stage).keys() == {leader, name}
    stage.until_consistent()


def test_a_member_of_a_running_pod_group_is_matched_alone(stage: Stage, filled: ExitStack) -> None:
    def member(n: int) -> Json:
        labelled = pod(f"member-{n}").label(names.POD_GROUP_LABEL, "pair")
        return labelled.annotation(names.POD_GROUP_SIZE_ANNOTATION, "2").build()

    stage.apply_all(member(0), member(1))
    stage.until("both run", lambda: len(nodes(stage)) == 2)
    with scheduler_away(stage):
        name, taken = replaced(stage, "member-1", create=member(2))
        filled.enter_context(foreign_pods(stage, taken))
    stage.until("both run", bound_elsewhere(stage, 2, taken))
    assert nodes(stage).keys() == {"member-0", name}
    stage.until_consistent()


CORDON: Json = {"unschedulable": True}
TAINT: Json = {"taints": [{"key": "maintenance", "value": "now", "effect": "NoSchedule"}]}


@pytest.mark.parametrize("spoilt", [CORDON, TAINT], ids=["cordon", "taint"])
def test_pods_leave_a_node_that_is_closed_between_release_and_binding(stage: Stage, spoilt: Json) -> None:
    client = stage.cluster.control_plane.client
    with scheduler_away(stage):
        stage.apply_all(pod("bare").build(), job("pair", 2).build())
        given = released(stage, 3)
        closed = [node for name, node in given.items() if name == "bare" or name.startswith("pair-0-")]
        before = {each.metadata.uid for each in pods(stage) if each.metadata.name == "bare"}
        for node in closed:
            client.request("PATCH", f"/api/v1/nodes/{node}", {"spec": spoilt})
    stage.until("all run elsewhere", bound_elsewhere(stage, 3, *closed))
    assert before <= uids(stage)
    for node in closed:
        client.request("PATCH", f"/api/v1/nodes/{node}", {"spec": dict.fromkeys(spoilt)})
    stage.until_consistent()


def switch_queue(stage: Stage, queue: str, scheduler: SchedulerName) -> None:
    """Set the scheduler of a FluxQueue and wait until the queue (by its status) and the webhook (by a dry
    run) know it.
    """
    control_plane = stage.cluster.control_plane
    control_plane.apply(make_queue(queue, scheduler=scheduler.value))
    path = f"/apis/{names.API_VERSION}/{names.FLUXQUEUES}/{queue}"
    expected = names.SCHEDULER_NAME if scheduler is SchedulerName.FLUXION else DEFAULT_SCHEDULER_NAME
    probe = pod("probe").label(names.QUEUE_LABEL, queue).build()
    probe["metadata"]["namespace"] = stage.namespace

    def known_to_queue() -> bool:
        fluxqueue = msgspec.convert(control_plane.client.get(path), FluxQueue)
        return fluxqueue.status.observed_generation == fluxqueue.metadata.generation

    def known_to_webhook() -> bool:
        pods_path = f"/api/v1/namespaces/{stage.namespace}/pods"
        admitted = control_plane.client.request("POST", pods_path, probe, query={"dryRun": "All"})
        return bool(admitted["spec"]["schedulerName"] == expected)

    stage.until(f"the queue knows that {scheduler} binds", known_to_queue)
    stage.until(f"the webhook knows that {scheduler} binds", known_to_webhook)


def test_a_queue_changes_its_scheduler_while_work_runs_and_a_label_overrides_it(stage: Stage) -> None:
    queue = f"switched-{stage.namespace}"

    def runs(name: str, scheduler: str, **labels: str) -> None:
        made = job(name).label(names.QUEUE_LABEL, queue)
        for value in labels.values():
            made = made.label(names.SCHEDULER_LABEL, value)
        stage.apply(made.build())
        stage.until_state(name, State.RUNNING)
        (found,) = [each for each in pods(stage) if each.metadata.label(names.JOB_NAME_LABEL) == name]
        assert found.spec.scheduler_name == scheduler
        assert bool(found.spec.affinity) is (scheduler == "default-scheduler")

    switch_queue(stage, queue, SchedulerName.STOCK)
    runs("first", "default-scheduler")
    runs("own", "FluxionScheduler", label="fluxion")
    switch_queue(stage, queue, SchedulerName.FLUXION)
    runs("second", "FluxionScheduler")
    runs("other", "default-scheduler", label="stock")
    switch_queue(stage, queue, SchedulerName.STOCK)
    runs("third", "default-scheduler")
    assert len(nodes(stage)) == 5
    assert "Bound by" in stage.plugin("explain", "job/own").stdout
    stage.until_consistent()
    stage.clear()
    stage.kubectl("delete", "fluxqueue", queue)
    stage.examples.clear()


def test_a_queue_killed_between_the_withdrawal_and_a_new_slot_continues(
    stage: Stage, filled: ExitStack, service_folder: Path
) -> None:
    armed = service_folder / "armed" / "point"
    with scheduler_away(stage):
        stage.apply(pod("bare").build())
        (taken,) = released(stage, 1).values()
        before = uids(stage)
        filled.enter_context(foreign_pods(stage, taken))
        armed.write_text(f"{CrashPoint.WITHDRAWN} 1")
    stage.until("the queue has died there", lambda: not armed.exists())
    stage.until("it runs elsewhere", bound_elsewhere(stage, 1, taken), 60)
    assert uids(stage) == before
    stage.until_ready("queue")
    stage.until_consistent()


def test_work_cancelled_before_its_bind_is_deleted_like_pending_work(stage: Stage) -> None:
    with scheduler_away(stage):
        stage.apply(pod("bare").build())
        released(stage, 1)
        done = stage.plugin("cancel", "pod/bare")
        assert done.returncode == 0, done.stderr
        stage.until("it is gone", lambda: not pods(stage))
    stage.until_consistent()
