"""What DaemonSets will take of a node before their pods are there.

A node that has just appeared looks empty: the pods of its DaemonSets (network, storage, monitoring) are bound some seconds later. If
work filled it meanwhile they would not fit. So from the first moment a node counts as having the pod of each DaemonSet that matches it:
the template's request until the pod is bound, the pod's own from then on.

Whether a DaemonSet matches a node is decided as its controller does it: nodeSelector, required node affinity, and the taints it
tolerates, among which are, for all of them, those Kubernetes itself puts on nodes. Of rules the graph cannot check the worst is assumed:
the pod comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.objects import Node, PodSpec, Taint
from fluxqueue.fluxion.constraints import read_constraint
from fluxqueue.fluxion.messages import NodeSpec
from fluxqueue.queue.constraints import InexpressibleConstraint, constraint_of

__all__ = ["awaited"]


class _Subject:
    """A node as a constraint looks at it."""

    rank = 0

    def __init__(self, spec: NodeSpec) -> None:
        self.name = spec.name
        self.properties: Mapping[str, str] = spec.properties


def awaited(node: Node, spec: NodeSpec, daemonsets: Iterable[DaemonSet], present: Iterable[str]) -> list[PodSpec]:
    """The pods of DaemonSets that are still to come to a node.

    Parameters
    ----------
    node, spec
        The node, and how the graph has it.
    daemonsets
        Of the cluster.
    present
        Uids of those that have a pod there.

    Returns
    -------
    list of PodSpec
        Of their templates.
    """
    there = set(present)
    subject = _Subject(spec)
    taints = [taint for taint in node.spec.taints or () if not taint.key.startswith("node.kubernetes.io/")]
    return [
        daemonset.spec.template.spec
        for daemonset in daemonsets
        if daemonset.metadata.uid not in there
        and not daemonset.metadata.deletion_timestamp
        and _matches(daemonset.spec.template.spec, subject, taints)
    ]


def _matches(pod: PodSpec, subject: _Subject, taints: Iterable[Taint]) -> bool:
    try:
        constraint = constraint_of(pod, taints)
    except InexpressibleConstraint:
        return True
    compiled = read_constraint(constraint)
    return compiled is None or compiled.accepts(subject)
