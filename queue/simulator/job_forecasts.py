"""What would become of a Job that was submitted now: when and where it would start, and which work would
start later because of it.

The queue is forecast twice (`fluxqueue.queue.simulator.forecasts`), without the Job and with it. The Job is
read as the intake reads it, so it gets the same queue, priority, duration and request. Nothing is created,
and the live queue is not asked: it has no part in what this costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, Reason, State
from fluxqueue.api.fluxqueues import Preemption
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta, PriorityClass
from fluxqueue.api.nodes import Node
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.topology import InvalidTopology, UnknownLevel, topology_of
from fluxqueue.queue.cluster.context import ClusterContext, of_namespace, site_context
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.intake.stated_scheduling import stated_scheduling
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.records import NewWorkload, Workload
from fluxqueue.queue.model.reservation_plans import plan_of
from fluxqueue.queue.scheduling.policies.backlog import key_of
from fluxqueue.queue.simulator.cluster_snapshot import ClusterSnapshot, SiteObjects, snapshot_of
from fluxqueue.queue.simulator.forecasts import Forecast, forecast

__all__ = ["ClusterObjects", "DelayedWork", "JobForecast", "forecast_job"]


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """What a forecast reads: all objects of each kind, and of the Job's namespace its labels and
    LimitRanges.
    """

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    fluxjobs: Sequence[FluxJob]
    site: SiteObjects
    priority_classes: Sequence[PriorityClass] = ()
    runtime_classes: Sequence[RuntimeClass] = ()
    namespace_labels: Mapping[str, str] | None = None
    limit_ranges: Sequence[LimitRange] = ()


@dataclass(frozen=True, slots=True)
class DelayedWork:
    """Work that would start later: its namespace and name, and both starts in Unix seconds; None:
    it would have no start any more.
    """

    namespace: str
    name: str
    start: int
    later: int | None


@dataclass(frozen=True, slots=True)
class JobForecast:
    """What would become of a Job.

    Attributes
    ----------
    now
        Unix seconds at which it would be submitted.
    start
        Unix seconds; None if it has no start, or that is not known.
    unknown
        Why nothing is forecast for it. It may start all the same.
    may_preempt
        True if work of lower priority may be ended for it, which is not forecast.
    misses
        Its deadline, in Unix seconds, if it would end after that.
    nodes
        One for each pod.
    reason
        Why it would not start, if that is known.
    queue, ahead
        Its queue, and how many wait there before it in the order.
    delayed
        The work that it would delay, by its start.
    left_out
        Work that the forecast leaves out: reasons, each with the number of workloads.
    """

    now: int
    start: int | None = None
    unknown: str = ""
    may_preempt: bool = False
    misses: int | None = None
    nodes: Sequence[str] = ()
    reason: str = ""
    queue: str = ""
    ahead: int = 0
    delayed: Sequence[DelayedWork] = ()
    left_out: Sequence[tuple[str, int]] = ()


async def forecast_job(objects: ClusterObjects, job: Job, now: datetime) -> JobForecast:
    """Forecast what would become of a Job.

    Parameters
    ----------
    objects
        The present state of the cluster.
    job
        As admission would have it: a dry run of the API server returns it.
    now
        Timezone-aware.
    """
    at = int(now.timestamp())
    if unread := _not_forecast(job.spec.template.spec):
        return JobForecast(at, unknown=unread)
    context = _context(objects, job.metadata.namespace)
    described = describe_job(job, context, native=stated_scheduling(job))
    if described is None:
        return JobForecast(at, unknown="the queue would leave it alone, so it starts when Kubernetes lets it")
    if described.reason == Reason.INVALID_REQUEST and _names_unknown_level(job, context, described.queue):
        return JobForecast(
            at, unknown="it asks for a level of the topology that is not known here", queue=described.queue
        )
    if described.reason:
        return JobForecast(at, reason=described.message, queue=described.queue)
    without, with_job = (
        _snapshot(objects, more, now) for more in ([], [_fluxjob(described, _created(job) or now, now)])
    )
    added = next((each for each in with_job.pending if each.uid == described.uid), None)
    if added is None:
        (why,) = Counter(dict(with_job.left_out)) - Counter(dict(without.left_out))
        return JobForecast(
            at, unknown=f"Job {described.namespace}/{described.name} {why}", queue=described.queue
        )
    before, after = await forecast(without), await forecast(with_job)
    start, deadline = after.starts.get(added.id), described.start_conditions.deadline
    ends = start + (described.duration_s or 0) if start is not None else None
    return JobForecast(
        at,
        start,
        may_preempt=any(
            each.metadata.name == added.queue and each.spec.preemption is not Preemption.NEVER
            for each in objects.site.queues
        ),
        misses=int(deadline.timestamp())
        if deadline is not None and ends is not None and ends > deadline.timestamp()
        else None,
        nodes=after.nodes.get(added.id, ()),
        reason=after.reasons.get(added.id, "") or (after.waits.get(added.id, "") if start is None else ""),
        queue=added.queue,
        ahead=sum(each.queue == added.queue and key_of(each) < key_of(added) for each in with_job.pending),
        delayed=_delayed(without, before, with_job, after),
        left_out=with_job.left_out,
    )


def _created(job: Job) -> datetime | None:
    """Return when the API server would have created a Job:
    the clock of whoever asks may differ from its own.
    """
    return datetime.fromisoformat(text) if (text := job.metadata.creation_timestamp) else None


def _not_forecast(spec: PodSpec) -> str:
    """Return what of a Job is not read for a forecast, as a sentence; empty if all is."""
    if spec.resource_claims:
        return "it claims devices, which are not forecast"
    if any(
        each.persistent_volume_claim is not None or each.ephemeral is not None for each in spec.volumes or ()
    ):
        return "it has volumes, of which it is not read on which nodes they are"
    return ""


def _names_unknown_level(job: Job, context: ClusterContext, queue: str) -> bool:
    """True if a Job asks for a level that is not one of the usual ones:
    the levels of the installation are not read.
    """
    annotations = (job.metadata.annotations, job.spec.template.metadata.annotations)
    try:
        topology_of(annotations, context.queues[queue].topology, context.levels)
    except UnknownLevel:
        return True
    except InvalidTopology:
        return False
    return False


def _context(objects: ClusterObjects, namespace: str) -> ClusterContext:
    site = objects.site
    common = replace(
        site_context(site.queues, objects.priority_classes, objects.runtime_classes),
        reservations={each.metadata.name: plan_of(each) for each in site.reservations},
    )
    return of_namespace(
        common,
        objects.namespace_labels,
        objects.limit_ranges,
        account_tree(site.accounts).account_of(namespace),
    )


def _snapshot(objects: ClusterObjects, more: Sequence[FluxJob], now: datetime) -> ClusterSnapshot:
    return snapshot_of(objects.nodes, objects.pods, [*objects.fluxjobs, *more], objects.site, now)


def _fluxjob(described: NewWorkload, submitted: datetime, now: datetime) -> FluxJob:
    """Return the FluxJob that the queue would write for a Job."""
    conditions, reason = described.start_conditions, Reason.NONE
    if conditions.after or conditions.singleton:
        reason = Reason.WAITING_FOR_DEPENDENCY
    elif conditions.begin_at is not None and conditions.begin_at > now:
        reason = Reason.WAITING_FOR_BEGIN
    reference = ObjectRef(described.api_version, described.kind, described.name)
    return FluxJob(
        ObjectMeta(name=described.name, namespace=described.namespace, uid=described.uid),
        FluxJobSpec(
            reference,
            described.queue,
            described.priority,
            described.duration_s or 0,
            described.pods,
            described.jobspec,
        ),
        FluxJobStatus(
            state=State.PENDING,
            reason=reason,
            submitted_by=described.submitted_by,
            submitted_at=submitted.astimezone(UTC).isoformat(),
        ),
    )


def _delayed(
    without: ClusterSnapshot, before: Forecast, with_job: ClusterSnapshot, after: Forecast
) -> list[DelayedWork]:
    """Return the work that starts later with the Job than without it."""
    starts = {each.uid: before.starts[each.id] for each in without.pending}
    found = [_delay(each, starts.get(each.uid), after.starts[each.id]) for each in with_job.pending]
    return sorted(
        (each for each in found if each is not None), key=lambda each: (each.start, each.namespace, each.name)
    )


def _delay(workload: Workload, start: int | None, later: int | None) -> DelayedWork | None:
    if start is None or (later is not None and later <= start):
        return None
    return DelayedWork(workload.namespace, workload.name, start, later)
