"""Typed objects and records for tests of the queue, on top of the dict builders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from support.builders import Builder

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.cluster.context import ClusterContext, QueueDefaults
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    NewWorkload,
    ReleaseMode,
    Slot,
    SlotState,
    Workload,
    WorkloadId,
)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

_ids = itertools.count(1)


def a_job(builder: Builder, *, uid: str = "job-uid", generation: int = 1) -> Job:
    """The Job of a builder, decoded as the queue decodes it."""
    document = (
        builder.uid(uid)
        .with_("metadata.generation", generation)
        .with_("metadata.resourceVersion", "10")
        .build()
    )
    return msgspec.convert(document, Job)


def a_pod(builder: Builder, *, uid: str = "pod-uid") -> Pod:
    """The Pod of a builder, decoded as the queue decodes it."""
    document = (
        builder.uid(uid).with_("metadata.generation", 1).with_("metadata.resourceVersion", "10").build()
    )
    return msgspec.convert(document, Pod)


def around(**changes: Any) -> ClusterContext:
    """A cluster with only the default queue."""
    settings: dict[str, Any] = {"queues": {"default": QueueDefaults()}}
    return ClusterContext(**(settings | changes))


def an_allocation(
    hosts: Sequence[str], *, jobid: int = 7, states: Sequence[SlotState] = (), pods: Sequence[str | None] = ()
) -> Allocation:
    """An allocation with one slot for each host. Slots are free by default."""
    counts = {host: list(hosts).count(host) for host in hosts}
    return Allocation(
        jobid=FluxionJobId(jobid),
        workload=WorkloadId(1),
        shares=tuple(
            NodeShare(host, {"pod": count}, {"cpu": 100 * count, "pods": count})
            for host, count in counts.items()
        ),
        granted_at=EPOCH,
        start=EPOCH,
        end=None,
        released_at=EPOCH,
        slots=tuple(
            Slot(
                jobid=FluxionJobId(jobid),
                rank=rank,
                node=host,
                state=states[rank] if rank < len(states) else SlotState.FREE,
                pod_uid=pods[rank] if rank < len(pods) else None,
            )
            for rank, host in enumerate(hosts)
        ),
    )


def a_workload(name: str = "w", **changes: Any) -> Workload:
    """A pending workload. Each is submitted a second after the one before."""
    number = next(_ids)
    settings: dict[str, Any] = {
        "id": WorkloadId(number),
        "uid": f"uid-{number}",
        "api_version": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "name": name,
        "queue": "default",
        "priority": 0,
        "jobspec": "{}",
        "shape": f"shape-{number}",
        "pods": 1,
        "duration_s": 60,
        "duration_assumed": False,
        "release_mode": ReleaseMode.PIN,
        "generation": 1,
        "state": State.PENDING,
        "reason": Reason.NONE,
        "message": "",
        "submitted_at": EPOCH + timedelta(seconds=number),
    }
    return Workload(**(settings | changes))


def a_new_workload(uid: str, **changes: Any) -> NewWorkload:
    """The intake's description of a plain Job of one pod."""
    settings: dict[str, Any] = {
        "uid": uid,
        "api_version": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "name": f"job-{uid}",
        "queue": "default",
        "priority": 0,
        "jobspec": "{}",
        "shape": "s",
        "pods": 1,
        "duration_s": 60,
        "duration_assumed": False,
        "release_mode": ReleaseMode.PIN,
        "generation": 1,
    }
    return NewWorkload(**(settings | changes))
