"""The FluxJob: what a person sees of a workload in the queue.

One FluxJob stands beside each thing that is matched as one unit (a Job, a bare Pod, one pod of a Deployment). The queue writes it;
a person may edit ``hold``, ``cancel``, ``priority``, ``queue`` and ``durationSeconds``. Postgres is the truth: a FluxJob deleted by
hand comes back.
"""

from __future__ import annotations

import enum
import hashlib
import re

from fluxqueue.api.objects import ObjectCondition, ObjectMeta, Part

__all__ = ["FluxJob", "FluxJobSpec", "FluxJobStatus", "ObjectRef", "Outcome", "Reason", "State", "fluxjob_name"]

_NOT_DNS = re.compile(r"[^a-z0-9-]+")
_MAX_NAME = 63


class State(enum.StrEnum):
    """Where a workload is in its life (architecture, section 4)."""

    PENDING = "Pending"
    ALLOCATED = "Allocated"
    RUNNING = "Running"
    DRAINING = "Draining"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in (State.COMPLETED, State.FAILED, State.CANCELLED)


class Reason(enum.StrEnum):
    """Why a workload waits: the closed set of architecture section 8."""

    NONE = ""
    HELD = "Held"
    USER_SUSPENDED = "UserSuspended"
    QUEUE_HELD = "QueueHeld"
    UNKNOWN_QUEUE = "UnknownQueue"
    QUEUE_LIMIT = "QueueLimit"
    WAITING_FOR_NODES = "WaitingForNodes"
    BLOCKED_BY_RESERVATION = "BlockedByReservation"
    UNSATISFIABLE = "Unsatisfiable"
    WAITING_FOR_GROUP = "WaitingForGroup"
    NODES_UNAVAILABLE = "NodesUnavailable"
    RELEASE_FAILED = "ReleaseFailed"
    BIND_FAILED = "BindFailed"
    START_TIMEOUT = "StartTimeout"
    PREEMPTED = "Preempted"
    INVALID_REQUEST = "InvalidRequest"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    PROVISIONING = "Provisioning"


class Outcome(enum.StrEnum):
    """How a workload ended; ``Unknown`` when its object vanished unseen."""

    NONE = ""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    UNKNOWN = "Unknown"


class ObjectRef(Part, frozen=True):
    """The user's object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class FluxJobSpec(Part, frozen=True):
    """What was asked for."""

    object_ref: ObjectRef = ObjectRef()
    queue: str = "default"
    priority: int = 0
    duration_seconds: int = 0
    pods: int = 0
    jobspec: str = ""
    hold: bool = False
    cancel: bool = False


class FluxJobStatus(Part, frozen=True):
    """What became of it; ``nodes`` is an RFC 29 hostlist whose entry i is rank i.

    ``eta`` is the start that is planned, ``eta_soonest`` the other end of the range where others may end early, ``eta_first`` what was
    said first.
    """

    state: str = ""
    reason: str = ""
    message: str = ""
    position: int | None = None
    eta: str | None = None
    eta_soonest: str | None = None
    eta_first: str | None = None
    reserved_at: str | None = None
    jobid: int | None = None
    nodes: str = ""
    submitted_at: str | None = None
    allocated_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    outcome: str = ""
    requeues: int = 0
    conditions: list[ObjectCondition] | None = None


class FluxJob(Part, frozen=True):
    """A workload, as `kubectl get fluxjobs` shows it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxJobSpec = FluxJobSpec()
    status: FluxJobStatus = FluxJobStatus()


def fluxjob_name(kind: str, name: str, uid: str) -> str:
    """The FluxJob's name: ``<kind>-<name>-<5 characters of the uid's hash>``, within 63.

    Parameters
    ----------
    kind
        Of the user's object, for example ``Job``.
    name, uid
        Its name and uid. The hash keeps a recreated object of the same name apart from the old one.

    Returns
    -------
    str
        A DNS label.
    """
    tail = hashlib.sha256(uid.encode()).hexdigest()[:5]
    stem = _NOT_DNS.sub("-", f"{kind}-{name}".lower()).strip("-")
    return f"{stem[: _MAX_NAME - len(tail) - 1].rstrip('-')}-{tail}"
