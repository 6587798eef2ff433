"""All queues of a cluster in one round: each by its own policy, together in policy order.

The order of priority, submit time and id holds across queues too: whoever stands first among the heads of all passes speaks next. Queues
never wait for each other; that nobody delays another queue's reservation is the matcher's doing, which holds all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluxqueue.api.fluxqueues import Policy, Preemption, Provision, QueueLimits
from fluxqueue.queue.policies.backfill import BackfillPass
from fluxqueue.queue.policies.fcfs import FcfsPass
from fluxqueue.queue.policies.passes import Line, Moment, Pass, Step

__all__ = ["DEFAULT_DEPTH", "Discipline", "Round"]

DEFAULT_DEPTH = 64
"""Reservations a conservative queue makes at most, as Fluxion's ``reservation-depth`` (flux-config-sched-fluxion-qmanager(5))."""


@dataclass(frozen=True, slots=True)
class Discipline:
    """The policy of a queue; ``depth`` counts for conservative ones only, no ``limits`` are none, no ``match_policy`` is the graph's."""

    policy: Policy = Policy.EASY
    depth: int = DEFAULT_DEPTH
    limits: QueueLimits | None = None
    preemption: Preemption = Preemption.NEVER
    match_policy: str = ""
    provision: Provision = Provision.NONE

    @property
    def promises(self) -> bool:
        """Whether it reserves."""
        return self.policy is not Policy.FCFS

    def pass_over(self, line: Line, moment: Moment) -> Pass:
        """A pass of this policy over a queue."""
        match self.policy:
            case Policy.FCFS:
                return FcfsPass(line, moment)
            case Policy.EASY:
                return BackfillPass(line, moment, depth=1)
            case Policy.CONSERVATIVE:
                return BackfillPass(line, moment, depth=max(1, self.depth))


class Round:
    """Passes over all queues, merged.

    Parameters
    ----------
    lines
        The queues.
    disciplines
        By queue; others are EASY.
    moment
        What is known beside them.
    """

    def __init__(self, lines: Iterable[Line], disciplines: Mapping[str, Discipline], moment: Moment) -> None:
        usual, lines = Discipline(), list(lines)
        for line in lines:
            moment.starts.update((found, promise.start) for found, promise in line.promises.items())
        self.passes: list[Pass] = [disciplines.get(line.name, usual).pass_over(line, moment) for line in lines]

    def next_step(self, limit: int) -> tuple[Pass, Step] | None:
        """Whose turn it is, and what is to be done: at most ``limit`` workloads at once. None ends the round."""
        heads = sorted(
            ((head, number) for number, each in enumerate(self.passes) if (head := each.head()) is not None), key=lambda pair: pair[0]
        )
        if not heads:
            return None
        chosen = self.passes[heads[0][1]]
        step = chosen.next_step(limit, heads[1][0] if len(heads) > 1 else None)
        return None if step is None else (chosen, step)
