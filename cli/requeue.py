"""`kubectl fluxqueue requeue`: has Jobs that run stop, wait again, and start again when it is their turn.

A person suspends a Job to have it stop, and resumes it to have it wait: these are the steps here, with the
person's own right to edit Jobs. The queue frees the nodes in between and keeps the first submit time. If this
program ends between the steps, the Job stays suspended, which `explain` says; to requeue it once more resumes
it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import ENDED, LIVE, FluxJob, Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.cli.api_client import ApiClient, ClusterError, ObjectNotFound
from fluxqueue.cli.job_changes import job_changes
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.listing import collection, list_jobs
from fluxqueue.cli.remedies import described

__all__ = ["RequeueOptions", "objection", "requeue"]


@dataclass(frozen=True)
class RequeueOptions:
    """Whether the Jobs are held when they wait again, and how long they may take to stop."""

    hold: bool = False
    timeout_s: float = 600.0


def objection(job: FluxJob) -> str:
    """Return why a workload cannot be requeued; empty if it can."""
    state, ref = state_of(job), job.spec.object_ref
    if state == State.PENDING:
        return "" if job.status.reason == Reason.USER_SUSPENDED and ref.kind == "Job" else "waits already"
    if state not in LIVE:
        return f"has ended ({state}): create it again"
    if ref.kind == "Job":
        return ""
    if ref.kind == "Pod":
        return (
            "is a pod, which cannot stop without being deleted: if it has an owner, "
            "kubectl delete pod has a new one wait"
        )
    return f"is a {ref.kind}: only Jobs can be requeued; deleting its pods has new ones wait"


def requeue(client: ApiClient, jobs: Sequence[FluxJob], options: RequeueOptions, out: TextIO) -> int:
    """Requeue Jobs of one namespace, and print a line for each that waits again.

    Returns
    -------
    int
        0.

    Raises
    ------
    ClusterError
        The person may not edit Jobs, or they did not stop in time; the message says how to resume them.
    """
    stopping: dict[str, FluxJob] = {}
    try:
        for job in jobs:
            if not _job(client, job).spec.suspend:
                _suspend(client, job, to=True)
            stopping[job.spec.object_ref.uid] = job
        if not stopping:
            return 0
        _resume(client, stopping, options, out)
    except ClusterError as error:
        if not stopping:
            raise
        # Nobody must have to find out which Jobs are suspended now.
        raise ClusterError(f"{described(error)}\n{_left(stopping.values(), 'was not requeued')}") from None
    except KeyboardInterrupt:
        raise ClusterError(_left(stopping.values(), "was interrupted")) from None
    if stopping:
        raise ClusterError(_left(stopping.values(), f"has not stopped within {options.timeout_s:g} s"))
    return 0


def _resume(client: ApiClient, stopping: dict[str, FluxJob], options: RequeueOptions, out: TextIO) -> None:
    """Resume each Job when its nodes are free, until all are or the time is over."""
    namespace = next(iter(stopping.values())).metadata.namespace
    listed, version = list_jobs(client, namespace)
    for item in listed:
        _seen(client, stopping, item.job, options, out)
    with client.again() as watching:
        deadline = time.monotonic() + options.timeout_s
        for kind, changed in (
            job_changes(watching, namespace, version, deadline, [*stopping.values()]) if stopping else ()
        ):
            if kind != "DELETED":
                _seen(client, stopping, changed.job, options, out)
            elif (uid := changed.job.spec.object_ref.uid) in stopping and not _exists(client, changed.job):
                out.write(f"{object_name(changed.job)} was deleted meanwhile\n")
                del stopping[uid]
            if not stopping:
                return


def _seen(
    client: ApiClient, stopping: dict[str, FluxJob], job: FluxJob, options: RequeueOptions, out: TextIO
) -> None:
    uid = job.spec.object_ref.uid
    state = state_of(job)
    if uid not in stopping:
        return
    if state in ENDED:
        del stopping[uid]
        out.write(f"{object_name(job)} ended meanwhile ({state})\n")
    elif state == State.PENDING and job.status.reason == Reason.USER_SUSPENDED:
        if options.hold:
            client.patch(
                f"{collection(names.FLUXJOBS, job.metadata.namespace)}/{job.metadata.name}",
                {"spec": {"hold": True}},
            )
        try:
            _suspend(client, job, to=False)
            out.write(f"{object_name(job)} requeued{' and held' if options.hold else ''}\n")
        except ObjectNotFound:
            out.write(f"{object_name(job)} was deleted meanwhile\n")
        del stopping[uid]
        out.flush()


def _suspend(client: ApiClient, job: FluxJob, *, to: bool) -> None:
    """Suspend or resume the Job of a FluxJob, and not another one that got its name meanwhile."""
    client.patch(_path(job), {"metadata": {"uid": job.spec.object_ref.uid}, "spec": {"suspend": to}})


def _job(client: ApiClient, job: FluxJob) -> Job:
    return msgspec.json.decode(client.get(_path(job)), type=Job)


def _exists(client: ApiClient, job: FluxJob) -> bool:
    """True if the Job is still there: its FluxJob, which somebody deleted, comes back."""
    try:
        return _job(client, job).metadata.uid == job.spec.object_ref.uid
    except ObjectNotFound:
        return False


def _path(job: FluxJob) -> str:
    return f"/apis/batch/v1/namespaces/{job.metadata.namespace}/jobs/{job.spec.object_ref.name}"


def _left(jobs: Iterable[FluxJob], what: str) -> str:
    titles = [object_name(job) for job in jobs]
    again = " ".join(titles)
    return (
        f"error: {', '.join(titles)} {what}, and is suspended: "
        f"kubectl fluxqueue requeue {again} resumes it when it has stopped"
    )
