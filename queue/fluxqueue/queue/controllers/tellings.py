"""Says on the user's own object what happens to it: Events, and the label of what can never start.

An Event costs a write, and somebody's attention. So work that starts at once is told nothing. What only a person can mend is said at
once; that something waits for nodes is said when it has waited for a while, once for each reason; and then its release is told too. A
requeue is always told, with its cause.

The label ``fluxqueue/unschedulable`` is what `kubectl get jobs -l fluxqueue/unschedulable=yes` finds: it is there as long as no set of
nodes of this cluster could hold the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.kube.errors import Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.events import Recorder, Severity, Subject
from fluxqueue.kube.kinds import JOBS, PODS, Kind, T
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.groups import OVERDUE_S
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import Allocation, ReleaseMode, Workload, WorkloadId

__all__ = ["NOTABLE_S", "Teller", "Telling", "Told", "subjects_of", "tellings"]

log = structlog.get_logger()

NOTABLE_S = 10.0
"""Who waits no longer is told nothing."""
_WORKERS = 4
_SETTLED_S = 0.5
_TOLD_MEMBERS = 8
"""Of a pod group: an Event on each pod of a large one would cost more than the group itself."""

_MENDABLE = frozenset(
    {
        Reason.UNSATISFIABLE,
        Reason.INVALID_REQUEST,
        Reason.UNKNOWN_QUEUE,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.RELEASE_FAILED,
        Reason.BIND_FAILED,
        Reason.START_TIMEOUT,
    }
)
"""A person can do something about it: said at once, and again when the sentence changes."""
_WAITING = frozenset(
    {
        Reason.WAITING_FOR_NODES,
        Reason.BLOCKED_BY_RESERVATION,
        Reason.NODES_UNAVAILABLE,
        Reason.QUEUE_LIMIT,
        Reason.WAITING_FOR_GROUP,
        Reason.PROVISIONING,
    }
)
"""They follow each other as things move: one is told, and then the release."""
_QUIET = frozenset({Reason.NONE, Reason.USER_SUSPENDED})
"""Who suspended his Job knows."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a workload's object was told last; ``requeues`` is how many of them are known."""

    reason: Reason = Reason.NONE
    message: str = ""
    waited: bool = False
    requeues: int = 0


@dataclass(frozen=True, slots=True)
class Telling:
    """An Event to send."""

    reason: str
    message: str
    severity: Severity = Severity.NORMAL


def tellings(workload: Workload, told: Told, now: datetime) -> tuple[list[Telling], Told, float | None]:
    """What is to be said of a workload.

    Parameters
    ----------
    workload
        As it stands.
    told
        What was said before.
    now
        On the clock of the workload's times.

    Returns
    -------
    tuple
        Events, what is told then, and in how many seconds to look again although nothing changes (None: need not).
    """
    said: list[Telling] = []
    waited_s = (now - workload.submitted_at).total_seconds()
    reason, message = workload.reason, workload.message
    if workload.requeues > told.requeues:
        if reason is not Reason.USER_SUSPENDED:
            again = message or f"{_where(workload)} was put back into the queue {workload.queue!r}"
            said.append(Telling("Requeued", again, Severity.WARNING))
        return said, Told(reason, message, waited=True, requeues=workload.requeues), None
    if workload.state is State.PENDING:
        if reason in _MENDABLE:
            if (reason, message) != (told.reason, told.message):
                said.append(Telling(str(reason), message, Severity.WARNING))
            return said, Told(reason, message, told.waited, told.requeues), None
        if reason is Reason.WAITING_FOR_GROUP and waited_s >= OVERDUE_S and message != told.message:
            said.append(Telling(str(reason), message, Severity.WARNING))
            return said, Told(reason, message, waited=True, requeues=told.requeues), None
        if reason in _QUIET or reason is told.reason or (told.waited and reason in _WAITING):
            return said, told, None
        if reason in _WAITING and waited_s < NOTABLE_S:
            return said, told, NOTABLE_S - waited_s
        said.append(Telling(str(reason), message))
        return said, Told(reason, message, waited=True, requeues=told.requeues), None
    if reason in _MENDABLE:
        if (reason, message) != (told.reason, told.message):
            said.append(Telling(str(reason), message, Severity.WARNING))
        return said, Told(reason, message, told.waited, told.requeues), None
    if told.waited and workload.state in (State.ALLOCATED, State.RUNNING) and workload.jobid is not None:
        on = workload.hosts if len(workload.hosts) <= 200 else f"{workload.hosts[:200]}..."
        said.append(Telling("Released", f"{_where(workload)} starts on {on} after {waited_s:.0f} s in the queue {workload.queue!r}"))
        told = Told(requeues=told.requeues)
    return said, told, None


