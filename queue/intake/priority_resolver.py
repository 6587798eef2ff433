"""The priority of a workload: its own added to that of its queue, or the one that its FluxJob sets.

A priority that a person asks of the queue, in the annotation or in the FluxJob, is refused above the highest
that the queue allows. A PriorityClass is written for the scheduler of the cluster as well, so it counts up to
that.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.priorities import InvalidPriority, parse_priority
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.queue_resolver import QueueChoice
from fluxqueue.queue.intake.submission import Submission
from fluxqueue.queue.model.spec_overrides import SpecOverrides

__all__ = ["resolve_priority"]

_LARGEST_PRIORITY = 2**31 - 1
"""Of the FluxJob's field. A PriorityClass and a queue's own priority together may be more."""


def resolve_priority(
    submission: Submission, queue: QueueChoice, cluster: ClusterContext, overrides: SpecOverrides
) -> Resolved[int]:
    """Return the priority of a workload, and whether its queue allows it."""
    of_queue, highest = queue.defaults.priority, queue.defaults.max_priority
    try:
        asked = overrides.priority if overrides.priority is not None else _annotated(submission, of_queue)
        priority = asked if asked is not None else of_queue + _class_priority(submission, cluster)
    except InvalidPriority as error:
        return Resolved(_shown(of_queue), (Problem(Reason.INVALID_REQUEST, f"{submission.title}: {error}"),))
    if highest is None or priority <= highest:
        return Resolved(_shown(priority))
    if asked is None:
        return Resolved(_shown(highest))
    message = (
        f"{submission.title} wants priority {priority}, the queue {queue.name!r} allows {highest}: "
        "lower it or choose another queue"
    )
    return Resolved(_shown(priority), (Problem(Reason.INVALID_REQUEST, message),))


def _shown(priority: int) -> int:
    return max(-_LARGEST_PRIORITY, min(priority, _LARGEST_PRIORITY))


def _annotated(submission: Submission, of_queue: int) -> int | None:
    """Return the priority by the object's annotation; None if it has none.

    Raises
    ------
    InvalidPriority
        The annotation is not a priority.
    """
    text = submission.meta.annotation(names.PRIORITY_ANNOTATION)
    if not text:
        return None
    try:
        return of_queue + parse_priority(text)
    except InvalidPriority as error:
        raise InvalidPriority(f"annotation {names.PRIORITY_ANNOTATION}: {error}") from None


def _class_priority(submission: Submission, cluster: ClusterContext) -> int:
    """Return what the PriorityClass of the pods counts.

    Raises
    ------
    InvalidPriority
        There is no PriorityClass of that name.
    """
    spec = submission.templates[0].spec
    name = spec.priority_class_name
    if name and name in cluster.priority_classes:
        return cluster.priority_classes[name]
    if spec.priority is not None:
        return spec.priority  # a pod's, whose class was deleted after its admission
    if not name:
        return cluster.default_priority
    raise InvalidPriority(
        f"priorityClassName: there is no PriorityClass {name!r}: its pods would be refused; "
        "make it or name another"
    )
