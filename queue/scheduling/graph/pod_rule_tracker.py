"""Tracks where pods are, and evaluates the rules about other pods (affinity, anti-affinity, topology spread)
of work to be matched.

The nodes that a rule admits change with every pod that comes or goes. So they are not stored when the intake
reads a workload. They are computed when the workload is matched, one such workload at a time, each after the
grants of the others. Then two workloads of one cycle cannot contradict each other, and pending work need not
be read again. A pod counts on its node once it is bound. Before that, its granted slot counts. Reservations
were made under the rules of their time, so each cycle first checks whether they still hold.

If no work has such rules and no pod has required anti-affinity, each pod is checked once and nothing is
indexed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.minicluster_jobs import job_served_by
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.noderules.admitted_nodes import AdmittedNodes, NodeTopology, admitted_nodes, selectors_of
from fluxqueue.queue.noderules.jobspec_rules import nodes_of_pods, rule_pods, rules_in, with_admitted_nodes
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods, SelectorIndex
from fluxqueue.queue.noderules.pod_rules import (
    NodeFacts,
    Selector,
    repelling_terms,
)
from fluxqueue.queue.scheduling.graph.workload_rules import WorkloadRules
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PodRuleTracker"]

_MOST_ALIKE = 64
"""Terms of required anti-affinity of the pods of one namespace that each waiting pod of the cluster is
compared with: 0.1 ms for all."""


class PodRuleTracker:
    """Rules about other pods as pods are placed now (`MatchRules` of `match_rules`).

    Parameters
    ----------
    caches, ledger
        Pods, nodes and namespaces of the cluster, and the granted slots.

    Attributes
    ----------
    individual
        Workloads of this cycle without rules that rules of other pods keep off nodes. Their refusals hold for
        no other workload.
    changed
        A pod came or went that rules of pending work select.
    """

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self.individual: set[WorkloadId] = set()
        self.changed = False
        self._caches = caches
        self._ledger = ledger
        self._pods: PlacedPods | None = None
        self._node_topology: NodeTopology | None = None
        self._dirty: set[WorkloadId] = set()
        self._granted: set[WorkloadId] = set()
        self._slot_names: dict[WorkloadId, list[str]] = {}
        self._rules = WorkloadRules(caches, ledger)
        self._selectors: SelectorIndex[WorkloadId] = SelectorIndex()
        self._selectors_of: dict[WorkloadId, tuple[Selector, ...]] = {}
        self._listeners: list[Callable[[], None]] = []
        for workload in ledger.all():
            self.workload_changed(workload.id)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener when rules of pending work may admit other nodes than before."""
        self._listeners.append(listener)

    # ---- for the cycle -------------------------------------------------------------------------------------

    def begin_cycle(self) -> bool:
        """Forget what the former cycle assumed; return whether rules may admit other nodes than before."""
        changed, self.changed = self.changed, False
        self._dirty |= self._granted
        self._granted.clear()
        self.individual.clear()
        return changed

    def applies_to(self, workload: Workload) -> bool:
        """True if a workload is matched under rules about other pods:
        its own, or required anti-affinity of placed pods.
        """
        if self._pods is None:
            return False
        if rules_in(workload.jobspec) is not None:
            return True
        pods = self._placed()
        if not pods.any_repel or (rules := self._rules.of(workload)) is None:
            return False
        labels = self._labels_of(rules.namespace)
        return any(
            next(iter(pods.repelling(rules.namespace, labels, each)), None) is not None
            for each in rules.all_labels
        )

    def constrained(self, workload: Workload) -> tuple[str, str]:
        """Return the request of a workload as the rules constrain it now;
        or an empty request and why no node is admitted.
        """
        if rules_in(workload.jobspec) is None:
            self.individual.add(workload.id)
        admitted = self._admitted(workload)
        return (
            ("", admitted.refusal)
            if admitted.refusal
            else (with_admitted_nodes(workload.jobspec, admitted), "")
        )

    @contextmanager
    def without(self, workloads: Iterable[WorkloadId]) -> Iterator[None]:
        """Leave out the pods of running workloads, and their slots that wait for pods, meanwhile."""
        left = list[PlacedPod]()
        for workload_id in workloads:
            pods = self._placed()
            workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
            if workload is not None and allocation is not None:
                bound = [each.metadata.uid for each in self._pods_of(workload, allocation)]
                for uid in (*bound, *self._slot_names.get(workload_id, ())):
                    if (placed := pods.get(uid)) is not None:
                        left.append(placed)
                        pods.drop(uid)
        try:
            yield
        finally:
            for placed in left:
                self._placed().put(placed)

    def keeps_off(self, workload: Workload, other: Workload) -> bool:
        """True if required anti-affinity of a workload selects pods of another."""
        own = rules_in(workload.jobspec)
        if own is None or not own.anti_affinity or (others := self._rules.of(other)) is None:
            return False
        there = self._labels_of(others.namespace)
        return any(
            term.selects(others.namespace, there, labels)
            for term in own.anti_affinity
            for labels in others.all_labels
        )

    def violation(self, workload: Workload, shares: Iterable[NodeShare]) -> str:
        """Return why a workload may not have these nodes, as a sentence; empty if it may."""
        return self._admitted(workload).problem(nodes_of_pods(shares), self._topology())

    def assume(self, workload: Workload, shares: Iterable[NodeShare]) -> None:
        """Count the pods of a workload on these nodes.
        The next cycle forgets that, so a grant that fails does no harm.
        """
        if self._pods is None:
            return
        self._granted.add(workload.id)
        self._dirty.discard(workload.id)
        self._put_slots(workload, Counter(nodes_of_pods(shares)))

    def mark_temporary(self, changes: Iterable[ReasonChange]) -> list[ReasonChange]:
        """Return the changes with *never* replaced by *not now* where only rules about other pods are in the
        way. Pods come and go.
        """
        return [self._temporary(change) for change in changes]

    def _temporary(self, change: ReasonChange) -> ReasonChange:
        workload = self._ledger.get(change.workload) if change.reason is Reason.UNSATISFIABLE else None
        if workload is None or not self.applies_to(workload):
            return change
        own = (
            "its rules about other pods"
            if rules_in(workload.jobspec) is not None
            else "required podAntiAffinity of other pods"
        )
        why = (
            self._admitted(workload).refusal
            or "spec.affinity, spec.topologySpreadConstraints and the anti-affinity of others"
        )
        text = f"{own} leave no place for it as pods lie now ({why}): it waits until some come or go"
        return replace(change, reason=Reason.WAITING_FOR_NODES, message=text)

    # ---- rules ---------------------------------------------------------------------------------------------

    def _admitted(self, workload: Workload) -> AdmittedNodes:
        rules = self._rules.of(workload)
        if rules is None:
            return AdmittedNodes()
        count, apart = rule_pods(workload.jobspec)
        return admitted_nodes(rules, self._placed(), self._topology(), count, apart=apart)

    def _topology(self) -> NodeTopology:
        if self._node_topology is None:
            nodes = {node.metadata.name: _facts(node) for node in self._caches.nodes.list()}
            self._node_topology = NodeTopology(nodes, self._labels_of)
        return self._node_topology

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        present = self._caches.namespaces.get("", namespace)
        return (present.metadata.labels or {}) if present is not None else {}

    # ---- placed pods ---------------------------------------------------------------------------------------

    def _placed(self) -> PlacedPods:
        """All placed pods, with the slots of those that are still to come."""
        pods = self._begin()
        dirty, self._dirty = self._dirty, set()
        for workload_id in dirty - self._granted:
            workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
            if workload is None or allocation is None:
                self._drop_slots(workload_id)
            else:
                self._put_slots(workload, self._awaited(workload, allocation))
        return pods

    def _begin(self) -> PlacedPods:
        if self._pods is None:
            self._pods = PlacedPods(_MOST_ALIKE)
            for pod in self._caches.pods.list():
                if (placed := _placed(pod)) is not None:
                    self._pods.put(placed)
            self._dirty.update(workload.id for workload, _ in self._ledger.live())
        return self._pods

    def _awaited(self, workload: Workload, allocation: Allocation) -> Counter[str]:
        """How many slots on each node still wait for a bound pod."""
        slots = Counter(slot.node for slot in allocation.open_slots if slot.label != SERVICES_SLOT)
        return slots - Counter(
            pod.spec.node_name
            for pod in self._pods_of(workload, allocation)
            if pod.spec.node_name and not pod.terminal
        )

    def _pods_of(self, workload: Workload, allocation: Allocation) -> list[Pod]:
        """The pods that exist for the slots of a workload."""
        if workload.release_mode is ReleaseMode.POD:
            pods = [self._caches.pods.get_by_uid(workload.uid)]
        elif workload.release_mode is ReleaseMode.GROUP:
            pods = [self._caches.pods.get_by_uid(slot.pod_uid) for slot in allocation.slots if slot.pod_uid]
        else:
            pods = [
                pod
                for pod in self._caches.pods_of_job(workload.uid)
                if job_served_by(pod) is None and self._ledger.by_uid(pod.metadata.uid) is None
            ]
        return [pod for pod in pods if pod is not None]

    def _put_slots(self, workload: Workload, slots: Counter[str]) -> None:
        self._drop_slots(workload.id)
        rules = self._rules.of(workload)
        if rules is None or not slots or self._pods is None:
            return
        names = self._slot_names[workload.id] = []
        for number, node in enumerate(slots.elements()):
            names.append(f"slot-{workload.id}-{number}")
            labels = rules.all_labels[number % len(rules.all_labels)]
            placed = PlacedPod(names[-1], rules.namespace, labels, node, repels=rules.anti_affinity)
            self._pods.put(placed)
            self._note_change(placed)

    def _drop_slots(self, workload: WorkloadId) -> None:
        for name in self._slot_names.pop(workload, ()):
            if self._pods is not None and (placed := self._pods.get(name)) is not None:
                self._pods.drop(name)
                self._note_change(placed)

    # ---- changes -------------------------------------------------------------------------------------------

    def pod_changed(self, change: Change[Pod]) -> None:
        """Place a pod, or take it away, and tell if pending work is concerned."""
        pod = change.obj
        now = _placed(pod) if change.new is not None else None
        if self._pods is None:
            if now is None or not now.repels:
                return
            self._begin()
        assert self._pods is not None
        before = self._pods.get(pod.metadata.uid)
        if before == now:
            return
        if now is not None:
            self._pods.put(now)
        else:
            self._pods.drop(pod.metadata.uid)
        owner = self._workload_of(pod)
        if owner is not None:
            self._dirty.add(owner.id)
        # A pod that is bound where its slot was granted changes nothing.
        for placed in (before, now):
            if placed is not None and (owner is None or before is not None):
                self._note_change(placed)
        self._notify()

    def _workload_of(self, pod: Pod) -> Workload | None:
        group = self._caches.group_of(pod)
        own = self._ledger.by_uid(pod.metadata.uid)
        job = owning_job_uid(pod)
        return (
            own
            or (self._ledger.group(group) if group is not None else None)
            or (self._ledger.by_uid(job) if job else None)
        )

    def slots_changed(self, workload_id: WorkloadId) -> None:
        """Place the slots of a workload again in the next cycle."""
        self._dirty.add(workload_id)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Keep the rules of pending work."""
        workload = self._ledger.get(workload_id)
        rules = rules_in(workload.jobspec) if workload is not None else None
        waits = rules is not None and workload is not None and workload.state is State.PENDING
        for selector in self._selectors_of.pop(workload_id, ()):
            self._selectors.drop(selector, workload_id)
        if waits and rules is not None:
            self._selectors_of[workload_id] = tuple(selectors_of(rules))
            for selector in self._selectors_of[workload_id]:
                self._selectors.add(selector, workload_id)
        if rules is not None:
            self._begin()
        if self._pods is not None:
            self._dirty.add(workload_id)
        if workload is None:
            self._rules.forget(workload_id)

    def node_changed(self, change: Change[Node]) -> None:
        """Forget the topology if a node is another one."""
        if change.old is None or change.new is None or _facts(change.old) != _facts(change.new):
            self._node_topology = None

    def namespace_changed(self, change: Change[Namespace]) -> None:
        """Tell that labels changed by which rules may select namespaces."""
        if (
            change.old is not None
            and change.new is not None
            and change.old.metadata.labels == change.new.metadata.labels
        ):
            return
        if self._pods is not None:
            self._pods.forget_counts(change.obj.metadata.name)
        if self._selectors_of:
            self.changed = True
            self._notify()

    def _note_change(self, placed: PlacedPod) -> None:
        """Record whether rules of pending work select the pod that came or went,
        or whether it repels pending work.
        """
        self.changed = (
            self.changed
            or bool(self._selectors_of and placed.repels)
            or any(True for _ in self._selectors.about(placed.labels.items()))
        )

    def _notify(self) -> None:
        if self.changed:
            for listener in self._listeners:
                listener()


def _placed(pod: Pod) -> PlacedPod | None:
    """A pod for the index; None if it is not bound or has ended."""
    node, meta = pod.spec.node_name, pod.metadata
    if not node or pod.terminal:
        return None
    labels = meta.labels or {}
    repels = repelling_terms(pod.spec, meta.namespace, labels) if pod.spec.affinity else ()
    return PlacedPod(meta.uid, meta.namespace, labels, node, meta.deletion_timestamp is not None, repels)


def _facts(node: Node) -> NodeFacts:
    return NodeFacts(node.metadata.name, node.metadata.labels or {}, tuple(node.spec.taints or ()))
