"""Whether workloads went as they should: what was chosen against what happened.

A workload passes if its FluxJob came to the end that was to be expected, every pod ran on the node that Fluxion had chosen for its rank,
and no pod was bound before all of the workload was allocated. What a waiting workload was told of its start must come true
(`Promises`). After the objects are deleted nothing of them may be left. The demo judges
its examples by these rules, the end-to-end tests theirs; all of it is pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import FluxJob, Outcome, Reason, State
from fluxqueue.api.objects import Pod
from fluxqueue.fluxion.messages import JobInfo, Mode

__all__ = [
    "OWNING_KINDS",
    "Applied",
    "Promises",
    "Row",
    "Seen",
    "Told",
    "differences",
    "leftovers",
    "moment",
    "rows_of",
    "settled",
    "standing",
]

OWNING_KINDS = ("Deployment", "ReplicaSet", "StatefulSet")
"""Kinds whose pods are workloads of their own, and run without an end."""


@dataclass(frozen=True)
class Applied:
    """An example as the API server took it."""

    kind: str
    name: str
    uid: str
    replicas: int = 1
    expects: str = ""
    reserved: bool = False
    """Nodes are to be reserved for it while it waits."""
    ahead_of: str = ""
    """The Job, applied before it, that it is to be backfilled ahead of."""

    @property
    def title(self) -> str:
        """As kubectl writes it."""
        return f"{self.kind.lower()}/{self.name}"


@dataclass(frozen=True)
class Seen:
    """One look at the namespace."""

    fluxjobs: tuple[FluxJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One workload of an example; a Deployment has one per pod."""

    example: Applied
    fluxjob: FluxJob | None
    pods: tuple[Pod, ...] = ()

    @property
    def title(self) -> str:
        """The example's, with the last part of the pod's name where each pod is a workload."""
        if self.example.kind not in OWNING_KINDS or not self.pods:
            return self.example.title
        return f"{self.example.title} {self.pods[0].metadata.name.rpartition('-')[2]}"

    @property
    def state(self) -> str:
        """The FluxJob's state, empty before there is a FluxJob."""
        return self.fluxjob.status.state if self.fluxjob else ""

    @property
    def jobid(self) -> int:
        """Its allocation's, 0 without one."""
        return (self.fluxjob.status.jobid or 0) if self.fluxjob else 0

    @property
    def requeues(self) -> int:
        """How often it was taken back."""
        return self.fluxjob.status.requeues if self.fluxjob else 0

    @property
    def hosts(self) -> list[str]:
        """The node of each rank, as Fluxion chose it."""
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
        """Whether each pod says which rank it is."""
        return bool(self.pods) and all(pod.completion_index is not None for pod in self.pods)


