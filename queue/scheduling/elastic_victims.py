"""Victims that go on: pods of elastic work that end so that other work starts, and the further pods of work
that is evicted as a whole.

A moldable Job runs with any number of pods between its least and all. What it has above the least may be
given back: slots of its own, or pods by which it grew, which are workloads of their own. Each is a candidate
with what it did since it started or saved, so those that lose least end first. Only as many are candidates as
the Job can spare, so it never goes below its least.

A pod with a floor that was matched alone, as of a Deployment, is evicted as a whole. Those of its owner above
the floor are given back before anything else is evicted; the others, which are needed, only where nothing
else of their priority helps. A gang may have pods with floors in its slots: they are given back as slots, and
count together with those that were matched alone. What the owner creates instead waits like all other work.

Of some owners only the last pods can go: of a MiniCluster those of the highest ranks, of a StatefulSet those
of the highest ordinals. Then no more than the last pods are candidates that it can spare, and with one of
them all go that come after it. `fluxqueue.queue.model.shrinkable` has all kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Final

from msgspec import structs

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.given_back import given_ranks, leaving_ranks
from fluxqueue.queue.model.records import (
    Allocation,
    ReleaseMode,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.requeue_records import GivenBack
from fluxqueue.queue.model.victim_views import Floor
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, Victims, preemption_order, price
from fluxqueue.queue.scheduling.possible_victims import PossibleVictims, ShownVictims
from fluxqueue.queue.scheduling.preemption_trials import Attempt, Gone
from fluxqueue.queue.scheduling.withdrawals import NOTHING_ABANDONED, Abandoned
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ElasticVictims", "lost_in_words"]

_MOST_PARTS: Final = 1_000
"""Pods that are searched for one preemption."""

_Held = tuple[Workload, Allocation]
_Key = WorkloadId | tuple[ReplicaOwner, str]
"""Whole work, the Job that goes on without a pod, or the owner that does, with the role of its pod."""


class ElasticVictims:
    """Finds what running work can spare, and what is to be stored so that it ends. Made anew for each time.

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
        self._now = ledger.clock()
        self._parts_of: dict[WorkloadId, list[PreemptionCandidate]] = {}
        self._running_of: dict[_Key, Set[str]] = {}
        self._floors: dict[WorkloadId, Mapping[str, Floor]] = {}
        self._wholes: dict[WorkloadId, list[Allocation]] = {}
        self._in_order: dict[_Key, list[PreemptionCandidate]] = {}

    @cached_property
    def _further_of(self) -> Mapping[str, Sequence[_Held]]:
        """The pods of Jobs that were matched alone and hold nodes, by the Job's uid: they end with it.

        To read a pod takes a while, and there may be many that are of no Job.
        """
        found: dict[str, list[_Held]] = {}
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

    def live(self) -> Sequence[_Held]:
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

    def elastic(
        self, wholes: Iterable[PreemptionCandidate], allowed: Iterable[PreemptionCandidate]
    ) -> list[PreemptionCandidate]:
        """Return the candidates that may go on with fewer pods, and pods whose owners may: of these only what
        budgets of disruption allow.
        """
        found = [
            *((each, row) for each in wholes for row, _ in self._of(each.workload) if row.kind == "Job"),
            *((each, row) for each in allowed for row, _ in self._of(each.workload) if row.kind != "Job"),
        ]
        return [
            each
            for each, workload in found
            if (each.floor is not None or self._least(each.workload)) and workload.state is State.RUNNING
        ]

    def beside(
        self, wholes: Iterable[PreemptionCandidate], parts: Sequence[Victims]
    ) -> list[PreemptionCandidate]:
        """Return what could be evicted beside the pods that can be spared:
        other pods of their owners are needed, but those that do not run only while too few others do.
        """
        spare = {part.workload for unit in parts for part in unit if part.of is None}
        return [
            each if each.floor is None else replace(each, needed=self._runs(each) or self._spare(each) < 0)
            for each in wholes
            if each.floor is None or each.workload not in spare
        ]

    def closed(self, candidates: Iterable[PreemptionCandidate]) -> Victims:
        """Return candidates with all that go before them: of an owner of which only the last pods can go,
        those after the first one chosen.
        """
        chosen = tuple(candidates)
        first: dict[_Key, int] = {}
        for each in chosen:
            if each.place is not None:
                first[_key(each)] = min(each.place, first.get(_key(each), each.place))
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
                self._running(job.workload)
                if job.floor is None
                else (replace(job, place=self._place(job.workload)),)
                if self._runs(job)
                else ()
            )
        ]
        ordered: dict[_Key, list[PreemptionCandidate]] = {}
        for part in found:
            if part.place is not None:
                ordered.setdefault(_key(part), []).append(part)
        self._in_order = {key: self._last_of(parts) for key, parts in ordered.items()}
        return [
            *(part for part in found if part.place is None),
            *(part for parts in self._in_order.values() for part in parts),
        ]

    def _last_of(self, parts: Sequence[PreemptionCandidate]) -> list[PreemptionCandidate]:
        """Return the last of the pods of an owner, as many as it can spare, with what is lost behind each."""
        last: list[PreemptionCandidate] = []
        behind = 0.0
        stay = self._places(parts) - {part.place for part in parts}
        last_staying = max((place or 0 for place in stay), default=-1)
        slots = sum(len(part.ranks) for part in parts) - 1  # one stays, by which a Job is known
        for part in sorted(parts, key=lambda each: each.loss[1])[: max(self._can_spare(parts), 0)]:
            slots -= len(part.ranks)
            may_end = slots >= 0 if part.ranks else self._ran_enough(part.workload)
            if not may_end or last_staying > (part.place or 0):
                break  # it stays, so all before it do
            last.append(replace(part, behind=behind))
            behind = max(behind, part.lost_node_s)
        return last

    def _places(self, parts: Sequence[PreemptionCandidate]) -> set[int | None]:
        """Return where the running pods stand among those of an owner, also those that must not end."""
        first = parts[0]
        if first.floor is None:
            return {part.place for part in parts}
        rows = map(self._ledger.by_uid, self._pods_of(first.floor, first.workload))
        return {self._place(row.id) for row in rows if row is not None}

    def _place(self, workload: WorkloadId) -> int | None:
        return next((self._victims_of.place(*held) for held in self._of(workload)), None)

    def _can_spare(self, parts: Sequence[PreemptionCandidate]) -> int:
        """Return how many pods go on above the least of what all these parts are of."""
        if parts[0].floor is not None:
            return min(map(self._spare, parts))
        job = parts[0].of or parts[0].workload
        return len(self._running(job)) - self._least(job)

    def _least(self, job: WorkloadId) -> int:
        return sum(self._victims_of.least(*held) for held in self._of(job))

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
            there = len(set(map(_key, on_node[node])))
            return (
                (node not in first, there, *price(on_node[node])) if first else (*price(on_node[node]), there)
            )

        return self._spared([tuple(on_node[node]) for node in sorted(on_node, key=order)])

    def _spared(self, units: Sequence[Victims]) -> list[Victims]:
        """Return the first units of pods that their Jobs and other owners can spare altogether.
        One slot stays, by which a Job is known.
        """
        pods, slots = Counter[_Key](), Counter[_Key]()
        for part in {(_key(part), part.floor): part for unit in units for part in unit}.values():
            if part.floor is not None:
                spare = self._spare(part)
                pods[part.floor.key] = min(spare, pods.get(part.floor.key, spare))
                continue
            running, job = self._running(part.of or part.workload), _key(part)
            pods[job] = len(running) - self._least(part.of or part.workload)
            slots[job] = sum(len(each.ranks) for each in running) - 1
        chosen: list[Victims] = []
        left = _MOST_PARTS
        for unit in units:
            wanted = Counter(map(_key, unit))
            of_slots = Counter(_key(part) for part in unit if part.ranks and part.floor is None)
            ran_enough = all(part.ranks or self._ran_enough(part.workload) for part in unit)
            if ran_enough and len(unit) <= left and _within(wanted, pods) and _within(of_slots, slots):
                pods.subtract(wanted)
                slots.subtract(of_slots)
                chosen.append(unit)
                left -= len(unit)
        return chosen

    def _pods_of(self, floor: Floor, pod: WorkloadId) -> Set[str]:
        """Return which pods with a floor run and are not to stop, by uid, as one of them shows.
        A gang shows those of all its roles.
        """
        if floor.key not in self._running_of:
            shown: dict[_Key, set[str]] = {floor.key: set()}
            for row, _ in self._of(pod):
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

    def _runs(self, pod: PreemptionCandidate) -> bool:
        """True if a pod counts as running for its owner."""
        return pod.floor is not None and (
            bool(pod.ranks)
            or any(row.uid in self._pods_of(pod.floor, pod.workload) for row, _ in self._of(pod.workload))
        )

    def _spare(self, pod: PreemptionCandidate) -> int:
        """Return how many pods of the owner of a pod run above its floor; less than 0 if too few run."""
        return len(self._pods_of(pod.floor, pod.workload)) - pod.floor.least if pod.floor else 0

    def _running(self, job: WorkloadId) -> Sequence[PreemptionCandidate]:
        """Return the pods of a Job that run; none if it cannot go on without any."""
        if job not in self._parts_of:
            self._parts_of[job] = [part for held in self._of(job) for part in self._read(*held)]
        return self._parts_of[job]

    def _read(self, workload: Workload, allocation: Allocation) -> Iterator[PreemptionCandidate]:
        since, leaving = self._shown.elastic_pods(workload), leaving_ranks(workload, allocation)
        slots = [slot for slot in allocation.open_slots if slot.rank not in leaving and slot.pod_uid in since]
        beside = Counter(slot.node for slot in slots)
        in_order = self._victims_of.place(workload, allocation) is not None
        of_gang = workload.release_mode is ReleaseMode.GROUP
        for slot in slots:
            lost_node_s = self._lost_s(since[slot.pod_uid or ""]) / beside[slot.node]
            part = self._part(
                workload, workload, since[slot.pod_uid or ""], lost_node_s, {slot.node}, (slot.rank,)
            )
            if not of_gang:
                yield replace(part, place=slot.rank) if in_order else part
            elif floor := self._floors_of(workload).get(slot.pod_uid or ""):
                yield replace(part, floor=floor)
        for row, its in self._further_of.get(workload.uid, ()):
            if row.state is State.RUNNING and row.uid in since:
                part = self._part(workload, row, since[row.uid], self._lost_s(since[row.uid]), its.open_nodes)
                yield replace(part, place=self._victims_of.place(row, its) or 0) if in_order else part

    def ending(self, wholes: Sequence[PreemptionCandidate]) -> frozenset[WorkloadId]:
        """Return all that ends if candidates are evicted as a whole: they and their further pods."""
        return frozenset(each.workload for each in wholes).union(
            row.id for each in wholes for row, _ in self._further(each.workload)
        )

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
                whole += [its for _, its in self._of(each.workload)]
        return Gone(
            whole, [(*held, ranks[held[0].id]) for workload_id in ranks for held in self._of(workload_id)]
        )

    def _whole(self, workload_id: WorkloadId) -> Sequence[Allocation]:
        """The allocations that are gone with a workload; they are asked for in each trial."""
        if workload_id not in self._wholes:
            self._wholes[workload_id] = [
                its for _, its in (*self._of(workload_id), *self._further(workload_id))
            ]
        return self._wholes[workload_id]

    def evictions(self, attempt: Attempt, victims: Sequence[PreemptionCandidate]) -> list[Eviction]:
        """Return the evictions of whole victims, and of their further pods."""
        made: list[Eviction] = []
        said = self._said_of_owners(attempt, victims)
        for victim in victims:
            for held in self._of(victim.workload) if victim.of is None else ():
                stop_at = self._told_until(*held) or self._victims_of.stop_at(held[0])
                own = self._victims_of.eviction(*held, attempt.workload, attempt.guaranteed_to, stop_at)
                own = replace(own, message=said.get(victim.workload, own.message))
                made.append(own)
                made += [
                    _alike(own, row, min(self._told_until(row, its) or stop_at, stop_at), attempt)
                    for row, its in self._further(victim.workload)
                ]
        return made

    def _said_of_owners(
        self, attempt: Attempt, victims: Sequence[PreemptionCandidate]
    ) -> Mapping[WorkloadId, str]:
        """Return what is said of running pods whose owners go on with enough others."""
        said: dict[WorkloadId, str] = {}
        for key in dict.fromkeys(each.floor.key for each in victims if each.floor is not None):
            parts = [each for each in victims if _key(each) == key and self._runs(each)]
            if parts and len(parts) <= min(map(self._spare, parts)):
                pods = self._count(parts)
                held = [held for each in parts for held in self._of(each.workload)]
                stops = {self._told_until(*each) or self._victims_of.stop_at(each[0]) for each in held}
                words = self._in_words(attempt, _named(held[0][0], parts[0]), pods, parts, stops)
                said |= dict.fromkeys((each.workload for each in parts if each.of is None), words)
        return said

    def _count(self, parts: Sequence[PreemptionCandidate]) -> int:
        """Return how many pods run of what these parts are of."""
        floors = {each.floor.key: (each.floor, each.workload) for each in parts if each.floor is not None}
        if floors:
            return sum(len(self._pods_of(*found)) for found in floors.values())
        return sum(
            len(self._shown.elastic_pods(row)) for row, _ in self._of(parts[0].of or parts[0].workload)
        )

    def _told_until(
        self, workload: Workload, allocation: Allocation, ranks: Set[int] | None = None
    ) -> datetime | None:
        """Return until when a workload may go on, or some slots (ranks) of it, as it was told before;
        None if not all of that was told.
        """
        told = self._abandoned.get(workload.id)
        if ranks is None:
            ranks = {slot.rank for slot in allocation.open_slots}
        return told.stop_at if told is not None and ranks and told.ranks >= ranks else None

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
            for workload, allocation in self._of(job):
                before, ranks = given_ranks(workload), {rank for each in parts for rank in each.ranks}
                new = self._victims_of.stop_at(workload)
                alone = [held for each in parts if not each.ranks for held in self._of(each.workload)]
                until = {row.id: self._told_until(row, its) or new for row, its in alone}
                stop_at = (self._told_until(workload, allocation, ranks) or new) if ranks else None
                stops = {*until.values(), *([stop_at] if stop_at is not None else [])}
                if not stops:  # the pods by which it grew ended meanwhile
                    continue
                roles = {each.floor.key for each in parts if each.floor is not None}
                beside = [each for each in victims if each.of is None and _key(each) in roles]
                parts = [*parts, *filter(self._runs, beside)]
                message = self._in_words(attempt, workload, self._count(parts), parts, stops)
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
        for key in dict.fromkeys(map(_key, victims)):
            parts = [each for each in victims if _key(each) == key]
            whole = parts[0].of is None and parts[0].floor is None
            ending = "" if whole else "1 pod of " if len(parts) == 1 else f"{len(parts)} pods of "
            # some may have ended while it was stored that they are to end
            rows = (row for part in parts for row, _ in self._of(part.of or part.workload))
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
        grace = f", with a grace until {time_text(last)}{latest}" if last > self._now else ""
        return (
            f"{job.ref} (priority {job.priority}) gave {len(parts)} of its {pods} pods back at "
            f"{time_text(self._now)}{grace}, {lost_in_words(parts)}, so that "
            f"{first.ref_within(job.namespace)}{which} starts: it went on with {pods - len(parts)}"
        )

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
        return max((self._now - since).total_seconds(), 0.0)

    def _ran_enough(self, workload_id: WorkloadId) -> bool:
        return all(self._victims_of.ran_enough(*held) for held in self._of(workload_id))

    def _of(self, workload_id: WorkloadId) -> list[_Held]:
        workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
        if workload is not None:
            workload = self._as_it_counts(workload)
        return [(workload, allocation)] if workload is not None and allocation is not None else []

    def _further(self, workload_id: WorkloadId) -> Sequence[_Held]:
        """The pods of a Job that were matched alone and hold nodes."""
        workload = self._ledger.get(workload_id)
        return self._further_of.get(workload.uid, ()) if workload is not None else ()


