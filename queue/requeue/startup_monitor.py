"""Watches released work: whether its pods are bound in time, and whether its nodes stay.

Most of it is a question of time. So all live workloads are checked at intervals, and at once when a node is
cordoned, tainted or deleted, when a pod is created for a node that its template holds and that takes no pod
any more, or when the API server refuses the pods of a Job. Each check starts from the objects again, so a
missed or repeated check does no harm. What keeps pods from their nodes is observed in
`fluxqueue.queue.requeue.start_observations`; what is done about it is decided in
`fluxqueue.queue.requeue.start_decisions` and carried out by the `Requeuer`.

Our own scheduler reports at once why it cannot bind a pod (`fluxqueue.queue.requeue.bind_refusals`). While it
reports nothing, its pods keep their slots.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import is_pinned
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.changes import Ending, Eviction, ReasonChange
from fluxqueue.queue.model.pods import pinned_node
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import (
    Allocation,
    ReleaseMode,
    Slot,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.withdrawals import going_on
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.deletion_budget import DeletionBudget
from fluxqueue.queue.requeue.evictions import evict_after_lost_node, losses_in_words
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs
from fluxqueue.queue.requeue.node_losses import NodeLosses
from fluxqueue.queue.requeue.pod_refusals import PodRefusals
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.requeue.start_decisions import StartDecision, decide_group, decide_job, decide_pod, keep
from fluxqueue.queue.requeue.start_failures import (
    StartFailure,
    StartFailureCause,
    lost_nodes,
)
from fluxqueue.queue.requeue.start_observations import StartObservations
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["StartupMonitor"]

log = structlog.get_logger()

_RETRY_S = 2.0
_GOES_ON = frozenset({StartFailureCause.RETRIED, StartFailureCause.UNSEEN})
"""What ends by itself, and would only begin anew if the work was matched again."""
_PACE_S = 0.5
"""At least between two checks: a node change may concern many nodes."""


@dataclass(slots=True)
class _Outcome:
    """The decisions of one check, together.

    Attributes
    ----------
    evictions
        Workloads that are evicted as a whole.
    groups
        Groups that are evicted as a whole, with their pods.
    evicted_pods
        Pods that are evicted without their siblings, by message.
    given_back
        Slots whose pods do not exist, or can neither start nor be replaced.
    endings
        Of groups that cannot start.
    requeue_states
        Of workloads that go on.
    reasons
        Of workloads that keep their slots, or that have no problem any more.
    graces
        Preempted workloads that stop before their grace is over, each with the cause.
    """

    evictions: list[Eviction] = field(default_factory=list)
    groups: list[tuple[Eviction, tuple[Pod, ...]]] = field(default_factory=list)
    evicted_pods: dict[str, list[Pod]] = field(default_factory=dict)
    given_back: list[Slot] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    requeue_states: dict[WorkloadId, RequeueState] = field(default_factory=dict)
    reasons: list[ReasonChange] = field(default_factory=list)
    graces: dict[WorkloadId, str] = field(default_factory=dict)

    def add(self, workload: WorkloadId, decision: StartDecision, message: str) -> None:
        if decision.eviction is not None and decision.group_pods:
            self.groups.append((decision.eviction, decision.group_pods))
        elif decision.eviction is not None:
            self.evictions.append(decision.eviction)
        if decision.evicted_pods:
            self.evicted_pods.setdefault(message, []).extend(decision.evicted_pods)
        self.given_back += decision.given_back
        if decision.ending is not None:
            self.endings.append(decision.ending)
        if decision.requeue_state is not None:
            self.requeue_states[workload] = decision.requeue_state
        if decision.reason is not None:
            self.reasons.append(decision.reason)


class StartupMonitor:
    """Finds work that does not start, and work that lost its nodes.

    Parameters
    ----------
    caches, ledger
        The cluster and the queue.
    requeuer
        Evicts workloads and pods.
    refusals
        Reports whose pods the API server refuses.
    gates
        Reports which pods the API server refuses to release.
    backoffs
        When pods of Jobs failed.
    start_timeout_s
        How long pods may take to be bound after their release.
    node_lost_s
        How long a node may be NotReady before it counts as lost.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        requeuer: Requeuer,
        refusals: PodRefusals,
        gates: PodGates,
        backoffs: JobBackoffs,
        *,
        start_timeout_s: float,
        node_lost_s: float,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._requeuer = requeuer
        self._refusals = refusals
        self._observed = StartObservations(caches, ledger, refusals, gates, backoffs, start_timeout_s)
        self._pause_s = max(min(start_timeout_s / 10, node_lost_s / 10, 5.0), _PACE_S)
        self._losses = NodeLosses(caches, ledger, start_timeout_s=start_timeout_s, node_lost_s=node_lost_s)
        self._awake = asyncio.Event()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(_PACE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s - _PACE_S):
                    await self._awake.wait()
            self._awake.clear()
            try:
                await self.check()
            except DatabaseUnavailable as error:
                log.warning("start.check_failed", error=str(error))
                await asyncio.sleep(_RETRY_S)

    def look_now(self) -> None:
        """Check at once: pods of a live workload were refused."""
        self._awake.set()

    def node_changed(self, change: Change[Node]) -> None:
        """Check at once: what keeps new pods from a node keeps a released pod from it too.
        Again when the latest pods have their slots.
        """
        if change.new is None or change.old is None:
            self._awake.set()
        elif change.new.spec != change.old.spec:
            self._awake.set()
            asyncio.get_running_loop().call_later(2 * _PACE_S, self._awake.set)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Check at once if a pod comes to the node that its template holds,
        and that node takes no pod any more.
        """
        pod = change.new
        if change.old is not None or pod is None or not is_pinned(pod.metadata) or pod.spec.node_name:
            return
        if (node := pinned_node(pod)) is not None and self._caches.closed(node, pod.spec):
            self._awake.set()

    async def check(self) -> None:
        """Evict what lost its nodes or did not start."""
        await self._ledger.store_released()
        lost = self._losses.check()
        self._observed.begin_check()
        outcome, now = _Outcome(), self._ledger.clock()
        budget = DeletionBudget(self._caches.jobs.get_by_uid, self._caches.pods_of_job)
        for workload, allocation in self._ledger.live():
            if allocation.remnant or not workload.state.placed:
                continue
            if allocation.released_at is None:
                if self._refusals.of(workload, allocation) is not None:
                    self._awake.set()  # reported before the release was stored: check again
                continue
            if self._ends(workload):
                continue
            if (
                lost
                and workload.kind == "Job"
                and (nodes := lost_nodes(workload, allocation, lost.__contains__))
            ):
                pods = self._losses.pods_to_replace(workload, allocation, lost)
                if pods is None:
                    outcome.evictions.append(evict_after_lost_node(workload, nodes, now))
                else:
                    outcome.evicted_pods.setdefault("its node was lost", []).extend(pods)
                continue
            try:
                failure = self._observed.failure(workload, allocation, now)
                decision = (
                    self._decide(workload, allocation, failure, budget, now) if failure is not None else None
                )
            except Exception:
                OBJECT_FAILURES.labels("starts").inc()
                log.exception("start.check_broken", object=workload.ref, workload=workload.id)
                continue  # the others are checked all the same
            if failure is not None and decision is not None:
                outcome.add(workload.id, decision, failure.message)
            elif workload.reason is not Reason.NONE:
                outcome.reasons.append(ReasonChange(workload=workload.id, reason=Reason.NONE, message=""))
        outcome.graces = dict(self._useless_graces(lost, now)) if lost else {}
        self._losses.end_check()
        await self._carry_out(outcome)

    def _useless_graces(self, lost: set[str], now: datetime) -> Iterator[tuple[WorkloadId, str]]:
        """Yield the preempted Jobs in their grace that would be evicted as a whole for a lost node,
        each with that: what is left of them saves nothing.
        """
        for workload, allocation in self._ledger.evicting():
            if workload.kind != "Job" or not grace_left_s(workload, now) or self._ends(workload):
                continue
            before = going_on(workload, allocation)
            nodes = lost_nodes(before, allocation, lost.__contains__)
            if nodes and self._losses.pods_to_replace(before, allocation, lost) is None:
                yield workload.id, losses_in_words(nodes)

    async def _carry_out(self, outcome: _Outcome) -> None:
        await self._requeuer.end_graces(outcome.graces)
        await self._ledger.set_reasons(outcome.reasons, live=True)
        await self._ledger.set_requeue_states(outcome.requeue_states)
        await self._give_back(outcome.given_back)
        await self._finish(outcome.endings)
        await self._requeuer.evict(outcome.evictions)
        for eviction, members in outcome.groups:
            try:
                await self._requeuer.pods.evict_group(eviction, members)
            except ApiError as error:
                # the next check finds it again
                log.warning("group.not_evicted", workload=eviction.workload, error=str(error))
        for message, pods in outcome.evicted_pods.items():
            await self._requeuer.pods.evict(pods, message)

    async def _give_back(self, slots: Sequence[Slot]) -> None:
        if slots:
            await self._ledger.end_slots([(slot.jobid, slot.rank) for slot in slots])
            log.info("slots.given_back", allocations=sorted({slot.jobid for slot in slots}), slots=len(slots))
            self._requeuer.schedule()

    async def _finish(self, endings: Sequence[Ending]) -> None:
        if endings:
            await self._ledger.finish(endings)
            log.info("groups.not_started", workloads=[each.workload for each in endings])
            self._requeuer.schedule()

    def _decide(
        self,
        workload: Workload,
        allocation: Allocation,
        failure: StartFailure,
        budget: DeletionBudget,
        now: datetime,
    ) -> StartDecision:
        if failure.scheduler_waits or failure.cause in _GOES_ON:
            return keep(workload, failure, self._observed.pods(workload, allocation))
        if workload.kind == "Job":
            job = self._caches.jobs.get_by_uid(workload.uid)
            if job is None:
                return StartDecision()
            return decide_job(workload, job, self._caches.pods_of_job(workload.uid), failure, budget, now)
        if workload.release_mode is ReleaseMode.GROUP:
            return decide_group(
                workload, allocation, self._observed.pods(workload, allocation), failure, budget, now
            )
        return decide_pod(workload, self._caches.pods.get_by_uid(workload.uid), failure, budget, now)

    def _ends(self, workload: Workload) -> bool:
        """True for a Job that starts no more pods: it needs no nodes, and waits for pods that terminate."""
        job = self._caches.jobs.get_by_uid(workload.uid) if workload.kind == "Job" else None
        return job is not None and job.starts_no_pods
