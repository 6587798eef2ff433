"""Why nothing is preempted for the first that wait: what holds the nodes that they need, and why it cannot be
taken.

It is found by the same trials as victims (`fluxqueue.queue.scheduling.preemption.trials`). First all that may
be preempted is gone. If that suffices, it is spared for causes of its own, and nobody else is in the way.
Else more is tried to be gone, in the order of preemption, whatever the rules say. What is needed of that is
told, each with the rule that spares it: a few by name, those of other namespaces without it.

Trials cost, so this is done for one workload in a cycle, of those for which victims were searched, and for
the same one at most every ten seconds. What was told is withdrawn as soon as one that it names frees its
nodes or is spared for another cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.graph.graph_jobs import DRAIN_S
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, choose_victims
from fluxqueue.queue.scheduling.preemption.possible_victims import PossibleVictims
from fluxqueue.queue.scheduling.preemption.trials import Attempt, Gone, PreemptionTrials, Standing
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["MIN_RUN", "WhyNot"]

MIN_RUN: Final = "in its minimum run time"
"""Why work is spared that has not run for long enough. Until when is told with it."""
_HELD: Final = "; nothing is preempted for it: nodes that it needs are held by "
_MADE: Final = "; it waits for "
_AGAIN: Final = timedelta(seconds=10)
_MOST_SPARED: Final = 500
_SINGLES: Final = 4
_MOST_REMOVALS: Final = 8
_MOST_NAMED: Final = 3


@dataclass(slots=True)
class _Told:
    """What is told of a workload, when and with which attempt that was found, and what is named:
    its job ids and why it is spared.
    """

    at: datetime
    key: tuple[object, ...]
    words: str = ""
    """With what they follow."""
    named: Mapping[WorkloadId, tuple[FluxionJobId, str]] = field(default_factory=dict)
    until: datetime | None = None


class WhyNot:
    """Tells the first that wait why nothing is preempted for them. The caller holds the lock of the graph."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told: dict[WorkloadId, _Told] = {}
        self._shown: set[WorkloadId] = set()

    def note_shown(self, workload: Workload) -> None:
        """Note a workload whose reason has words of this kind, which a former leader may have written.

        What a former leader preempted for it goes on, so it is told of that until nothing is waited for any
        more.
        """
        if _HELD in workload.message or _MADE in workload.message:
            self._shown.add(workload.id)
        if _MADE in workload.message and workload.id not in self._told:
            self._told[workload.id] = _Told(
                self._ledger.clock(), (), f"{_MADE}{workload.message.partition(_MADE)[2]}"
            )

    def keep(self, workloads: Collection[WorkloadId]) -> None:
        """Withdraw what is told of all others: they are not among the first any more,
        or something is preempted for them.
        """
        self._told = {key: told for key, told in self._told.items() if key in workloads}

    def withdraw_past(self) -> None:
        """Withdraw what is not so any more: named work freed its nodes, or has run for long enough."""
        now = self._ledger.clock()
        for told in self._told.values():
            gone = any(self._jobid(workload_id) != jobid for workload_id, (jobid, _) in told.named.items())
            if gone or (told.until is not None and told.until <= now):
                _withdraw(told)

    def ends_in_s(self) -> float | None:
        """Return in how many seconds something that is told is not so any more; None if that is not known."""
        ends = [told.until for told in self._told.values() if told.until is not None]
        return max((min(ends) - self._ledger.clock()).total_seconds(), 0.0) if ends else None

    def wait_s(self, attempt: Attempt, spared: Mapping[WorkloadId, str], *, freed: bool) -> float | None:
        """Return in how many seconds it is to be found again why nothing is preempted for a workload; None if
        what is told holds.

        Parameters
        ----------
        attempt
            That was made in vain.
        spared
            What may not be preempted for it, and why.
        freed
            True if nodes were freed since the cycle before.
        """
        told = self._told.get(attempt.workload.id)
        if told is None:
            return 0.0
        if any(spared.get(workload_id) != why for workload_id, (_, why) in told.named.items()):
            _withdraw(told)
        if freed:
            told.key = ()
        if told.key == attempt.key:
            return None
        return max((told.at + _AGAIN - self._ledger.clock()).total_seconds(), 0.0)

    async def find(
        self,
        attempt: Attempt,
        spared: Mapping[WorkloadId, str],
        trials: PreemptionTrials,
        standing: Standing,
        victims_of: PossibleVictims,
    ) -> None:
        """Find what holds the nodes that a workload needs, beyond all that may be preempted.

        Parameters
        ----------
        attempt
            That was made in vain.
        spared
            What may not be preempted for the workload, and why.
        trials, standing, victims_of
            How it is tried.
        """
        pairs = {workload_id: pair for workload_id in spared if (pair := self._pair(workload_id)) is not None}
        lowest = sorted(pairs.values(), key=lambda pair: pair[0].priority)[:_MOST_SPARED]
        anyway = [pair for each in attempt.candidates if (pair := self._pair(each)) is not None]
        within_s = max((DRAIN_S + victims_of.grace_s(row) for row, _ in anyway), default=0)
        search = choose_victims(
            [victims_of.candidate(*each) for each in lowest],
            None,
            singles=_SINGLES,
            most_removals=_MOST_REMOVALS,
        )

        def gone(victims: Sequence[PreemptionCandidate]) -> Gone:
            also = (pairs[each.workload][1] for each in victims)
            return Gone([*(its for _, its in anyway), *also], within_s=within_s)

        needed = await trials.choose(search, attempt, standing, gone)
        if len(needed) == 1 and await trials.nodes(attempt, gone(()), standing):
            needed = ()  # nor is this one needed
        if needed and await trials.in_vain(attempt, gone(needed), standing):
            needed = ()  # it would not start even then
        told = self._told[attempt.workload.id] = _Told(self._ledger.clock(), attempt.key)
        words: dict[str, None] = {}
        for workload, allocation in (pairs[each.workload] for each in needed[:_MOST_NAMED]):
            why = spared[workload.id]
            told.named = {**told.named, workload.id: (allocation.jobid, why)}
            if why == MIN_RUN:
                until = victims_of.ran_enough_at(workload, allocation)
                told.until = min(until, told.until or until)
                why = f"{why} until {time_text(until)}"
            words[f"{workload.ref_within(attempt.workload.namespace)} ({why})"] = None
        listed = _listed(list(words), len(needed) - len(words))
        told.words = f"{_HELD}{listed}" if listed else ""

    def made_room(self, workload: Workload, words: Sequence[str], lost: str, within_s: float) -> None:
        """Tell a workload what ends so that it starts.

        Parameters
        ----------
        workload
            For which something was preempted.
        words, lost
            What ends, and what is lost by it.
        within_s
            For how long that is waited for at most.
        """
        now = self._ledger.clock()
        listed = _listed(words[:_MOST_NAMED], max(len(words) - _MOST_NAMED, 0))
        until = time_text(now + timedelta(seconds=within_s))
        told = f"{_MADE}{listed} to end, since {time_text(now)}, at most until {until}: {lost}"
        self._told[workload.id] = _Told(now, (), told)

    def refine(self, changes: Sequence[ReasonChange]) -> list[ReasonChange]:
        """Return the reasons of a cycle with what is told of those that wait for nodes."""
        return [self._with_words(change) for change in changes] if self._told else list(changes)

    async def store(self) -> None:
        """Store what is told, and take away what is not told any more."""
        changes = list[ReasonChange]()
        for workload_id in self._shown | self._told.keys():
            workload = self._ledger.get(workload_id)
            if (
                workload is None
                or workload.state is not State.PENDING
                or workload.reason is not Reason.WAITING_FOR_NODES
            ):
                continue
            message = workload.message.partition(_HELD)[0].partition(_MADE)[0]
            changes.append(
                self._with_words(ReasonChange(workload=workload_id, reason=workload.reason, message=message))
            )
        await self._ledger.set_reasons(changes)
        self._shown = {workload_id for workload_id, told in self._told.items() if told.words}

    def _with_words(self, change: ReasonChange) -> ReasonChange:
        told = self._told.get(change.workload)
        if told is None or not told.words or change.reason is not Reason.WAITING_FOR_NODES:
            return change
        return ReasonChange(
            workload=change.workload, reason=Reason.WAITING_FOR_NODES, message=f"{change.message}{told.words}"
        )

    def _pair(self, workload_id: WorkloadId) -> tuple[Workload, Allocation] | None:
        workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
        return (workload, allocation) if workload is not None and allocation is not None else None

    def _jobid(self, workload_id: WorkloadId) -> FluxionJobId | None:
        allocation = self._ledger.allocation(workload_id)
        return allocation.jobid if allocation is not None else None


def _withdraw(told: _Told) -> None:
    """Forget what is told, and have it found again."""
    told.words, told.named, told.until, told.key = "", {}, None, ()


def _listed(words: Sequence[str], more: int) -> str:
    """Return "a", "a and b", "a, b and c", or "a, b, c and 4 more"."""
    parts = [*words, f"{more} more"] if more and words else list(words)
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
