"""Which queue a workload is in, and whether that queue starts it.

The FluxJob's ``spec.queue`` counts before the object's label, and that before the namespace's. A drained
queue continues with the work that it accepted before, which the workload's row shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import QueueState
from fluxqueue.api.schedulers import queue_name_of
from fluxqueue.queue.cluster.context import ClusterContext, QueueDefaults
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.submission import Submission, WorkloadContext

__all__ = ["QueueChoice", "resolve_queue"]


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """A queue's name, and what the queue decides; the built-in defaults if the queue does not exist."""

    name: str
    defaults: QueueDefaults


def resolve_queue(
    submission: Submission, cluster: ClusterContext, workload: WorkloadContext
) -> Resolved[QueueChoice]:
    """Return the queue of a workload, and why the queue does not start it."""
    override = workload.overrides.queue
    name = override or queue_name_of(submission.meta, cluster.namespace_labels)
    defaults = cluster.queues.get(name)
    if defaults is None:
        field = "spec.queue of its FluxJob" if override else f"the label {names.QUEUE_LABEL}"
        message = (
            f"{submission.title} names the queue {name!r}, which does not exist: "
            f"create that FluxQueue or change {field}"
        )
        return Resolved(QueueChoice(name, QueueDefaults()), (Problem(Reason.UNKNOWN_QUEUE, message),))
    choice = QueueChoice(name, defaults)
    problem = _refusal(submission, choice, cluster, accepted=workload.accepted_by(name))
    return Resolved(choice, (problem,) if problem is not None else ())


def _refusal(
    submission: Submission, queue: QueueChoice, cluster: ClusterContext, *, accepted: bool
) -> Problem | None:
    """Return why the queue does not start a workload, or does not accept it; None if it does."""
    defaults, namespace = queue.defaults, submission.meta.namespace
    if not defaults.members.admits(namespace, dict(cluster.namespace_labels)):
        return Problem(
            Reason.QUEUE_NOT_ALLOWED,
            f"{submission.title} may not use the queue {queue.name!r}, which is not for namespace "
            f"{namespace!r}: choose another queue, or have the namespace added to spec.namespaces of the "
            "FluxQueue",
        )
    if defaults.state is QueueState.DRAINED and not accepted:
        message = (
            f"the queue {queue.name!r} is drained and takes no new work: choose another, "
            "or wait until it is open"
        )
        return Problem(Reason.QUEUE_NOT_ALLOWED, message)
    if defaults.state is QueueState.HELD:
        return Problem(Reason.QUEUE_HELD, f"the queue {queue.name!r} is held: open it and its work can start")
    return None