def rows_of(examples: Sequence[Applied], seen: Seen) -> list[Row]:
    """What became of each example, in the order they were applied.

    Parameters
    ----------
    examples
        What was applied.
    seen
        One look at the namespace; ``owners`` maps the uid of a ReplicaSet to that of its Deployment, of a Job to that of its MiniCluster.

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
    fluxjobs = {seen.owners.get(uid := fluxjob.spec.object_ref.uid, uid): fluxjob for fluxjob in seen.fluxjobs}
    rows = []
    for example in examples:
        pods = pods_of.get(example.uid, [])
        if example.kind in OWNING_KINDS:
            found = [Row(example, fluxjobs.get(pod.metadata.uid), (pod,)) for pod in pods]
            rows += found or [Row(example, None)]
        else:
            rows.append(Row(example, fluxjobs.get(example.uid), _newest(pods)))
    return rows


def _newest(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    by_index = {pod.completion_index: pod for pod in pods if pod.completion_index is not None}
    others = [pod for pod in pods if pod.completion_index is None]
    return (*(by_index[index] for index in sorted(by_index)), *others)


def settled(rows: Sequence[Row]) -> bool:
    """Whether nothing more is to be waited for: all ended, run without an end, or can never start."""
    counted = Counter(row.example.uid for row in rows)
    return all(_row_settled(row) and counted[row.example.uid] >= row.example.replicas for row in rows)


def _row_settled(row: Row) -> bool:
    if row.fluxjob is None:
        return False
    if row.example.kind in OWNING_KINDS:
        return row.state == State.RUNNING and all(pod.status.phase == "Running" for pod in row.pods)
    return row.state in (State.COMPLETED, State.FAILED, State.CANCELLED) or row.fluxjob.status.reason == Reason.UNSATISFIABLE


def differences(row: Row) -> list[str]:
    """What is not as it should be with a workload that has settled, in sentences; empty if all is well."""
    who = row.title
    if row.fluxjob is None:
        return [f"{who} has no FluxJob"]
    status = row.fluxjob.status
    if row.example.expects:
        wrong = [] if status.reason == row.example.expects else [f"{who} should wait as {row.example.expects}, but is {standing(row)}"]
        return [
            *wrong,
            *(f"{who} can never start, but pod {pod.metadata.name} is on {pod.spec.node_name}" for pod in row.pods if pod.spec.node_name),
        ]
    expected = State.RUNNING if row.example.kind in OWNING_KINDS else State.COMPLETED
    if status.state != expected:
        return [f"{who} should be {expected}, but is {standing(row)}"]
    found = [] if expected is State.RUNNING or status.outcome == Outcome.SUCCEEDED else [f"{who} ended as {status.outcome or 'nothing'}"]
    if len(row.hosts) != row.fluxjob.spec.pods:
        found.append(f"{who} asked for {row.fluxjob.spec.pods} pods, but its allocation {status.nodes!r} has {len(row.hosts)} places")
    if row.indexed:
        same = row.ran_on == row.hosts
    elif len(row.ran_on) > len(row.hosts):  # more completions than places: each place held several pods, one after the other
        same = set(row.ran_on) <= set(row.hosts)
    else:
        same = Counter(row.ran_on) == Counter(row.hosts)
    if not same:
        found.append(f"{who}: Fluxion chose {status.nodes or 'nothing'}, the pods ran on {hostlists.encode(row.ran_on) or 'nothing'}")
    return found + _early(row)


def standing(row: Row) -> str:
    """State and, where there is one, the reason with its message."""
    status = row.fluxjob.status if row.fluxjob else None
    return f"{status.state or 'nothing yet'}{f' ({status.reason}: {status.message})' if status.reason else ''}" if status else "unknown"


def _early(row: Row) -> list[str]:
    """Pods bound before the whole workload was allocated; times of the API server are whole seconds."""
    allocated = moment(row.fluxjob.status.allocated_at) if row.fluxjob else None
    if allocated is None:
        return [f"{row.title}: nothing says when it was allocated"]
    found = []
    for pod in row.pods:
        bound = pod.status.condition("PodScheduled")
        at = moment(bound.last_transition_time) if bound and bound.status == "True" else None
        if at is not None and at < allocated.replace(microsecond=0):
            found.append(
                f"{row.title}: pod {pod.metadata.name} was bound at {at:%H:%M:%S}, all of it was allocated at {allocated:%H:%M:%S}"
            )
    return found


def leftovers(jobs: Sequence[JobInfo], fluxjobs: Sequence[FluxJob]) -> list[str]:
    """What is still there of workloads that were deleted.

    Parameters
    ----------
    jobs
        Fluxion's list; system allocations (pods of others) are no workloads.
    fluxjobs
        Of the namespace.
    """
    held = [
        f"Fluxion still holds job {job.jobid} ({job.mode}) on {hostlists.encode(s.node for s in job.shares)}"
        for job in jobs
        if job.mode is not Mode.SYSTEM
    ]
    return held + [f"FluxJob {fluxjob.metadata.name} is still there ({fluxjob.status.state})" for fluxjob in fluxjobs]


_WHOLE_SECONDS = timedelta(seconds=1)
"""FluxJobs tell times in whole seconds."""


@dataclass(frozen=True)
class Told:
    """What a waiting workload was told of its start."""

    reserved_at: datetime | None = None
    eta: datetime | None = None


class Promises:
    """What was told to those that waited, and whether it came true.

    A FluxJob tells the future of what waits and forgets it when that has come, so it has to be noted while it is told.
    """

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}

    def note(self, rows: Sequence[Row]) -> None:
        """Look at those that wait now; what they were told first counts."""
        for row in rows:
            status = row.fluxjob.status if row.fluxjob and row.state == State.PENDING else None
            if status is not None and (status.eta_first or status.reserved_at):
                before = self.told.get(row.example.uid, Told())
                self.told[row.example.uid] = Told(before.reserved_at or moment(status.reserved_at), before.eta or moment(status.eta_first))

    def kept(self, rows: Sequence[Row]) -> list[str]:
        """What was promised and came true, in sentences."""
        started = [(row, at) for row in self._reserved(rows) if (at := _started(row)) is not None]
        ahead = [(row, lead) for row in rows if (lead := _lead(row, rows)) is not None and lead > timedelta(0)]
        return [
            *(f"{row.title} {self._promise(row)} and started at {at:%H:%M:%S}" for row, at in started),
            *(
                f"{row.title} was applied after job/{row.example.ahead_of} and started {lead.total_seconds():.0f} s before it, in a gap"
                for row, lead in ahead
            ),
        ]

    def broken(self, rows: Sequence[Row]) -> list[str]:
        """What was to be promised, or promised, and did not come true, in sentences."""
        found = []
        for row in self._reserved(rows):
            told, started = self.told.get(row.example.uid, Told()), _started(row)
            if told.reserved_at is None:
                found.append(f"{row.title} should have had nodes reserved while it waited, and had none")
            elif told.eta is None:
                found.append(f"{row.title} was never told when it would start")
            elif started is None or started > max(told.reserved_at, told.eta) + _WHOLE_SECONDS:
                when = f"at {started:%H:%M:%S}" if started else "never"
                found.append(f"{row.title} {self._promise(row)}, but started {when}")
        behind = [row for row in rows if row.example.ahead_of and ((lead := _lead(row, rows)) is None or lead <= timedelta(0))]
        return [*found, *(f"{row.title} should have been backfilled ahead of job/{row.example.ahead_of}, and was not" for row in behind)]

    def _reserved(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row.example.reserved]

    def _promise(self, row: Row) -> str:
        told = self.told.get(row.example.uid, Told())
        reserved = f"had nodes reserved from {told.reserved_at:%H:%M:%S} on" if told.reserved_at else "had no nodes reserved"
        return f"{reserved}, was told to start at {told.eta:%H:%M:%S} at the latest" if told.eta else reserved


def _started(row: Row) -> datetime | None:
    return moment(row.fluxjob.status.allocated_at) if row.fluxjob else None


def _lead(row: Row, rows: Sequence[Row]) -> timedelta | None:
    """How long a row was allocated before the one it is to be backfilled ahead of."""
    other = next((each for each in rows if row.example.ahead_of and each.example.name == row.example.ahead_of), None)
    mine, theirs = _started(row), _started(other) if other is not None else None
    return theirs - mine if mine is not None and theirs is not None else None


def moment(text: str | None) -> datetime | None:
    """A time of the API server, None where there is none."""
    return datetime.fromisoformat(text) if text else None
