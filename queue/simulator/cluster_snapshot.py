"""A live installation as values for the simulator: its nodes, the running work with its planned ends, and the
pending work.

All is read from objects that users with the view role may read: Nodes, Pods, FluxJobs and FluxQueues. A
FluxJob has the jobspec that was matched and the nodes of its allocation. That is enough to restore the
allocation, including the slots that have ended since. Bound pods that belong to no live allocation use their
nodes without an end, as in the queue itself. Which devices nodes have is not read. Added nodes are copies of
a present node, with what DaemonSets take of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain, islice, repeat

import orjson

from fluxqueue.api import names
from fluxqueue.api.fluxaccounts import BudgetStatus, FluxAccount
from fluxqueue.api.fluxjobs import LIVE, FluxJob, Reason, State
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, Planning, QueueState
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.graphnames import POD_SLOTS, is_device
from fluxqueue.api.hostlists import InvalidHostlist, decode
from fluxqueue.api.moldable import molded_duration
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.requests import InvalidRequest, pod_requests, sum_requests
from fluxqueue.api.topology import DEFAULT_LEVELS, NODE_LEVEL, TopologyLevel
from fluxqueue.fluxion.graph.nodes import NodeRules, graph_node
from fluxqueue.fluxion.messages import AdvanceReservation, GraphNodeSpec, RestoredJob
from fluxqueue.queue.cluster.port_volume_pools import pool_types_in, pools_for, ports_taken, with_pools
from fluxqueue.queue.cluster.reservations import node_view
from fluxqueue.queue.model.accounts import NO_ACCOUNTS, AccountTree, account_tree
from fluxqueue.queue.model.claimed_devices import claimed_devices
from fluxqueue.queue.model.fair_share import shown_share
from fluxqueue.queue.model.jobspecs import shape_of, share_on, slot_resources, slots_in, takes_whole_nodes
from fluxqueue.queue.model.moldable import min_pods_in
from fluxqueue.queue.model.reasons import MATCHABLE_REASONS
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.reservation_plans import BookedReservation, choose_nodes, plan_of
from fluxqueue.queue.model.topology_levels import levels_asked_for
from fluxqueue.queue.scheduling.added_priorities import AddedPriorities
from fluxqueue.queue.scheduling.policies.disciplines import DEFAULT_DEPTH, Discipline
from fluxqueue.queue.scheduling.policies.overruns import extended_end
from fluxqueue.queue.scheduling.reservations.reservation_book import times_of
from fluxqueue.queue.simulator.simulated_budgets import shown_budgets

__all__ = ["ClusterSnapshot", "RunningWorkload", "SiteObjects", "snapshot_of"]


@dataclass(frozen=True, slots=True)
class RunningWorkload:
    """A workload with its allocation. If it overruns, its end moves as in the queue."""

    workload: Workload
    allocation: RestoredJob


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The state of a cluster at one time.

    Attributes
    ----------
    now
        Unix seconds.
    running
        Work that has nodes.
    pending
        Work that waits and may be matched.
    disciplines
        Policy and limits of each queue.
    foreign, daemons
        What foreign pods have on each node, and the part of it that pods of DaemonSets have.
    accounts
        The accounts with their limits.
    budgets
        What FluxAccounts show of their budgets.
    reservations
        What is set aside for people.
    left_out
        Reasons why work was left out, each with the number of workloads.
    """

    now: int
    nodes: tuple[GraphNodeSpec, ...]
    running: tuple[RunningWorkload, ...]
    pending: tuple[Workload, ...]
    disciplines: Mapping[str, Discipline]
    foreign: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    daemons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    accounts: AccountTree = NO_ACCOUNTS
    budgets: Mapping[str, BudgetStatus] = field(default_factory=dict)
    reservations: tuple[AdvanceReservation, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()


def _reserved(
    fluxreservations: Iterable[FluxReservation], nodes: Sequence[Node], now: int
) -> tuple[AdvanceReservation, ...]:
    """What is set aside for people; nodes that the queue chose are in the status."""
    views = [node_view(node) for node in nodes]
    booked = []
    for each in fluxreservations:
        plan = plan_of(each)
        kept: Sequence[str] = ()
        if plan.count is not None:
            with suppress(InvalidHostlist):
                kept = decode(each.status.nodes) if each.status.nodes else ()
        if times := times_of(plan, now):
            booked.append(BookedReservation(plan, choose_nodes(plan, views, kept=kept), times))
    return tuple(each.for_matcher() for each in booked)


_BLOCKING = frozenset(Reason) - MATCHABLE_REASONS - {Reason.UNSATISFIABLE}
"""Unsatisfiable work may start on nodes that are added."""
_WAITS_FOR_OTHERS = (
    Reason.WAITING_FOR_DEPENDENCY,
    Reason.DEPENDENCY_NEVER_SATISFIED,
    Reason.WAITING_FOR_BEGIN,
)


@dataclass(frozen=True, slots=True)
class SiteObjects:
    """What the administrators of a cluster wrote."""

    queues: Sequence[FluxQueue] = ()
    accounts: Sequence[FluxAccount] = ()
    reservations: Sequence[FluxReservation] = ()


def snapshot_of(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    fluxjobs: Iterable[FluxJob],
    site: SiteObjects,
    now: datetime,
    levels: Sequence[TopologyLevel] = DEFAULT_LEVELS,
) -> ClusterSnapshot:
    """Return the snapshot of these objects.

    Parameters
    ----------
    nodes, pods, fluxjobs, site
        All objects of the cluster. The queue ``default`` may be missing.
    now
        Timezone-aware.
    levels
        Of the topology, from the top down. The configuration of the queue, where they are, is no object that
        all may read.
    """
    nodes = tuple(nodes)
    known = {NODE_LEVEL, *(name for name, _ in levels)}
    specs = {names.DEFAULT_QUEUE: FluxQueueSpec()} | {each.metadata.name: each.spec for each in site.queues}
    accounts = account_tree(site.accounts)
    added = _added(specs, site.accounts, now)
    left_out: Counter[str] = Counter()
    running: list[RunningWorkload] = []
    pending: list[Workload] = []
    live: set[str] = set()
    for number, job in enumerate(sorted(fluxjobs, key=_submission), start=1):
        spec = specs.get(job.spec.queue)
        if job.status.state in LIVE:
            allocation = _allocation(number, job, now)
            if isinstance(allocation, str):
                left_out[allocation] += 1
            else:
                live.add(str(job.status.jobid))
                running.append(RunningWorkload(_workload(number, job, now, job.status.account), allocation))
        elif job.status.state == State.PENDING:
            if why := _reason_to_leave_out(job, spec, known):
                left_out[why] += 1
            else:
                workload = _workload(number, job, now, accounts.account_of(job.metadata.namespace))
                pending.append(replace(workload, added_priority=added.of(workload)))
    foreign = [pod for pod in pods if pod.spec.node_name and not pod.terminal and not _belongs(pod, live)]
    types = _pool_types([*pending, *(occupant.workload for occupant in running)])
    return ClusterSnapshot(
        int(now.timestamp()),
        _graph_specs(nodes, levels, types),
        tuple(running),
        tuple(pending),
        {name: _discipline(spec) for name, spec in specs.items()},
        _taken(foreign, types),
        _taken([pod for pod in foreign if _of_daemonset(pod)], types),
        accounts,
        shown_budgets(site.accounts),
        _reserved(site.reservations, nodes, int(now.timestamp())),
        tuple(sorted(left_out.items())),
    )


def _submission(job: FluxJob) -> tuple[str, bool, str]:
    """Order by submission; work that does not exist yet comes behind that of the same second."""
    submitted = (job.status.submitted_at or "").removesuffix("Z").removesuffix("+00:00")
    return submitted, job.metadata.creation_timestamp is None, job.metadata.name


def _pool_types(works: Iterable[Workload]) -> frozenset[str]:
    asked = frozenset[str]().union(*(pool_types_in(each.jobspec) for each in works))
    return frozenset(kind for kind in asked if not is_device(kind))


def _of_daemonset(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "DaemonSet"


def _discipline(spec: FluxQueueSpec) -> Discipline:
    return Discipline(
        spec.policy,
        spec.reservation_depth or DEFAULT_DEPTH,
        spec.limits,
        at_limit=spec.at_limit,
        planning=spec.planning or Planning(),
    )


def _graph_specs(
    nodes: Iterable[Node], levels: Sequence[TopologyLevel], types: frozenset[str]
) -> tuple[GraphNodeSpec, ...]:
    """The nodes as the graph has them, with pools for the types that work asks for."""
    rules, pools = NodeRules(levels=tuple(levels)), pools_for(types, {})
    return tuple(with_pools(graph_node(node, rules).spec, pools) for node in nodes)


def _added(
    specs: Mapping[str, FluxQueueSpec], fluxaccounts: Iterable[FluxAccount], now: datetime
) -> AddedPriorities:
    """Return what the weights of the queues add to priorities now,
    with the factors that FluxAccounts show.
    """
    weights = {
        name: (spec.priority_weights, spec.priority)
        for name, spec in specs.items()
        if spec.priority_weights is not None
    }
    return AddedPriorities(weights, {each.metadata.name: shown_share(each) for each in fluxaccounts}, now)


def _belongs(pod: Pod, live: Container[str]) -> bool:
    """True if a pod counts as part of a live allocation."""
    return (pod.metadata.annotation(names.ALLOCATION_ANNOTATION) or "") in live


def _taken(pods: Iterable[Pod], types: frozenset[str]) -> dict[str, dict[str, int]]:
    """What pods have, by node. A pod whose request cannot be read has its pod slot only."""
    here: dict[str, list[Pod]] = {}
    for pod in pods:
        here.setdefault(pod.spec.node_name or "", []).append(pod)
    return {
        node: {
            **slot_resources(sum_requests([*_requests(those)])),
            **ports_taken((pod.spec for pod in those), types),
            POD_SLOTS: len(those),
        }
        for node, those in here.items()
    }


def _requests(pods: Iterable[Pod]) -> Iterator[Mapping[str, Decimal]]:
    for pod in pods:
        try:
            yield pod_requests(pod.spec)
        except InvalidRequest:
            continue


def _reason_to_leave_out(job: FluxJob, spec: FluxQueueSpec | None, levels: Container[str]) -> str:
    if spec is None:
        return f"waits in the queue {job.spec.queue!r:.80}, which does not exist"
    if job.spec.hold:
        return "is held"
    if spec.state is QueueState.HELD:
        return f"waits in the queue {job.spec.queue!r:.80}, which is held"
    if not _slots(job.spec.jobspec):
        return "has no request that can be read"
    if job.status.reason == Reason.RESERVATION_NOT_ALLOWED:
        return "names a FluxReservation that it may not use"
    if job.status.reason in _WAITS_FOR_OTHERS:
        return "waits for other work or for a time, which is not forecast"
    if job.status.reason in _BLOCKING:
        return f"cannot start as it is ({job.status.reason})"
    if claimed_devices(job.spec.jobspec):
        return "claims devices, which are not forecast"
    unknown = next(
        (
            level
            for level in levels_asked_for(orjson.loads(job.spec.jobspec)["resources"])
            if level not in levels
        ),
        "",
    )
    return (
        (
            f"asks for the level {unknown!r:.80}: fluxqueue simulate takes the levels of the queue by "
            "--topology-level"
        )
        if unknown
        else ""
    )


def _workload(number: int, job: FluxJob, now: datetime, account: str) -> Workload:
    return Workload(
        id=WorkloadId(number),
        uid=job.metadata.uid,
        api_version=job.spec.object_ref.api_version,
        kind=job.spec.object_ref.kind,
        namespace=job.metadata.namespace,
        name=job.spec.object_ref.name,
        queue=job.spec.queue,
        priority=job.spec.priority,
        jobspec=job.spec.jobspec,
        shape=shape_of(job.spec.jobspec),
        pods=job.spec.pods,
        duration_s=job.spec.duration_seconds or None,
        duration_assumed=False,
        release_mode=ReleaseMode.PIN,
        generation=1,
        state=State.PENDING,
        reason=Reason.NONE,
        message="",
        submitted_at=_time(job.status.submitted_at) or now,
        account=account,
        submitted_by=job.status.submitted_by,
    )


def _allocation(number: int, job: FluxJob, now: datetime) -> RestoredJob | str:
    """The allocation of a job, or why it is unknown."""
    try:
        hosts = decode(job.status.nodes)
    except InvalidHostlist:
        return "runs on nodes that cannot be read"
    slots = _slots(job.spec.jobspec)
    labels = list(islice(chain.from_iterable(repeat(label, count) for label, count, _ in slots), len(hosts)))
    if not hosts or not labels:
        return "runs without nodes or request"
    shares: dict[str, Counter[str]] = {}
    for rank, host in enumerate(hosts):
        shares.setdefault(host, Counter())[labels[min(rank, len(labels) - 1)]] += 1
    start = _time(job.status.allocated_at) or now
    end = 0
    if job.spec.duration_seconds:
        pods = min(len(hosts), job.spec.pods) if min_pods_in(job.spec.jobspec) else job.spec.pods
        planned = start + timedelta(seconds=molded_duration(job.spec.duration_seconds, job.spec.pods, pods))
        end = int((planned if planned > now else extended_end(start, planned, now)).timestamp())
    sizes = {
        label: {kind: amount for kind, amount in members.items() if not is_device(kind)}
        for label, _, members in slots
    }
    whole = takes_whole_nodes(job.spec.jobspec)
    granted = tuple(
        replace(share_on(host, counts, sizes), exclusive=whole) for host, counts in shares.items()
    )
    return RestoredJob(number, granted, min(int(start.timestamp()), int(now.timestamp())), end)


def _slots(jobspec: str) -> list[tuple[str, int, Mapping[str, int]]]:
    """Label, number and members of the slots of a jobspec of the queue; none if it cannot be read."""
    try:
        return slots_in(jobspec)
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError):
        return []


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
