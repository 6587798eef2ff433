"""One round over all queues: each queue by its own policy, merged in policy order.

The order of priority, submit time and id holds across queues. The pass whose head comes first takes the next
step. Queues never wait for each other. The graph holds the reservations of all queues, so the matcher keeps
one queue from delaying a reservation of another.

Priority comes first. Work of one priority is matched as if the reservations of other queues for lower
priorities did not exist. Where it takes their nodes, the matcher drops such a reservation, the cause names
the work that displaced it, and the pass of its queue plans it again in the same round. So work starts when it
would start if the queues of lower priority were empty. Only a higher priority displaces, so two queues cannot
drop each other's reservations in turn. Among equal priorities the reservations of other queues count. What a
queue reserved beyond its depth, for work that other work stops for, yields to its own higher priorities too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import Key, first_of
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import (
    CancelStep,
    CycleContext,
    HeldReservation,
    ImproveStep,
    Pass,
    PendingQueue,
    Step,
)

__all__ = ["Round"]


class Round:
    """Passes over all queues, merged.

    Parameters
    ----------
    queues
        The queues with their pending workloads.
    disciplines
        By queue. A queue without one is EASY.
    context
        What the passes share.
    """

    def __init__(
        self, queues: Iterable[PendingQueue], disciplines: Mapping[str, Discipline], context: CycleContext
    ) -> None:
        usual, queues = Discipline(), list(queues)
        for queue in queues:
            context.starts.update(
                (workload_id, reservation.start) for workload_id, reservation in queue.reservations.items()
            )
        self.passes: list[Pass] = [
            disciplines.get(queue.name, usual).new_pass(queue, context) for queue in queues
        ]

    def displaced(self, causes: Mapping[WorkloadId, str]) -> None:
        """Report to all passes which reservations a step displaced, and why."""
        for pass_ in self.passes:
            pass_.lose(causes)

    def next_call(self, limit: int) -> list[tuple[Pass, Step]]:
        """Return the next step and the pass it belongs to, with at most ``limit`` workloads; nothing at the
        end of the round.

        Steps of further passes follow it if all of them move reservations to an earlier start, and would be
        the next ones. They go to the matcher in one call: many queues with one reservation each would
        otherwise cost as many calls in each cycle. The same reservations yield to each of them.
        """
        heads = sorted(
            ((head, number) for number, each in enumerate(self.passes) if (head := each.head()) is not None),
            key=lambda pair: pair[0],
        )
        if not heads or (first := self._step(heads, limit)) is None:
            return []
        calls = [first]
        yielding = self.yielding(calls)
        behind: list[Key] = []
        while heads := heads[1:]:
            pass_, step = calls[-1]
            if not isinstance(step, ImproveStep):
                break
            if (following_head := pass_.head_behind()) is not None:
                behind.append(following_head)
            left = limit - sum(len(each.workloads) for _, each in calls if isinstance(each, ImproveStep))
            if (
                left <= 0
                or min(behind, default=heads[0][0]) < heads[0][0]
                or (following := self._step(heads, left, behind)) is None
            ):
                break
            if not isinstance(following[1], ImproveStep) or self.yielding([following]) != yielding:
                break
            calls.append(following)
        return calls

    def _step(
        self, heads: Sequence[tuple[Key, int]], limit: int, before: Sequence[Key] = ()
    ) -> tuple[Pass, Step] | None:
        """Return the step of the pass with the first head:
        workloads before the next head, and before all of ``before``.
        """
        head, number = heads[0]
        chosen = self.passes[number]
        ends = [*before, *(each for each, _ in heads[1:2])]
        if (
            below := max(
                (reservation.priority for reservation in self._lower([chosen], -head[0])), default=None
            )
        ) is not None:
            # fewer reservations yield to work of that priority: it needs a step of its own
            ends.append(first_of(below))
        step = chosen.next_step(limit, min(ends, default=None))
        return None if step is None else (chosen, step)

    def yielding(self, calls: Sequence[tuple[Pass, Step]]) -> list[HeldReservation]:
        """Return the reservations that these steps may displace:
        those of other queues, and of their own beyond its depth, below the lowest priority in them.
        """
        priorities = [
            workload.order_priority
            for _, step in calls
            if not isinstance(step, CancelStep)
            for workload in step.workloads
        ]
        return self._lower([pass_ for pass_, _ in calls], min(priorities)) if priorities else []

    def _lower(self, asking: Sequence[Pass], priority: int) -> list[HeldReservation]:
        return [
            reservation
            for each in self.passes
            for reservation in (each.reservations_beyond if each in asking else each.reservations)
            if reservation.priority < priority
        ]
