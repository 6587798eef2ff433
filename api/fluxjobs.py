"""The FluxJob: a workload in the queue, as people see it.

The queue creates one FluxJob for each object that it matches as one unit: a Job, a bare Pod, one pod of a
Deployment. People may edit ``hold``, ``cancel``, ``priority``, ``queue`` and ``durationSeconds`` in its spec.
Postgres is the source of truth: a FluxJob that somebody deletes is created again.
"""

from __future__ import annotations

import enum
import hashlib
import re
from typing import ClassVar, Final

from fluxqueue.api.metadata import ObjectMeta, PartialObject

__all__ = [
    "ENDED",
    "IDLE_SINCE",
    "LIVE",
    "ROOM_MADE",
    "Condition",
    "ConditionReason",
    "FluxJob",
    "FluxJobSpec",
    "FluxJobStatus",
    "ObjectRef",
    "Outcome",
    "Reason",
    "RequeueReason",
    "State",
    "fluxjob_name",
    "fluxjob_names",
    "is_named_for_its_object",
]

_NOT_DNS = re.compile(r"[^a-z0-9-]+")
_MAX_NAME = 63
_DIGITS = (10, 20, 40)
_FORMER_DIGITS = 5


class State(enum.StrEnum):
    """The state of a workload (docs/architecture.md draws the transitions)."""

    PENDING = "Pending"
    ALLOCATED = "Allocated"
    RUNNING = "Running"
    DRAINING = "Draining"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def ended(self) -> bool:
        """True if the state is final."""
        return self in ENDED

    @property
    def placed(self) -> bool:
        """True if the work has its nodes, and is not on its way back."""
        return self in PLACED


ENDED: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
"""Final states, except that a cancelled Job can be resubmitted."""
LIVE: Final = frozenset({State.ALLOCATED, State.RUNNING, State.DRAINING})
"""States of work that holds, or may hold, nodes."""
PLACED: Final = LIVE - {State.DRAINING}
"""States of work that has its nodes, and is not on its way back."""
IDLE_SINCE: Final = "idle since"
"""How the message of running work begins that is not used."""
ROOM_MADE: Final = "room was made for it: "
"""How the message of work begins that started because other work was moved."""


class Reason(enum.StrEnum):
    """Why a workload waits: a closed set, explained with remedies in docs/reference/objects.md."""

    NONE = ""
    HELD = "Held"
    USER_SUSPENDED = "UserSuspended"
    QUEUE_HELD = "QueueHeld"
    UNKNOWN_QUEUE = "UnknownQueue"
    QUEUE_LIMIT = "QueueLimit"
    ACCOUNT_LIMIT = "AccountLimit"
    WAITING_FOR_NODES = "WaitingForNodes"
    BLOCKED_BY_RESERVATION = "BlockedByReservation"
    RESERVATION = "Reservation"
    UNSATISFIABLE = "Unsatisfiable"
    WAITING_FOR_GROUP = "WaitingForGroup"
    WAITING_FOR_VOLUMES = "WaitingForVolumes"
    WAITING_FOR_DEPENDENCY = "WaitingForDependency"
    DEPENDENCY_NEVER_SATISFIED = "DependencyNeverSatisfied"
    WAITING_FOR_BEGIN = "WaitingForBegin"
    NODES_UNAVAILABLE = "NodesUnavailable"
    RELEASE_FAILED = "ReleaseFailed"
    BIND_FAILED = "BindFailed"
    START_TIMEOUT = "StartTimeout"
    PREEMPTED = "Preempted"
    INVALID_REQUEST = "InvalidRequest"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    RESERVATION_NOT_ALLOWED = "ReservationNotAllowed"
    PROVISIONING = "Provisioning"
    TIME_LIMIT = "TimeLimit"
    DEADLINE_UNREACHABLE = "DeadlineUnreachable"


class Outcome(enum.StrEnum):
    """How a workload ended.

    ``Unknown`` if its object disappeared before its end was observed, ``TimeLimit`` if the queue ended it at
    the end of its duration, or because it was idle.
    """

    NONE = ""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TIME_LIMIT = "TimeLimit"
    UNKNOWN = "Unknown"


class Condition(enum.StrEnum):
    """The types of a FluxJob's conditions; ``Reconciling`` and ``Stalled`` are there only while they are true
    (kstatus).
    """

    ALLOCATED = "Allocated"
    STARTED = "Started"
    FINISHED = "Finished"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionReason(enum.StrEnum):
    """The reasons of conditions, beside those of `Reason` and `Outcome`: a closed set."""

    QUEUED = "Queued"
    WAITING = "Waiting"
    NODES_FOUND = "NodesFound"
    STARTING = "Starting"
    PODS_RAN = "PodsRan"
    RUNNING = "Running"
    STOPPING = "Stopping"
    UNKNOWN = "Unknown"


