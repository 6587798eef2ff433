"""Jobs of a trace as the queue's workloads, and the simulated clock and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import orjson

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.moldable import molded_duration
from fluxqueue.queue.model.jobspecs import MIN_PODS, SLOT
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.predictions import PredictionKey
from fluxqueue.queue.simulator.traces import TraceJob

__all__ = [
    "EPOCH",
    "EPOCH_S",
    "Ran",
    "SimulatedJob",
    "node_name",
    "node_number",
    "node_request",
    "prediction_key",
    "time_at",
    "workload_of",
]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Beginning of each trace."""
EPOCH_S = int(EPOCH.timestamp())


@dataclass(slots=True)
class SimulatedJob:
    """A job and when it ran. Times are seconds from the beginning of the trace.

    Attributes
    ----------
    reserved_at, first_reserved_start_s, soonest_s
        When it got its first reservation, the reserved start, and the early end of the estimated range then;
        None if it had none.
    hosts
        Numbers of the nodes it ran on, those that it got later at the end.
    started_nodes
        With how many nodes it started.
    limited
        True if its queue ended it at the end of its duration.
    preempted, moved
        How often it was preempted, and moved; it then went on from its last checkpoint, if it had any.
    gave_back, lost_node_s
        How many nodes it gave back, and what it lost with all that ended before it had ended.
    saved_s, ran_before_s
        How much of its run time it had done by then, and how long it ran before it was moved.
    eligible_s
        From when on it waited for nodes only, if that was after its submission.
    """

    job: TraceJob
    start_s: int = -1
    end_s: int = -1
    reserved_at: int | None = None
    first_reserved_start_s: int | None = None
    soonest_s: int | None = None
    hosts: tuple[int, ...] = ()
    limited: bool = False
    preempted: int = 0
    moved: int = 0
    gave_back: int = 0
    lost_node_s: int = 0
    saved_s: int = 0
    ran_before_s: int = 0
    started_nodes: int = 0
    eligible_s: int = 0

    @property
    def wait_s(self) -> int:
        """Seconds from submission to start, without those that it waited for another job, or ran before it
        was moved.
        """
        return self.start_s - max(self.job.submit_s, self.eligible_s) - self.ran_before_s

    @property
    def molded(self) -> bool:
        """True if it started with fewer nodes than it asked for."""
        return 0 < self.started_nodes < self.job.nodes

    @property
    def varied(self) -> bool:
        """True if it did not have all nodes that it asked for in all of its time."""
        return self.molded or self.gave_back > 0

    @property
    def stated_s(self) -> int:
        """How long it takes by what it stated, with the nodes that it started with."""
        return (
            molded_duration(self.job.requested_s, self.job.nodes, self.started_nodes)
            if self.molded
            else self.job.requested_s
        )


class Ran(Protocol):
    """When running work started, and the numbers of its nodes."""

    start_s: int
    hosts: tuple[int, ...]


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"n{number:05}"


def node_number(name: str) -> int:
    """Return the number of a node."""
    return int(name[1:])


def time_at(second: int) -> datetime:
    """Return the time of a second of the trace."""
    return EPOCH + timedelta(seconds=second)


_JOBSPECS: dict[tuple[int, int, int], str] = {}


def node_request(nodes: int, least: int = 0, cores: int = 1) -> str:
    """Return the jobspec of whole nodes. The duration is sent with each call, so that jobs of one size share
    a jobspec.

    Parameters
    ----------
    nodes
        Their number.
    least
        With how few the job may start; 0: with all.
    cores
        Of each node.
    """
    text = _JOBSPECS.get((nodes, least, cores))
    if text is None:
        slot = {"type": "slot", "count": nodes, "label": SLOT, "with": [{"type": "core", "count": cores}]}
        attributes = {"system": {}, "user": {MIN_PODS: least}} if least else {"system": {}}
        text = orjson.dumps(
            {"version": 1, "resources": [slot], "tasks": [], "attributes": attributes}
        ).decode()
        _JOBSPECS[nodes, least, cores] = text
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
        jobspec=node_request(job.nodes, job.least_nodes, job.cores),
        shape=f"{job.nodes}/{job.least_nodes}/{job.cores}/{job.requested_s}",
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
