"""Hands the places of pods that went to their successors, or keeps them for a while (`fluxqueue.queue.successors`).

A step of the tracker, between its judgement that a pod of its own has ended and the end of its workload. Handing over is one transaction:
the allocation passes from one workload to the other under its job id, so the matcher hears nothing of it, and is released once more. Until
when a place is kept is in memory only: a new leader gives it back at once, or begins to count anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.objects import Pod
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.owners import read_owner
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.metrics import INHERITED
from fluxqueue.queue.records import Allocation, Inheritance, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.successors import Line, line_of, next_of, wants_more
from fluxqueue.queue.tasks import Trigger
from fluxqueue.queue.tracking import Judgement

__all__ = ["KEPT_S", "Judged", "Successions"]

log = structlog.get_logger()

KEPT_S = 30.0
"""How long a place is kept for the successor of a pod that is gone."""
_AGAIN_S = 0.2

Judged = tuple[Workload, Allocation, Judgement]


class Successions:
    """Places between a pod and the next.

    Parameters
    ----------
    api
        Where owners are asked whether they want more pods.
    caches, ledger, trigger
        The cluster, the queue, and how a release is asked for.
    look_after
        Has the tracker judge a workload again in so many seconds.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, trigger: Trigger, look_after: Callable[[WorkloadId, float], None]) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._look_after = look_after
        self._lines: dict[str, Line] = {}
        self._kept: dict[Line, dict[WorkloadId, float]] = {}

    def note_gone(self, pod: Pod) -> None:
        """A pod of its own is gone: remember whose line it was of."""
        if (line := line_of(pod)) is not None and self._ledger.by_uid(pod.metadata.uid) is not None:
            self._lines[pod.metadata.uid] = line

    def forget_the_ended(self) -> None:
        """Let go of what was noted about workloads that ended in another way than through `settle`."""
        self._lines = {uid: line for uid, line in self._lines.items() if self._ledger.by_uid(uid) is not None}
        for line, kept in list(self._kept.items()):
            self._kept[line] = {found: since for found, since in kept.items() if self._ledger.get(found) is not None}
            if not self._kept[line]:
                del self._kept[line]

    def note_change(self, workload: Workload) -> None:
        """Something about a workload changed: if places are kept for its line, look at them."""
        if not self._kept or workload.release_mode is not ReleaseMode.POD:
            return
        pod = self._caches.pods.get_by_uid(workload.uid)
        line = line_of(pod) if pod is not None else None
        for found in self._kept.get(line, ()) if line is not None else ():
            self._look_after(found, 0)

    async def settle(self, judged: Sequence[Judged]) -> list[Judged]:
        """Hand over, or keep, the places of pods that ended; the judgements that are left are to be carried out."""
        lines = {workload.id: line for workload, held, judgement in judged if (line := self._line_that_ends(workload, held, judgement))}
        if not lines:
            return list(judged)
        wanting = await self._wanting(set(lines.values()))
        left: list[Judged] = []
        inheritances: list[Inheritance] = []
        keeping: list[WorkloadId] = []
        taken: set[WorkloadId] = set()
        now = asyncio.get_running_loop().time()
        for workload, allocation, judgement in judged:
            line = lines.get(workload.id)
            if line is None or judgement.state is None:
                left.append((workload, allocation, judgement))
                continue
            since = self._kept.get(line, {}).get(workload.id, now)
            heirs = [heir for heir in self._waiting(line) if heir.id not in taken]
            place = next_of(workload, heirs, wanted=wanting[line], expired=now - since >= KEPT_S)
            if place.heir is not None:
                taken.add(place.heir.id)
                inheritances.append(
                    Inheritance(
                        gone=workload.id,
                        heir=place.heir.id,
                        state=judgement.state,
                        outcome=judgement.outcome,
                        message=judgement.message,
                    )
                )
            elif place.keep:
                if workload.id not in self._kept.setdefault(line, {}):
                    self._kept[line][workload.id] = now
                    self._look_after(workload.id, KEPT_S + _AGAIN_S)
                keeping.append(workload.id)
            else:
                self._forget(workload, line)
                left.append((workload, allocation, judgement))
        await self._ledger.draining(keeping)
        await self._hand_over(inheritances, lines)
        return left

    async def _hand_over(self, inheritances: Sequence[Inheritance], lines: dict[WorkloadId, Line]) -> None:
        if not inheritances:
            return
        former = {each.gone: self._ledger.get(each.gone) for each in inheritances}
        heirs = set(await self._ledger.inherit(inheritances))
        for each in inheritances:
            if each.heir not in heirs:
                self._look_after(each.gone, _AGAIN_S)  # it got a place of its own meanwhile
            elif (gone := former[each.gone]) is not None:
                self._forget(gone, lines[each.gone])
                log.info("a place was inherited", workload=each.heir, gone=each.gone)
        if heirs:
            INHERITED.inc(len(heirs))
            await self._trigger.release()

    def _line_that_ends(self, workload: Workload, allocation: Allocation, judgement: Judgement) -> Line | None:
        if workload.release_mode is not ReleaseMode.POD or judgement.state is None:
            return None
        if workload.taken_back:
            return None  # taken back from its node, which is no good for its successor either
        if any((node := self._caches.nodes.get("", slot.node)) is None or not node.status.ready for slot in allocation.slots):
            return None
        pod = self._caches.pods.get_by_uid(workload.uid)
        return line_of(pod) if pod is not None else self._lines.get(workload.uid)

    def _waiting(self, line: Line) -> list[Workload]:
        """Pending workloads of the line's pods."""
        found = (self._ledger.by_uid(pod.metadata.uid) for pod in self._caches.pods_of_line(line) if _waits(pod))
        return [row for row in found if row is not None and row.state is State.PENDING]

    async def _wanting(self, lines: Iterable[Line]) -> dict[Line, bool]:
        """Which lines will have another pod: one that is there already but was not taken in yet, or one their owner is short of."""
        asked = list(lines)
        answers = await asyncio.gather(*(self._wants(line) for line in asked))
        return dict(zip(asked, answers, strict=True))

    async def _wants(self, line: Line) -> bool:
        try:
            owner = await read_owner(self._api, line)
        except ApiError as error:
            log.info("an owner could not be asked: its place is kept", kind=line.kind, name=line.name, error=str(error))
            return True
        # Looked at after the answer: a pod that came meanwhile is counted by `wants_more`, and has no workload yet.
        pods = self._caches.pods_of_line(line)
        return wants_more(owner, pods) or any(_waits(pod) and self._ledger.by_uid(pod.metadata.uid) is None for pod in pods)

    def _forget(self, workload: Workload, line: Line) -> None:
        self._lines.pop(workload.uid, None)
        if (kept := self._kept.get(line)) is not None:
            kept.pop(workload.id, None)
            if not kept:
                del self._kept[line]


def _waits(pod: Pod) -> bool:
    return pod.spec.gated_by(names.GATE) and not pod.metadata.deletion_timestamp and not pod.terminal
