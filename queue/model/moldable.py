"""Moldable work: Jobs that may start with fewer pods than they ask for, and grow.

With how few pods a Job may start is part of its jobspec. With how many it was started follows from the nodes
of its allocation. The work of a Job is its pods times its duration. So with fewer pods it is planned for
longer, in proportion, and that is its time limit too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import msgspec
import orjson

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.hostlists import InvalidHostlist
from fluxqueue.api.jobs import Job
from fluxqueue.api.moldable import molded_duration
from fluxqueue.api.priorities import MAX_PRIORITY
from fluxqueue.queue.model.given_back import given_ranks
from fluxqueue.queue.model.jobs import started_with_fewer
from fluxqueue.queue.model.jobspecs import MIN_PODS
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.model.remembered import remembered

__all__ = [
    "GROWTH_PRIORITY",
    "at_full_size",
    "duration_of_growth_s",
    "growth_of",
    "is_moldable",
    "min_pods_in",
    "parallelism_at_start",
    "planned_duration_s",
    "planned_pods",
    "smallest",
    "started_pods",
    "with_pods",
]


GROWTH_PRIORITY = -MAX_PRIORITY
"""Priority of the pods by which a Job grows that was started with fewer than it asked for:
nobody may wait for them."""


def min_pods_in(jobspec: str) -> int:
    """Return with how few pods a workload may start; 0 if it starts with all or not at all."""
    return _min_pods_in(jobspec) if f'"{MIN_PODS}"' in jobspec else 0


@remembered(4_096)
def _min_pods_in(jobspec: str) -> int:
    return int(orjson.loads(jobspec)["attributes"].get("user", {}).get(MIN_PODS, 0))


def is_moldable(workload: Workload) -> bool:
    """True if a workload may start, or was started, with fewer pods than it asks for."""
    return min_pods_in(workload.jobspec) > 0


def started_pods(workload: Workload) -> int:
    """Return with how many pods a workload was started; all of them while it is pending.

    Slots that it gave back do not count: what their pods did is lost, so it goes on as if it had been started
    without them.
    """
    if workload.state is State.PENDING:
        return workload.pods
    placed = _placed(workload.hosts) if is_moldable(workload) else 0
    return max(min(placed or workload.pods, workload.pods) - len(given_ranks(workload)), 1)


def planned_pods(workload: Workload) -> int:
    """Return for how many pods a workload is planned: those that it was started with, and its least if that
    are fewer.

    Work that gave back slots of its own and kept pods by which it grew may go on in fewer slots than that.
    """
    return max(started_pods(workload), min_pods_in(workload.jobspec))


@lru_cache(maxsize=4_096)
def _placed(hosts: str) -> int:
    try:
        return sum(1 for host in hostlists.parse(hosts) if host != names.NO_NODE)
    except InvalidHostlist:
        return 0


def planned_duration_s(workload: Workload) -> int | None:
    """Return how long a workload runs with the pods that it was started with; None if it has no end."""
    pods = planned_pods(workload)
    if workload.duration_s is None or pods == workload.pods:
        return workload.duration_s
    return molded_duration(workload.duration_s, workload.pods, pods)


def duration_of_growth_s(workload: Workload, allocation: Allocation, now: datetime) -> int | None:
    """Return for how long a pod by which a Job grows is planned: until the Job ends, and as long as the Job
    takes with all its pods.

    The pods of a Job may share one piece of work, and then all end together; or each has its own, and takes
    its own time.
    """
    if workload.duration_s is None or allocation.end is None:
        return workload.duration_s
    return max(workload.duration_s, math.ceil((allocation.end - now).total_seconds()))


def growth_of(workload: Workload, allocation: Allocation | None, now: datetime) -> Workload:
    """Return a Job's workload as it stands for the pods by which it grows:
    they come behind all other work.
    """
    duration_s = (
        workload.duration_s if allocation is None else duration_of_growth_s(workload, allocation, now)
    )
    return replace(workload, priority=GROWTH_PRIORITY, duration_s=duration_s)


@remembered(4_096)
def with_pods(jobspec: str, pods: int) -> str:
    """Return the request of a moldable workload for another number of pods,
    with which it may start only as a whole.
    """
    spec = orjson.loads(jobspec)
    part = spec["resources"][0]
    while part.get("label") and part["type"] != "slot":
        part = part["with"][0]
    part["count"] = pods
    spec["attributes"].get("user", {}).pop(MIN_PODS, None)
    return orjson.dumps(spec).decode()


def smallest(jobspec: str) -> str:
    """Return the request with the fewest pods with which a workload may start."""
    least = min_pods_in(jobspec)
    return with_pods(jobspec, least) if least else jobspec


def parallelism_at_start(job: Job, workload: Workload, allocation: Allocation) -> int | None:
    """Return the parallelism with which a Job is released; None if it is its user's.

    A Job that was started with fewer pods before gets back the one that it had.
    """
    if not (is_moldable(workload) or started_with_fewer(job)):
        return None
    pods = len(allocation.open_slots)
    return pods if pods < workload.pods else job.spec.completions


def at_full_size(job: Job) -> Job:
    """Return a Job as its user asked for it: if it was started with fewer pods before,
    with the parallelism that it had.
    """
    spec = job.spec
    if (
        not started_with_fewer(job)
        or not spec.indexed
        or spec.completions is None
        or spec.parallelism in (0, spec.completions)
    ):
        return job
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(spec, parallelism=spec.completions))
