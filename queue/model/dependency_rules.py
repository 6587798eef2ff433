"""When a dependency is satisfied or impossible, given the workload that it waits for;
and how people read it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from fluxqueue.api.dependencies import DependencyCondition, DependencyKind
from fluxqueue.api.fluxjobs import Outcome
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.start_conditions import DependencyState, TrackedDependency

__all__ = ["judge", "waits_for"]

_KINDS = {
    DependencyKind.JOB: "Job",
    DependencyKind.POD_GROUP: "PodGroup",
    DependencyKind.MINICLUSTER: "MiniCluster",
}
_AIMS = {
    DependencyCondition.OK: "succeed",
    DependencyCondition.ANY: "end",
    DependencyCondition.FAIL: "fail",
    DependencyCondition.START: "start",
}


def judge(dependency: TrackedDependency, target: Workload | None, now: datetime) -> TrackedDependency:
    """Return a dependency after a look at the workload that it waits for.

    Parameters
    ----------
    dependency
        Open.
    target
        As it is now, pending, live or ended. None: it ended so long ago that its record was deleted.
    now
        When that is looked at.
    """
    if target is None:
        return _judge_forgotten(dependency, now)
    condition, seen = dependency.condition, msgspec.structs.replace(dependency, target=target.uid)
    if condition is DependencyCondition.START:
        began = target.started_at or target.finished_at
        return _satisfied(seen, began) if began is not None else seen
    if target.finished_at is None:
        return seen
    succeeded = target.outcome is Outcome.SUCCEEDED
    if condition is DependencyCondition.ANY or (condition is DependencyCondition.OK) == succeeded:
        return _satisfied(seen, target.finished_at)
    detail = f"{target.ref} ended as {target.outcome}"
    return msgspec.structs.replace(seen, state=DependencyState.IMPOSSIBLE, detail=detail)


def _judge_forgotten(dependency: TrackedDependency, now: datetime) -> TrackedDependency:
    if dependency.condition in (DependencyCondition.ANY, DependencyCondition.START):
        return _satisfied(dependency, now)
    detail = "it ended so long ago that nobody knows how"
    return msgspec.structs.replace(dependency, state=DependencyState.IMPOSSIBLE, detail=detail)


def waits_for(dependency: TrackedDependency, namespace: str) -> str:
    """Return what an open dependency waits for, in words that follow "waits for"."""
    who = f"{_KINDS[dependency.kind]} {namespace}/{dependency.name}"
    if not dependency.target:
        return f"{who}, which is not in the queue, to {_AIMS[dependency.condition]}"
    return f"{who} to {_AIMS[dependency.condition]}"


def _satisfied(dependency: TrackedDependency, at: datetime) -> TrackedDependency:
    not_before = at + timedelta(seconds=dependency.delay_s) if dependency.delay_s else None
    return msgspec.structs.replace(dependency, state=DependencyState.SATISFIED, not_before=not_before)
