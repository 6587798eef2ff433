"""Watches over work that was let go: whether it comes to its nodes in time, and whether its nodes stay.

Both are matters of time, so this looks every so often at all live workloads instead of following events: what it finds is worked out anew
from the objects each time (`fluxqueue.queue.setbacks`), so a missed or repeated look does no harm. How long a node has been silent and a
pod of running work has been without one is measured on this process' own clock: the times in objects are written by others.

A Job is taken back and waits again, or only its pods on a lost node are made anew, where its pods were let go one by one and are not a
Flux cluster: the new pod is matched on its own, as one by which the Job grew. If that does not come to a node in time, the whole Job is
taken back after all. The pod of another owner is deleted, so that its successor comes gated and is matched on its own, except where it
waits for somebody else's gate, which its successor would have as well. A bare Pod is never deleted: it keeps its place and says what is
the matter.
"""

from __future__ import annotations

import asyncio

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.objects import Pod
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.requeuer import Requeuer
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import Allocation, FluxionJobId, ReasonChange, SlotState, TakeBack, Workload, WorkloadId
from fluxqueue.queue.requeues import failures_left, goes_pod_by_pod, pods_wanted
from fluxqueue.queue.setbacks import FailedStart, after_failed_start, after_loss, failed_start, nodes_under
from fluxqueue.queue.store import DatabaseUnavailable

__all__ = ["Watchman"]

log = structlog.get_logger()

_GONE_S = 2.0
"""A node that is deleted and made anew at once was not lost."""
_RETRY_S = 2.0
_MENDED_S = 30.0
"""The Job controller may take 10 s to make a pod anew (its back-off after a failure), and then it has to be matched and bound."""


