"""Each kind of difference is found, named once, and nothing is found where all agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.builders import make_job, make_node, make_pod
from support.queue_builders import EPOCH, a_job, a_pod, a_workload, an_allocation

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, ObjectRef, Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.graph.nodes import graph_node
from fluxqueue.fluxion.messages import GraphNodeSpec, JobInfo, JobMode, NodeShare, NodeUse
from fluxqueue.queue.model.records import FluxionJobId, ReleaseMode, Reservation, SlotState
from fluxqueue.queue.recovery.comparison import differences, lasting
from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.snapshot import SchedulerState, SystemSnapshot

NODE = msgspec.convert(make_node("n1", cpu="8").build(), Node)
SPEC = graph_node(NODE).spec
WORKLOAD = a_workload(
    "lammps",
    uid="job-uid",
    state=State.RUNNING,
    jobid=7,
    submitted_at=EPOCH,
    reason=Reason.NONE,
    jobspec="{}",
    allocated_at=EPOCH,
)
HELD = replace(an_allocation(["n1"], states=[SlotState.TAKEN], pods=["pod-uid"]), workload=WORKLOAD.id)
LATER = EPOCH.replace(minute=5)


def use(spec: GraphNodeSpec = SPEC, *, up: bool = True, closed: bool = False) -> NodeUse:
    return NodeUse(spec.name, up, closed, {pool.type: pool.total for pool in spec.pools}, {}, ())


def bound_pod(node: str = "n1", jobid: int = 7) -> Any:
    return a_pod(make_pod("lammps-0").on_node(node).phase("Running").cpu("1").allocation(node, jobid))


def findings(**changes: Any) -> list[Finding]:
    """The findings in a cluster of one node with one Job of one pod,
    which is consistent except for the changes.
    """
    settings: dict[str, Any] = {
        "pods": [bound_pod()],
        "nodes": [NODE],
        "jobs": [a_job(make_job("lammps"))],
        "fluxjobs": [FluxJob(spec=FluxJobSpec(object_ref=ObjectRef(uid="job-uid")))],
        "workloads": [WORKLOAD],
        "allocations": [HELD],
        "reservations": [],
        "remembered": [WORKLOAD],
        "held": [HELD],
        "graph_jobs": [JobInfo(7, JobMode.ALLOCATED, shares=(NodeShare("n1", {"pod": 1}),))],
        "graph_nodes": [use()],
        "specs": {"n1": SPEC},
        "foreign": {"n1": {}},
        "now": LATER,
    }
    given = settings | changes
    return differences(SystemSnapshot(**({"wall": given["now"]} | given)))


def waiting(**changes: Any) -> dict[str, Any]:
    """The same Job while it waits."""
    row = replace(
        WORKLOAD, state=State.PENDING, jobid=None, **({"reason": Reason.WAITING_FOR_NODES} | changes)
    )
    return {
        "workloads": [row],
        "remembered": [row],
        "allocations": [],
        "held": [],
        "graph_jobs": [],
        "pods": [],
    }


def test_nothing_is_found_in_a_consistent_system() -> None:
    assert findings() == []
    assert findings(**waiting()) == []


HUGE = replace(HELD, shares=(NodeShare("n1", {"pod": 1}, {"cpu": 9000}),))
SYSTEM = JobInfo(99, JobMode.SYSTEM, shares=(NodeShare("n1", {}, {"cpu": 2000}),))
GATED = a_pod(
    make_pod("orphan").gate(names.GATE).with_("metadata.creationTimestamp", "2026-01-01T00:00:00Z"),
    uid="orphan-uid",
)
SUSPENDED = make_job("lost").suspended().annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
RESERVATION = Reservation(
    workload=WORKLOAD.id, jobid=FluxionJobId(8), first_start=EPOCH, start=LATER, end=None, shares=(), cause=""
)


@pytest.mark.parametrize(
    ("changes", "what", "sentence"),
    [
        (
            {"allocations": [HUGE], "held": [HUGE]},
            Difference.OVERBOOKED,
            "allocations on node n1 add up to 9 cpu of 8 cpu",
        ),
        (
            {
                "pods": [
                    bound_pod(jobid=7),
                    a_pod(make_pod("other").on_node("n1").cpu("8").allocation("n1"), uid="pod-uid"),
                ]
            },
            Difference.OVERBOOKED,
            "pods on node n1 request 9 cpu of 8",
        ),
        (
            {"pods": [bound_pod(jobid=3)]},
            Difference.STRAY_POD,
            "for allocation 3, which is not stored as live",
        ),
        ({"pods": [bound_pod("n2")]}, Difference.MISPLACED_POD, "runs on n2, its stored node is n1"),
        ({"pods": [GATED]}, Difference.UNKNOWN_OBJECT, "Pod default/orphan is gated and is not in the queue"),
        (
            {"jobs": [a_job(make_job("lammps")), a_job(SUSPENDED, uid="lost-uid")]},
            Difference.UNKNOWN_OBJECT,
            "Job default/lost is suspended by the queue and is not in it",
        ),
        (waiting() | {"jobs": []}, Difference.LOST_OBJECT, "waits in the queue and does not exist any more"),
        (waiting(reason=Reason.NONE), Difference.NO_REASON, "Job default/lammps waits without a reason"),
        ({"fluxjobs": []}, Difference.NO_FLUXJOB, "is in the queue and has no FluxJob"),
        (
            waiting() | {"reservations": [RESERVATION]},
            Difference.MOVED_RESERVATION,
            "was reserved a start at 2026-01-01T00:00:00Z, is planned for 2026-01-01T00:05:00Z",
        ),
        (
            {"remembered": []},
            Difference.MEMORY,
            "is Running in the tables and missing in the leader's memory",
        ),
        (
            {"held": [replace(HELD, released_at=None)]},
            Difference.MEMORY,
            "allocation 7 is released in the tables and not released in the leader's memory",
        ),
        (
            {"held": []},
            Difference.MEMORY,
            "allocation 7 has room for 1 pods in the tables and for 0, or others, in the leader's memory",
        ),
        (
            {"graph_jobs": []},
            Difference.GRAPH_JOBS,
            "job 7 holds room for 0 pods on n1 in Fluxion, for 1 in the tables",
        ),
        ({"graph_nodes": []}, Difference.GRAPH_NODES, "node n1 is not in the graph"),
        (
            {"graph_nodes": [use(up=False)]},
            Difference.GRAPH_NODES,
            "node n1 is down in the graph and usable in the cluster",
        ),
        (
            {"graph_nodes": [use(graph_node(msgspec.convert(make_node("n1", cpu="4").build(), Node)).spec)]},
            Difference.GRAPH_NODES,
            "node n1 has 4000 cpu in the graph and 8000 in the cluster",
        ),
        (
            {"foreign": {"n1": {"cpu": 1500}}},
            Difference.GRAPH_FOREIGN,
            "have 1500 cpu of node n1, the graph holds 0 for them",
        ),
        (
            {"graph_jobs": [JobInfo(7, JobMode.ALLOCATED, shares=(NodeShare("n1", {"pod": 1}),)), SYSTEM]},
            Difference.GRAPH_FOREIGN,
            "have 0 cpu of node n1, the graph holds 2000 for them",
        ),
    ],
)
def test_a_difference_is_found_and_named(changes: dict[str, Any], what: Difference, sentence: str) -> None:
    of_this_kind = [finding for finding in findings(**changes) if finding.what is what]
    assert [sentence in finding.sentence for finding in of_this_kind] == [True], findings(**changes)
    assert what.invariant.startswith("I")
    assert what.remedy


UNBOUND = a_pod(
    make_pod("lammps-0").by_fluxion("n1").with_("metadata.creationTimestamp", "2026-01-01T00:00:00Z")
)
HELD_POD = a_pod(
    make_pod("lammps-0").by_fluxion().with_("metadata.creationTimestamp", "2026-01-01T00:00:00Z")
)
BOUND = a_pod(make_pod("lammps-0").by_fluxion("n1").on_node("n1").phase("Running").cpu("1"))
LONG_AGO = replace(HELD, released_at=EPOCH)


@pytest.mark.parametrize(
    ("scheduler", "pod", "sentence"),
    [
        (
            SchedulerState.AWAY,
            UNBOUND,
            "was released to n1 and is not bound: no replica of the scheduler leads",
        ),
        (SchedulerState.ABSENT, UNBOUND, "is to be bound by FluxionScheduler, which is not installed"),
        (SchedulerState.ABSENT, HELD_POD, "is to be bound by FluxionScheduler, which is not installed"),
        (SchedulerState.LEADS, UNBOUND, ""),
        (SchedulerState.UNKNOWN, UNBOUND, ""),
        (SchedulerState.AWAY, HELD_POD, ""),
        (SchedulerState.AWAY, BOUND, ""),
    ],
)
def test_a_pod_that_no_scheduler_binds_is_found(scheduler: SchedulerState, pod: Pod, sentence: str) -> None:
    result = findings(pods=[pod], allocations=[LONG_AGO], held=[LONG_AGO], scheduler=scheduler)
    assert [sentence in finding.sentence for finding in result if finding.what is Difference.UNBOUND_POD] == (
        [True] if sentence else []
    )


def test_a_pod_that_was_just_released_may_be_about_to_be_bound() -> None:
    now = replace(HELD, released_at=LATER)
    assert findings(pods=[UNBOUND], allocations=[now], held=[now], scheduler=SchedulerState.AWAY) == []


def test_a_quick_look_at_the_graph_compares_the_ids_of_jobs() -> None:
    quick = {"thorough": False, "graph_nodes": []}
    assert findings(**quick, graph_jobs=[JobInfo(7, JobMode.ALLOCATED), JobInfo(99, JobMode.SYSTEM)]) == []
    result = findings(**quick, graph_jobs=[JobInfo(8, JobMode.ALLOCATED)])
    assert [finding.sentence for finding in result] == [
        "job 7 is stored and not in Fluxion",
        "job 8 is in Fluxion and not stored",
    ]


def test_foreign_pods_beyond_the_size_of_a_closed_node_are_no_difference() -> None:
    assert findings(foreign={"n1": {"cpu": 99_000}}, graph_nodes=[use(closed=True)]) == []


def test_rounding_up_to_whole_vertices_is_no_difference() -> None:
    system = JobInfo(99, JobMode.SYSTEM, shares=(NodeShare("n1", {}, {"cpu": 1510}),))
    held = JobInfo(7, JobMode.ALLOCATED, shares=(NodeShare("n1", {"pod": 1}),))
    assert findings(foreign={"n1": {"cpu": 1505}}, graph_jobs=[held, system]) == []


def test_a_waiting_pod_of_a_tree_of_groups_is_in_the_queue() -> None:
    group = {"podGroupName": "part"}
    pod = a_pod(make_pod("part-0").gate("fluxqueue").with_("spec.schedulingGroup", group), uid="part")
    tree = a_workload(
        "tree",
        kind="CompositePodGroup",
        api_version="scheduling.k8s.io/v1alpha3",
        release_mode=ReleaseMode.GROUP,
    )
    found = [
        [each.what for each in findings(pods=[bound_pod(), pod], workloads=[WORKLOAD, *rows])]
        for rows in ([], [tree])
    ]
    assert [Difference.UNKNOWN_OBJECT in each for each in found] == [True, False]


def test_a_forgotten_gated_pod_of_a_running_job_is_found() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "lammps", "uid": "job-uid", "controller": True}
    forgotten = a_pod(
        make_pod("lammps-1").gate("fluxqueue").with_("metadata.ownerReferences", [owner]), uid="late"
    )
    (finding,) = findings(pods=[bound_pod(), forgotten])
    assert (finding.what, finding.about) == (Difference.UNKNOWN_OBJECT, "Pod default/lammps-1")
    leaving = (
        make_pod("lammps-0")
        .on_node("n1")
        .with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
        .allocation("n1")
    )
    assert findings(pods=[a_pod(leaving), forgotten]) == [], "its slot is about to be free"


def test_a_young_object_may_not_be_in_the_queue_yet() -> None:
    assert findings(pods=[bound_pod(), GATED], now=EPOCH.replace(second=5)) == []


def test_only_what_two_looks_saw_counts() -> None:
    passing = Finding(Difference.GRAPH_JOBS, "job 1", "...")
    stays = Finding(Difference.GRAPH_JOBS, "job 2", "2 slots")
    assert lasting(
        [passing, stays], [replace(stays, sentence="3 slots"), Finding(Difference.MEMORY, "job 1", "")]
    ) == [replace(stays, sentence="3 slots")]


def test_a_clock_that_is_wrong_is_found_with_its_name_and_direction() -> None:
    clocks = {"machine": 0.2, "postgres": 3600.4, "api-server": -7.0, "queue": 0.0}
    assert [(each.what, each.about, each.sentence) for each in findings(clocks=clocks)] == [
        (Difference.CLOCK, "clock postgres", "the clock of Postgres is 3600 s ahead of the time of day"),
        (Difference.CLOCK, "clock api-server", "the clock of the API server is 7 s behind the time of day"),
    ]
