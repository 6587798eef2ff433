"""What contradicts itself between the cluster, the tables, the leader's memory and the graph, in sentences.

Four places tell one story: Kubernetes what exists and runs, Postgres what was decided, the leader's memory what it works with, Fluxion
what is free. Every difference is named with the object it is about, the invariant it breaks (architecture, section 4) and what mends it.
The same comparison is made by the sweep each minute, by `kubectl fluxqueue doctor`, and by the tests.

The four are not read at one moment, so a single look sees things that are merely on their way. Whoever looks takes a second look a
moment later and believes what both saw (`lasting`).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.api.objects import Job, Node, Pod
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.requests import InvalidRequest, pod_requests, summed
from fluxqueue.fluxion.messages import JobInfo, Mode, NodeShare, NodeSpec, NodeUse
from fluxqueue.queue.intake import owning_job_uid
from fluxqueue.queue.records import Allocation, Reservation, SlotState, Workload

__all__ = ["Difference", "Finding", "Snapshot", "differences", "lasting"]

_FRESH = timedelta(seconds=15)
"""What is younger may not have been taken in, told or shown yet."""


class Difference(enum.StrEnum):
    """What kind of difference; the words of the metric and of the command's output."""

    OVERBOOKED = "overbooked"
    STRAY_POD = "stray-pod"
    MISPLACED_POD = "misplaced-pod"
    UNKNOWN_OBJECT = "unknown-object"
    LOST_OBJECT = "lost-object"
    NO_REASON = "no-reason"
    NO_FLUXJOB = "no-fluxjob"
    BROKEN_PROMISE = "broken-promise"
    MEMORY = "memory"
    GRAPH_JOBS = "graph-jobs"
    GRAPH_NODES = "graph-nodes"
    GRAPH_FOREIGN = "graph-foreign"

    @property
    def invariant(self) -> str:
        """The invariant it breaks."""
        return _INVARIANTS[self]

    @property
    def remedy(self) -> str:
        """What mends it."""
        return _REMEDIES[self]


