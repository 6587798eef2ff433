"""Gathers the pods of a gang of another project, as far as they have come together.

Each role of the gang needs a number of pods. Pods that run or succeeded count, so that a pod that is replaced
after its gang started does not wait for the whole gang. The oldest waiting pods of each role are the members.
More pods than that wait too, and are matched one by one once the gang has started: if they got nodes before
it, they could keep it from starting.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.groups import OVERDUE_S, GatheredGroup
from fluxqueue.queue.model.later_pods import LaterPods
from fluxqueue.queue.model.pods import age
from fluxqueue.queue.model.sources.gang_sources import ANY_ROLE, Gang, GangSource, InvalidGang

__all__ = ["GangPods", "gather_gang_of_source", "later_pods_of_source", "placement_order"]


@dataclass(frozen=True, slots=True)
class GangPods:
    """The pods of one gang.

    Attributes
    ----------
    source, where
        How it is written, and the gang in words, for example ``MPIJob ml/pi``.
    waiting
        Those that are gated, have no workload of their own and are not being deleted.
    others
        All others, of any phase.
    """

    source: GangSource
    where: str
    waiting: Sequence[Pod]
    others: Sequence[Pod] = ()


def gather_gang_of_source(
    pods: GangPods, owner: Any, since: datetime | None, now: datetime
) -> GatheredGroup | None:
    """Gather a gang that has no nodes yet.

    Parameters
    ----------
    pods
        Its pods.
    owner
        The object that says its size; None if its source has none, or can do without.
    since
        When the gang got its row; None if it is new.
    now
        On the same clock.

    Returns
    -------
    Gathering or None
        None if nothing has to start together: no pod waits, or so many run already that each waiting pod is
        matched alone.
    """
    waiting = sorted(pods.waiting, key=age)
    if not waiting:
        return None
    metadata = owner.metadata if owner is not None else None
    try:
        gang = pods.source.read(waiting, owner)
    except InvalidGang as error:
        return GatheredGroup(
            tuple(waiting),
            (),
            len(waiting),
            Reason.INVALID_REQUEST,
            f"{pods.where}: {error}",
            metadata=metadata,
        )
    needed = _needed(gang, pods)
    members, excess = _chosen(gang, needed, waiting, pods.source.role_of)
    later = tuple(
        LaterPods(role.later.spec, missing, role.later.metadata.labels or {})
        for role in gang.roles
        if role.later is not None and (missing := needed[role.name]) > 0
    )
    missing = sum(needed[name] for name in {role.name for role in gang.roles if role.later is None})
    if not members:
        return None if not missing else _incomplete(pods, gang, waiting, missing, since, now)
    if missing:
        return _incomplete(pods, gang, members, missing, since, now, excess, metadata)
    size = len(members) + sum(each.pods for each in later)
    if queues := _different_queues(members):
        message = f"{pods.where}: its pods name different queues, {queues}: name one"
        return GatheredGroup(
            tuple(members), tuple(excess), size, Reason.INVALID_REQUEST, message, metadata=metadata
        )
    return GatheredGroup(
        tuple(members), tuple(excess), size, metadata=metadata, later_pods=later, domain=gang.domain
    )


def later_pods_of_source(pods: GangPods, owner: Any) -> Sequence[LaterPods]:
    """Return the pods of a gang that are still to be created, once others run."""
    everyone = [*pods.waiting, *pods.others]
    try:
        gang = pods.source.read(everyone, owner) if everyone else Gang(())
    except InvalidGang:
        return ()
    if not gang.active:
        return ()
    present = Counter(
        pods.source.role_of(pod) for pod in everyone if pod.active or pod.status.phase == "Succeeded"
    )
    return [
        LaterPods(role.later.spec, missing, role.later.metadata.labels or {})
        for role in gang.roles
        if role.later is not None and (missing := role.pods - present[role.name]) > 0
    ]


def placement_order(pods: GangPods, owner: Any) -> Callable[[Pod], tuple[Any, ...]]:
    """Return a sort key of pods for slots: those that the gang needs come before those beyond its minimum,
    the oldest first.
    """
    everyone = sorted((pod for pod in (*pods.waiting, *pods.others) if not pod.terminal), key=age)
    try:
        gang = pods.source.read(everyone, owner) if everyone else Gang(())
    except InvalidGang:
        return age
    members, _ = _chosen(gang, _pods_by_role(gang), everyone, pods.source.role_of)
    first = {pod.metadata.uid for pod in members}
    return lambda pod: (pod.metadata.uid not in first, *age(pod))


def _needed(gang: Gang, pods: GangPods) -> Counter[str]:
    """Return how many more pods of each role must start together."""
    started = [pod for pod in pods.others if _counts(pod, succeeded=pods.source.counts_succeeded)]
    if {role.name for role in gang.roles} == {ANY_ROLE}:
        return Counter({ANY_ROLE: max(gang.pods - len(started), 0)})
    present = Counter(pods.source.role_of(pod) for pod in started)
    return Counter({name: max(pods - present[name], 0) for name, pods in _pods_by_role(gang).items()})


def _pods_by_role(gang: Gang) -> Counter[str]:
    """Return how many pods start together, by the names of roles: two roles of a gang may have one."""
    pods: Counter[str] = Counter()
    for role in gang.roles:
        pods[role.name] += role.pods
    return pods


def _counts(pod: Pod, *, succeeded: bool) -> bool:
    return (pod.active and not pod.held) or (succeeded and pod.status.phase == "Succeeded")


def _chosen(
    gang: Gang, needed: Counter[str], waiting: Iterable[Pod], role_of: Callable[[Pod], str]
) -> tuple[list[Pod], list[Pod]]:
    """Return the pods that the roles need, and the others, and reduce ``needed`` to what is missing."""
    by_role: dict[str, deque[Pod]] = defaultdict(deque)
    for pod in waiting:
        by_role[role_of(pod)].append(pod)
    members: list[Pod] = []
    for role in gang.roles:
        own = by_role[role.name]
        while own and needed[role.name] > 0:
            members.append(own.popleft())
            needed[role.name] -= 1
    return members, sorted((pod for own in by_role.values() for pod in own), key=age)


def _incomplete(
    pods: GangPods,
    gang: Gang,
    members: Sequence[Pod],
    missing: int,
    since: datetime | None,
    now: datetime,
    excess: Sequence[Pod] = (),
    metadata: Any = None,
) -> GatheredGroup:
    count = f"{gang.pods - missing} of {gang.pods} pods"
    message = f"{pods.where} has {count}: it can start when all are there"
    late_s = gang.late_after_s or OVERDUE_S
    if since is not None and (now - since).total_seconds() >= late_s:
        message = (
            f"{pods.where} has had only {count} for more than {late_s:.0f} s: "
            "none is started before all are there"
        )
    return GatheredGroup(
        tuple(members), tuple(excess), gang.pods, Reason.WAITING_FOR_GROUP, message, metadata=metadata
    )


def _different_queues(members: Sequence[Pod]) -> str:
    queues = {pod.metadata.label(names.QUEUE_LABEL) or "none" for pod in members}
    return ", ".join(sorted(queues)) if len(queues) > 1 else ""
