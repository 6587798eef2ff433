"""With how many pods moldable work may start, was started and runs, in words, and when it ends with them."""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import ENDED, IDLE_SINCE, ROOM_MADE, FluxJob, State
from fluxqueue.api.hostlists import InvalidHostlist
from fluxqueue.api.moldable import molded_duration
from fluxqueue.api.pods import Pod

__all__ = ["duration_with_started_pods", "gave_back_text", "moldable_text", "was_started_with_fewer"]


def moldable_text(job: FluxJob, least: int, pods: Sequence[Pod]) -> str:
    """Return what explains the number of pods of a workload; empty if it starts with all or not at all.

    Parameters
    ----------
    job
        As it is shown.
    least
        With how few pods it may start, as its jobspec says; 0: with all.
    pods
        Its pods, as they were read.
    """
    if not 0 < least < job.spec.pods:
        return ""
    started = _started_pods(job)
    if job.status.state in ("", State.PENDING) or not started:
        return f"starts with {least} to {job.spec.pods}: with fewer where that ends it sooner"
    if started >= job.spec.pods:
        return f"all {job.spec.pods} since its start"
    if job.status.state in ENDED:
        return f"{started} of {job.spec.pods} since its start"
    now = sum(1 for pod in pods if pod.active and pod.spec.node_name)
    kept = "kept " if gave_back_text(job) else ""
    words = f"{started} of {job.spec.pods} {kept}since its start, {now} now"
    return (
        words
        if job.status.state == State.DRAINING
        else f"{words}: it grows when nodes are free that no other work can use"
    )


def gave_back_text(job: FluxJob) -> str:
    """Return what running work gave back, as its status says it; empty if nothing."""
    said = job.status.message if job.status.state == State.RUNNING and not job.status.reason else ""
    return "" if said.startswith((IDLE_SINCE, ROOM_MADE)) else said


def duration_with_started_pods(job: FluxJob, least: int) -> int:
    """Return for how many seconds a workload is planned with the pods that it was started with;
    0 if it has no end.
    """
    if not was_started_with_fewer(job, least):
        return job.spec.duration_seconds
    return molded_duration(job.spec.duration_seconds, job.spec.pods, max(_started_pods(job), least))


def was_started_with_fewer(job: FluxJob, least: int) -> bool:
    """True if a workload was started with fewer pods than it asks for."""
    return 0 < least < job.spec.pods and 0 < _started_pods(job) < job.spec.pods


def _started_pods(job: FluxJob) -> int:
    try:
        return (
            sum(1 for host in hostlists.parse(job.status.nodes) if host != names.NO_NODE)
            if job.status.nodes
            else 0
        )
    except InvalidHostlist:
        return 0
