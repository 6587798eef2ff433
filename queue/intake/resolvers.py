"""Resolves all parts of a submission: queue, duration, priority, reservation, request,
and what must have happened before the start.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.intake.duration_resolver import WallTime, resolve_duration
from fluxqueue.queue.intake.priority_resolver import resolve_priority
from fluxqueue.queue.intake.problems import Problem
from fluxqueue.queue.intake.queue_resolver import QueueChoice, resolve_queue
from fluxqueue.queue.intake.request_resolver import ResourceRequest, resolve_request
from fluxqueue.queue.intake.reservation_resolver import resolve_reservation
from fluxqueue.queue.intake.start_resolver import resolve_start
from fluxqueue.queue.intake.submission import Submission, WorkloadContext
from fluxqueue.queue.model.start_conditions import StartConditions

__all__ = ["Resolution", "resolve"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """The parts of a submission, and all problems with them."""

    queue: QueueChoice
    duration: WallTime
    priority: int
    request: ResourceRequest
    start: StartConditions
    problems: tuple[Problem, ...]


def resolve(submission: Submission, cluster: ClusterContext, workload: WorkloadContext) -> Resolution:
    """Return the parts of a submission."""
    queue = resolve_queue(submission, cluster, workload)
    duration = resolve_duration(submission, queue.value, workload.overrides)
    priority = resolve_priority(submission, queue.value, cluster, workload.overrides)
    reservation = resolve_reservation(submission, queue.value.name, cluster)
    request = resolve_request(
        submission, queue.value.defaults, duration.value.seconds, cluster, reservation.value
    )
    start = resolve_start(submission)
    parts = (queue, duration, priority, reservation, request, start)
    problems = tuple(problem for part in parts for problem in part.problems)
    return Resolution(queue.value, duration.value, priority.value, request.value, start.value, problems)
