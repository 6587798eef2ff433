"""Jobs of a trace as the queue's workloads, and the simulated clock and nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.jobspecs import SLOT
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.predictions import PredictionKey
from fluxqueue.queue.simulator.traces import TraceJob

__all__ = ["EPOCH", "EPOCH_S", "node_name", "prediction_key", "time_at", "workload_of"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Beginning of each trace."""
EPOCH_S = int(EPOCH.timestamp())


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"n{number:05}"


def time_at(second: int) -> datetime:
    """Return the time of a second of the trace."""
    return EPOCH + timedelta(seconds=second)


_JOBSPECS: dict[int, str] = {}


def _jobspec(nodes: int) -> str:
    """The jobspec of whole nodes. The duration is sent with each call, so that jobs of one size share a jobspec."""
    text = _JOBSPECS.get(nodes)
    if text is None:
        slot = {"type": "slot", "count": nodes, "label": SLOT, "with": [{"type": "core", "count": 1}]}
        text = orjson.dumps({"version": 1, "resources": [slot], "tasks": [], "attributes": {"system": {}}}).decode()
        _JOBSPECS[nodes] = text
    return text


def prediction_key(job: TraceJob) -> PredictionKey:
    """Return whose run times predict those of a job."""
    return job.user, job.account, job.queue


def workload_of(job: TraceJob, predicted_s: int | None = None) -> Workload:
    """Return a job as the workload that arrives."""
    return Workload(
        id=WorkloadId(job.number),
        uid=str(job.number),
        api_version="batch/v1",
        kind="Job",
        namespace="simulated",
        name=f"job-{job.number}",
        queue=job.queue,
        priority=job.priority,
        jobspec=_jobspec(job.nodes),
        shape=f"{job.nodes}/{job.requested_s}",
        pods=job.nodes,
        duration_s=job.requested_s,
        duration_assumed=False,
        release_mode=ReleaseMode.PIN,
        generation=1,
        state=State.PENDING,
        reason=Reason.NONE,
        message="",
        submitted_at=time_at(job.submit_s),
        account=job.account,
        submitted_by=job.user,
        predicted_s=predicted_s,
    )
