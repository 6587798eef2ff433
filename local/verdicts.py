"""Checks of workloads: Fluxion's decisions compared with what the cluster did.

A workload passes if its FluxJob reached the expected state, every pod ran on the node that Fluxion chose for
its rank, and no pod was bound before the whole workload was allocated. A start that was announced while it
waited must come true (`fluxqueue.local.announced_starts`). After the objects are deleted, nothing of them may
remain. The demo and the end-to-end tests use these checks. All functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import ENDED, FluxJob, Outcome, Reason, State
from fluxqueue.api.formatting import format_nodes
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import JobInfo, JobMode
from fluxqueue.queue.model.moldable import min_pods_in

__all__ = [
    "OWNING_KINDS",
    "AppliedExample",
    "NamespaceSnapshot",
    "Row",
    "bound_by",
    "bound_by_another",
    "describe_state",
    "differences",
    "leftovers",
    "notes_on",
    "parse_time",
    "rows_of",
    "settled",
]

OWNING_KINDS = ("Deployment", "ReplicaSet", "StatefulSet")
"""Kinds whose pods are single workloads and run without an end."""


@dataclass(frozen=True)
class AppliedExample:
    """An example that was applied, and what is expected of it."""

    kind: str
    name: str
    uid: str
    replicas: int = 1
    expects: str = ""
    reserved: bool = False
    """True if nodes must be reserved for it while it waits."""
    ahead_of: str = ""
    """The Job, applied earlier, before which it must be backfilled."""

    @property
    def title(self) -> str:
        """Kind and name in kubectl's form."""
        return f"{self.kind.lower()}/{self.name}"


@dataclass(frozen=True)
class NamespaceSnapshot:
    """The FluxJobs and pods of a namespace at one time."""

    fluxjobs: tuple[FluxJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)

    def with_deleted(self, before: NamespaceSnapshot) -> NamespaceSnapshot:
        """Add the pods with a completion index that ran and are gone:
        a Job deletes what still runs when its success policy is met.
        """
        uids = {pod.metadata.uid for pod in self.pods}
        deleted = [
            pod
            for pod in before.pods
            if pod.spec.node_name and pod.completion_index is not None and pod.metadata.uid not in uids
        ]
        return NamespaceSnapshot(self.fluxjobs, (*self.pods, *deleted), self.owners)


@dataclass(frozen=True)
class Row:
    """One workload of an example; a Deployment has one per pod."""

    example: AppliedExample
    fluxjob: FluxJob | None
    pods: tuple[Pod, ...] = ()

    @property
    def title(self) -> str:
        """Its name in the queue; that of the example, with the last part of the pod's name if each pod is a
        workload.
        """
        if self.example.kind not in OWNING_KINDS or not self.pods:
            return (self.fluxjob.spec.object_ref.title if self.fluxjob else "") or self.example.title
        return f"{self.example.title} {self.pods[0].metadata.name.rpartition('-')[2]}"

    @property
    def state(self) -> str:
        """The state of the FluxJob; empty before it exists."""
        return self.fluxjob.status.state if self.fluxjob else ""

    @property
    def jobid(self) -> int:
        """The job id of its allocation; 0 without one."""
        return (self.fluxjob.status.jobid or 0) if self.fluxjob else 0

    @property
    def requeues(self) -> int:
        """How often it was requeued."""
        return self.fluxjob.status.requeues if self.fluxjob else 0

    @property
    def hosts(self) -> list[str]:
        """The node that Fluxion chose for each rank."""
        try:
            return hostlists.decode(self.fluxjob.status.nodes) if self.fluxjob else []
        except hostlists.InvalidHostlist:
            return []

    @property
    def ran_on(self) -> list[str]:
        """The node of each pod, in the order of ranks."""
        return [pod.spec.node_name for pod in self.pods if pod.spec.node_name]

    @property
    def indexed(self) -> bool:
        """True if all pods have completion indexes."""
        return bool(self.pods) and all(pod.completion_index is not None for pod in self.pods)


