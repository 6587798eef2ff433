"""What is stored of pods of elastic work that end so that other work starts, and what people are told of it.

Slots of Jobs and gangs are given back (`RequeueState.given_back`), whole work and pods that were matched
alone are evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import islice

from msgspec import structs

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.given_back import given_ranks
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.requeue_records import GivenBack
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate
from fluxqueue.queue.scheduling.preemption.elastic_work import ElasticWork
from fluxqueue.queue.scheduling.preemption.possible_victims import PossibleVictims
from fluxqueue.queue.scheduling.preemption.trials import Attempt

__all__ = ["ElasticEndings", "lost_in_words"]


class ElasticEndings:
    """Says what is to be stored of victims.

    Parameters
    ----------
    work
        The elastic work that they are of.
    victims_of
        The rules of all queues.
    """

    def __init__(self, work: ElasticWork, victims_of: PossibleVictims) -> None:
        self._work = work
        self._victims_of = victims_of

    def evictions(self, attempt: Attempt, victims: Sequence[PreemptionCandidate]) -> list[Eviction]:
        """Return the evictions of whole victims, and of their further pods."""
        made: list[Eviction] = []
        said = self._said_of_owners(attempt, victims)
        for victim in victims:
            for held in self._work.held(victim.workload) if victim.of is None else ():
                stop_at = self._work.told_until(*held) or self._victims_of.stop_at(held[0])
                own = self._victims_of.eviction(*held, attempt.workload, attempt.guaranteed_to, stop_at)
                own = replace(own, message=said.get(victim.workload, own.message))
                made.append(own)
                made += [
                    _alike(own, row, min(self._work.told_until(row, its) or stop_at, stop_at), attempt)
                    for row, its in self._work.further(victim.workload)
                ]
        return made

    def _said_of_owners(
        self, attempt: Attempt, victims: Sequence[PreemptionCandidate]
    ) -> Mapping[WorkloadId, str]:
        """Return what is said of running pods whose owners go on with enough others."""
        said: dict[WorkloadId, str] = {}
        for key in dict.fromkeys(each.floor.key for each in victims if each.floor is not None):
            parts = [each for each in victims if each.owner == key and self._work.runs(each)]
            if parts and len(parts) <= min(map(self._work.spare, parts)):
                pods = self._work.count(parts)
                held = [held for each in parts for held in self._work.held(each.workload)]
                stops = {self._work.told_until(*each) or self._victims_of.stop_at(each[0]) for each in held}
                words = self._in_words(attempt, _named(held[0][0], parts[0]), pods, parts, stops)
                said |= dict.fromkeys((each.workload for each in parts if each.of is None), words)
        return said

    def given_back(
        self, attempt: Attempt, victims: Sequence[PreemptionCandidate]
    ) -> tuple[dict[WorkloadId, GivenBack], list[Eviction]]:
        """Return what Jobs give back that go on with fewer pods, and the evictions of those that were matched
        alone.
        """
        back: dict[WorkloadId, GivenBack] = {}
        made: list[Eviction] = []
        for job in dict.fromkeys(each.of for each in victims if each.of is not None):
            parts = [each for each in victims if each.of == job]
            for workload, allocation in self._work.held(job):
                before, ranks = given_ranks(workload), {rank for each in parts for rank in each.ranks}
                new = self._victims_of.stop_at(workload)
                alone = [held for each in parts if not each.ranks for held in self._work.held(each.workload)]
                until = {row.id: self._work.told_until(row, its) or new for row, its in alone}
                stop_at = (self._work.told_until(workload, allocation, ranks) or new) if ranks else None
                stops = {*until.values(), *([stop_at] if stop_at is not None else [])}
                if not stops:  # the pods by which it grew ended meanwhile
                    continue
                roles = {each.floor.key for each in parts if each.floor is not None}
                beside = [each for each in victims if each.of is None and each.owner in roles]
                parts = [*parts, *filter(self._work.runs, beside)]
                message = self._in_words(attempt, workload, self._work.count(parts), parts, stops)
                back[job] = GivenBack(
                    jobid=allocation.jobid,
                    ranks=tuple(sorted(before | ranks)),
                    due=tuple(sorted(before)),
                    stop_at=stop_at or max(stops),
                    message=message,
                    preempted_for=attempt.workload.id,
                )
                told = Eviction(workload=job, reason=Reason.PREEMPTED, message=message)
                made += [_alike(told, row, until[row.id], attempt) for row, _ in alone]
        return back, made

    def in_words(self, namespace: str, victims: Sequence[PreemptionCandidate]) -> list[str]:
        """Return what ends, for people of a namespace."""
        words: list[str] = []
        for key in dict.fromkeys(each.owner for each in victims):
            parts = [each for each in victims if each.owner == key]
            whole = parts[0].of is None and parts[0].floor is None
            ending = "" if whole else "1 pod of " if len(parts) == 1 else f"{len(parts)} pods of "
            # some may have ended while it was stored that they are to end
            rows = (row for part in parts for row, _ in self._work.held(part.of or part.workload))
            words += [f"{ending}{_named(row, parts[0]).ref_within(namespace)}" for row in islice(rows, 1)]
        return words

    def _in_words(
        self,
        attempt: Attempt,
        job: Workload,
        pods: int,
        parts: Sequence[PreemptionCandidate],
        stops: Set[datetime],
    ) -> str:
        """Return what a Job or another owner with some pods gives back, in words that stay true."""
        first = attempt.workload
        why = (
            f"to whose account {attempt.guaranteed_to!r} the resources are guaranteed"
            if attempt.guaranteed_to
            else ""
        )
        which = f", {why}," if why else f" (priority {first.priority})"
        last = max(stops)
        latest = " at the latest" if len(stops) > 1 else ""
        grace = f", with a grace until {time_text(last)}{latest}" if last > self._work.now else ""
        return (
            f"{job.ref} (priority {job.priority}) gave {len(parts)} of its {pods} pods back at "
            f"{time_text(self._work.now)}{grace}, {lost_in_words(parts)}, so that "
            f"{first.ref_within(job.namespace)}{which} starts: it went on with {pods - len(parts)}"
        )


def _alike(eviction: Eviction, row: Workload, stop_at: datetime, attempt: Attempt) -> Eviction:
    """Return the eviction of a further pod of a Job, with its message: the pod may go on until a time."""
    told = structs.replace(row.requeue_state, stop_at=stop_at, preempted_for=attempt.workload.id)
    return replace(eviction, workload=row.id, requeue_state=told)


def _named(workload: Workload, part: PreemptionCandidate) -> Workload:
    """Return the work that people know: whole work, or what goes on without a part of it."""
    if part.floor is None:
        return workload
    return replace(workload, kind=part.floor.owner.kind, name=part.floor.owner.name)


def lost_in_words(victims: Iterable[PreemptionCandidate]) -> str:
    """Return what is lost by victims, in whole minutes of nodes once there are some."""
    lost_node_s = sum(each.lost_node_s for each in victims)
    minutes = round(lost_node_s / 60)
    return f"{minutes:,} node-minutes lost" if minutes > 1 else f"{round(lost_node_s)} node-seconds lost"
