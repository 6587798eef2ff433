"""The priority of a workload: its own added to that of its queue, or the one that its FluxJob sets."""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.priorities import InvalidPriority, parse_priority
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.queue_resolver import QueueChoice
from fluxqueue.queue.intake.submission import Submission
from fluxqueue.queue.model.records import SpecOverrides

__all__ = ["resolve_priority"]

_LARGEST_PRIORITY = 2**31 - 1
"""Of the FluxJob's field. A system PriorityClass and a queue's own priority together may be more."""


def resolve_priority(submission: Submission, queue: QueueChoice, cluster: ClusterContext, overrides: SpecOverrides) -> Resolved[int]:
    """Return the priority of a workload, and whether its queue allows it."""
    problems: list[Problem] = []
    priority = queue.defaults.priority
    try:
        priority = overrides.priority if overrides.priority is not None else queue.defaults.priority + _own_priority(submission, cluster)
    except InvalidPriority as error:
        problems.append(Problem(Reason.INVALID_REQUEST, f"{submission.title}: {error}"))
    priority = max(-_LARGEST_PRIORITY, min(priority, _LARGEST_PRIORITY))
    highest = queue.defaults.max_priority
    if highest is not None and priority > highest:
        message = (
            f"{submission.title} wants priority {priority}, the queue {queue.name!r} allows {highest}: lower it or choose another queue"
        )
        problems.append(Problem(Reason.INVALID_REQUEST, message))
    return Resolved(priority, tuple(problems))


def _own_priority(submission: Submission, cluster: ClusterContext) -> int:
    """Return the priority that the object states: in its annotation, else by its PriorityClass.

    Raises
    ------
    InvalidPriority
        The annotation is not a priority, or there is no PriorityClass of that name.
    """
    spec = submission.templates[0].spec
    if text := submission.meta.annotation(names.PRIORITY_ANNOTATION):
        try:
            return parse_priority(text)
        except InvalidPriority as error:
            raise InvalidPriority(f"annotation {names.PRIORITY_ANNOTATION}: {error}") from None
    if spec.priority is not None:
        return spec.priority  # a pod's: admission has looked up its PriorityClass
    name = spec.priority_class_name
    if not name:
        return cluster.default_priority
    if name not in cluster.priority_classes:
        raise InvalidPriority(f"priorityClassName: there is no PriorityClass {name!r}: its pods would be refused; make it or name another")
    return cluster.priority_classes[name]
