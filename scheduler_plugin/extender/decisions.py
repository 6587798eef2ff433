"""The extender's decisions: which nodes a pod may have, which are preferred, and whether it may be bound now.

A pod that the queue has released may have its node and no other, and only while its whole gang could start.
The first pod of a gang passes when all pods are released and each node takes its pod. Once one is bound, the
others pass on their own. So an obstacle for one pod starts none of them. An incomplete gang is refused like
any pod that does not fit. kube-scheduler tries its pods again when something changes in the cluster: the last
pod to be released finds the gang complete, and its binding wakes the others. A pod that never comes delays
the others no longer than the queue's start time-out.

Other pods may have every node on which they leave the released pods enough capacity
(`fluxqueue.scheduler_plugin.extender.reserved_capacity`).

When a node is refused, kube-scheduler may look for pods to evict there. That helps only if the released pod's
own node lacks capacity. All other refusals are reported as unresolvable.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from fluxqueue.api.pods import Pod
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.noderules.node_checks import closed
from fluxqueue.scheduler_plugin.assignments import InvalidAssignment, NodeAssignment
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import FitResult, FitStatus, check_gang
from fluxqueue.scheduler_plugin.extender.reserved_capacity import ReservedCapacity, released_assignment
from fluxqueue.scheduler_plugin.extender.wire import FilterResult
from fluxqueue.scheduler_plugin.gangs import Gang, GangKey, Member, PendingGangs

__all__ = ["HIGHEST", "RESERVED", "Decider"]

HIGHEST: Final = 10
"""MaxExtenderPriority of k8s.io/kube-scheduler/extender/v1."""

_REMEMBERED: Final = 10_000

RESERVED: Final = "its capacity is reserved for pods that fluxqueue has released"


class Decider:
    """Decides on the requests of kube-scheduler from the watched state, without I/O.

    Parameters
    ----------
    caches
        The cluster; its changes are followed from now on.
    """

    def __init__(self, caches: SchedulerCaches) -> None:
        self._caches = caches
        self._reserved = ReservedCapacity(caches)
        self._gangs = PendingGangs(time.monotonic, _bindable)
        self._blocked: dict[GangKey, str] = {}
        caches.pods.add_handler(self._apply)
        caches.nodes.add_handler(self._reserved.apply_node)

    def filter(self, pod: Pod, names: Sequence[str]) -> FilterResult:
        """Return which of these nodes a pod may have."""
        try:
            assignment = released_assignment(pod)
        except InvalidAssignment as error:
            return FilterResult([], unresolvable=dict.fromkeys(names, str(error)))
        if assignment is None:
            return self._filter_other(pod, names)
        elsewhere = f"fluxqueue has found node {assignment.node} for this pod"
        unresolvable = {name: elsewhere for name in names if name != assignment.node}
        if assignment.node not in names:
            return FilterResult([], unresolvable=unresolvable)
        why, resolvable = self._obstacle(pod, assignment)
        if not why:
            return FilterResult([assignment.node], unresolvable=unresolvable)
        if resolvable:
            return FilterResult([], {assignment.node: why}, unresolvable)
        return FilterResult([], unresolvable={**unresolvable, assignment.node: why})

    def prioritize(self, pod: Pod, names: Sequence[str]) -> dict[str, int]:
        """Score nodes from 0 to `HIGHEST`.
        A released pod prefers its own node, other pods prefer nodes without reserved capacity.
        """
        try:
            assignment = released_assignment(pod)
        except InvalidAssignment:
            return dict.fromkeys(names, 0)
        if assignment is not None:
            return {name: HIGHEST if name == assignment.node else 0 for name in names}
        reserved = self._reserved.nodes
        return {name: 0 if name in reserved else HIGHEST for name in names}

    def bind_obstacle(self, pod: Pod, node: str) -> str:
        """Return why a pod must not be bound to a node now; empty if it may."""
        try:
            assignment = released_assignment(pod)
        except InvalidAssignment as error:
            return str(error)
        if assignment is None:
            return f"node {node}: {RESERVED}" if self._excluded(pod, (node,)) else ""
        if assignment.node != node:
            return f"fluxqueue has found node {assignment.node} for this pod, not {node}"
        return self._obstacle(pod, assignment)[0]

    def precompute(self, most: int) -> None:
        """Compute the free capacity of some nodes in advance, so that a request need not wait for it."""
        self._reserved.precompute(most)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod on a node, because it is about to be bound there. The watch or `unassume` ends that."""
        self._reserved.assume(pod, node)

    def unassume(self, pod: Pod) -> None:
        """Stop counting a pod that could not be bound."""
        self._reserved.unassume(pod.metadata.uid)

    def _apply(self, change: Change[Pod]) -> None:
        self._reserved.apply(change)
        self._gangs.apply(change)

    def _filter_other(self, pod: Pod, names: Sequence[str]) -> FilterResult:
        excluded = self._excluded(pod, names)
        if not excluded:
            return FilterResult(names)
        return FilterResult(
            [name for name in names if name not in excluded],
            unresolvable=dict.fromkeys(sorted(excluded), RESERVED),
        )

    def _excluded(self, pod: Pod, names: Collection[str]) -> set[str]:
        try:
            return self._reserved.excluded(pod, names)
        except InvalidRequest:
            return set()  # kube-scheduler accepted the pod

    def _obstacle(self, pod: Pod, assignment: NodeAssignment) -> tuple[str, bool]:
        """Return why a released pod cannot have its node now (empty if it can),
        and whether evicting pods there might help.
        """
        uid = pod.metadata.uid
        key = self._gangs.key_of(uid)
        gang = self._gangs.gang(key, self._reserved.assumed) if key is not None else None
        if gang is None and assignment.gang_size > 1:
            return "the pods that start with it are not known yet", False
        if gang is None or gang.apart:
            why = _refusal(check_gang([(pod, assignment.node)], self._caches)[uid])
            return why, bool(why) and not closed(self._caches.node(assignment.node), pod.spec)
        if not gang.complete:
            released = f"{len(gang.members)} of {gang.size} pods of allocation {assignment.allocation}"
            return (
                f"it starts with the others of its group or not at all, and {released} are released so far",
                False,
            )
        return self._gang_obstacle(gang, uid, assignment.node), False

    def _gang_obstacle(self, gang: Gang, uid: str, node: str) -> str:
        """Return why a gang cannot start now, as a sentence for one of its pods; empty if it can.

        Nodes do not depend on each other. So the likely obstacles are checked first: the pod's own node, and
        the node that was the obstacle last time. A gang that stays blocked is not checked as a whole for each
        of its pods.
        """
        on: dict[str, list[Member]] = {}
        for member in gang.members:
            on.setdefault(member.assignment.node, []).append(member)
        first = [each for each in dict.fromkeys((node, self._blocked.get(gang.key, node))) if each in on]
        for each in (*first, *(other for other in on if other not in first)):
            blocked = self._blocked_on(on[each])
            if blocked is None:
                continue
            if len(self._blocked) >= _REMEMBERED:
                self._blocked.clear()
            self._blocked[gang.key] = each
            who, why = blocked
            return (
                why
                if who.uid == uid
                else (
                    "it starts with the others of its group or not at all, "
                    f"and pod {who.pod.metadata.name} cannot start: {why}"
                )
            )
        self._blocked.pop(gang.key, None)
        return ""

    def _blocked_on(self, members: Iterable[Member]) -> tuple[Member, str] | None:
        """Return the first member on one node that cannot be bound there, and why."""
        checked = [*members]
        results = check_gang([(member.pod, member.assignment.node) for member in checked], self._caches)
        return next(((member, why) for member in checked if (why := _refusal(results[member.uid]))), None)


def _bindable(pod: Pod) -> NodeAssignment | None:
    return None if pod.spec.scheduling_gates else released_assignment(pod)


def _refusal(result: FitResult) -> str:
    """Return the sentence of a refusal. Waiting (a claim being provisioned) is left to kube-scheduler."""
    return result.message if result.status is FitStatus.REFUSED else ""
