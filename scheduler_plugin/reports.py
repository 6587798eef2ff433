"""Report to people and to the queue why a pod is not bound: its condition ``PodScheduled``, and Events.

The queue reacts to the condition, so the condition is written first. The write is retried until it succeeds
or the pod has changed. It carries the resourceVersion of the pod that was checked, so that a refusal is never
written on a pod that has got another node meanwhile. Nothing is written twice for a pod with the same node
and allocation; after a change of leader at most once more. A pod that is bound without an obstacle gets no
condition from us, because the API server writes it with the Binding. It gets one Event, which is dropped if
the API server is too slow for Events.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.api.refusals import refused_condition
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.crashpoints import SchedulerCrashPoint, reach
from fluxqueue.scheduler_plugin.metrics import REPORTS

__all__ = ["COMPONENT", "PodScheduledReason", "SchedulingReporter"]

COMPONENT: Final = "fluxqueue-scheduler"
WRITERS: Final = 4
MESSAGE_LIMIT: Final = 1_024
RETRY_S: Final = 0.05
REMEMBERED: Final = 5_000
"""Limit of bound pods whose Event has not been sent yet."""
DELAY_S: Final = 1.0
"""Longest time for which the Event of a bound pod waits for the binds in flight."""
PAUSE_S: Final = 0.02


class PodScheduledReason:
    """The reason of ``PodScheduled=False``.
    The queue finds another node for a pod that is UNSCHEDULABLE and leaves the others alone.
    """

    UNSCHEDULABLE = "Unschedulable"
    WAITING_FOR_GANG = "WaitingForGang"
    WAITING_FOR_VOLUME = "WaitingForVolume"
    ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class _Report:
    """The condition to be written for a pod, and the assignment that it is about."""

    allocation: str
    nodes: str
    reason: str
    message: str


class SchedulingReporter:
    """Writes conditions and Events in the background while `run` runs.

    Parameters
    ----------
    api
        The client that writes conditions.
    caches
        The pods in their current state.
    recorder
        Sends the Events.
    busy
        True while pods are being bound; Events of bound pods can wait then.
    now
        The wall clock, in UTC.
    """

    def __init__(
        self,
        api: Api,
        caches: SchedulerCaches,
        recorder: EventRecorder,
        busy: Callable[[], bool] = lambda: False,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._api = api
        self._caches = caches
        self._recorder = recorder
        self._busy = busy
        self._now = now
        self._bound: deque[tuple[float, Pod, str]] = deque(maxlen=REMEMBERED)
        self._bound_added = asyncio.Event()
        self._reported: dict[str, _Report] = {}
        self._queue: WorkQueue[str] = WorkQueue("reports")
        self._due: dict[str, _Report] = {}

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(run_workers(self._queue, WRITERS, self._write))
            group.create_task(self._send_bound_events())

    async def flush(self) -> None:
        """Write everything that is due; the caller sets the deadline of a clean stop."""
        self._record_bound(len(self._bound))
        await self._queue.join()
        await self._recorder.flush()

    def scheduled(self, pod: Pod, node: str) -> None:
        """Queue the Event of a bound pod. Beyond the limit the oldest are dropped."""
        self._bound.append((time.monotonic(), pod, node))
        self._bound_added.set()

    def unscheduled(self, pod: Pod, reason: str, message: str) -> None:
        """Queue the reason why a pod is not bound. A reason already written for the same assignment is not
        written again.

        Parameters
        ----------
        pod
            The pod that was checked.
        reason
            One of `PodScheduledReason`.
        message
            A sentence that names the node and the obstacle.
        """
        uid = pod.metadata.uid
        report = _Report(
            *_assignment(pod),
            reason,
            message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 3]}...",
        )
        if self._reported.get(uid) == report:
            return
        self._reported[uid] = self._due[uid] = report
        self._queue.add(uid)

    def forget(self, uid: str) -> None:
        """Forget what was reported of a pod that is bound or gone, or has no node any more."""
        self._reported.pop(uid, None)
        self._due.pop(uid, None)

    async def _send_bound_events(self) -> None:
        """Send the Events of bound pods one by one, between bursts of binds if the bursts are short."""
        while True:
            await self._bound_added.wait()
            while self._bound:
                while self._bound and self._busy() and time.monotonic() - self._bound[0][0] < DELAY_S:
                    await asyncio.sleep(PAUSE_S)
                self._record_bound(1)
                await self._recorder.flush()
            self._bound_added.clear()

    def _record_bound(self, count: int) -> None:
        """Record the Events of at most ``count`` of the oldest pods;
        a `flush` may have recorded them in between.
        """
        for _ in range(min(count, len(self._bound))):
            _, pod, node = self._bound.popleft()
            meta = pod.metadata
            self._recorder.record(
                Subject.of(PODS, pod),
                "Scheduled",
                f"Successfully assigned {meta.namespace}/{meta.name} to {node}",
            )

    async def _write(self, uid: str) -> float | None:
        report, pod = self._due.get(uid), self._caches.pods.get_by_uid(uid)
        if report is None:
            return None
        if pod is None or pod.spec.node_name or _assignment(pod) != (report.allocation, report.nodes):
            self._drop(uid, report)
            return None
        reach(SchedulerCrashPoint.REFUSED)
        try:
            await self._patch(pod, report)
        except Conflict:
            return RETRY_S
        except NotFound:
            self._drop(uid, report)
            return None
        if self._due.get(uid) is report:
            del self._due[uid]
        REPORTS.labels(report.reason).inc()
        reach(SchedulerCrashPoint.REPORTED)
        refusal = report.reason in (PodScheduledReason.UNSCHEDULABLE, PodScheduledReason.ERROR)
        self._recorder.record(
            Subject.of(PODS, pod),
            "FailedScheduling" if refusal else report.reason,
            report.message,
            severity=Severity.WARNING if refusal else Severity.NORMAL,
        )
        return None

    def _drop(self, uid: str, report: _Report) -> None:
        for known in (self._due, self._reported):
            if known.get(uid) is report:
                del known[uid]

    async def _patch(self, pod: Pod, report: _Report) -> None:
        at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": report.reason,
            "message": report.message,
            "lastProbeTime": at,
        }
        known = pod.status.condition("PodScheduled")
        if known is None or known.status != "False":
            condition["lastTransitionTime"] = at
        refused = report.reason == PodScheduledReason.UNSCHEDULABLE
        meta = pod.metadata
        body: dict[str, Any] = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": [condition, *([refused_condition(pod, at)] if refused else ())]},
        }
        await self._api.patch(
            PODS,
            meta.name,
            body,
            namespace=meta.namespace,
            patch_type=PatchType.STRATEGIC,
            subresource="status",
            field_manager=COMPONENT,
        )


def _assignment(pod: Pod) -> tuple[str, str]:
    """Return the allocation and the nodes that the queue wrote on the pod."""
    meta = pod.metadata
    nodes = meta.annotation(names.NODES_ANNOTATION) or meta.label(names.GO_NODES_LABEL) or ""
    return meta.annotation(names.ALLOCATION_ANNOTATION) or "", nodes
