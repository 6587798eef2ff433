"""Keeps pending workloads from being matched until what they wait for has happened.

The intake describes a workload with its dependencies, and this part adds the reason to wait. When a workload
starts or ends, only those that wait for it are judged. The last judgement that one needs has it described
again, and that stores the judgements with its row. Until then they are in memory only: they follow from the
rows of the targets, so whoever leads next comes to the same. A resync judges all again.

All that waits in one namespace may have so many dependencies together (`MOST_IN_NAMESPACE`): each takes
memory, and those on one target are judged at once. Work beyond that is read again with each sweep.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec
import structlog

from fluxqueue.api import names
from fluxqueue.api.dependencies import DependencyKind
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.intake.dependency_cycles import DependencyCycles
from fluxqueue.queue.intake.dependency_graph import DependencyGraph, TargetName
from fluxqueue.queue.intake.dependency_targets import DependencyTargets, names_of
from fluxqueue.queue.intake.problems import NO_PROBLEM, Problem
from fluxqueue.queue.intake.singletons import Singletons
from fluxqueue.queue.model.dependency_rules import judge, waits_for
from fluxqueue.queue.model.records import NewWorkload, WorkloadId
from fluxqueue.queue.model.start_conditions import NO_START_CONDITIONS, DependencyState, StartConditions
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.batches import Batches
from fluxqueue.queue.tasks.rests import Rests

__all__ = ["MOST_IN_NAMESPACE", "DependencyTracker"]

log = structlog.get_logger()

MOST_IN_NAMESPACE = 25_000
"""Dependencies of all work that waits in a namespace: to judge all of them takes a tenth of a second."""
_BATCH = 500
_SOON_S = 120.0
"""A time that is farther away is looked at again by the sweep."""
_REST_OF_WAITER_S = 10e-6
"""Some times what it takes to look for its cycles."""
_CYCLES: Final = TargetName("", DependencyKind.JOB, "")
"""No object has this name. It stands for the cycles that are to be looked for."""
_FEW = 100
"""Workloads of a namespace that one settlement may have described before everybody's new ones."""


