"""`kubectl fluxqueue wait`: until workloads have started, or have ended.

FluxJobs are watched, so that the answer comes when it is there. Meanwhile standard error says what each of
them waits for, whenever that changes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TextIO

from fluxqueue.api.fluxjobs import FluxJob, Outcome, State
from fluxqueue.api.formatting import format_nodes
from fluxqueue.cli.api_client import ApiClient, ClusterError, ObjectNotFound
from fluxqueue.cli.job_changes import job_changes
from fluxqueue.cli.jobs import info, object_name, state_of, times
from fluxqueue.cli.listing import list_jobs
from fluxqueue.cli.tables import printable

__all__ = ["FINISHED", "GOALS", "STARTED", "Progress", "wait_for"]

STARTED: Final = "started"
FINISHED: Final = "finished"
GOALS: Final = (STARTED, FINISHED)
_PATHS = {"Job": "/apis/batch/v1/namespaces/{}/jobs/{}", "Pod": "/api/v1/namespaces/{}/pods/{}"}
_ENDED = {State.COMPLETED: "completed", State.FAILED: "failed", State.CANCELLED: "was cancelled"}


@dataclass
class Progress:
    """Where lines go: ``out`` gets what was reached, ``notes`` what is waited for."""

    out: TextIO
    notes: TextIO
    now: Callable[[], datetime]
    quiet: bool = False
    said: dict[str, str] = field(default_factory=dict)

    def note(self, job: FluxJob) -> None:
        """Say what a workload waits for, if that is new."""
        text = (
            f"{_title(job)} waits: {info(job, self.now()) or 'for the queue'}"
            if state_of(job) == State.PENDING
            else ""
        )
        reason = job.status.reason if text else state_of(job)
        if not self.quiet and text and self.said.get(job.metadata.uid) != reason:
            self.notes.write(f"{printable(text)}\n")
            self.notes.flush()
        self.said[job.metadata.uid] = reason


def wait_for(
    client: ApiClient, jobs: Sequence[FluxJob], goal: str, timeout_s: float | None, progress: Progress
) -> int:
    """Wait until all of some workloads have reached a goal.

    Parameters
    ----------
    client
        The API server.
    jobs
        FluxJobs of one namespace.
    goal
        `STARTED` or `FINISHED`.
    timeout_s
        How long; None: for ever.
    progress
        Where to write.

    Returns
    -------
    int
        0 if all reached it; 1 if one ended without having started, or did not succeed.

    Raises
    ------
    ClusterError
        The time is over, or an object was deleted.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    if not jobs:
        return 0
    namespace = jobs[0].metadata.namespace
    waiting = {job.spec.object_ref.uid: job for job in jobs}
    failed = False
    listed, version = list_jobs(client, namespace)
    current = {item.job.spec.object_ref.uid: item.job for item in listed}
    for uid, job in list(waiting.items()):
        failed |= _seen(waiting, current.get(uid, job), goal, progress)
        if uid in waiting and uid not in current and not _exists(client, job):
            raise _deleted(job, goal)
    with client.again() as watching:
        known = [*waiting.values()]
        changes = job_changes(watching, namespace, version, deadline, known) if waiting else iter(())
        for kind, changed in changes:
            uid = changed.job.spec.object_ref.uid
            if uid not in waiting:
                continue
            if kind != "DELETED":
                failed |= _seen(waiting, changed.job, goal, progress)
            elif not _exists(client, changed.job):
                raise _deleted(changed.job, goal)
            if not waiting:
                break
    if waiting:
        raise _timed_out(list(waiting.values()), goal, timeout_s or 0.0)
    return 1 if failed else 0


def _seen(waiting: dict[str, FluxJob], job: FluxJob, goal: str, progress: Progress) -> bool:
    """Take a workload that has reached the goal out of those that are waited for;
    return true if it failed.
    """
    uid = job.spec.object_ref.uid
    waiting[uid] = job
    state = state_of(job)
    ended = state in _ENDED
    started = state in (State.RUNNING, State.DRAINING, State.COMPLETED) or (
        ended and job.status.started_at is not None
    )
    if not ended and not (goal == STARTED and started):
        progress.note(job)
        return False
    del waiting[uid]
    if goal == STARTED and started:
        progress.out.write(f"{_title(job)} started on {format_nodes(job.status.nodes) or 'its nodes'}\n")
        progress.out.flush()
        return False
    ran = times(job, progress.now())[1]
    message = f": {job.status.message}" if job.status.message and state != State.COMPLETED else ""
    progress.out.write(
        printable(f"{_title(job)} {_ENDED[State(state)]}{f' after {ran}' if ran else ''}{message}") + "\n"
    )
    progress.out.flush()
    return (
        goal == STARTED
        or state != State.COMPLETED
        or job.status.outcome not in (Outcome.SUCCEEDED, Outcome.NONE)
    )


def _exists(client: ApiClient, job: FluxJob) -> bool:
    """True if the object is still there: its FluxJob, which somebody deleted, comes back."""
    ref = job.spec.object_ref
    path = _PATHS.get(ref.kind)
    if path is None:
        return False
    try:
        found = json.loads(client.get(path.format(job.metadata.namespace, ref.name)))
    except ObjectNotFound:
        return False
    return bool(found["metadata"]["uid"] == ref.uid)  # else it is another one of the same name


def _deleted(job: FluxJob, goal: str) -> ClusterError:
    return ClusterError(
        f"error: {_title(job)} was deleted before it {'ended' if goal == FINISHED else 'started'}"
    )


def _timed_out(left: Sequence[FluxJob], goal: str, timeout_s: float) -> ClusterError:
    first = left[0]
    more = f", nor have {len(left) - 1} others" if len(left) > 1 else ""
    return ClusterError(
        f"error: {_title(first)} has not {goal} within {timeout_s:g} s{more}: kubectl fluxqueue explain "
        f"{_title(first)} -n {first.metadata.namespace} says why"
    )


def _title(job: FluxJob) -> str:
    return object_name(job) or job.metadata.name
