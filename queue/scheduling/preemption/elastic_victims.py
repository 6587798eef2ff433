"""Victims that go on: which pods of elastic work may end so that other work starts, in which order, and what
is free then.

Each is a candidate with what it did since it started or saved, so those that lose least end first. Only as
many are candidates as the work can spare (`fluxqueue.queue.scheduling.preemption.elastic_work`), so it never
goes below its least. The pods of an owner above its floor are given back before anything else is evicted; the
others, which are needed, only where nothing else of their priority helps. What the owner creates instead
waits like all other work.

Of some owners only the last pods can go: of a MiniCluster those of the highest ranks, of a StatefulSet those
of the highest ordinals. Then no more than the last pods are candidates that it can spare, and with one of
them all go that come after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import Allocation, WorkloadId
from fluxqueue.queue.scheduling.graph.graph_jobs import DRAIN_S
from fluxqueue.queue.scheduling.policies.victims import (
    Owner,
    PreemptionCandidate,
    Victims,
    preemption_order,
    price,
)
from fluxqueue.queue.scheduling.preemption.elastic_endings import ElasticEndings
from fluxqueue.queue.scheduling.preemption.elastic_work import ElasticWork
from fluxqueue.queue.scheduling.preemption.possible_victims import PossibleVictims, ShownVictims
from fluxqueue.queue.scheduling.preemption.trials import Gone
from fluxqueue.queue.scheduling.preemption.withdrawals import NOTHING_ABANDONED, Abandoned
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ElasticVictims"]

_MOST_PARTS: Final = 1_000
"""Pods that are searched for one preemption."""


class ElasticVictims:
    """Finds what running work can spare. Made anew for each time.

    Parameters
    ----------
    ledger, shown, victims_of, abandoned
        See `ElasticWork`.

    Attributes
    ----------
    work
        What runs.
    endings
        What is to be stored so that it ends.
    """

    def __init__(
        self,
        ledger: Ledger,
        shown: ShownVictims,
        victims_of: PossibleVictims,
        abandoned: Mapping[WorkloadId, Abandoned] = NOTHING_ABANDONED,
    ) -> None:
        self.work = ElasticWork(ledger, shown, victims_of, abandoned)
        self.endings = ElasticEndings(self.work, victims_of)
        self._victims_of = victims_of
        self._wholes: dict[WorkloadId, list[Allocation]] = {}
        self._within_s: dict[WorkloadId, int] = {}
        self._in_order: dict[Owner, list[PreemptionCandidate]] = {}

    def elastic(
        self, wholes: Iterable[PreemptionCandidate], allowed: Iterable[PreemptionCandidate]
    ) -> list[PreemptionCandidate]:
        """Return the candidates that may go on with fewer pods, and pods whose owners may: of these only what
        budgets of disruption allow.
        """
        held = self.work.held
        found = [
            *((each, row) for each in wholes for row, _ in held(each.workload) if row.kind == "Job"),
            *((each, row) for each in allowed for row, _ in held(each.workload) if row.kind != "Job"),
        ]
        return [
            each
            for each, workload in found
            if (each.floor is not None or self.work.least(each.workload)) and workload.state is State.RUNNING
        ]

    def beside(
        self, wholes: Iterable[PreemptionCandidate], parts: Sequence[Victims]
    ) -> list[PreemptionCandidate]:
        """Return what could be evicted beside the pods that can be spared:
        other pods of their owners are needed, but those that do not run only while too few others do. Where
        an owner is stopped as a whole, they go only with that.
        """
        spare = {part.workload for unit in parts for part in unit if part.of is None}
        return [
            each
            if each.floor is None
            else replace(each, needed=self.work.runs(each) or self.work.spare(each) < 0)
            for each in wholes
            if each.floor is None or not (each.floor.as_whole or each.workload in spare)
        ]

    def closed(self, candidates: Iterable[PreemptionCandidate]) -> Victims:
        """Return candidates with all that go before them: of an owner of which only the last pods can go,
        those after the first one chosen.
        """
        chosen = tuple(candidates)
        first: dict[Owner, int] = {}
        for each in chosen:
            if each.place is not None:
                first[each.owner] = min(each.place, first.get(each.owner, each.place))
        after = (
            each
            for key, place in first.items()
            for each in self._in_order.get(key, ())
            if (each.place or 0) > place
        )
        return tuple(dict.fromkeys((*chosen, *after))) if first else chosen

    def _every_part(self, jobs: Sequence[PreemptionCandidate]) -> list[PreemptionCandidate]:
        found = [
            part
            for job in jobs
            for part in (
                self.work.running(job.workload)
                if job.floor is None
                else (replace(job, place=self.work.place(job.workload)),)
                if self.work.runs(job)
                else ()
            )
        ]
        ordered: dict[Owner, list[PreemptionCandidate]] = {}
        for part in found:
            if part.place is not None:
                ordered.setdefault(part.owner, []).append(part)
        self._in_order = {key: self._last_of(parts) for key, parts in ordered.items()}
        return [
            *(part for part in found if part.place is None),
            *(part for parts in self._in_order.values() for part in parts),
        ]

    def _last_of(self, parts: Sequence[PreemptionCandidate]) -> list[PreemptionCandidate]:
        """Return the last of the pods of an owner, as many as it can spare, with what is lost behind each."""
        last: list[PreemptionCandidate] = []
        behind = 0.0
        stay = self.work.places(parts) - {part.place for part in parts}
        last_staying = max((place or 0 for place in stay), default=-1)
        slots = sum(len(part.ranks) for part in parts) - 1  # one stays, by which a Job is known
        for part in sorted(parts, key=lambda each: each.loss[1])[: max(self.work.can_spare(parts), 0)]:
            slots -= len(part.ranks)
            may_end = slots >= 0 if part.ranks else self.work.ran_enough(part.workload)
            if not may_end or last_staying > (part.place or 0):
                break  # it stays, so all before it do
            last.append(replace(part, behind=behind))
            behind = max(behind, part.lost_node_s)
        return last

    def parts(self, jobs: Sequence[PreemptionCandidate]) -> list[Victims]:
        """Return the pods without which elastic Jobs go on, those first that lose least:
        as many as they can spare.
        """
        order = sorted(self._every_part(jobs), key=_lost)
        return [
            (part,)
            for part in preemption_order(part for (part,) in self._spared([(part,) for part in order]))
        ]

    def parts_by_node(
        self, jobs: Sequence[PreemptionCandidate], first: Collection[str] = ()
    ) -> list[Victims]:
        """Return the same, but all of a node together: the nodes that cost least first,
        or some nodes and then those with few Jobs.
        """
        on_node: dict[str, list[PreemptionCandidate]] = {}
        for part in self._every_part(jobs):
            for node in part.nodes:
                on_node.setdefault(node, []).append(part)

        def order(node: str) -> tuple[object, ...]:
            there = len({part.owner for part in on_node[node]})
            return (
                (node not in first, there, *price(on_node[node])) if first else (*price(on_node[node]), there)
            )

        return self._spared([tuple(on_node[node]) for node in sorted(on_node, key=order)])

    def _spared(self, units: Sequence[Victims]) -> list[Victims]:
        """Return the first units of pods that their Jobs and other owners can spare altogether.
        One slot stays, by which a Job is known.
        """
        pods, slots = Counter[Owner](), Counter[Owner]()
        for part in {(part.owner, part.floor): part for unit in units for part in unit}.values():
            if part.floor is not None:
                spare = self.work.spare(part)
                pods[part.floor.key] = min(spare, pods.get(part.floor.key, spare))
                continue
            running, job = self.work.running(part.of or part.workload), part.owner
            pods[job] = len(running) - self.work.least(part.of or part.workload)
            slots[job] = sum(len(each.ranks) for each in running) - 1
        chosen: list[Victims] = []
        left = _MOST_PARTS
        for unit in units:
            wanted = Counter(part.owner for part in unit)
            of_slots = Counter(part.owner for part in unit if part.ranks and part.floor is None)
            ran_enough = all(part.ranks or self.work.ran_enough(part.workload) for part in unit)
            if ran_enough and len(unit) <= left and _within(wanted, pods) and _within(of_slots, slots):
                pods.subtract(wanted)
                slots.subtract(of_slots)
                chosen.append(unit)
                left -= len(unit)
        return chosen

    def gone(self, candidates: Sequence[PreemptionCandidate]) -> Gone:
        """Return what is gone with these candidates."""
        candidates = self.closed(candidates)
        whole: list[Allocation] = []
        ranks: dict[WorkloadId, set[int]] = {}
        evicted = {each.workload for each in candidates if each.of is None}
        for each in candidates:
            if each.of is None:
                whole += self._whole(each.workload)
            elif each.of in evicted:
                continue
            elif each.ranks:
                ranks.setdefault(each.workload, set()).update(each.ranks)
            else:
                whole += [its for _, its in self.work.held(each.workload)]
        parts = [(*held, ranks[held[0].id]) for workload_id in ranks for held in self.work.held(workload_id)]
        return Gone(whole, parts, within_s=max(map(self._gone_within_s, candidates), default=0))

    def _gone_within_s(self, victim: PreemptionCandidate) -> int:
        """Return how long it may take until a victim is gone that is told now; it is asked in each trial."""
        key = victim.of or victim.workload
        if key not in self._within_s:
            rows = (row for row, _ in self.work.held(key))
            self._within_s[key] = sum(DRAIN_S + self._victims_of.grace_s(row) for row in rows)
        return self._within_s[key]

    def _whole(self, workload_id: WorkloadId) -> Sequence[Allocation]:
        """The allocations that are gone with a workload; they are asked for in each trial."""
        if workload_id not in self._wholes:
            self._wholes[workload_id] = [
                its for _, its in (*self.work.held(workload_id), *self.work.further(workload_id))
            ]
        return self._wholes[workload_id]


def _within(wanted: Mapping[Owner, int], left: Mapping[Owner, int]) -> bool:
    return all(count <= left[job] for job, count in wanted.items())


def _lost(part: PreemptionCandidate) -> tuple[object, ...]:
    """Least first; then pods that were matched alone, and the highest slots."""
    return part.loss, bool(part.ranks), -max(part.ranks, default=0)
