"""Each kind of difference is found, named once, and nothing is found where all agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders import make_job, make_node, make_pod
from queue_builders import EPOCH, a_job, a_pod, a_workload, an_allocation

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, ObjectRef, Reason, State
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.messages import JobInfo, Mode, NodeShare, NodeSpec, NodeUse
from fluxqueue.fluxion.nodes import graph_node
from fluxqueue.queue.doctor import Difference, Finding, Snapshot, differences, lasting
from fluxqueue.queue.records import FluxionJobId, Reservation, SlotState

NODE = msgspec.convert(make_node("n1", cpu="8").build(), Node)
SPEC = graph_node(NODE).spec
WORKLOAD = a_workload(
    "lammps", uid="job-uid", state=State.RUNNING, jobid=7, submitted_at=EPOCH, reason=Reason.NONE, jobspec="{}", allocated_at=EPOCH
)
HELD = replace(an_allocation(["n1"], states=[SlotState.TAKEN], pods=["pod-uid"]), workload=WORKLOAD.id)
LATER = EPOCH.replace(minute=5)


def use(spec: NodeSpec = SPEC, *, up: bool = True, closed: bool = False) -> NodeUse:
    return NodeUse(spec.name, up, closed, {pool.type: pool.total for pool in spec.pools}, {}, ())


def standing(node: str = "n1", jobid: int = 7) -> Any:
    return a_pod(make_pod("lammps-0").on_node(node).phase("Running").cpu("1").allocation(node, jobid))


def told(**changes: Any) -> list[Finding]:
    """What is found in a cluster of one node with one Job of one pod, all well but for the changes."""
    settings: dict[str, Any] = {
        "pods": [standing()],
        "nodes": [NODE],
        "jobs": [a_job(make_job("lammps"))],
        "fluxjobs": [FluxJob(spec=FluxJobSpec(object_ref=ObjectRef(uid="job-uid")))],
        "workloads": [WORKLOAD],
        "allocations": [HELD],
        "reservations": [],
        "remembered": [WORKLOAD],
        "held": [HELD],
        "graph_jobs": [JobInfo(7, Mode.ALLOCATED, shares=(NodeShare("n1", {"pod": 1}),))],
        "graph_nodes": [use()],
        "specs": {"n1": SPEC},
        "foreign": {"n1": {}},
        "now": LATER,
    }
    return differences(Snapshot(**(settings | changes)))


def waiting(**changes: Any) -> dict[str, Any]:
    """The same Job, waiting."""
    row = replace(WORKLOAD, state=State.PENDING, jobid=None, **({"reason": Reason.WAITING_FOR_NODES} | changes))
    return {"workloads": [row], "remembered": [row], "allocations": [], "held": [], "graph_jobs": [], "pods": []}


def test_nothing_is_found_where_all_agree() -> None:
    assert told() == []
    assert told(**waiting()) == []


HUGE = replace(HELD, shares=(NodeShare("n1", {"pod": 1}, {"cpu": 9000}),))
SYSTEM = JobInfo(99, Mode.SYSTEM, shares=(NodeShare("n1", {}, {"cpu": 2000}),))
GATED = a_pod(make_pod("orphan").gate(names.GATE).with_("metadata.creationTimestamp", "2026-01-01T00:00:00Z"), uid="orphan-uid")
SUSPENDED = make_job("lost").suspended().annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
PROMISE = Reservation(workload=WORKLOAD.id, jobid=FluxionJobId(8), first_start=EPOCH, start=LATER, end=None, shares=(), cause="")


@pytest.mark.parametrize(
    ("changes", "what", "sentence"),
    [
        ({"allocations": [HUGE], "held": [HUGE]}, Difference.OVERBOOKED, "allocations on node n1 add up to 9000 cpu of 8000"),
        (
            {"pods": [standing(jobid=7), a_pod(make_pod("other").on_node("n1").cpu("8").allocation("n1"), uid="pod-uid")]},
            Difference.OVERBOOKED,
            "pods on node n1 request 9 cpu of 8",
        ),
        ({"pods": [standing(jobid=3)]}, Difference.STRAY_POD, "for allocation 3, which is not stored as live"),
        ({"pods": [standing("n2")]}, Difference.MISPLACED_POD, "runs on n2, its place is on n1"),
        ({"pods": [GATED]}, Difference.UNKNOWN_OBJECT, "Pod default/orphan has our gate and is not in the queue"),
        (
            {"jobs": [a_job(make_job("lammps")), a_job(SUSPENDED, uid="lost-uid")]},
            Difference.UNKNOWN_OBJECT,
            "Job default/lost is suspended by us and is not in the queue",
        ),
        (waiting() | {"jobs": []}, Difference.LOST_OBJECT, "waits in the queue and does not exist any more"),
        (waiting(reason=Reason.NONE), Difference.NO_REASON, "Job default/lammps waits and does not say why"),
        ({"fluxjobs": []}, Difference.NO_FLUXJOB, "is in the queue and has no FluxJob"),
        (waiting() | {"reservations": [PROMISE]}, Difference.BROKEN_PROMISE, "was promised a start at 00:00:00, is planned for 00:05:00"),
        ({"remembered": []}, Difference.MEMORY, "is Running in the tables and not there in the leader's memory"),
        (
            {"held": [replace(HELD, released_at=None)]},
            Difference.MEMORY,
            "allocation 7 is noted as released in the tables and not noted as released in the leader's memory",
        ),
        ({"held": []}, Difference.MEMORY, "allocation 7 has 1 open places in the tables and 0, or others, in the leader's memory"),
        ({"graph_jobs": []}, Difference.GRAPH_JOBS, "job 7 holds 0 places on n1 in Fluxion, 1 are stored"),
        ({"graph_nodes": []}, Difference.GRAPH_NODES, "node n1 is not in the graph"),
        ({"graph_nodes": [use(up=False)]}, Difference.GRAPH_NODES, "node n1 is down in the graph and usable in the cluster"),
        (
            {"graph_nodes": [use(graph_node(msgspec.convert(make_node("n1", cpu="4").build(), Node)).spec)]},
            Difference.GRAPH_NODES,
            "node n1 has 4000 cpu in the graph and 8000 in the cluster",
        ),
        ({"foreign": {"n1": {"cpu": 1500}}}, Difference.GRAPH_FOREIGN, "have 1500 cpu of node n1, the graph keeps 0 for them"),
        (
            {"graph_jobs": [JobInfo(7, Mode.ALLOCATED, shares=(NodeShare("n1", {"pod": 1}),)), SYSTEM]},
            Difference.GRAPH_FOREIGN,
            "have 0 cpu of node n1, the graph keeps 2000 for them",
        ),
    ],
)
def test_a_difference_is_found_and_named(changes: dict[str, Any], what: Difference, sentence: str) -> None:
    found = [finding for finding in told(**changes) if finding.what is what]
    assert [sentence in finding.sentence for finding in found] == [True], told(**changes)
    assert what.invariant.startswith("I")
    assert what.remedy


def test_a_hasty_look_at_the_graph_compares_which_jobs_there_are() -> None:
    hasty = {"thorough": False, "graph_nodes": []}
    assert told(**hasty, graph_jobs=[JobInfo(7, Mode.ALLOCATED), JobInfo(99, Mode.SYSTEM)]) == []
    found = told(**hasty, graph_jobs=[JobInfo(8, Mode.ALLOCATED)])
    assert [finding.sentence for finding in found] == ["job 7 is stored and not in Fluxion", "job 8 is in Fluxion and not stored"]


def test_what_fills_up_foreign_pods_beyond_a_node_is_no_difference_but_closes_it() -> None:
    assert told(foreign={"n1": {"cpu": 99_000}}, graph_nodes=[use(closed=True)]) == []


def test_what_is_rounded_up_to_whole_vertices_is_no_difference() -> None:
    system = JobInfo(99, Mode.SYSTEM, shares=(NodeShare("n1", {}, {"cpu": 1600}),))
    held = JobInfo(7, Mode.ALLOCATED, shares=(NodeShare("n1", {"pod": 1}),))
    assert told(foreign={"n1": {"cpu": 1510}}, graph_jobs=[held, system]) == []


def test_what_is_young_may_not_have_been_taken_in_yet() -> None:
    assert told(pods=[standing(), GATED], now=EPOCH.replace(second=5)) == []


def test_only_what_two_looks_saw_is_believed() -> None:
    passing = Finding(Difference.GRAPH_JOBS, "job 1", "...")
    stays = Finding(Difference.GRAPH_JOBS, "job 2", "2 places")
    assert lasting([passing, stays], [replace(stays, sentence="3 places"), Finding(Difference.MEMORY, "job 1", "")]) == [
        replace(stays, sentence="3 places")
    ]
