"""The priority by which work is ordered, as a sum of weighted parts: age, fair share, size, queue, and its
own priority.

Every part is a pure function of what a FluxJob, its FluxQueue and its FluxAccount show. So the queue, the
simulator and ``kubectl fluxqueue priority`` compute the same figures, and nobody stores them. Each part is
rounded, so that the parts add up to the priority exactly.

A queue without weights has the weights that a field not set has: the priority of the queue and that of the
work count as they are, and nothing else counts.
"""

from __future__ import annotations

from typing import NamedTuple

from fluxqueue.api.fluxqueues import PriorityWeights

__all__ = ["DEFAULT_WEIGHTS", "PriorityParts", "Waiting", "age_part", "priority_parts"]


class Waiting(NamedTuple):
    """What the priority of work depends on.

    Attributes
    ----------
    priority
        Of the work, with that of its queue, or as its FluxJob sets it.
    age_s
        Time since it was submitted.
    fair_share
        Factor of its account, from 0 to 1; 0 without an account.
    pods
        Pods that it runs at once.
    """

    priority: int
    age_s: float = 0.0
    fair_share: float = 0.0
    pods: int = 1


class PriorityParts(NamedTuple):
    """The parts of a priority."""

    age: int
    fair_share: int
    size: int
    queue: int
    priority_class: int

    @property
    def total(self) -> int:
        """The priority by which the work is ordered."""
        return sum(self)


DEFAULT_WEIGHTS = PriorityWeights()
"""The weights of a queue that has none."""


def age_part(weights: PriorityWeights, age_s: float) -> int:
    """Return the part of a priority that grows with the time since the submission."""
    return round(weights.age * min(max(age_s, 0.0) / max(weights.max_age_seconds, 1), 1.0))


def priority_parts(waiting: Waiting, weights: PriorityWeights, queue_priority: int) -> PriorityParts:
    """Return the parts of a priority.

    Parameters
    ----------
    waiting
        The work.
    weights, queue_priority
        ``spec.priorityWeights`` and ``spec.priority`` of its queue.
    """
    size = min(waiting.pods / max(weights.full_size_pods, 1), 1.0)
    return PriorityParts(
        age=age_part(weights, waiting.age_s),
        fair_share=round(weights.fair_share * waiting.fair_share),
        size=round(weights.size * size),
        queue=weights.queue * queue_priority,
        priority_class=weights.priority_class * (waiting.priority - queue_priority),
    )
