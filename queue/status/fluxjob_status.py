"""What a FluxJob shows of a workload: its manifest, its status, and the estimates that are worth a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any, NamedTuple

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobStatus, Reason, RequeueReason, State
from fluxqueue.api.formatting import format_node_set
from fluxqueue.queue.model.consolidations import room_message
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.given_back import given_back_message, kept_hosts
from fluxqueue.queue.model.records import Transition, Workload, WorkloadId
from fluxqueue.queue.model.remembered import remembered
from fluxqueue.queue.model.states import LIVE
from fluxqueue.queue.model.time_limits import is_over_time_limit, over_limit_message
from fluxqueue.queue.status.fluxjob_conditions import conditions_of
from fluxqueue.queue.status.fluxjob_edits import acknowledgement, expected_spec

__all__ = [
    "ChosenEstimates",
    "ShownEstimates",
    "StartEstimates",
    "estimates_to_show",
    "fluxjob_manifest",
    "published_promise",
    "status_json",
    "status_of",
]

_POSITIONS_SHOWN = 100
"""Of each queue: the queue's API shows the later ones."""
_ESTIMATE_AGE_S = 30.0
"""Least age of an estimate that is replaced by another one."""
_EARLY_AGE_S = 2.0
"""The same while few estimates change."""
_UNRESERVED_AGE_S = 4.0
"""The same if nodes are reserved since, as the reason says at once:
long enough that a reservation that comes and goes costs few writes."""
_NEW_AGE_S = 120.0
"""An estimate that no FluxJob shows yet counts as so old, so it comes before those that are shown already,
except of the very first."""
_FIRST_POSITIONS = 10
"""Positions within which an estimate is twice as urgent, about."""
_LONGEST_MESSAGE = 1_000

StartEstimates = Mapping[WorkloadId, Estimate]
"""Estimates of the last scheduling cycle."""

ShownEstimates = Mapping[WorkloadId, tuple[Estimate, float]]
"""Estimates that FluxJobs show, each with the time (seconds of any monotonic clock) at which it was
chosen."""


class ChosenEstimates(NamedTuple):
    """What FluxJobs shall show.

    Attributes
    ----------
    shown
        All of it.
    changed
        The workloads whose FluxJobs have to be written for it.
    early
        How many of these changed sooner than after half a minute, because few do.
    """

    shown: ShownEstimates
    changed: list[WorkloadId]
    early: int = 0


def estimates_to_show(
    shown: ShownEstimates, known: StartEstimates, now: float, most: int = 1_000, early: int = 0
) -> ChosenEstimates:
    """Choose the estimates that FluxJobs show.

    The first hundred of each queue are shown. An estimate changes at most twice a minute, except that a lost
    or moved reservation is shown at once, a new one after a few seconds, and another position or start after
    two seconds for a few, the first in their queues. If many have changed, those go first that are old or far
    ahead in their queues, so that many queues do not keep the API server busy.

    Parameters
    ----------
    shown
        What FluxJobs show so far.
    known
        The estimates of the last scheduling cycle.
    now
        On the clock of ``shown``.
    most
        How many may change, beside reservations that were made or lost.
    early
        How many may change sooner than after half a minute.
    """
    wanted: dict[WorkloadId, tuple[Estimate, float]] = {}
    changed: list[WorkloadId] = []
    due: list[tuple[float, WorkloadId]] = []
    soon: list[tuple[int, WorkloadId]] = []
    for workload_id, estimate in known.items():
        if estimate.position is not None and estimate.position > _POSITIONS_SHOWN:
            continue
        before = shown.get(workload_id)
        if before is not None:
            wanted[workload_id] = before
            if before[0] == estimate:
                continue
            if now - before[1] < _least_age_s(before[0], estimate):
                if now - before[1] >= _EARLY_AGE_S and (before[0].position, before[0].eta) != (
                    estimate.position,
                    estimate.eta,
                ):
                    soon.append((estimate.position or 0, workload_id))
                continue
        if estimate.reserved or (before is not None and before[0].reserved):
            changed.append(workload_id)
        else:
            age_s = now - before[1] if before is not None else _NEW_AGE_S
            due.append((-age_s / (_FIRST_POSITIONS + (estimate.position or 0)), workload_id))
    chosen = nsmallest(most, due)
    first = nsmallest(min(early, most - len(chosen)), soon)
    changed += [workload_id for _, workload_id in [*chosen, *first]]
    return ChosenEstimates(
        wanted | {workload_id: (known[workload_id], now) for workload_id in changed}, changed, len(first)
    )