class Watchman:
    """Finds what does not start and what lost its node.

    Parameters
    ----------
    caches, ledger
        The cluster and the queue.
    requeuer
        Takes work back.
    start_timeout_s
        How long pods may take to be bound once they were let go.
    node_lost_s
        How long a node may be not ready before it counts as lost.
    """

    def __init__(self, caches: Caches, ledger: Ledger, requeuer: Requeuer, *, start_timeout_s: float, node_lost_s: float) -> None:
        self._caches = caches
        self._ledger = ledger
        self._requeuer = requeuer
        self._start_timeout_s = start_timeout_s
        self._node_lost_s = node_lost_s
        self._silent_since: dict[str, float] = {}
        self._short_since: dict[WorkloadId, float] = {}
        self._unbound_since: dict[str, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        pause_s = max(min(self._start_timeout_s / 10, self._node_lost_s / 10, 5.0), 0.5)
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.look()
            except DatabaseUnavailable as error:
                log.warning("what does not start cannot be taken back", error=str(error))
                await asyncio.sleep(_RETRY_S)

    async def look(self) -> None:
        """Take back what lost its nodes or did not start."""
        lost = self._lost_nodes()
        late = self._late()
        wanted: list[TakeBack] = []
        said: list[ReasonChange] = []
        to_replace: list[Pod] = []
        short: dict[WorkloadId, float] = {}
        now = self._ledger.clock()
        for workload, allocation in self._ledger.live():
            if allocation.remnant or allocation.released_at is None or workload.state not in (State.ALLOCATED, State.RUNNING):
                continue
            if lost and workload.kind == "Job" and (nodes := nodes_under(allocation, lost.__contains__)):
                pods = self._to_replace(workload, allocation, lost, short)
                if pods is None:
                    wanted.append(after_loss(workload, nodes, now))
                else:
                    to_replace += pods
                continue
            due = (now - allocation.released_at).total_seconds() > self._start_timeout_s
            if not due or not (workload.state is State.ALLOCATED or workload.id in late):
                continue
            failed = failed_start(allocation, self._pods(workload, allocation), self._start_timeout_s)
            if failed is None:
                continue
            if self._cannot_be_taken_back(workload, failed):
                where = f"{workload.kind} {workload.namespace}/{workload.name}"
                text = f"{where} keeps its place and does not start: {failed.message}"
                said.append(ReasonChange(workload=workload.id, reason=failed.reason, message=text))
            else:
                wanted.append(after_failed_start(workload, failed, now))
        self._short_since = short
        await self._ledger.set_live_reasons(said)
        await self._requeuer.requeue(wanted)
        await self._requeuer.replace(to_replace)

    def _to_replace(self, workload: Workload, allocation: Allocation, lost: set[str], short: dict[WorkloadId, float]) -> list[Pod] | None:
        """The pods on lost nodes that are still to be deleted; None where the Job is to be taken back as a whole.

        A Job that has too few pods is entered in `short`; if that lasts, it is taken back.
        """
        job = self._caches.jobs.get_by_uid(workload.uid)
        kept = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED and slot.node not in lost]
        if workload.state is not State.RUNNING or job is None or not kept or not goes_pod_by_pod(workload, job):
            return None
        uids = [slot.pod_uid for slot in allocation.slots if slot.pod_uid and slot.state is not SlotState.ENDED and slot.node in lost]
        pods = [pod for uid in uids if (pod := self._caches.pods.get_by_uid(uid)) is not None and pod.staying]
        if len(pods) > failures_left(job):
            return None  # it would fail by it
        bound = [pod for pod in self._caches.pods_of_job(workload.uid) if pod.staying and pod.spec.node_name]
        if sum(1 for pod in bound if pod.spec.node_name not in lost) >= pods_wanted(job):
            return pods
        now = asyncio.get_running_loop().time()
        short[workload.id] = since = self._short_since.get(workload.id, now)
        return pods if now - since <= max(self._start_timeout_s, _MENDED_S) else None

    def _cannot_be_taken_back(self, workload: Workload, failed: FailedStart) -> bool:
        if workload.kind == "Job":
            return False
        pod = self._caches.pods.get_by_uid(workload.uid)
        return failed.others_gate or pod is None or pod.metadata.controller is None

    def _lost_nodes(self) -> set[str]:
        """Nodes nobody has heard from for long enough, be they there or not."""
        now = asyncio.get_running_loop().time()
        used = {slot.node for _, allocation in self._ledger.live() for slot in allocation.slots if slot.node != names.NO_NODE}
        lost: set[str] = set()
        silent: dict[str, float] = {}
        for name in used:
            node = self._caches.nodes.get("", name)
            if node is not None and node.status.ready:
                continue
            silent[name] = since = self._silent_since.get(name, now)
            if now - since >= (min(_GONE_S, self._node_lost_s) if node is None else self._node_lost_s):
                lost.add(name)
        self._silent_since = silent
        return lost

    def _late(self) -> set[WorkloadId]:
        """Workloads with a pod that was let go and has had no node for too long."""
        now = asyncio.get_running_loop().time()
        unbound: dict[str, float] = {}
        late: set[WorkloadId] = set()
        for pod in self._caches.pods.list():
            if pod.spec.node_name or pod.terminal or pod.metadata.annotation(names.ALLOCATION_ANNOTATION) is None:
                continue
            uid = pod.metadata.uid
            unbound[uid] = since = self._unbound_since.get(uid, now)
            if now - since > self._start_timeout_s and (owner := self._workload_of(pod)) is not None:
                late.add(owner)
        self._unbound_since = unbound
        return late

    def _workload_of(self, pod: Pod) -> WorkloadId | None:
        jobid = pod.metadata.annotation(names.ALLOCATION_ANNOTATION) or ""
        holding = self._ledger.holding(FluxionJobId(int(jobid))) if jobid.isdecimal() and len(jobid) < 19 else None
        return holding.workload if holding is not None and not holding.remnant else None

    def _pods(self, workload: Workload, allocation: Allocation) -> list[Pod]:
        if workload.kind == "Job":
            return self._caches.pods_of_job(workload.uid)
        uids = {workload.uid, *(slot.pod_uid for slot in allocation.slots if slot.pod_uid)}
        return [pod for uid in uids if (pod := self._caches.pods.get_by_uid(uid)) is not None]
