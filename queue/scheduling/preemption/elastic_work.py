"""Elastic work that runs: of which pods it consists, with how few it goes on, and how many it can spare.

A moldable Job runs with any number of pods between its least and all. What it has above the least may be
given back: slots of its own, or pods by which it grew, which are workloads of their own. A pod with a floor
that was matched alone, as of a Deployment, is evicted as a whole. A gang may have pods with floors in its
slots: they are given back as slots, and count together with those that were matched alone.
`fluxqueue.queue.model.shrinkable` has all kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.victim_views import Floor
from fluxqueue.queue.scheduling.policies.victims import Owner, PreemptionCandidate
from fluxqueue.queue.scheduling.preemption.possible_victims import PossibleVictims, ShownVictims
from fluxqueue.queue.scheduling.preemption.withdrawals import NOTHING_ABANDONED, Abandoned
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ElasticWork", "Held"]

Held = tuple[Workload, Allocation]


class ElasticWork:
    """Reads what runs. Made anew for each time.

    Parameters
    ----------
    ledger
        The workloads.
    shown
        What the cluster shows of them.
    victims_of
        The rules of all queues.
    abandoned
        What was told to stop in vain: it counts as if it had not been told.

    Attributes
    ----------
    now
        The time of the database.
    """

    def __init__(
        self,
        ledger: Ledger,
        shown: ShownVictims,
        victims_of: PossibleVictims,
        abandoned: Mapping[WorkloadId, Abandoned] = NOTHING_ABANDONED,
    ) -> None:
        self._abandoned = abandoned
        self._ledger = ledger
        self._shown = shown
        self._victims_of = victims_of
        self.now = ledger.clock()
        self._parts_of: dict[WorkloadId, list[PreemptionCandidate]] = {}
        self._running_of: dict[Owner, Set[str]] = {}
        self._floors: dict[WorkloadId, Mapping[str, Floor]] = {}

    @cached_property
    def _further_of(self) -> Mapping[str, Sequence[Held]]:
        """The pods of Jobs that were matched alone and hold nodes, by the Job's uid: they end with it.

        To read a pod takes a while, and there may be many that are of no Job.
        """
        found: dict[str, list[Held]] = {}
        live = self.live()
        pods = [
            held for held in live if held[0].kind == "Pod" and not held[1].remnant and not held[0].evicting
        ]
        with_jobs = (
            {workload.namespace for workload, _ in live if workload.kind == "Job"} if pods else set[str]()
        )
        for held in pods:
            if held[0].namespace in with_jobs and (job := self._victims_of.job_of(*held)):
                found.setdefault(job, []).append(held)
        return found

    def live(self) -> Sequence[Held]:
        """Return what holds something."""
        if not self._abandoned:
            return self._ledger.live()
        return [(self._as_it_counts(row), its) for row, its in self._ledger.live()]

    def _as_it_counts(self, workload: Workload) -> Workload:
        told = self._abandoned.get(workload.id)
        return told.workload if told is not None else workload

    def with_further(self, workload: Workload, allocation: Allocation) -> PreemptionCandidate:
        """Return a workload that is evicted as a whole, with what is lost with its further pods."""
        own = self._victims_of.candidate(workload, allocation)
        if not (held := self._further_of.get(workload.uid)):
            return own
        further = [self._victims_of.candidate(*each) for each in held]
        lost_node_s = sum(each.lost_node_s for each in further)
        return replace(
            own,
            lost_node_s=own.lost_node_s + lost_node_s,
            nodes=own.nodes.union(*(each.nodes for each in further)),
        )

    def pods_of(self, floor: Floor, pod: WorkloadId) -> Set[str]:
        """Return which pods with a floor run and are not to stop, by uid, as one of them shows.
        A gang shows those of all its roles.
        """
        if floor.key not in self._running_of:
            shown: dict[Owner, set[str]] = {floor.key: set()}
            for row, _ in self.held(pod):
                floors = self._floors_of(row)
                for uid in self._shown.elastic_pods(row):
                    shown.setdefault(floors.get(uid, floor).key, set()).add(uid)
            for key, uids in shown.items():
                rows = filter(None, map(self._ledger.by_uid, uids))
                ending = {row.uid for row in rows if self._as_it_counts(row).evicting}
                self._running_of[key] = uids - ending - self._leaving_pods
        return self._running_of[floor.key]

    def _floors_of(self, gang: Workload) -> Mapping[str, Floor]:
        if gang.id not in self._floors:
            self._floors[gang.id] = self._shown.floors(gang)
        return self._floors[gang.id]

    @cached_property
    def _leaving_pods(self) -> Set[str]:
        """The pods in slots that are given back already (uid)."""
        return {
            slot.pod_uid or ""
            for row, its in self._ledger.giving_back()
            for slot in its.open_slots
            if slot.rank in leaving_ranks(self._as_it_counts(row), its)
        }

    def runs(self, pod: PreemptionCandidate) -> bool:
        """True if a pod counts as running for its owner."""
        return pod.floor is not None and (
            bool(pod.ranks)
            or any(row.uid in self.pods_of(pod.floor, pod.workload) for row, _ in self.held(pod.workload))
        )

    def spare(self, pod: PreemptionCandidate) -> int:
        """Return how many pods of the owner of a pod run above its floor; less than 0 if too few run."""
        return len(self.pods_of(pod.floor, pod.workload)) - pod.floor.least if pod.floor else 0

    def can_spare(self, parts: Sequence[PreemptionCandidate]) -> int:
        """Return how many pods go on above the least of what all these parts are of."""
        if parts[0].floor is not None:
            return min(map(self.spare, parts))
        job = parts[0].of or parts[0].workload
        return len(self.running(job)) - self.least(job)

    def least(self, job: WorkloadId) -> int:
        """Return with how few pods a Job goes on; 0 if it cannot without any."""
        return sum(self._victims_of.least(*held) for held in self.held(job))

    def running(self, job: WorkloadId) -> Sequence[PreemptionCandidate]:
        """Return the pods of a Job that run; none if it cannot go on without any."""
        if job not in self._parts_of:
            self._parts_of[job] = [part for held in self.held(job) for part in self._read(*held)]
        return self._parts_of[job]

    def _read(self, workload: Workload, allocation: Allocation) -> Iterator[PreemptionCandidate]:
        since, leaving = self._shown.elastic_pods(workload), leaving_ranks(workload, allocation)
        slots = [slot for slot in allocation.open_slots if slot.rank not in leaving and slot.pod_uid in since]
        beside = Counter(slot.node for slot in slots)
        in_order = self._victims_of.place(workload, allocation) is not None
        if of_gang := workload.release_mode is ReleaseMode.GROUP:
            floors = self._floors_of(workload)
            slots = [slot for slot in slots if (floor := floors.get(slot.pod_uid or "")) and not floor.stays]
            if len(slots) == len(allocation.open_slots) - len(leaving):
                slots = slots[1:]  # one stays, by which the gang is known
        for slot in slots:
            lost_node_s = self._lost_s(since[slot.pod_uid or ""]) / beside[slot.node]
            part = self._part(
                workload, workload, since[slot.pod_uid or ""], lost_node_s, {slot.node}, (slot.rank,)
            )
            if of_gang:
                yield replace(part, floor=self._floors_of(workload)[slot.pod_uid or ""])
            else:
                yield replace(part, place=slot.rank) if in_order else part
        for row, its in self._further_of.get(workload.uid, ()):
            if row.state is State.RUNNING and row.uid in since:
                part = self._part(workload, row, since[row.uid], self._lost_s(since[row.uid]), its.open_nodes)
                yield replace(part, place=self._victims_of.place(row, its) or 0) if in_order else part

    def _part(
        self,
        job: Workload,
        workload: Workload,
        since: datetime,
        lost_node_s: float,
        nodes: Set[str],
        ranks: tuple[int, ...] = (),
    ) -> PreemptionCandidate:
        return PreemptionCandidate(
            workload.id, job.priority, since, lost_node_s, ranks=ranks, of=job.id, nodes=frozenset(nodes)
        )

    def _lost_s(self, since: datetime) -> float:
        return max((self.now - since).total_seconds(), 0.0)

    def place(self, workload: WorkloadId) -> int | None:
        """Return where a pod stands among those of its owner; None if any of them can go."""
        return next((self._victims_of.place(*held) for held in self.held(workload)), None)

    def places(self, parts: Sequence[PreemptionCandidate]) -> set[int | None]:
        """Return where the running pods stand among those of an owner, also those that must not end."""
        first = parts[0]
        if first.floor is None:
            return {part.place for part in parts}
        rows = map(self._ledger.by_uid, self.pods_of(first.floor, first.workload))
        return {self.place(row.id) for row in rows if row is not None}

    def count(self, parts: Sequence[PreemptionCandidate]) -> int:
        """Return how many pods run of what these parts are of."""
        floors = {each.floor.key: (each.floor, each.workload) for each in parts if each.floor is not None}
        if floors:
            return sum(len(self.pods_of(*found)) for found in floors.values())
        return sum(
            len(self._shown.elastic_pods(row)) for row, _ in self.held(parts[0].of or parts[0].workload)
        )

    def told_until(
        self, workload: Workload, allocation: Allocation, ranks: Set[int] | None = None
    ) -> datetime | None:
        """Return until when a workload may go on, or some slots (ranks) of it, as it was told before;
        None if not all of that was told.
        """
        told = self._abandoned.get(workload.id)
        if ranks is None:
            ranks = {slot.rank for slot in allocation.open_slots}
        return told.stop_at if told is not None and ranks and told.ranks >= ranks else None

    def ran_enough(self, workload_id: WorkloadId) -> bool:
        """True if a workload has run for the time that its queue grants."""
        return all(self._victims_of.ran_enough(*held) for held in self.held(workload_id))

    def held(self, workload_id: WorkloadId) -> list[Held]:
        """Return a workload with what it holds, as it counts; none if it holds nothing any more."""
        workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
        if workload is not None:
            workload = self._as_it_counts(workload)
        return [(workload, allocation)] if workload is not None and allocation is not None else []

    def further(self, workload_id: WorkloadId) -> Sequence[Held]:
        """The pods of a Job that were matched alone and hold nodes."""
        workload = self._ledger.get(workload_id)
        return self._further_of.get(workload.uid, ()) if workload is not None else ()

    def ending(self, wholes: Sequence[PreemptionCandidate]) -> frozenset[WorkloadId]:
        """Return all that ends if candidates are evicted as a whole: they and their further pods."""
        return frozenset(each.workload for each in wholes).union(
            row.id for each in wholes for row, _ in self.further(each.workload)
        )
