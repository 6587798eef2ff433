"""The way of one job as steps with times: submitted, allocated, running, ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api.fluxjobs import ENDED, FluxJob, State
from fluxqueue.api.pods import Pod
from fluxqueue.cli.jobs import state_of
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.rendering import how_long

__all__ = ["Step", "timeline"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step.

    Attributes
    ----------
    name, at
        What happened when; None: it has not.
    after
        How long after the step before, in words; empty for the first one, and for what has not happened.
    current
        True for the last one that has happened, of work that goes on.
    """

    name: str
    at: datetime | None
    after: str = ""
    current: bool = False


def timeline(job: FluxJob, pods: Sequence[Pod] = ()) -> list[Step]:
    """Return the steps of a job, in their order.

    Parameters
    ----------
    job
        The FluxJob.
    pods
        Its pods, if they may be read. The first that was bound shows when the work was released.
    """
    status, state = job.status, state_of(job)
    submitted = instant(status.submitted_at or job.metadata.creation_timestamp)
    times = [
        ("Submitted", submitted),
        ("Allocated", instant(status.allocated_at)),
        ("Released", _released(job, pods)),
        ("Running", instant(status.started_at)),
        (state if state in (State.FAILED, State.CANCELLED) else State.COMPLETED, instant(status.finished_at)),
    ]
    if times[2][1] is None and (times[3][1] is not None or not pods):
        del times[2]
    last = max((number for number, (_, at) in enumerate(times) if at is not None), default=-1)
    steps: list[Step] = []
    before: datetime | None = None
    for number, (name, at) in enumerate(times):
        after = how_long((at - before).total_seconds()) if at is not None and before is not None else ""
        steps.append(Step(str(name), at, after, number == last and at is not None and not _over(state)))
        before = at or before
    return steps


def _over(state: str) -> bool:
    return state in ENDED


def _released(job: FluxJob, pods: Sequence[Pod]) -> datetime | None:
    """Return when the first of its present pods was bound to a node."""
    bound = [pod.status.condition("PodScheduled") for pod in pods]
    times = [
        instant(each.last_transition_time) for each in bound if each is not None and each.status == "True"
    ]
    known = [time for time in times if time is not None]
    return min(known) if known and job.status.allocated_at else None
