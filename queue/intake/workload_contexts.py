"""Puts together what is known of an object's workload: its row, and what people set in its FluxJob."""

from __future__ import annotations

import msgspec

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.submission import NEW_WORKLOAD, WorkloadContext
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.status.fluxjob_edits import edits_of, overrides_after

__all__ = ["workload_context"]


def workload_context(uid: str, row: Workload | None, caches: Caches) -> WorkloadContext:
    """Return the context of an object's workload.

    The queue holds a workload whose release the API server refused again and again. An edit of the object
    ends that hold, unless a person holds the workload in its FluxJob.
    """
    fluxjob = caches.fluxjob_of(uid)
    if row is None and fluxjob is None:
        return NEW_WORKLOAD
    overrides = overrides_after(row, fluxjob)
    if (
        row is not None
        and _edited_since_refused(row, caches)
        and not (fluxjob is not None and "hold" in edits_of(fluxjob, row.overrides))
    ):
        overrides = msgspec.structs.replace(overrides, hold=False)
    return WorkloadContext(row, overrides)


def _edited_since_refused(row: Workload, caches: Caches) -> bool:
    """True if the object was edited since its release was refused."""
    refused, obj = row.requeue_state.unreleasable, caches.job_or_pod(row.uid)
    return bool(refused) and obj is not None and obj.metadata.generation != refused