def subjects_of(workload: Workload, caches: Caches, allocation: Allocation | None = None) -> list[Subject]:
    """The objects on which people read of a workload: its own, or the first pods of a group."""
    if workload.release_mode is not ReleaseMode.GROUP:
        return [Subject(workload.api_version, workload.kind, workload.namespace, workload.name, workload.uid)]
    members = sorted(caches.members_of(workload, allocation), key=lambda pod: pod.metadata.name)
    return [Subject.of(PODS, pod) for pod in members[:_TOLD_MEMBERS]]


def _where(workload: Workload) -> str:
    return f"{workload.kind} {workload.namespace}/{workload.name}"


class Teller:
    """Sends Events and keeps the label.

    Parameters
    ----------
    api, caches, ledger
        Where the label is written, what is there, and what happens.
    recorder
        For Events.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: Recorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("tellings")
        self._told: dict[WorkloadId, Told] = {}
        self._began = False
        ledger.subscribe(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._look)

    def look_at_everything(self) -> None:
        """Look at every workload once, as at start and in a sweep. What stood when this process began to lead is no news."""
        for workload in self._ledger.all():
            if not self._began:
                self._told[workload.id] = Told(workload.reason, workload.message, waited=True, requeues=workload.requeues)
            self._keys.add(workload.id)
        self._began = True

    def _changed(self, found: WorkloadId) -> None:
        workload, told = self._ledger.get(found), self._told.get(found)
        if workload is None:
            self._told.pop(found, None)
        elif told is not None and workload.requeues > told.requeues:
            self._say(workload, told)  # at once: its cause is overwritten by the reason it waits for next
        else:
            self._keys.add_after(found, _SETTLED_S)

    async def _look(self, found: WorkloadId) -> float | None:
        workload = self._ledger.get(found)
        if workload is None:
            return None
        again_s = self._say(workload, self._told.get(found) or Told())
        await self._label(workload)
        return again_s

    def _say(self, workload: Workload, told: Told) -> float | None:
        said, self._told[workload.id], again_s = tellings(workload, told, self._ledger.clock())
        for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id)) if said else ():
            for telling in said:
                self._recorder.record(subject, telling.reason, telling.message, severity=telling.severity)
        return again_s

    async def _label(self, workload: Workload) -> None:
        """Put the label, or take it off."""
        wanted = workload.state is State.PENDING and workload.reason is Reason.UNSATISFIABLE
        if workload.kind == "Job":
            await self._label_one(JOBS, self._caches.jobs.get_by_uid(workload.uid), wanted=wanted)
        elif workload.kind == "Pod":
            await self._label_one(PODS, self._caches.pods.get_by_uid(workload.uid), wanted=wanted)

    async def _label_one(self, kind: Kind[T], obj: T | None, *, wanted: bool) -> None:
        if obj is None or (obj.metadata.label(names.UNSCHEDULABLE_LABEL) is not None) == wanted:
            return
        meta = obj.metadata
        body = {"metadata": {"uid": meta.uid, "labels": {names.UNSCHEDULABLE_LABEL: names.UNSCHEDULABLE_VALUE if wanted else None}}}
        try:
            await self._api.patch(kind, meta.name, body, namespace=meta.namespace, patch_type=PatchType.MERGE)
        except (NotFound, Conflict):
            return  # it is gone, or another one of its name is there
        except (Forbidden, Invalid) as error:
            log.warning("the label could not be written", object=kind.describe(meta.name, meta.namespace), error=str(error))