_INVARIANTS: Mapping[Difference, str] = {
    Difference.OVERBOOKED: "I1",
    Difference.STRAY_POD: "I3",
    Difference.MISPLACED_POD: "I2",
    Difference.UNKNOWN_OBJECT: "I4",
    Difference.LOST_OBJECT: "I4",
    Difference.NO_REASON: "I4",
    Difference.NO_FLUXJOB: "I4",
    Difference.BROKEN_PROMISE: "I8",
    Difference.MEMORY: "I7",
    Difference.GRAPH_JOBS: "I1",
    Difference.GRAPH_NODES: "I1",
    Difference.GRAPH_FOREIGN: "I1",
}
_SWEEP = "the sweep mends it within a minute, --repair at once"
_REMEDIES: Mapping[Difference, str] = {
    Difference.OVERBOOKED: "nothing more is placed there; delete one of the pods, or suspend its Job, to relieve the node",
    Difference.STRAY_POD: "it is counted as foreign; delete it if it should not run",
    Difference.MISPLACED_POD: "suspend its Job and resume it, and it is matched again",
    Difference.UNKNOWN_OBJECT: _SWEEP,
    Difference.LOST_OBJECT: _SWEEP,
    Difference.NO_REASON: _SWEEP,
    Difference.NO_FLUXJOB: _SWEEP,
    Difference.BROKEN_PROMISE: "none is needed: it starts when it can; report it, with the history of the workload",
    Difference.MEMORY: "the sweep reads the tables anew within a minute, --repair at once",
    Difference.GRAPH_JOBS: "the sweep fills the graph anew within a minute, --repair at once",
    Difference.GRAPH_NODES: "the sweep fills the graph anew within a minute, --repair at once",
    Difference.GRAPH_FOREIGN: "the sweep fills the graph anew within a minute, --repair at once",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference.

    Attributes
    ----------
    what
        Its kind.
    about
        The object: ``Pod science/lammps-0``, ``node n1``, ``job 17``.
    sentence
        What is wrong, complete.
    """

    what: Difference
    about: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything, as near to one moment as can be had.

    Attributes
    ----------
    pods, nodes, jobs, fluxjobs
        The cluster.
    workloads, allocations, reservations
        What is pending or live in the tables.
    remembered, held
        The same workloads and allocations in the leader's memory.
    graph_jobs, graph_nodes
        What Fluxion holds, and its nodes.
    specs, foreign
        What the graph should have of each node, and what of it is taken by pods that are not ours.
    now
        On the clock of the tables.
    thorough
        Whether Fluxion told what its jobs hold where, and of its nodes; else only which jobs it has.
    """

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    jobs: Sequence[Job]
    fluxjobs: Sequence[FluxJob]
    workloads: Sequence[Workload]
    allocations: Sequence[Allocation]
    reservations: Sequence[Reservation]
    remembered: Sequence[Workload]
    held: Sequence[Allocation]
    graph_jobs: Sequence[JobInfo]
    graph_nodes: Sequence[NodeUse]
    specs: Mapping[str, NodeSpec]
    foreign: Mapping[str, Mapping[str, int]]
    now: datetime
    thorough: bool = True


def differences(seen: Snapshot) -> list[Finding]:
    """All that contradicts itself, in the order of the invariants."""
    return [
        *_overbooked(seen),
        *_pods(seen),
        *_objects(seen),
        *_rows(seen),
        *_promises(seen),
        *_memory(seen),
        *(_in_graph(seen) if seen.thorough else _graph_ids(seen)),
    ]


def lasting(first: Iterable[Finding], second: Iterable[Finding]) -> list[Finding]:
    """What the second look sees of what the first saw already."""
    before = {(finding.what, finding.about) for finding in first}
    return [finding for finding in second if (finding.what, finding.about) in before]


def _overbooked(seen: Snapshot) -> Iterator[Finding]:
    """No node bears more of ours than it has: neither as booked, nor as the pods on it ask."""
    booked: dict[str, Counter[str]] = {}
    for allocation in seen.allocations:
        open_slots = Counter(slot.node for slot in allocation.slots if slot.state is not SlotState.ENDED)
        for share in allocation.shares:
            places, slots = sum(share.slots.values()), open_slots[share.node]
            for kind, amount in share.amounts.items():
                booked.setdefault(share.node, Counter())[kind] += amount * min(slots, places) // max(places, 1)
    for node, amounts in sorted(booked.items()):
        spec = seen.specs.get(node)
        offered = {pool.type: -(-pool.total // pool.vertex_size) * pool.vertex_size for pool in spec.pools} if spec else {}
        for kind, amount in sorted(amounts.items()):
            if spec is not None and amount > offered.get(kind, 0):
                yield Finding(
                    Difference.OVERBOOKED, f"node {node}", f"allocations on node {node} add up to {amount} {kind} of {offered.get(kind, 0)}"
                )
    live = {str(allocation.jobid) for allocation in seen.allocations}
    ours: dict[str, list[Pod]] = {}
    for pod in seen.pods:
        if pod.spec.node_name and not pod.terminal and pod.metadata.annotation(names.ALLOCATION_ANNOTATION) in live:
            ours.setdefault(pod.spec.node_name, []).append(pod)
    for node_object in seen.nodes:
        name = node_object.metadata.name
        offers = node_object.status.allocatable or {}
        try:
            asked = summed(pod_requests(pod.spec) for pod in ours.get(name, ()))
            over = [kind for kind, amount in asked.items() if amount > parse_quantity(offers.get(kind, 0))]
        except (InvalidQuantity, InvalidRequest):
            continue  # the node is down for that, and says so
        for kind in over:
            yield Finding(
                Difference.OVERBOOKED, f"node {name}", f"pods on node {name} request {asked[kind]} {kind} of {offers.get(kind, 0)}"
            )


def _pods(seen: Snapshot) -> Iterator[Finding]:
    """Each bound pod that was let go stands in a place of a stored allocation, on its node."""
    places = {
        slot.pod_uid: slot for allocation in seen.allocations for slot in allocation.slots if slot.pod_uid and slot.state is SlotState.TAKEN
    }
    live = {str(allocation.jobid) for allocation in seen.allocations}
    for pod in seen.pods:
        jobid = pod.metadata.annotation(names.ALLOCATION_ANNOTATION)
        if jobid is None or pod.terminal or not pod.spec.node_name:
            continue
        where = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
        slot = places.get(pod.metadata.uid)
        if jobid not in live:
            yield Finding(
                Difference.STRAY_POD, where, f"{where} runs on {pod.spec.node_name} for allocation {jobid}, which is not stored as live"
            )
        elif slot is None:
            yield Finding(
                Difference.MISPLACED_POD,
                where,
                f"{where} of allocation {jobid} runs on {pod.spec.node_name}, and no place is noted for it",
            )
        elif slot.node != pod.spec.node_name:
            yield Finding(
                Difference.MISPLACED_POD, where, f"{where} of allocation {jobid} runs on {pod.spec.node_name}, its place is on {slot.node}"
            )


def _objects(seen: Snapshot) -> Iterator[Finding]:
    """Whatever we hold is in the queue."""
    known = {workload.uid for workload in seen.workloads}
    owned = {allocation.jobid for allocation in seen.allocations}
    for job in seen.jobs:
        meta = job.metadata
        ours = job.spec.suspend and meta.annotation(names.SUSPENDED_BY_ANNOTATION) == names.SUSPENDED_BY_WEBHOOK
        if ours and meta.uid not in known and not meta.deletion_timestamp and not job.finished and _old(meta.creation_timestamp, seen.now):
            where = f"Job {meta.namespace}/{meta.name}"
            yield Finding(Difference.UNKNOWN_OBJECT, where, f"{where} is suspended by us and is not in the queue")
    for pod in seen.pods:
        meta = pod.metadata
        if not pod.spec.gated_by(names.GATE) or meta.deletion_timestamp or pod.terminal or not _old(meta.creation_timestamp, seen.now):
            continue
        owner = owning_job_uid(pod)
        if meta.uid in known or owner in known or meta.annotation(names.ALLOCATION_ANNOTATION) in {str(jobid) for jobid in owned}:
            continue
        if owner is not None and owner not in {job.metadata.uid for job in seen.jobs}:
            continue  # its Job is gone, and garbage collection comes for it
        if meta.label(names.POD_GROUP_LABEL) is not None:
            continue  # a member is in the queue as part of its group
        where = f"Pod {meta.namespace}/{meta.name}"
        yield Finding(Difference.UNKNOWN_OBJECT, where, f"{where} has our gate and is not in the queue")


def _rows(seen: Snapshot) -> Iterator[Finding]:
    """What waits has an object, a reason and a FluxJob."""
    objects = {item.metadata.uid for kind in (seen.jobs, seen.pods) for item in kind}
    shown = {fluxjob.spec.object_ref.uid for fluxjob in seen.fluxjobs}
    for workload in seen.workloads:
        where = f"{workload.kind} {workload.namespace}/{workload.name}"
        young = seen.now - workload.submitted_at < _FRESH
        if workload.kind in ("Job", "Pod") and workload.uid not in objects and workload.state is State.PENDING:
            yield Finding(Difference.LOST_OBJECT, where, f"{where} waits in the queue and does not exist any more")
        elif workload.state is State.PENDING and workload.reason is Reason.NONE and not young:
            yield Finding(Difference.NO_REASON, where, f"{where} waits and does not say why")
        elif workload.kind in ("Job", "Pod") and workload.uid in objects and workload.uid not in shown and not young:
            yield Finding(Difference.NO_FLUXJOB, where, f"{where} is in the queue and has no FluxJob")


def _promises(seen: Snapshot) -> Iterator[Finding]:
    """A reservation is only ever replaced by a later one for a cause."""
    by_id = {workload.id: workload for workload in seen.workloads}
    for each in seen.reservations:
        workload = by_id.get(each.workload)
        if workload is not None and each.start > each.first_start and not each.cause:
            where = f"{workload.kind} {workload.namespace}/{workload.name}"
            yield Finding(
                Difference.BROKEN_PROMISE,
                where,
                f"{where} was promised a start at {each.first_start:%H:%M:%S}, is planned for {each.start:%H:%M:%S}, and no cause is noted",
            )


def _memory(seen: Snapshot) -> Iterator[Finding]:
    """The leader works with what is stored."""
    stored = {workload.id: workload for workload in seen.workloads}
    remembered = {workload.id: workload for workload in seen.remembered}
    for found in sorted(stored.keys() | remembered.keys()):
        row, known = stored.get(found), remembered.get(found)
        workload = row or known
        assert workload is not None
        if row is None or known is None or (row.state, row.queue, row.jobspec) != (known.state, known.queue, known.jobspec):
            where = f"{workload.kind} {workload.namespace}/{workload.name}"
            yield Finding(
                Difference.MEMORY,
                where,
                f"{where} is {row.state if row else 'not there'} in the tables and {known.state if known else 'not there'} "
                "in the leader's memory",
            )
    released_stored = {allocation.jobid: allocation.released_at is not None for allocation in seen.allocations}
    for allocation in seen.held:
        jobid, released = allocation.jobid, allocation.released_at is not None
        if released_stored.get(jobid, released) != released:
            noted = ("not noted as released", "noted as released")
            yield Finding(
                Difference.MEMORY,
                f"job {jobid}",
                f"allocation {jobid} is {noted[not released]} in the tables and {noted[released]} in the leader's memory",
            )
    slots_stored = {allocation.jobid: _open(allocation) for allocation in seen.allocations}
    slots_held = {allocation.jobid: _open(allocation) for allocation in seen.held}
    for jobid in sorted(slots_stored.keys() | slots_held.keys()):
        if slots_stored.get(jobid) != slots_held.get(jobid):
            yield Finding(
                Difference.MEMORY,
                f"job {jobid}",
                f"allocation {jobid} has {len(slots_stored.get(jobid) or ())} open places in the tables and "
                f"{len(slots_held.get(jobid) or ())}, or others, in the leader's memory",
            )


def _in_graph(seen: Snapshot) -> Iterator[Finding]:
    yield from _graph_jobs(seen)
    yield from _graph_nodes(seen)
    yield from _graph_foreign(seen)


def _graph_ids(seen: Snapshot) -> Iterator[Finding]:
    """Fluxion has the jobs that are stored, and no others, whatever they hold."""
    stored = {int(allocation.jobid) for allocation in seen.allocations if _open(allocation)}
    held = {job.jobid for job in seen.graph_jobs if job.mode is Mode.ALLOCATED}
    for jobid in sorted(stored ^ held):
        where = "stored and not in Fluxion" if jobid in stored else "in Fluxion and not stored"
        yield Finding(Difference.GRAPH_JOBS, f"job {jobid}", f"job {jobid} is {where}")


def _graph_jobs(seen: Snapshot) -> Iterator[Finding]:
    """Fluxion holds the places that are stored, allocated and reserved, and no others."""
    stored = Counter((int(slot.jobid), slot.node) for allocation in seen.allocations for slot in _open(allocation))
    for reservation in seen.reservations:
        stored.update({(int(reservation.jobid), share.node): sum(share.slots.values()) for share in reservation.shares})
    held = Counter(
        {
            (job.jobid, share.node): sum(share.slots.values())
            for job in seen.graph_jobs
            if job.mode in (Mode.ALLOCATED, Mode.RESERVED)
            for share in job.shares
        }
    )
    for jobid, node in sorted(stored.keys() | held.keys()):
        if stored[jobid, node] != held[jobid, node]:
            yield Finding(
                Difference.GRAPH_JOBS,
                f"job {jobid}",
                f"job {jobid} holds {held[jobid, node]} places on {node} in Fluxion, {stored[jobid, node]} are stored",
            )


def _graph_nodes(seen: Snapshot) -> Iterator[Finding]:
    """The graph has the nodes there are, of their size, up when they may be used."""
    known = {use.node: use for use in seen.graph_nodes}
    for name in sorted(seen.specs.keys() | known.keys()):
        spec, use = seen.specs.get(name), known.get(name)
        if spec is None or use is None:
            missing = "the cluster" if spec is None else "the graph"
            yield Finding(Difference.GRAPH_NODES, f"node {name}", f"node {name} is not in {missing}")
        elif use.up == spec.down:
            yield Finding(
                Difference.GRAPH_NODES,
                f"node {name}",
                f"node {name} is {'up' if use.up else 'down'} in the graph and {'not usable' if spec.down else 'usable'} in the cluster",
            )
        elif wrong := [pool.type for pool in spec.pools if use.total.get(pool.type, 0) != pool.total]:
            yield Finding(
                Difference.GRAPH_NODES,
                f"node {name}",
                f"node {name} has {use.total.get(wrong[0], 0)} {wrong[0]} in the graph and "
                f"{next(pool.total for pool in spec.pools if pool.type == wrong[0])} in the cluster",
            )


def _graph_foreign(seen: Snapshot) -> Iterator[Finding]:
    """What runs without us is taken in the graph: all of it, or the node is closed."""
    taken: dict[str, NodeShare] = {share.node: share for job in seen.graph_jobs if job.mode is Mode.SYSTEM for share in job.shares}
    closed = {use.node for use in seen.graph_nodes if use.closed}
    for node, wanted in sorted(seen.foreign.items()):
        spec = seen.specs.get(node)
        if spec is None or node in closed:
            continue
        sizes = {pool.type: pool.vertex_size for pool in spec.pools}
        have: Mapping[str, int] = taken[node].amounts if node in taken else {}
        for kind in sorted(sizes.keys() & (wanted.keys() | have.keys())):
            asked, held = wanted.get(kind, 0), have.get(kind, 0)
            if not asked <= held < asked + sizes[kind] + (0 if asked else 1):
                yield Finding(
                    Difference.GRAPH_FOREIGN,
                    f"node {node}",
                    f"pods that are not ours have {asked} {kind} of node {node}, the graph keeps {held} for them",
                )


def _open(allocation: Allocation) -> tuple[_Place, ...]:
    return tuple(_Place(int(slot.jobid), slot.rank, slot.node) for slot in allocation.slots if slot.state is not SlotState.ENDED)


@dataclass(frozen=True, slots=True)
class _Place:
    jobid: int
    rank: int
    node: str


def _old(created: str | None, now: datetime) -> bool:
    """Whether it has been there long enough to have been taken in; what does not say when it was made is old."""
    try:
        return created is None or now - datetime.fromisoformat(created) > _FRESH
    except ValueError:
        return True
