"""How a workload ends that never started: its object finished, was deleted, or left the queue."""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import Workload

__all__ = ["cancelled", "ending_of", "is_gone"]


def is_gone(obj: Job | Pod | None) -> bool:
    """True if an object does not exist any more, or is being deleted."""
    return obj is None or obj.metadata.deletion_timestamp is not None


def ending_of(row: Workload, obj: Job | Pod | None, *, grouped: bool, job: Workload | None = None) -> Ending:
    """Return how a pending workload ends whose object requests nothing any more.

    Parameters
    ----------
    row
        The workload.
    obj
        Its object as it is now; None if it does not exist.
    grouped
        It is a pod that is matched with others, in a workload of theirs.
    job
        The workload of its Job, for a pod that a Job owns; None if there is none any more.
    """
    if isinstance(obj, Job) and obj.finished:
        done = obj.status.has_condition("Complete")
        return Ending(
            row.id,
            State.COMPLETED if done else State.FAILED,
            Outcome.SUCCEEDED if done else Outcome.FAILED,
            "the Job finished without being released by the queue",
        )
    if is_gone(obj):
        return cancelled(row, "was deleted while it waited")
    if grouped:
        return cancelled(row, "does not start alone any more: it is one of a group now")
    if isinstance(obj, Pod) and owning_job_uid(obj) is not None and obj.spec.gated_by(names.GATE):
        runs = job is not None and job.state in (State.ALLOCATED, State.RUNNING)
        return cancelled(
            row,
            f"does not start alone any more: its Job {'has a place for it' if runs else 'does not run now'}",
        )
    return cancelled(row, "left the queue: it opted out, or runs without us")


def cancelled(row: Workload, what: str) -> Ending:
    """Return the ending of a workload that is cancelled; ``what`` follows its name in the message."""
    return Ending(row.id, State.CANCELLED, Outcome.CANCELLED, f"{row.ref} {what}")