class DependencyTracker:
    """Judges dependencies, and adds the reasons to wait.

    Parameters
    ----------
    caches
        The cluster.
    ledger
        The workloads.
    enqueue
        Called with the uid of each workload that is to be described again.
    enqueue_later
        The same where there are many of them, which must not keep back what somebody has just created.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        enqueue: Callable[[str], None],
        enqueue_later: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._enqueue = enqueue
        self._enqueue_later = enqueue_later
        self._graph = DependencyGraph()
        self._cycles = DependencyCycles(self._graph, ledger)
        self._targets = DependencyTargets(caches, ledger)
        self._singletons = Singletons(ledger, enqueue)
        self.parts = (self._singletons,)
        self._keys: Batches[str | TargetName] = Batches("dependencies")
        self._rests: Rests[str | TargetName] = Rests(self._keys.add_after, _REST_OF_WAITER_S)
        self._judged: dict[WorkloadId, tuple[str, datetime | None]] = {}
        """Targets that have not ended: the uid, and the start by which was judged what waits for it."""
        self._waiter_ids: dict[WorkloadId, str] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._due: dict[str, None] = {}
        """Whose time has come since the last settlement."""

    async def run(self) -> None:
        """Work until cancelled."""
        await self._keys.run(self.settle, limit=_BATCH)

    def resync(self) -> None:
        """Judge every open dependency again."""
        for waiter in self._graph.waiters():
            if self._ledger.by_uid(waiter) is None:
                self._forget(waiter)
        for uid in self._graph.targets():
            self._keys.add(uid)
        for name in self._graph.names():
            self._keys.add(name)

    def assign(self, described: Sequence[NewWorkload]) -> list[NewWorkload]:
        """Return the descriptions with what is known of their dependencies;
        work that must wait gets that as its reason.
        """
        batch: dict[tuple[str, str], str] = {}
        return [self._assign(new, batch) for new in described]

    def _assign(self, new: NewWorkload, batch: dict[tuple[str, str], str]) -> NewWorkload:
        if new.start_conditions == NO_START_CONDITIONS:
            self._forget(new.uid)
            return new
        if (beyond := self._beyond(new)) is not None:
            self._forget(new.uid)
            unread = replace(new, start_conditions=msgspec.structs.replace(new.start_conditions, after=()))
            return (
                unread
                if new.reason is not Reason.NONE
                else replace(unread, reason=beyond.reason, message=beyond.message)
            )
        conditions = self._track(new)
        before = self._singletons.before(new, batch)
        problem = NO_PROBLEM
        if new.reason is Reason.NONE:
            problem = (
                self._impossible(new, conditions)
                or self._open(new, conditions, before)
                or self._early(new, conditions)
            )
        if problem is NO_PROBLEM:
            return replace(new, start_conditions=conditions)
        return replace(new, start_conditions=conditions, reason=problem.reason, message=problem.message)

    def _track(self, new: NewWorkload) -> StartConditions:
        """Return the conditions with all that is known of the dependencies,
        and have the unknown ones judged.
        """
        row, asked = self._ledger.by_uid(new.uid), new.start_conditions.after
        if not asked:
            self._forget(new.uid)
            return new.start_conditions
        stored = {each.asked: each for each in row.start_conditions.after} if row is not None else {}
        before = {each.asked for each in self._graph.dependencies(new.uid)}
        self._graph.put(new.uid, new.namespace, [stored.get(each.asked, each) for each in asked])
        if row is not None:
            self._waiter_ids[row.id] = new.uid
        known = self._graph.dependencies(new.uid)
        for each in known:
            if each.open and each.asked not in before:
                self._keys.add(each.target or TargetName(new.namespace, each.kind, each.name))
        if before != {each.asked for each in known}:
            if new.uid in self._cycles:
                self._note_cycles(new.uid)
            elif row is not None and (not before or row.reason is Reason.DEPENDENCY_NEVER_SATISFIED):
                self._cycles.note(new.uid)  # a former leader may have found it in a cycle, and not told it
        return msgspec.structs.replace(new.start_conditions, after=known)

    # ---- reasons -------------------------------------------------------------------------------------------

    def _beyond(self, new: NewWorkload) -> Problem | None:
        """Return why the dependencies of a workload are not read:
        with them, its namespace would have too many.
        """
        others = self._graph.in_namespace(new.namespace, but=new.uid)
        if not others or others + len(new.start_conditions.after) <= MOST_IN_NAMESPACE:
            return None
        message = (
            f"{new.ref}: annotation {names.AFTER_ANNOTATION}: the work that waits in namespace "
            f"{new.namespace!r} would name more than {MOST_IN_NAMESPACE} others in all: let less of it wait "
            "for so many, or one for the others; it is read again each minute"
        )
        return Problem(Reason.INVALID_REQUEST, message)

    def _impossible(self, new: NewWorkload, conditions: StartConditions) -> Problem | None:
        remedy = f"edit the annotation {names.AFTER_ANNOTATION}, or delete the object"
        if cycle := self._cycles.text(new.uid):
            return Problem(
                Reason.DEPENDENCY_NEVER_SATISFIED,
                f"{new.ref} waits in a cycle, and none of it can start: {cycle}: {remedy}",
            )
        for each in conditions.after:
            if each.state is DependencyState.IMPOSSIBLE:
                message = (
                    f"{new.ref} waits for {waits_for(each, new.namespace)}, "
                    f"and that cannot happen: {each.detail}: {remedy}"
                )
                return Problem(Reason.DEPENDENCY_NEVER_SATISFIED, message)
        return None

    def _open(self, new: NewWorkload, conditions: StartConditions, before: str) -> Problem | None:
        waiting = [each for each in conditions.after if each.open]
        if waiting:
            more = f", and for {len(waiting) - 1} more" if len(waiting) > 1 else ""
            return Problem(
                Reason.WAITING_FOR_DEPENDENCY,
                f"{new.ref} waits for {waits_for(waiting[0], new.namespace)}{more}",
            )
        if before:
            message = (
                f"{new.ref} waits for {before} to end, which names the same {names.SINGLETON_ANNOTATION}: "
                f"{conditions.singleton!r}"
            )
            return Problem(Reason.WAITING_FOR_DEPENDENCY, message)
        return None

    def _early(self, new: NewWorkload, conditions: StartConditions) -> Problem:
        """Return the reason of work that may not begin yet, and have it described again when it may."""
        at, now = conditions.not_before, self._ledger.wall()
        if at is None or at <= now:
            return NO_PROBLEM
        left_s = (at - now).total_seconds()
        if left_s < _SOON_S:
            self._wake_at(new.uid, left_s)
        return Problem(Reason.WAITING_FOR_BEGIN, f"{new.ref} may begin from {at:%Y-%m-%dT%H:%M:%SZ} on")

    def _wake_at(self, uid: str, left_s: float) -> None:
        if (former := self._alarms.pop(uid, None)) is not None:
            former.cancel()
        self._alarms[uid] = asyncio.get_running_loop().call_later(left_s, self._wake, uid)

    def _wake(self, uid: str) -> None:
        self._alarms.pop(uid, None)
        self._due[uid] = None
        self._keys.add(uid)

    # ---- judgements ----------------------------------------------------------------------------------------

    async def settle(self, keys: Sequence[str | TargetName]) -> None:
        """Judge what waits for these workloads (by uid) and names,
        and have those described again that this concerns, or whose time has come.
        """
        named = {key for key in keys if isinstance(key, TargetName)}
        found = await self._targets.of_names(named)
        resolved: dict[str, None] = {}
        uids = {key for key in keys if isinstance(key, str)}
        for name, target in found.items():
            for waiter, each in self._graph.waiting_for_name(name):
                self._graph.replace(
                    waiter, msgspec.structs.replace(each, target=target.workload.uid, owner=target.owner)
                )
                resolved[waiter] = None
                self._cycles.note(waiter)
            uids.add(target.workload.uid)
        judged = await self._judge(uids)
        if judged:
            reach(CrashPoint.DEPENDENCIES_JUDGED)
        due, self._due = self._due, {}
        self._enqueue_all(resolved | judged | due)
        if self._cycles.is_due and not self._rests.rests(_CYCLES, len(self._graph)):
            for waiter in await self._cycles.check():
                self._enqueue_later(waiter)
            self._rests.over([_CYCLES])

    def _enqueue_all(self, waiters: Collection[str]) -> None:
        """Have workloads described again, and those of a namespace with many of them behind all new work."""
        rows = {waiter: self._ledger.by_uid(waiter) for waiter in waiters}
        namespaces = {waiter: row.namespace if row is not None else "" for waiter, row in rows.items()}
        counts = Counter(namespaces.values())
        for waiter, namespace in namespaces.items():
            (self._enqueue if counts[namespace] <= _FEW else self._enqueue_later)(waiter)

    async def _judge(self, uids: Collection[str]) -> dict[str, None]:
        """Judge all open dependencies on some workloads;
        return who waits for nothing more, or for what cannot happen.
        """
        judged: dict[str, None] = {}
        rows, now = await self._targets.of_uids(uids), self._ledger.clock()
        for uid in uids:
            row = rows.get(uid)
            if row is not None and not row.state.ended:
                self._judged[row.id] = uid, row.started_at
            for waiter, each in self._graph.waiting_for(uid):
                if row is not None and self._targets.is_replaced(each, row):
                    self._graph.replace(waiter, msgspec.structs.replace(each, target="", owner=""))
                    # the new Job may be there already
                    self._keys.add(TargetName(row.namespace, each.kind, each.name))
                    continue
                if (after := judge(each, row, now)) == each:
                    continue
                self._graph.replace(waiter, after)
                if self._graph.is_decided(waiter) or after.state is DependencyState.IMPOSSIBLE:
                    judged[waiter] = None
        if judged:
            log.info("dependencies.judged", workloads=len(judged))
        return judged

    # ---- changes -------------------------------------------------------------------------------------------

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Judge what waits for a workload when it started, ended or changed its place."""
        row = self._ledger.get(workload_id)
        if row is None:
            if (target := self._judged.pop(workload_id, None)) is not None:
                self._keys.add(target[0])
            if (waiter := self._waiter_ids.pop(workload_id, None)) is not None:
                self._forget(waiter)
            return
        if row.start_conditions.after:
            if row.state is State.PENDING:
                self._waiter_ids[workload_id] = row.uid
            else:
                self._forget(row.uid)
        if (judged := self._judged.get(workload_id)) is not None:
            if row.state is State.RUNNING and row.started_at != judged[1]:
                self._keys.add(row.uid)
            return
        for kind, name in names_of(row):
            if self._graph.is_awaited(key := TargetName(row.namespace, kind, name)):
                self._keys.add(key)

    def _forget(self, waiter: str) -> None:
        self._graph.remove(waiter)
        if waiter in self._cycles:
            self._note_cycles(waiter)
        if (alarm := self._alarms.pop(waiter, None)) is not None:
            alarm.cancel()

    def _note_cycles(self, waiter: str) -> None:
        """Have the cycles of a workload looked for again, as one may be broken."""
        self._cycles.note(waiter)
        self._keys.add(_CYCLES)
