"""A live installation as the simulator takes it: its nodes, what runs on them until when, and who waits, as pure values.

Everything is read from objects that anybody with a view of the cluster may read: Nodes, Pods, FluxJobs and FluxQueues. A FluxJob carries
the jobspec that was matched and the nodes it was given, which is enough to put its allocation back: all of it, also what has ended of it
by now. Bound pods that belong to no live allocation take their room without an end, as they do in the queue itself. Nodes that are added
in thought are copies of one that is there, with what DaemonSets take of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain, islice, repeat

import orjson

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, QueueState
from fluxqueue.api.graphnames import POD_SLOTS
from fluxqueue.api.hostlists import InvalidHostlist, decode
from fluxqueue.api.objects import Node, Pod
from fluxqueue.api.requests import InvalidRequest, pod_requests, summed
from fluxqueue.fluxion.messages import NodeSpec, RestoredJob
from fluxqueue.fluxion.nodes import graph_node
from fluxqueue.queue.jobspecs import shape_of, share_on, slot_resources, slots_in
from fluxqueue.queue.policies.overruns import pushed_end
from fluxqueue.queue.policies.rounds import DEFAULT_DEPTH, Discipline
from fluxqueue.queue.records import ReleaseMode, Workload, WorkloadId

__all__ = ["Occupant", "Situation", "situation_of", "with_more_nodes"]

_HOSTNAME = names.HOSTNAME_LABEL


@dataclass(frozen=True, slots=True)
class Occupant:
    """A workload that has nodes, and its allocation; what runs longer than it said is believed anew, as the queue does."""

    workload: Workload
    allocation: RestoredJob


@dataclass(frozen=True, slots=True)
class Situation:
    """A cluster at one moment.

    Attributes
    ----------
    now
        Unix seconds.
    running
        Who has nodes.
    pending
        Who waits and may be matched.
    disciplines
        Policy and limits of each queue.
    foreign, daemons
        What pods from outside the queue have on each node, and what of that is DaemonSets'.
    left_out
        What was not taken over, with how many.
    """

    now: int
    nodes: tuple[NodeSpec, ...]
    running: tuple[Occupant, ...]
    pending: tuple[Workload, ...]
    disciplines: Mapping[str, Discipline]
    foreign: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    daemons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: tuple[tuple[str, int], ...] = ()


def situation_of(
    nodes: Iterable[Node], pods: Iterable[Pod], fluxjobs: Iterable[FluxJob], queues: Iterable[FluxQueue], now: datetime
) -> Situation:
    """Read a situation from objects.

    Parameters
    ----------
    nodes, pods, fluxjobs, queues
        All of the cluster; the queue ``default`` need not be among them.
    now
        Timezone-aware.
    """
    specs = {names.DEFAULT_QUEUE: FluxQueueSpec(), **{queue.metadata.name: queue.spec for queue in queues}}
    left_out: Counter[str] = Counter()
    running: list[Occupant] = []
    pending: list[Workload] = []
    live: set[str] = set()
    for number, job in enumerate(sorted(fluxjobs, key=lambda job: (job.status.submitted_at or "", job.metadata.name)), start=1):
        spec = specs.get(job.spec.queue)
        if job.status.state in (State.ALLOCATED, State.RUNNING, State.DRAINING):
            found = _allocation(number, job, now)
            if isinstance(found, str):
                left_out[found] += 1
            else:
                live.add(str(job.status.jobid))
                running.append(Occupant(_workload(number, job, now), found))
        elif job.status.state == State.PENDING:
            if why := _why_out(job, spec):
                left_out[why] += 1
            else:
                pending.append(_workload(number, job, now))
    foreign = [pod for pod in pods if pod.spec.node_name and not pod.terminal and not _belongs(pod, live)]
    return Situation(
        int(now.timestamp()),
        tuple(graph_node(node).spec for node in nodes),
        tuple(running),
        tuple(pending),
        {name: Discipline(spec.policy, spec.reservation_depth or DEFAULT_DEPTH, spec.limits) for name, spec in specs.items()},
        _taken(foreign),
        _taken([pod for pod in foreign if (owner := pod.metadata.controller) is not None and owner.kind == "DaemonSet"]),
        tuple(sorted(left_out.items())),
    )


def with_more_nodes(situation: Situation, count: int) -> Situation:
    """The same with more nodes of the shape that most nodes have.

    Raises
    ------
    ValueError
        There is no node to take the shape from.
    """
    shapes = Counter((node.pools, node.levels) for node in situation.nodes if not node.down)
    if not shapes:
        raise ValueError("nodes cannot be added: no node is up whose shape they could have")
    shape = shapes.most_common(1)[0][0]
    like = next(node for node in situation.nodes if not node.down and (node.pools, node.levels) == shape)
    properties = {name: value for name, value in like.properties.items() if _HOSTNAME not in name}
    more = [replace(like, name=f"added-{number}", properties=properties) for number in range(1, count + 1)]
    foreign = dict(situation.foreign)
    if taken := situation.daemons.get(like.name):
        foreign.update((node.name, taken) for node in more)
    return replace(situation, nodes=(*situation.nodes, *more), foreign=foreign)


def _belongs(pod: Pod, live: Container[str]) -> bool:
    """Whether a pod counts through a live allocation."""
    return (pod.metadata.annotation(names.ALLOCATION_ANNOTATION) or "") in live


def _taken(pods: Iterable[Pod]) -> dict[str, dict[str, int]]:
    """What pods have, by node; one whose request cannot be read has its place only."""
    here: dict[str, list[Pod]] = {}
    for pod in pods:
        here.setdefault(pod.spec.node_name or "", []).append(pod)
    return {node: {**slot_resources(summed([*_requests(those)])), POD_SLOTS: len(those)} for node, those in here.items()}


def _requests(pods: Iterable[Pod]) -> Iterator[Mapping[str, Decimal]]:
    for pod in pods:
        try:
            yield pod_requests(pod.spec)
        except InvalidRequest:
            continue


def _why_out(job: FluxJob, spec: FluxQueueSpec | None) -> str:
    if spec is None:
        return f"waits in the queue {job.spec.queue!r:.80}, which does not exist"
    if job.spec.hold:
        return "is held"
    if spec.state is QueueState.HELD:
        return f"waits in the queue {job.spec.queue!r:.80}, which is held"
    if not _slots(job.spec.jobspec):
        return "has no request that can be matched"
    return ""


def _workload(number: int, job: FluxJob, now: datetime) -> Workload:
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
    )


def _allocation(number: int, job: FluxJob, now: datetime) -> RestoredJob | str:
    """What a job has, or why that cannot be told."""
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
        planned = start + timedelta(seconds=job.spec.duration_seconds)
        end = int((planned if planned > now else pushed_end(start, planned, now)).timestamp())
    sizes = {label: members for label, _, members in slots}
    found = tuple(share_on(host, counts, sizes) for host, counts in shares.items())
    return RestoredJob(number, found, min(int(start.timestamp()), int(now.timestamp())), end)


def _slots(jobspec: str) -> list[tuple[str, int, Mapping[str, int]]]:
    """Label, number and members of the slots of a jobspec as the queue writes it; none if it is none."""
    try:
        return slots_in(jobspec)
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError):
        return []


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
