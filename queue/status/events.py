"""Reports what happens to a workload on the user's own object: Events, and the label of work that can never
start.

An Event costs a write, and somebody's attention. So work that starts at once gets none. A problem that only a
person can solve is reported at once. Waiting for nodes is reported after it has lasted for a while, with the
expected start, and then the release is reported too. A requeue is always reported, with its cause.

Of much work that comes together, the Events about its first wait are sent over time, since each costs the API
server as much as a start.

An API server keeps Events for an hour. So what still waits is reported again before that, or when its
expected start has moved, but not within ten minutes, and for all work together at most once a second:
``kubectl describe`` answers why and until when, and a burst of work costs no further Events.

An Event for which the recorder has no room is not taken for sent: it is due again after a minute.

`kubectl get jobs -l fluxqueue/unschedulable=yes` finds work that no set of nodes of this cluster could hold:
the label ``fluxqueue/unschedulable`` is set as long as that is so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.formatting import format_nodes
from fluxqueue.api.hostlists import decode
from fluxqueue.api.reasons import Report, reasons_that
from fluxqueue.kube.errors import Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.kinds import JOBS, PODS, Kind, T
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.groups import OVERDUE_S
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.status.event_budget import EventBudget
from fluxqueue.queue.status.reached_levels import reached_levels
from fluxqueue.queue.status.start_words import has_moved, start_words
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["AGAIN_S", "EXPIRES_S", "NOTABLE_S", "DueEvent", "EventReporter", "LastReport", "due_events"]

log = structlog.get_logger()

NOTABLE_S = 10.0
"""Work that waits for a shorter time gets no Event."""
AGAIN_S = 600.0
"""Least time between two Events about the same wait."""
EXPIRES_S = 2_700.0
"""After this time an Event about work that still waits is sent again: API servers forget it after an hour."""
_WORKERS = 4
_SETTLED_S = 0.5
_REPEATS_EVERY_S = 1.0
_REPEATS_AT_ONCE = 60
"""Of all work together, an Event that repeats another may be sent each second,
and so many after a quiet minute."""
_WAITS_EVERY_S = 0.2
_WAITS_AT_ONCE = 100
"""Of all work together, an Event about a first wait may be sent five times a second,
and so many after a quiet while."""
_WAITS_LATER_S = 30.0
_MOST_LATER = 1_000
"""Work that asks again after that time, if its first wait could not be reported: more than the rate allows.
The rest asks in the next sweep; a timer for each of a hundred thousand takes 40 MB, and 2 s of CPU each time.
"""
_DROPPED_LATER_S = 60.0
_LONGEST_NODES = 200

_NEEDS_A_PERSON = reasons_that(lambda facts: facts.report is Report.TO_A_PERSON)
_WAITING = reasons_that(lambda facts: facts.report is Report.WHILE_WAITING)
_QUIET = reasons_that(lambda facts: facts.report is Report.NEVER)


@dataclass(frozen=True, slots=True)
class LastReport:
    """What was reported last on a workload's object.

    Attributes
    ----------
    reason, message
        Of the last Event.
    waited
        True if the waiting was reported, so that the release is too.
    requeues
        Number of requeues that were reported.
    at, eta
        When the last Event about the wait was sent, and the start that it named.
    """

    reason: Reason = Reason.NONE
    message: str = ""
    waited: bool = False
    requeues: int = 0
    at: datetime | None = None
    eta: datetime | None = None


@dataclass(frozen=True, slots=True)
class DueEvent:
    """An Event to send; one that ``repeats`` an earlier one can wait, and one about a first wait,
    which ``notes_wait``.
    """

    reason: str
    message: str
    severity: Severity = Severity.NORMAL
    repeats: bool = False
    notes_wait: bool = False


def due_events(
    workload: Workload,
    last: LastReport,
    now: datetime,
    reached: Callable[[Workload], str] = lambda _: "",
    estimate: Estimate | None = None,
) -> tuple[list[DueEvent], LastReport, float | None]:
    """Return what to report about a workload.

    Parameters
    ----------
    workload
        As it is now.
    last
        What was reported before.
    now
        On the clock of the workload's times.
    reached
        Returns where the nodes of a workload are in the topology, in words.
    estimate
        Of its start.

    Returns
    -------
    tuple
        The Events, the report after them, and in how many seconds to check again although nothing changes
        (None: not needed).
    """
    reason, message = workload.reason, workload.message
    if workload.requeues > last.requeues:
        report = LastReport(reason, message, waited=True, requeues=workload.requeues, at=now)
        if reason is Reason.USER_SUSPENDED:
            return [], report, None
        text = message or f"{workload.ref} was requeued into the queue {workload.queue!r}"
        return [DueEvent("Requeued", text, Severity.WARNING)], report, None
    if reason in _NEEDS_A_PERSON:
        changed = (reason, message) != (last.reason, last.message)
        again = not changed and _is_older(last, now, EXPIRES_S)
        events = [DueEvent(str(reason), message, Severity.WARNING, repeats=again)] if changed or again else []
        report = LastReport(reason, message, last.waited, last.requeues, at=now if events else last.at)
        return events, report, None
    if workload.state is State.PENDING:
        return _due_while_pending(workload, last, now, estimate)
    if last.waited and workload.state in (State.ALLOCATED, State.RUNNING) and workload.jobid is not None:
        nodes = format_nodes(workload.hosts)
        shown = nodes if len(nodes) <= _LONGEST_NODES else f"{nodes[:_LONGEST_NODES]}..."
        place = f", {where}," if (where := reached(workload)) else ""
        waited_s = (now - workload.submitted_at).total_seconds()
        text = (
            f"{workload.ref} starts on {shown}{place} after {waited_s:.0f} s in the queue {workload.queue!r}"
        )
        return [DueEvent("Released", text)], LastReport(requeues=last.requeues), None
    return [], last, None


def _due_while_pending(
    workload: Workload, last: LastReport, now: datetime, estimate: Estimate | None
) -> tuple[list[DueEvent], LastReport, float | None]:
    reason, message = workload.reason, workload.message
    waited_s = (now - workload.submitted_at).total_seconds()
    eta = estimate.eta if estimate is not None and reason in _WAITING else None
    report = LastReport(reason, message, waited=True, requeues=last.requeues, at=now, eta=eta)
    if reason is Reason.WAITING_FOR_GROUP and waited_s >= OVERDUE_S and message != last.message:
        return [DueEvent(str(reason), message, Severity.WARNING)], report, None
    if reason in _QUIET:
        return [], last, None
    text = message
    if reason in _WAITING and (expected := start_words(estimate, workload.queue)):
        text = f"{message}; {expected}" if message else expected
    if reason is last.reason or (last.waited and reason in _WAITING):
        moved = last.at is not None and has_moved(last.eta, last.at, eta)
        if _is_older(last, now, AGAIN_S if moved else EXPIRES_S):
            return [DueEvent(str(reason), text, repeats=True)], report, None
        return [], last, None
    if reason in _WAITING and waited_s < NOTABLE_S:
        return [], last, NOTABLE_S - waited_s
    return [DueEvent(str(reason), text, notes_wait=reason in _WAITING)], report, None


def _is_older(report: LastReport, now: datetime, age_s: float) -> bool:
    return report.at is not None and (now - report.at).total_seconds() >= age_s


class EventReporter:
    """Sends Events and maintains the label.

    Parameters
    ----------
    api, caches, ledger
        Where the label is written, which objects exist, and the queue.
    recorder
        For Events.
    estimates
        When work starts, which the scheduler keeps up to date.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        recorder: EventRecorder,
        estimates: Mapping[WorkloadId, Estimate],
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("events")
        self._reports: dict[WorkloadId, LastReport] = {}
        self._estimates = estimates
        self._repeats = EventBudget(_REPEATS_EVERY_S, _REPEATS_AT_ONCE)
        self._waits = EventBudget(_WAITS_EVERY_S, _WAITS_AT_ONCE)
        self._started = False

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._reconcile)

    def resync(self) -> None:
        """Check every workload.
        The first call, at the start of the leader, takes what it finds as reported.
        """
        now = self._ledger.clock()
        for workload in self._ledger.all():
            if not self._started:
                # When the former leader reported it is unknown: it is reported again at some time before that
                # can have expired twice.
                sent = now - timedelta(seconds=workload.id % EXPIRES_S)
                self._reports[workload.id] = LastReport(
                    workload.reason, workload.message, True, workload.requeues, at=sent
                )
            self._keys.add(workload.id)
        self._started = True

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Report the state of a workload once it has settled."""
        workload, last = self._ledger.get(workload_id), self._reports.get(workload_id)
        if workload is None:
            self._reports.pop(workload_id, None)
        elif last is not None and workload.requeues > last.requeues:
            # at once: the next reason to wait overwrites the cause of the requeue
            again_s = self._report(workload, last)
            if again_s is not None:
                self._keys.add_after(workload_id, again_s)
        else:
            self._keys.add_after(workload_id, _SETTLED_S)

    async def _reconcile(self, workload_id: WorkloadId) -> float | None:
        workload = self._ledger.get(workload_id)
        if workload is None:
            return None
        again_s = self._report(workload, self._reports.get(workload_id) or LastReport())
        await self._write_label(workload)
        return again_s

    def _report(self, workload: Workload, last: LastReport) -> float | None:
        """Send the Events that are due; return the seconds after which to check again."""
        estimate = self._estimates.get(workload.id)
        events, report, again_s = due_events(workload, last, self._ledger.clock(), self._reached, estimate)
        if any(event.repeats for event in events) and not self._repeats.take(
            asyncio.get_running_loop().time()
        ):
            return None  # the next sweep looks again
        if any(event.notes_wait for event in events) and not self._waits.take(
            asyncio.get_running_loop().time()
        ):
            return _WAITS_LATER_S if self._keys.delayed < _MOST_LATER else None
        subjects = subjects_of(workload, self._caches, self._ledger.allocation(workload.id)) if events else []
        taken = [
            self._recorder.record(subject, event.reason, event.message, severity=event.severity)
            for subject in subjects
            for event in events
        ]
        if taken and not any(taken):
            return _DROPPED_LATER_S
        self._reports[workload.id] = report
        return again_s

    def _reached(self, workload: Workload) -> str:
        """Return where the nodes of a workload are in the topology, in words."""

        def labels_of(host: str) -> Mapping[str, str]:
            node = self._caches.nodes.get("", host)
            return (node.metadata.labels or {}) if node is not None else {}

        levels = self._caches.cluster_context(workload.namespace).levels
        return reached_levels(workload.jobspec, decode(workload.hosts), labels_of, levels)

    async def _write_label(self, workload: Workload) -> None:
        """Add the label, or remove it."""
        wanted = workload.state is State.PENDING and workload.reason is Reason.UNSATISFIABLE
        if workload.kind == "Job":
            await self._write_label_of(JOBS, self._caches.jobs.get_by_uid(workload.uid), wanted=wanted)
        elif workload.kind == "Pod":
            await self._write_label_of(PODS, self._caches.pods.get_by_uid(workload.uid), wanted=wanted)

    async def _write_label_of(self, kind: Kind[T], obj: T | None, *, wanted: bool) -> None:
        if obj is None or (obj.metadata.label(names.UNSCHEDULABLE_LABEL) is not None) == wanted:
            return
        meta = obj.metadata
        body = {
            "metadata": {
                "uid": meta.uid,
                "labels": {names.UNSCHEDULABLE_LABEL: names.UNSCHEDULABLE_VALUE if wanted else None},
            }
        }
        try:
            await self._api.patch(kind, meta.name, body, namespace=meta.namespace, patch_type=PatchType.MERGE)
        except (NotFound, Conflict):
            return  # it is deleted, or another object has its name
        except (Forbidden, Invalid) as error:
            log.warning(
                "label.write_failed", object=kind.describe(meta.name, meta.namespace), error=str(error)
            )