class ObjectRef(PartialObject, frozen=True):
    """A reference to the user's object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def title(self) -> str:
        """The object in kubectl's form, ``job/lammps``, as it is called everywhere; empty without a kind."""
        return f"{self.kind.lower()}/{self.name}" if self.kind else ""


class FluxJobSpec(PartialObject, frozen=True):
    """What the user requested, with the fields that people may edit."""

    object_ref: ObjectRef = ObjectRef()
    queue: str = "default"
    priority: int = 0
    duration_seconds: int = 0
    pods: int = 0
    jobspec: str = ""
    hold: bool = False
    cancel: bool = False


class RequeueReason(PartialObject, frozen=True):
    """When and why a workload was requeued: its pods did not start, its node was lost,
    or a more urgent workload preempted it.
    """

    at: str = ""
    reason: str = ""
    message: str = ""


class FluxJobStatus(PartialObject, frozen=True):
    """The state of the workload.

    ``account`` is the FluxAccount it belongs to, and ``submitted_by`` the user name of who submitted it.
    ``nodes`` is an RFC 29 hostlist; entry i is the node of rank i. ``node_set`` is for people: each node
    once, and only their number where that is long. ``eta`` is the planned start. ``eta_soonest`` is the start
    if running workloads end early. ``eta_first`` is the first ``eta`` that was given, kept to the end.
    ``requeue_reasons`` has the last requeues, the newest last. The conditions are not here: the queue writes
    them (`fluxqueue.queue.status.fluxjob_conditions`), and nothing of the project reads them.
    """

    state: str = ""
    reason: str = ""
    message: str = ""
    account: str = ""
    submitted_by: str = ""
    position: int | None = None
    eta: str | None = None
    eta_soonest: str | None = None
    eta_first: str | None = None
    reserved_at: str | None = None
    jobid: int | None = None
    nodes: str = ""
    node_set: str = ""
    submitted_at: str | None = None
    allocated_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    outcome: str = ""
    requeues: int = 0
    requeue_reasons: list[RequeueReason] | None = None


class FluxJob(PartialObject, frozen=True):
    """A FluxJob."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)
    shared_parts: ClassVar[tuple[str, ...]] = ("metadata.labels", "metadata.annotations")
    shared_texts: ClassVar[tuple[str, ...]] = (
        "metadata",
        "metadata.owner_references",
        "spec.object_ref",
        "spec",
        "status",
    )

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxJobSpec = FluxJobSpec()
    status: FluxJobStatus = FluxJobStatus()


def fluxjob_name(kind: str, name: str, uid: str, *, digits: int = _DIGITS[0], within: int = _MAX_NAME) -> str:
    """Return the name of a FluxJob: ``<kind>-<name>-<first 10 characters of the uid's hash>``, at most 63
    characters.

    Parameters
    ----------
    kind
        Kind of the user's object, for example ``Job``.
    name, uid
        Its name and uid. The hash makes the name differ from that of a deleted object with the same name.
    digits
        Number of characters of the hash.
    within
        Maximum length. A long name is cut, the hash is not.

    Returns
    -------
    str
        A DNS label.
    """
    tail = hashlib.sha256(uid.encode()).hexdigest()[:digits]
    stem = _NOT_DNS.sub("-", f"{kind}-{name}".lower()).strip("-")
    return f"{stem[: within - digits - 1].rstrip('-')}-{tail}"


def fluxjob_names(kind: str, name: str, uid: str) -> tuple[str, ...]:
    """Return the names that the FluxJob of an object may have, the preferred one first.

    A longer name is used if a FluxJob that the queue did not create has the preferred one. The last name is
    the one that versions up to 0.1 used: a FluxJob that has it keeps it, and no new FluxJob gets it.
    """
    return tuple(fluxjob_name(kind, name, uid, digits=digits) for digits in (*_DIGITS, _FORMER_DIGITS))


def is_named_for_its_object(fluxjob: FluxJob) -> bool:
    """True if the FluxJob has a name that the queue gives; otherwise something else created it."""
    ref = fluxjob.spec.object_ref
    return fluxjob.metadata.name in fluxjob_names(ref.kind, ref.name, ref.uid)
