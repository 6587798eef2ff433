"""The points in the queue at which a fault test can kill the process (`fluxqueue.api.crashpoints`).

A value names the write that was just done and the next one, which is not done yet. Fault reports and the
documentation quote the values.
"""

from __future__ import annotations

import enum

from fluxqueue.api.crashpoints import VARIABLE, reach

__all__ = ["VARIABLE", "CrashPoint", "reach"]


class CrashPoint(enum.StrEnum):
    """The points between two effects."""

    EPOCH_RAISED = "epoch-raised-before-load"
    LOADED = "loaded-before-anything-is-looked-at"
    WORKLOADS_STORED = "workloads-stored-before-cycle-asked"
    DEPENDENCIES_JUDGED = "dependencies-judged-before-stored"
    SCHEDULE_DEFERRED = "schedule-deferred-before-begun"
    TASK_BEGUN = "task-begun-before-anything-is-done"
    ENDED_WAITING = "waiting-ended-before-cycle-asked"
    MATCHED = "matched-before-grant-stored"
    GRANTED = "grant-stored-before-release-asked"
    RESERVED = "reserved-before-plan-stored"
    EXTENDED = "extended-before-end-stored"
    CLAIMED = "release-claimed-before-patch"
    RELEASED = "release-patched-before-noted"
    EDITED = "edited-requeued-before-reread"
    RESIZED = "job-resized-before-pods-matched"
    SLOTS_TAKEN = "slots-taken-before-pods-ungated"
    UNGATED = "one-pod-ungated-before-the-next"
    SLOTS_ENDED = "slots-ended-before-workload"
    FINISHED = "workload-ended-before-cycle-asked"
    ALLOCATIONS_FREED = "freed-before-fluxion-cancel"
    FLUXION_CANCELLED = "fluxion-cancelled-before-next-match"
    GRAPH_EMPTY = "graph-begun-before-restore"
    GRAPH_FILLED = "graph-restored-before-cycle"
    FLUXJOB_DUE = "workload-known-before-fluxjob-created"
    FLUXJOB_CREATED = "fluxjob-created-before-status"
    GIVEN_BACK = "given-back-stored-before-pods-end"
    EVICTED = "eviction-stored-before-suspend"
    POD_ENDED = "one-pod-uncounted-before-deleted"
    DISRUPTED = "one-pod-evicted-before-the-next"
    OWNER_SUSPENDED = "owner-suspended-before-its-pods-are-gone"
    OWNER_RESUMED = "owner-resumed-before-requeue"
    CORDONED = "node-cordoned-before-the-next"
    UNCORDONED = "node-uncordoned-before-the-next"
    CLEARED = "job-cleared-before-requeue"
    REQUEUED = "requeued-before-reread"
    WITHDRAWN = "pod-withdrawn-before-slot-freed"
    REFUSAL_NOTED = "refusal-noted-before-slot-freed"
    PREEMPTION_TOLD = "one-pod-told-of-preemption-before-the-next"
    PREEMPTION_WITHDRAWN = "preemption-withdrawn-before-pods-are-told"
    TIME_LIMIT_STORED = "time-limit-stored-before-end-asked"
    TIME_LIMIT_ASKED = "one-end-asked-before-the-next"
    CANCELLED = "cancelled-in-cluster-before-end-stored"
    MINICLUSTER_CREATED = "minicluster-objects-made-before-job"
    PREPARED = "broker-configuration-written-before-release"
    SWEPT = "graph-compared-before-counts"