def rows_of(examples: Sequence[AppliedExample], seen: NamespaceSnapshot) -> list[Row]:
    """Return the workloads of each example, in the order in which the examples were applied.

    Parameters
    ----------
    examples
        The applied examples.
    seen
        The state of the namespace; ``owners`` maps the uid of a ReplicaSet to that of its Deployment, of a
        Job to that of its MiniCluster.

    Returns
    -------
    list of Row
        At least one for each example, with the newest pod of each rank, in the order of ranks.
    """
    pods_of: dict[str, list[Pod]] = {}
    for pod in sorted(seen.pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
        owner = pod.metadata.controller
        above = seen.owners.get(owner.uid, owner.uid) if owner else pod.metadata.uid
        pods_of.setdefault(above, []).append(pod)
    fluxjobs = {
        seen.owners.get(uid := fluxjob.spec.object_ref.uid, uid): fluxjob for fluxjob in seen.fluxjobs
    }
    rows = []
    for example in examples:
        pods = pods_of.get(example.uid, [])
        if example.kind in OWNING_KINDS:
            rows += [Row(example, fluxjobs.get(pod.metadata.uid), (pod,)) for pod in pods] or [
                Row(example, None)
            ]
        else:
            rows.append(Row(example, fluxjobs.get(example.uid), _newest(pods)))
    return rows


def _newest(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    by_index = {pod.completion_index: pod for pod in pods if pod.completion_index is not None}
    others = [pod for pod in pods if pod.completion_index is None]
    return (*(by_index[index] for index in sorted(by_index)), *others)


def settled(rows: Sequence[Row]) -> bool:
    """True if all workloads have ended, run without an end, or can never start."""
    counted = Counter(row.example.uid for row in rows)
    return all(_row_settled(row) and counted[row.example.uid] >= row.example.replicas for row in rows)


def _row_settled(row: Row) -> bool:
    if row.fluxjob is None:
        return False
    if row.example.kind in OWNING_KINDS:
        return row.state == State.RUNNING and all(pod.status.phase == "Running" for pod in row.pods)
    return row.state in ENDED or row.fluxjob.status.reason == Reason.UNSATISFIABLE


def differences(row: Row) -> list[str]:
    """Return what is wrong with a settled workload, as sentences; empty if it is as expected."""
    who = row.title
    if row.fluxjob is None:
        return [f"{who} has no FluxJob"]
    status = row.fluxjob.status
    if row.example.expects:
        wrong = (
            []
            if status.reason == row.example.expects
            else [f"{who} should wait as {row.example.expects}, but is {describe_state(row)}"]
        )
        return [
            *wrong,
            *(
                f"{who} can never start, but pod {pod.metadata.name} is on {pod.spec.node_name}"
                for pod in row.pods
                if pod.spec.node_name
            ),
        ]
    expected = State.RUNNING if row.example.kind in OWNING_KINDS else State.COMPLETED
    if status.state != expected:
        return [f"{who} should be {expected}, but is {describe_state(row)}"]
    wrong = (
        []
        if expected is State.RUNNING or status.outcome == Outcome.SUCCEEDED
        else [f"{who} ended as {status.outcome or 'nothing'}"]
    )
    if 0 < min_pods_in(row.fluxjob.spec.jobspec) <= len(row.hosts) < row.fluxjob.spec.pods:
        # it started with fewer pods: the others have allocations of their own
        return wrong + _bound_early(row)
    if len(row.hosts) != row.fluxjob.spec.pods:
        wrong.append(
            f"{who} asked for {row.fluxjob.spec.pods} pods, "
            f"but its allocation {status.nodes!r} has {len(row.hosts)} slots"
        )
    if row.indexed:
        same = row.ran_on == row.hosts
    elif len(row.ran_on) > len(row.hosts):
        # more completions than slots: each slot had several pods, one after the other
        same = set(row.ran_on) <= set(row.hosts)
    else:
        same = Counter(row.ran_on) == Counter(row.hosts)
    if not same:
        wrong.append(
            f"{who}: Fluxion chose {format_nodes(row.hosts) or 'nothing'}, the pods ran on "
            f"{format_nodes(row.ran_on) or 'nothing'}"
        )
    return wrong + _bound_early(row)


def notes_on(rows: Sequence[Row]) -> list[str]:
    """Return what nodes say of pods that did not fail, once for each workload:
    such as that there is no Flux, and nothing was computed.
    """
    said = (
        (row.title, pod.status.message)
        for row in rows
        for pod in row.pods
        if pod.status.message and pod.status.phase != "Failed"
    )
    return [f"{title}: {message}" for title, message in dict.fromkeys(said)]


def bound_by(rows: Sequence[Row]) -> Counter[str]:
    """Return the number of bound pods of each scheduler."""
    return Counter(pod.spec.scheduler_name or "" for row in rows for pod in row.pods if pod.spec.node_name)


def bound_by_another(row: Row, scheduler: str) -> list[str]:
    """Return the pods of a workload that were not bound by the expected scheduler, as sentences."""
    return [
        (
            f"{row.title}: pod {pod.metadata.name} should have been bound by {scheduler}, "
            f"but was by {pod.spec.scheduler_name}"
        )
        for pod in row.pods
        if pod.spec.node_name and pod.spec.scheduler_name != scheduler
    ]


def describe_state(row: Row) -> str:
    """Return the state of a workload with its reason and message, if there are any."""
    status = row.fluxjob.status if row.fluxjob else None
    return (
        f"{status.state or 'nothing yet'}{f' ({status.reason}: {status.message})' if status.reason else ''}"
        if status
        else "unknown"
    )


def _bound_early(row: Row) -> list[str]:
    """Return the pods that were bound before the whole workload was allocated;
    times of the API server are whole seconds.
    """
    allocated = parse_time(row.fluxjob.status.allocated_at) if row.fluxjob else None
    if allocated is None:
        return [f"{row.title}: its time of allocation is missing"]
    wrong = []
    for pod in row.pods:
        bound = pod.status.condition("PodScheduled")
        at = parse_time(bound.last_transition_time) if bound and bound.status == "True" else None
        if at is not None and at < allocated.replace(microsecond=0):
            wrong.append(
                f"{row.title}: pod {pod.metadata.name} was bound at {at:%H:%M:%S}, "
                f"all of it was allocated at {allocated:%H:%M:%S}"
            )
    return wrong


def leftovers(jobs: Sequence[JobInfo], fluxjobs: Sequence[FluxJob]) -> list[str]:
    """Return what remains of deleted workloads, as sentences.

    Parameters
    ----------
    jobs
        The jobs in the resource graph. System allocations, which are pods outside the queue, are ignored.
    fluxjobs
        The FluxJobs of the namespace.
    """
    held = [
        (
            f"Fluxion still holds job {job.jobid} ({job.mode}) on "
            f"{format_nodes([share.node for share in job.shares])}"
        )
        for job in jobs
        if job.mode is not JobMode.SYSTEM
    ]
    return held + [
        f"FluxJob {fluxjob.metadata.name} is still there ({fluxjob.status.state})" for fluxjob in fluxjobs
    ]


def parse_time(text: str | None) -> datetime | None:
    """Parse a time of the API server; None if it is missing."""
    return datetime.fromisoformat(text) if text else None