def _least_age_s(before: Estimate, estimate: Estimate) -> float:
    """Return for how long the former estimate is shown although there is another one."""
    if before.reserved and estimate.reserved and before.eta != estimate.eta:
        return 0.0  # the reason names the start of the reservation, and is written now
    if before.reserved == estimate.reserved:
        return _ESTIMATE_AGE_S
    return 0.0 if before.reserved else _UNRESERVED_AGE_S


def status_of(
    workload: Workload,
    estimate: Estimate | None = None,
    requeues: Sequence[Transition] = (),
    idle: str = "",
) -> FluxJobStatus:
    """Return the status that a FluxJob should show.

    Parameters
    ----------
    workload
        Its row.
    estimate
        Of its start, while it is pending.
    requeues
        The last times it was requeued, with the reasons.
    idle
        What is said of it if it runs and is idle.
    """
    limited = is_over_time_limit(workload) and workload.state in LIVE and not workload.evicting
    eta = _timestamp(estimate.eta) if estimate is not None else None
    first = workload.promised_at or (estimate.eta_first if estimate is not None else None)
    reasons = [
        RequeueReason(
            at=_timestamp(each.at) or "", reason=each.reason, message=each.detail[:_LONGEST_MESSAGE]
        )
        for each in requeues
    ]
    return FluxJobStatus(
        state=str(workload.state),
        reason=str(Reason.TIME_LIMIT if limited else workload.reason),
        message=over_limit_message(workload)
        if limited
        else workload.message
        or (workload.state is State.RUNNING and idle)
        or given_back_message(workload)
        or room_message(workload),
        account=workload.account,
        submitted_by=workload.submitted_by,
        position=estimate.position if estimate is not None else None,
        eta=eta,
        eta_soonest=_timestamp(estimate.eta_soonest) if estimate is not None else None,
        eta_first=_timestamp(first),
        reserved_at=eta if estimate is not None and estimate.reserved else None,
        jobid=int(workload.jobid) if workload.jobid is not None else None,
        nodes=kept_hosts(workload),
        node_set=_node_set(kept_hosts(workload)),
        submitted_at=_timestamp(workload.submitted_at),
        allocated_at=_timestamp(workload.allocated_at),
        started_at=_timestamp(workload.started_at),
        finished_at=_timestamp(workload.finished_at),
        outcome=str(workload.outcome),
        requeues=workload.requeues,
        requeue_reasons=reasons or None,
    )


_node_set = remembered(10_000)(format_node_set)


def status_json(status: FluxJobStatus) -> dict[str, Any]:
    """Return the status as JSON, without empty fields and with its conditions."""
    fields = {
        "state": status.state,
        "reason": status.reason or None,
        "message": status.message or None,
        "account": status.account or None,
        "submittedBy": status.submitted_by or None,
        "position": status.position,
        "eta": status.eta,
        "etaSoonest": status.eta_soonest,
        "etaFirst": status.eta_first,
        "reservedAt": status.reserved_at,
        "jobid": status.jobid,
        "nodes": status.nodes or None,
        "nodeSet": status.node_set or None,
        "submittedAt": status.submitted_at,
        "allocatedAt": status.allocated_at,
        "startedAt": status.started_at,
        "finishedAt": status.finished_at,
        "outcome": status.outcome or None,
        "requeues": status.requeues or None,
        "requeueReasons": msgspec.to_builtins(status.requeue_reasons) if status.requeue_reasons else None,
        "conditions": conditions_of(status) or None,
    }
    return {field: value for field, value in fields.items() if value is not None}


def fluxjob_manifest(
    name: str, workload: Workload, owners: list[dict[str, Any]], status: FluxJobStatus
) -> dict[str, Any]:
    """Return the FluxJob to create for a workload."""
    editable = expected_spec(workload)
    spec: dict[str, Any] = {
        "objectRef": {
            "apiVersion": workload.api_version,
            "kind": workload.kind,
            "name": workload.name,
            "uid": workload.uid,
        },
        **msgspec.to_builtins(editable),
        "cancel": workload.overrides.cancel,
        "pods": workload.pods,
        "jobspec": workload.jobspec,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FluxJob",
        "metadata": {
            "name": name,
            "namespace": workload.namespace,
            "labels": {names.QUEUE_LABEL: workload.queue},
            "annotations": {names.ACKNOWLEDGED_ANNOTATION: acknowledgement(editable)},
            "ownerReferences": owners,
        },
        "spec": spec,
        "status": status_json(status),
    }


def published_promise(fluxjob: FluxJob | None, workload: Workload) -> datetime | None:
    """Return the first estimate that a FluxJob shows of this wait of its workload; None: it shows none."""
    if fluxjob is None or fluxjob.status.submitted_at != _timestamp(workload.submitted_at):
        return None
    try:
        first = datetime.fromisoformat(fluxjob.status.eta_first or "")
    except ValueError:
        return None
    return first if first.tzinfo is not None else None


def _timestamp(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None
