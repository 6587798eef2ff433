"""How long a workload is expected to run.

The FluxJob's ``spec.durationSeconds`` counts first, then the annotation, then ``activeDeadlineSeconds``, then the queue's default. Work
whose pods do not end by themselves has no duration, unless one is stated.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.durations import MAX_DURATION_S, InvalidDuration, parse_duration
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.queue_resolver import QueueChoice
from fluxqueue.queue.intake.submission import Submission
from fluxqueue.queue.model.records import SpecOverrides

__all__ = ["WallTime", "resolve_duration"]


@dataclass(frozen=True, slots=True)
class WallTime:
    """Expected wall time in seconds (None: without an end), and whether it was assumed because nobody stated one."""

    seconds: int | None
    assumed: bool


def resolve_duration(submission: Submission, queue: QueueChoice, overrides: SpecOverrides) -> Resolved[WallTime]:
    """Return how long a workload is expected to run, and whether its queue allows that."""
    problems: list[Problem] = []
    wall_time = WallTime(queue.defaults.duration_s, assumed=True) if submission.ends else WallTime(None, assumed=False)
    try:
        wall_time = _stated(submission, overrides) or wall_time
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


def _stated(submission: Submission, overrides: SpecOverrides) -> WallTime | None:
    """Return the wall time that somebody stated; None if nobody did.

    Raises
    ------
    InvalidDuration
        The annotation is not a duration.
    """
    if overrides.duration_s is not None:
        return WallTime(overrides.duration_s, assumed=False)
    if text := submission.meta.annotation(names.DURATION_ANNOTATION):
        return WallTime(parse_duration(text), assumed=False)
    if submission.deadline_s is not None:
        return WallTime(min(max(submission.deadline_s, 1), MAX_DURATION_S), assumed=False)
    return None
