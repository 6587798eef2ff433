"""One round over all queues: each queue by its own policy, merged in policy order.

The order of priority, submit time and id holds across queues. The pass whose head comes first takes the next step. Queues never wait for
each other. The graph holds the reservations of all queues, so the matcher keeps one queue from delaying a reservation of another.

Priority comes first. Work of one priority is matched as if the reservations of other queues for lower priorities did not exist. Where it
takes their nodes, the matcher drops such a reservation, the cause names the work that displaced it, and the pass of its queue plans it
again in the same round. So work starts when it would start if the queues of lower priority were empty. Only a higher priority displaces,
so two queues cannot drop each other's reservations in turn. Among equal priorities the reservations of other queues count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import first_of
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import CancelStep, CycleContext, HeldReservation, Pass, PendingQueue, Step

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

    def __init__(self, queues: Iterable[PendingQueue], disciplines: Mapping[str, Discipline], context: CycleContext) -> None:
        usual, queues = Discipline(), list(queues)
        for queue in queues:
            context.starts.update((workload_id, reservation.start) for workload_id, reservation in queue.reservations.items())
        self.passes: list[Pass] = [disciplines.get(queue.name, usual).new_pass(queue, context) for queue in queues]

    def displaced(self, causes: Mapping[WorkloadId, str]) -> None:
        """Report to all passes which reservations a step displaced, and why."""
        for pass_ in self.passes:
            pass_.lose(causes)

    def next_step(self, limit: int) -> tuple[Pass, Step] | None:
        """Return the next step and the pass it belongs to, with at most ``limit`` workloads; None at the end of the round."""
        heads = sorted(
            ((head, number) for number, each in enumerate(self.passes) if (head := each.head()) is not None), key=lambda pair: pair[0]
        )
        if not heads:
            return None
        head, number = heads[0]
        chosen = self.passes[number]
        ends = [heads[1][0]] if len(heads) > 1 else []
        if (below := max((reservation.priority for reservation in self._lower(chosen, -head[0])), default=None)) is not None:
            ends.append(first_of(below))  # fewer reservations yield to work of that priority: it needs a step of its own
        step = chosen.next_step(limit, min(ends, default=None))
        return None if step is None else (chosen, step)

    def yielding(self, pass_: Pass, step: Step) -> list[HeldReservation]:
        """Return the reservations a step may displace: those of other queues below the lowest priority in the step."""
        return [] if isinstance(step, CancelStep) else self._lower(pass_, min(workload.order_priority for workload in step.workloads))

    def _lower(self, pass_: Pass, priority: int) -> list[HeldReservation]:
        return [
            reservation
            for other in self.passes
            if other is not pass_
            for reservation in other.reservations
            if reservation.priority < priority
        ]
