"""Preemption that has become pointless: what was told to stop for work that does not need its nodes any more.

Work that is told to stop goes on for its grace. Meanwhile the work that it makes room for may end, be held,
or start on other nodes, or it cannot start any more because other work comes first. Then nothing is to end
for it. The preemptor first looks whether other work that waits needs the same nodes, and withdraws the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.consolidations import is_being_moved
from fluxqueue.queue.model.given_back import given_back_message, leaving_ranks
from fluxqueue.queue.model.jobspecs import reservation_in
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.model.withdrawals import going_on, jobs_of_grown, notice_of
from fluxqueue.queue.scheduling.graph.graph_jobs import DRAIN_S
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.policies.backlog import key_of
from fluxqueue.queue.scheduling.preemption.trials import Attempt, Gone, PreemptionTrials, Standing
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["NOTHING_ABANDONED", "Abandoned", "Withdrawals", "reasons_of", "waits_for_nodes"]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Work that was told to stop in vain: as it is when it goes on, until when it may go on, and which slots
    were to end.

    Attributes
    ----------
    why
        What history says if it goes on.
    """

    workload: Workload
    allocation: Allocation
    stop_at: datetime
    ranks: Set[int]
    why: str

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of what was to end."""
        return frozenset(slot.node for slot in self.allocation.open_slots if slot.rank in self.ranks)


_NO_TIME: Final = timedelta()
_DRAIN: Final = timedelta(seconds=DRAIN_S)
_MOST_PLANNED: Final = 500
"""Of what ends while victims are in their grace, so many are left out of a trial, those that end first."""
NOTHING_ABANDONED: Final[Mapping[WorkloadId, Abandoned]] = {}


class Withdrawals:
    """Finds what was told to stop in vain.

    The matcher is asked again whether work would start without its victims if other work comes before it by
    now, work or foreign pods took nodes, or these changed. What is planned to end within the grace has ended
    by then.

    Parameters
    ----------
    ledger, graph, trials
        The workloads, and the matcher that is asked.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, trials: PreemptionTrials) -> None:
        self._ledger = ledger
        self._graph = graph
        self._trials = trials
        self._helped: dict[WorkloadId, tuple[object, ...]] = {}
        """With what it was found that work starts without its victims."""

    def note_helped(self, attempt: Attempt) -> None:
        """Note that the work of an attempt starts without what is told to stop for it now."""
        self._helped[attempt.workload.id] = self._circumstances(attempt)

    async def abandoned(
        self,
        may_preempt: Callable[[Workload, Workload], bool],
        attempts: Callable[[Workload], Sequence[Attempt]],
        standing: Standing,
    ) -> dict[WorkloadId, Abandoned]:
        """Return what was told to stop and is in its grace, if nobody needs that any more.

        Parameters
        ----------
        may_preempt
            Returns whether work that waits for nodes still may preempt other work.
        attempts
            Returns the attempts that may be made for work that waits.
        standing
            What holds in trials.
        """
        now, found = self._ledger.clock(), dict[WorkloadId, Abandoned]()
        helps: dict[WorkloadId, bool] = {}
        in_part = set[WorkloadId]()  # what loses victims: the others may not suffice
        evicting = self._ledger.evicting()
        jobs = {given_back_message(job): job for job, _ in self._ledger.gave_back()}
        jobs |= {job.message: job for job, _ in evicting if job.kind == "Job"}
        for workload, allocation in (*evicting, *self._ledger.giving_back()):
            if (notice := notice_of(workload, allocation, now)) is None:
                continue
            first, before = self._ledger.get(notice.preempted_for), going_on(workload, allocation)
            why = _why(workload, first)
            # a pod by which a Job grew has its message, and may be preempted only like the Job
            victim = jobs.get(workload.message, before) if workload.kind == "Pod" else before
            if (
                first is not None
                and not why
                and not may_preempt(first, workload if is_being_moved(workload) else victim)
            ):
                why = f"{_goes_on(workload, first)} may not preempt it any more"
                in_part.add(first.id)
            if first is not None and not why:
                if first.id not in helps:
                    helps[first.id] = await self._helps(first.id, attempts(first), standing)
                if helps[first.id]:
                    continue
                why = f"{_goes_on(workload, first)} would not start if it ended"
            found[workload.id] = Abandoned(before, allocation, notice.stop_at, notice.ranks, why)
        told = [self._ledger.get(each) for each in found]
        for pod, job, allocation in jobs_of_grown(filter(None, told), self._ledger.gave_back()):
            alone = replace(found[pod.id], workload=going_on(job, allocation), allocation=allocation)
            found.setdefault(job.id, replace(alone, ranks=frozenset()))
        still = (key for key, helped in helps.items() if helped and key not in in_part)
        self._helped = {key: self._helped[key] for key in still if key in self._helped}
        return found

    async def _helps(self, first: WorkloadId, attempts: Sequence[Attempt], standing: Standing) -> bool:
        """True if work would start without its victims, or if that cannot be found out."""
        if not attempts or self._helped.get(first) == self._circumstances(attempts[0]):
            return True
        for attempt in attempts:
            if await self._trials.nodes(attempt, self._gone_for(first), standing):
                self.note_helped(attempt)
                return True
        return False

    def _circumstances(self, attempt: Attempt) -> tuple[object, ...]:
        return (
            self._graph.version,
            self._graph.foreign_changes,
            self._ledger.grants,
            *((each.id, each.shape) for each in (attempt.workload, *attempt.ahead)),
        )

    def _gone_for(self, first: WorkloadId) -> Gone:
        """Return all that ends for work, whether or not it may still go on,
        and what is planned to have ended by then.
        """
        told = [held for held in self._ledger.evicting() if held[0].requeue_state.preempted_for == first]
        leaving = (
            (row, its, row.requeue_state.given_back)
            for row, its in self._ledger.giving_back()
            if not row.evicting
        )
        parts = [
            (row, its, leaving_ranks(row, its))
            for row, its, given in leaving
            if given is not None and given.preempted_for == first
        ]
        now = self._ledger.clock()
        stops = [row.requeue_state.stop_at or now for row, _ in told]
        stops += [given.stop_at for row, _, _ in parts if (given := row.requeue_state.given_back) is not None]
        left = max(max(stops, default=now) - now, _NO_TIME) + _DRAIN
        by_then = self._ledger.wall() + left
        planned = islice(self._ledger.planned_to_end(by_then), _MOST_PLANNED)
        whole = {its.jobid: its for _, its in (*told, *planned)}
        moved = sorted((row for row, _ in told if is_being_moved(row)), key=key_of)
        return Gone(
            [*whole.values()],
            [part for part in parts if part[1].jobid not in whole],
            moved,
            int(left.total_seconds()),
        )


def reasons_of(abandoned: Mapping[WorkloadId, Abandoned]) -> dict[WorkloadId, str]:
    """Return what history says of work that goes on."""
    return {workload_id: each.why for workload_id, each in abandoned.items()}


def waits_for_nodes(workload: Workload) -> bool:
    """True for pending work that may start once nodes are free;
    not at a limit, and not before a FluxReservation that it names.
    """
    if (
        workload.state is not State.PENDING
        or workload.reason is Reason.UNSATISFIABLE
        or workload.reason in LIMIT_REASONS
    ):
        return False
    return workload.reason is not Reason.RESERVATION or not reservation_in(workload.jobspec)


def _why(workload: Workload, first: Workload | None) -> str:
    """Return why work goes on for which other work was told to stop; empty if that waits for nodes."""
    if first is None:
        return f"{workload.ref} goes on: the work that it was to make room for is gone"
    if first.state is not State.PENDING:
        return f"{_goes_on(workload, first)} has started on other nodes"
    if first.blocked or not waits_for_nodes(first):
        return f"{_goes_on(workload, first)} waits for something else"
    return ""


def _goes_on(workload: Workload, first: Workload) -> str:
    return f"{workload.ref} goes on: {first.ref_within(workload.namespace)}, for which it was to make room,"
