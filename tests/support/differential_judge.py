"""Judges the queue by kube-scheduler: the same work in equal worlds, once queued and once plain, many worlds
at a time.

The rules:

- ``Unsatisfiable`` and ``InvalidRequest`` are only for work that the scheduler cannot place in an empty copy
  of the world.
- The scheduler refuses no pod that the queue released; after a refusal no node is held for longer than
  `HELD_S`. Pods that share a claim wait for the first of them to get it, queued or not, and the scheduler
  says that they are unschedulable meanwhile: that is no refusal.
- Work that the scheduler places entirely when it is not queued is started by the queue too.
- No work ends by preemption unless the work for which it ended is bound within `_PREEMPTED_S`, and the
  scheduler preempts nothing for a pod that the queue released.
- Released pods do not violate their own spread constraints, which the scheduler cannot judge for a pod that
  is pinned to a node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from support.differential_cluster import CONTROL_S, Copy, WorldCluster, unschedulable
from support.differential_earlier import EARLIER_NAME
from support.differential_worlds import World, is_earlier, is_work
from support.known_differences import known_difference
from support.spread_counts import overfull

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason

__all__ = ["STARTED", "Judge", "Rule", "Trial"]

Json = dict[str, Any]
FOR_EVER = (Reason.UNSATISFIABLE, Reason.INVALID_REQUEST)
WORLDS_AT_ONCE = 16
PREEMPTING_AT_ONCE = 3
"""Worlds with preemption: the queue tries it for no more than the first four that wait."""
DECIDED_S = 30.0
SILENT_S = 180.0
"""How long a busy machine may take until the queue says anything."""
HELD_S = 60.0
_LATE_S = 15.0
_PREEMPTED_S = 60.0
"""Until work is bound for which other work ended."""
_PREEMPTING_S = 90.0
"""How long work may wait that preempts others, one after the other."""
_BEING_BOUND = ("in the process of being allocated", "didn't find available persistent volumes to bind")
"""What kube-scheduler says of a pod whose claim of devices, or of a volume, another pod is getting."""
STARTED = "started"


class Rule(StrEnum):
    """The rules, in few words."""

    UNSATISFIABLE = "given up, and the scheduler places it"
    BINDS = "refused after its release"
    HELD = "nodes held after a refusal"
    VIOLATES = "own rules violated"
    CONTROL = "waits, and plain it runs"
    VICTIMS = "victims ended in vain"


@dataclass
class Trial:
    """One world, and what became of it.

    Attributes
    ----------
    rule, fault
        The rule that was broken, and how, in a sentence; empty if none was.
    known
        The known difference that explains why the queue lets work wait; then it is no fault.
    verdict
        ``started``, or why the queue lets the work wait.
    refusals
        What the scheduler said of released pods, once for each pod. It may take them later.
    waits
        The same of pods that waited for a claim that another pod of the work was getting, and were bound.
    ran
        Uids of the pods that ran before the work, in the queued copy.
    lost_at
        When the first of them had ended.
    """

    world: World
    queued: Copy
    plain: Copy
    rule: Rule | None = None
    fault: str = ""
    known: str = ""
    verdict: str = ""
    message: str = ""
    refusals: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    refused_at: float = 0.0
    released: int = 0
    ran: set[str] = field(default_factory=set)
    lost_at: float = 0.0

    @property
    def title(self) -> str:
        return f"world {self.world.number}: {self.fault}"

    def breaks(self, rule: Rule, how: str) -> None:
        self.rule, self.fault = rule, how


class Judge:
    """Runs worlds on one cluster, some at a time.

    Parameters
    ----------
    cluster
        Has the copies of worlds.
    fluxion
        True if the project's scheduler binds what is queued.
    """

    def __init__(self, cluster: WorldCluster, *, fluxion: bool = False) -> None:
        self._cluster = cluster
        self._fluxion = fluxion
        self._free = asyncio.Semaphore(WORLDS_AT_ONCE)
        self._preempting = asyncio.Semaphore(PREEMPTING_AT_ONCE)

    async def judge(self, worlds: Sequence[World], tell: Callable[[Trial], None]) -> None:
        """Run worlds, each that fails or cannot be built twice: what is not repeated was late and not wrong.

        Parameters
        ----------
        worlds
            In the order in which they begin.
        tell
            Called with the trial of each as it ends.
        """

        async def judged(world: World) -> None:
            trial: Trial | None = None
            with suppress(TimeoutError):
                trial = await self._judged(world)
            tell(trial if trial and not trial.fault else await self._judged(world))

        async with asyncio.TaskGroup() as group:
            for world in worlds:
                group.create_task(judged(world))

    async def fails(self, worlds: Sequence[World]) -> list[bool]:
        """Return for each world whether a rule is broken in it."""
        return [bool(trial.fault) for trial in await asyncio.gather(*map(self._judged, worlds))]

    async def _judged(self, world: World) -> Trial:
        async with self._preempting if world.preempts else nullcontext(), self._free:
            trial = self._trial(world)
            copies: tuple[Copy, ...] = (trial.queued, trial.plain)
            try:
                await self._cluster.build(copies)
                if await self._ready(trial):
                    await asyncio.gather(*map(self._cluster.submit, copies))
                    await self._follow(trial)
            finally:
                await self._cluster.clear(copies)
            if trial.verdict in FOR_EVER and not trial.fault:
                copies = (*copies, await self._judge_wait(trial))
        await self._cluster.leave(copies)
        if (trial.rule, trial.verdict) == (Rule.UNSATISFIABLE, Reason.UNSATISFIABLE):
            return trial  # no known difference is a reason to say so
        if trial.fault and trial.verdict != STARTED and not trial.refusals:
            trial.known = known_difference(trial.world, trial.message)
            if trial.known:
                trial.rule, trial.fault = None, ""
        return trial

    def _trial(self, world: World) -> Trial:
        queued = self._cluster.copy(world, "q")
        for each in queued.documents:
            if each["kind"] == "Namespace":
                each["metadata"]["labels"][names.MANAGED_LABEL] = "true"
            if is_work(each) and self._fluxion:
                each["metadata"]["labels"][names.SCHEDULER_LABEL] = "fluxion"
        return Trial(world, queued, self._cluster.copy(world, "p"))

    async def _ready(self, trial: Trial) -> bool:
        """True if all that runs before the work runs; if only its plain copies do, that is a fault."""
        if not any(map(is_earlier, trial.world.documents)):
            return True
        await self._cluster.run_earlier((trial.queued, trial.plain))
        trial.ran = {each["metadata"]["uid"] for each in trial.queued.earlier}
        if not trial.queued.ready:
            trial.verdict = "not begun"
            if trial.plain.ready:
                fluxjobs = (await self._cluster.look()).get(trial.queued.namespace, [])
                says = "; ".join(each.get("status", {}).get("message", "") for each in fluxjobs)
                trial.breaks(Rule.CONTROL, f"what runs before the work runs only where it is plain: {says}")
        return trial.queued.ready and trial.plain.ready

    async def _follow(self, trial: Trial) -> None:
        begun = time.monotonic()
        while True:
            fluxjobs = await self._cluster.look(trial.queued, trial.plain)
            now = time.monotonic()
            if _ended(trial, fluxjobs.get(trial.queued.namespace, []), now, now - begun):
                break
        if trial.ran and (said := await self._cluster.preempted(trial.queued, trial.ran)):
            trial.breaks(Rule.VICTIMS, f"the scheduler preempted for a released pod: {said}")

    async def _judge_wait(self, trial: Trial) -> Copy:
        """Find whether the scheduler places work that the queue gave up in an empty copy of its world."""
        copy = self._cluster.copy(trial.world, "e")
        try:
            await self._cluster.build([copy])
            await self._cluster.submit(copy)
            deadline = time.monotonic() + DECIDED_S
            while time.monotonic() < deadline and not copy.complete:
                await self._cluster.look(copy)
                if copy.decided(time.monotonic()):
                    break
            if copy.complete:
                trial.breaks(
                    Rule.UNSATISFIABLE,
                    f"false {trial.verdict}: the scheduler places it in the empty world; "
                    f"the queue: {trial.message}",
                )
        finally:
            await self._cluster.clear([copy])
        return copy


def _ended(trial: Trial, fluxjobs: list[Json], now: float, since: float) -> bool:
    """Judge a trial by what is seen now; return true if no more is expected."""
    queued, plain = trial.queued, trial.plain
    _note(trial, now)
    if queued.refused:
        trial.verdict = "refused"
        if plain.complete:
            trial.breaks(Rule.CONTROL, f"refused at creation, and the plain one runs: {queued.refused}")
        return bool(plain.refused or plain.complete) or since > CONTROL_S
    if queued.complete:
        trial.verdict, trial.released = STARTED, queued.bound
        trial.waits = {uid: why for uid, why in trial.refusals.items() if _waited(why, queued.bound)}
        trial.refusals = {uid: why for uid, why in trial.refusals.items() if uid not in trial.waits}
        if not trial.lost_at and (found := overfull(queued.documents, queued.pods, queued.earlier)):
            trial.breaks(Rule.VIOLATES, found)
        return True
    waiting = [
        each["status"]
        for each in fluxjobs
        if each.get("status", {}).get("state") in ("Pending", "Allocated")
        and not each["spec"]["objectRef"]["name"].startswith(EARLIER_NAME)
    ]
    reasons = {each.get("reason", ""): each.get("message", "") for each in waiting}
    given_up = next((reason for reason in FOR_EVER if reason in reasons), None)
    trial.verdict = given_up or max(reasons, default="") or "silent"
    trial.message = reasons.get(trial.verdict, "")
    if refused := [why for pod in queued.pods if (why := _refusal(pod))]:
        return _is_kept(trial, refused[0], any(each["state"] == "Allocated" for each in waiting), now)
    says = f"the queue says {trial.verdict}: {trial.message}"
    if trial.lost_at and not queued.bound:
        if now - trial.lost_at > _PREEMPTED_S:
            trial.breaks(Rule.VICTIMS, f"other work ended for it, and it is not bound; {says}")
        return bool(trial.fault)
    if plain.complete:
        if since > _patience(trial):
            trial.breaks(Rule.CONTROL, f"plain, it runs; {says}")
        return bool(trial.fault)
    if trial.verdict == "silent" and (queued.pods or any(each["kind"] == "Job" for each in queued.documents)):
        return since > SILENT_S
    return plain.decided(now) and (since > CONTROL_S or not trial.world.preempts)


def _note(trial: Trial, now: float) -> None:
    """Note what the scheduler refuses, and what has ended."""
    for pod in trial.queued.pods:
        if why := _refusal(pod):
            trial.refusals.setdefault(pod["metadata"]["uid"], why)
            trial.refused_at = trial.refused_at or now
    if trial.ran - {each["metadata"]["uid"] for each in trial.queued.earlier}:
        trial.lost_at = trial.lost_at or now


def _refusal(pod: Json) -> str:
    return "" if pod["spec"].get("nodeName") else unschedulable(pod)


def _waited(why: str, pods: int) -> bool:
    """True if a pod among several was refused while the claim that they share was being bound."""
    return pods > 1 and any(each in why for each in _BEING_BOUND)


def _is_kept(trial: Trial, refused: str, held: bool, now: float) -> bool:
    """True if a refusal has lasted too long, which is a fault."""
    lasted = now - trial.refused_at
    if lasted > HELD_S + _LATE_S or (lasted > DECIDED_S and not held):
        kept = f", and its nodes are held for {lasted:.0f} s" if held else ""
        trial.breaks(Rule.HELD if held else Rule.BINDS, f"refused after its release{kept}: {refused}")
    return bool(trial.fault)


def _patience(trial: Trial) -> float:
    """Return how long work may wait that the scheduler places where it is plain."""
    if trial.verdict == "silent":
        return SILENT_S
    if known_difference(trial.world, trial.message):
        return CONTROL_S
    return _PREEMPTING_S if trial.world.preempts else DECIDED_S
