"""Asks for the eviction of running pods, so that budgets of disruption are respected.

What is refused is asked for again after a pause, whatever happens to the pods meanwhile. If a whole part of
the pods is refused, the others are left until then, and the next pass begins with those: so a gang of any
size whose budget forbids it costs a few calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, Conflict, NotFound
from fluxqueue.kube.transport import Api
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Disruptor"]

log = structlog.get_logger()

_AT_ONCE = 16
"""Pods that are asked for together: other work needs the calls of the process too."""
_RECHECK_S = 2.0
_REFUSED = timedelta(seconds=10)


class _Refused(NamedTuple):
    """Until when no pod of a workload is asked for, with which of its pods the next pass begins,
    and why one was refused.
    """

    until: datetime
    begin: int
    why: str = ""


class Disruptor:
    """Evicts the pods of preempted work through the API for that."""

    def __init__(self, api: Api, ledger: Ledger) -> None:
        self._api = api
        self._ledger = ledger
        self._refused: dict[WorkloadId, _Refused] = {}

    def forget(self, workload: WorkloadId) -> None:
        """Forget a workload that is not evicted any more."""
        self._refused.pop(workload, None)

    def paused_s(self, workload: WorkloadId) -> float:
        """Return for how many seconds no pod of a workload is asked for."""
        now = self._ledger.clock()
        return max((self._refused.get(workload, _Refused(now, 0)).until - now).total_seconds(), 0.0)

    def why_refused(self, workload: WorkloadId) -> str:
        """Return why the eviction of a pod of a workload was refused last; empty if it was not."""
        return self._refused[workload].why if workload in self._refused else ""

    def pause(self, workload: WorkloadId, begin: int = 0, why: str = "") -> float:
        """Ask for no pod of a workload for some seconds, which are returned."""
        self._refused[workload] = _Refused(self._ledger.clock() + _REFUSED, begin, why)
        return _REFUSED.total_seconds()

    async def disrupt(self, workload: WorkloadId, pods: Sequence[Pod]) -> float:
        """Ask for the eviction of pods of a workload; return after how many seconds those that are left are
        asked for again.
        """
        if (left_s := self.paused_s(workload)) > 0:
            return left_s
        begin = self._refused[workload].begin % max(len(pods), 1) if workload in self._refused else 0
        pods = [*pods[begin:], *pods[:begin]]
        refused = ""
        for first in range(0, len(pods), _AT_ONCE):
            done = await asyncio.gather(*(self._disrupt(pod) for pod in pods[first : first + _AT_ONCE]))
            refused = refused or next((why for why in done if why), "")
            if all(done):
                begin += first + len(done)
                break
        if refused:
            return self.pause(workload, begin, refused)
        self.forget(workload)
        return _RECHECK_S

    async def _disrupt(self, pod: Pod) -> str:
        """Ask for the eviction of a pod; return why that was refused, empty if it was not."""
        meta = pod.metadata
        where = f"{meta.namespace}/{meta.name}"
        try:
            await self._api.evict(meta.name, meta.namespace, uid=meta.uid)
        except (Conflict, NotFound):
            return ""  # it is another pod now, or gone
        except ApiError as error:
            log.info("pod.not_disrupted", pod=where, status=error.status, error=str(error))
            return str(error)
        log.info("pod.disrupted", pod=where, node=pod.spec.node_name)
        reach(CrashPoint.DISRUPTED)
        return ""