def _alike(eviction: Eviction, row: Workload, stop_at: datetime, attempt: Attempt) -> Eviction:
    """Return the eviction of a further pod of a Job, with its message: the pod may go on until a time."""
    told = structs.replace(row.requeue_state, stop_at=stop_at, preempted_for=attempt.workload.id)
    return replace(eviction, workload=row.id, requeue_state=told)


def _within(wanted: Mapping[_Key, int], left: Mapping[_Key, int]) -> bool:
    return all(count <= left[job] for job, count in wanted.items())


def _key(part: PreemptionCandidate) -> _Key:
    """Return what goes on without a pod: its owner, or its Job."""
    return part.floor.key if part.floor is not None else part.of or part.workload


def _named(workload: Workload, part: PreemptionCandidate) -> Workload:
    """Return the work that people know: whole work, or what goes on without a part of it."""
    if part.floor is None:
        return workload
    return replace(workload, kind=part.floor.owner.kind, name=part.floor.owner.name)


def _lost(part: PreemptionCandidate) -> tuple[object, ...]:
    """Least first; then pods that were matched alone, and the highest slots."""
    return part.loss, bool(part.ranks), -max(part.ranks, default=0)


def lost_in_words(victims: Iterable[PreemptionCandidate]) -> str:
    """Return what is lost by victims, in whole minutes of nodes once there are some."""
    lost_node_s = sum(each.lost_node_s for each in victims)
    minutes = round(lost_node_s / 60)
    return f"{minutes:,} node-minutes lost" if minutes > 1 else f"{round(lost_node_s)} node-seconds lost"
