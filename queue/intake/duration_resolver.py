"""How long a workload is expected to run.

The FluxJob's ``spec.durationSeconds`` counts first, then the annotation, then ``activeDeadlineSeconds``, then
the queue's default. Work whose pods do not end by themselves has no duration, unless one is stated.

A pod that its owner would create again is not ended at its duration (`fluxqueue.queue.requeue.time_limits`).
So where durations are enforced nobody can state one for it: it would pass every reservation and stay.

Work holds its nodes longer than it runs: pods are created, bound and started first, and their end is noticed
later. So a duration counts as 5 s at least, as Slurm counts a minute. Otherwise work of a second would be
planned to end before it started, and pass every reservation.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.durations import MAX_DURATION_S, InvalidDuration, parse_duration
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.queue_resolver import QueueChoice
from fluxqueue.queue.intake.submission import Submission
from fluxqueue.queue.model.spec_overrides import SpecOverrides

__all__ = ["WallTime", "resolve_duration"]

_LEAST_S = 5


@dataclass(frozen=True, slots=True)
class WallTime:
    """Expected wall time in seconds (None: without an end), and whether it was assumed because nobody stated
    one.
    """

    seconds: int | None
    assumed: bool


def resolve_duration(
    submission: Submission, queue: QueueChoice, overrides: SpecOverrides
) -> Resolved[WallTime]:
    """Return how long a workload is expected to run, and whether its queue allows that."""
    problems: list[Problem] = []
    wall_time = (
        WallTime(queue.defaults.duration_s, assumed=True)
        if submission.ends
        else WallTime(None, assumed=False)
    )
    try:
        if (stated_s := _stated_s(submission, overrides)) is not None and not (
            queue.defaults.enforces_duration and _returns(submission)
        ):
            wall_time = WallTime(
                max(stated_s, min(_LEAST_S, queue.defaults.max_duration_s or _LEAST_S)), assumed=False
            )
    except InvalidDuration as error:
        message = f"{submission.title}: annotation {names.DURATION_ANNOTATION}: {error}"
        problems.append(Problem(Reason.INVALID_REQUEST, message))
    longest = queue.defaults.max_duration_s
    if longest is not None and wall_time.seconds is not None and wall_time.seconds > longest:
        message = (
            f"{submission.title} wants {wall_time.seconds} s, the queue {queue.name!r} allows {longest} s: "
            f"lower the annotation {names.DURATION_ANNOTATION} or choose another queue"
        )
        problems.append(Problem(Reason.INVALID_REQUEST, message))
    return Resolved(wall_time, tuple(problems))


def _returns(submission: Submission) -> bool:
    """True for pods of a service, which their owner creates again whenever they end."""
    return not submission.ends and (submission.kind != "Pod" or submission.meta.controller is not None)


def _stated_s(submission: Submission, overrides: SpecOverrides) -> int | None:
    """Return the wall time that somebody stated; None if nobody did.

    Raises
    ------
    InvalidDuration
        The annotation is not a duration.
    """
    if overrides.duration_s is not None:
        return overrides.duration_s
    if text := submission.meta.annotation(names.DURATION_ANNOTATION):
        return parse_duration(text)
    return None if submission.deadline_s is None else min(submission.deadline_s, MAX_DURATION_S)
