"""Whether an object is the queue's, and what is wrong with the object itself, whatever it asks for."""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.schedulers import invalid_scheduler_label
from fluxqueue.queue.intake.problems import Problem
from fluxqueue.queue.intake.submission import Submission, WorkloadContext
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.records import Workload

__all__ = ["is_ours", "job_problem", "object_problems", "opted_out"]


def is_ours(job: Job, *, has_gated_pods: bool, known: bool) -> bool:
    """True if a Job is one that the queue matches."""
    meta, spec = job.metadata, job.spec
    if (
        not meta.uid
        or job.finished
        or meta.deletion_timestamp
        or spec.managed_by not in (None, "", names.JOB_CONTROLLER)
    ):
        return False
    # A queued Job that its user resumed is matched all the same: its pods will be created with the gate.
    return has_gated_pods or ((bool(spec.suspend) or known) and not opted_out(meta, spec.template.metadata))


def opted_out(meta: ObjectMeta, template: ObjectMeta) -> bool:
    """True if an object or its pods say that they are not the queue's."""
    return (
        template.label(names.MANAGED_LABEL) == "false"
        or meta.label(names.MANAGED_LABEL) == "false"
        or bool(meta.label(names.KUEUE_QUEUE_LABEL))
    )


def job_problem(job: Job, obstacle: str) -> Problem | None:
    """Return what is wrong with a Job itself; ``obstacle`` is what is known already to be in its way."""
    meta, spec = job.metadata, job.spec
    title = f"Job {meta.namespace}/{meta.name}"
    if obstacle:
        return Problem(Reason.INVALID_REQUEST, f"{title}: {obstacle}")
    if (unreadable := invalid_scheduler_label(title, spec.template.metadata)) is not None:
        return Problem(Reason.INVALID_REQUEST, unreadable)
    if spec.suspend and meta.annotation(names.SUSPENDED_BY_ANNOTATION) != names.SUSPENDED_BY_WEBHOOK:
        return Problem(
            Reason.USER_SUSPENDED,
            f"{title} was suspended by its user: set spec.suspend to false and it can start",
        )
    if pods_wanted(job) < 1:
        return Problem(
            Reason.USER_SUSPENDED, f"{title} has spec.parallelism 0: raise it and the Job can start"
        )
    return None


def object_problems(submission: Submission, workload: WorkloadContext) -> list[Problem]:
    """Return what is wrong with the object itself, and what people set in its FluxJob that keeps it from
    starting.
    """
    problems = [submission.problem] if submission.problem is not None else []
    if workload.overrides.cancel:
        problems.append(Problem(Reason.HELD, f"{submission.title} is being cancelled"))
    elif workload.overrides.hold:
        problems.append(Problem(Reason.HELD, _hold_message(submission, workload.row)))
    if (unreadable := invalid_scheduler_label(submission.title, submission.meta)) is not None:
        problems.append(Problem(Reason.INVALID_REQUEST, unreadable))
    return problems


def _hold_message(submission: Submission, row: Workload | None) -> str:
    if row is not None and row.reason is Reason.HELD and not row.overrides.cancel:
        return row.message  # the queue held it after failures: that stays the cause
    return f"{submission.title} is held: set spec.hold of its FluxJob to false and it can start"
