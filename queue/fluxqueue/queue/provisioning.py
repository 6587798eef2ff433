"""Nodes that are not there yet: which work could use them, and how an autoscaler is asked for them.

An administrator names the shapes of node the cluster may grow by, and how many of each. Whether work that no present node could hold would
fit then is a question for the matcher itself, put to a graph of its own: the nodes there are, all of them up, and as many of each shape as
there may be. Nothing is ever booked in that graph, and it is only kept while there is something to ask.

An autoscaler is asked by a ProvisioningRequest (docs/decisions, 0008), which names pod templates and how many pods of each. A template
here is the placement half of a pod: its effective requests in one container, and every rule about nodes, those of its queue included. No
pod is ever made of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import orjson

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import fluxjob_name
from fluxqueue.api.objects import Node, NodeSpec, NodeStatus, ObjectCondition, ObjectMeta, PodSpec, Taint
from fluxqueue.api.requests import pod_requests
from fluxqueue.fluxion.engine import Engine
from fluxqueue.fluxion.messages import NodeSpec as GraphNodeSpec
from fluxqueue.fluxion.messages import Verdict
from fluxqueue.fluxion.nodes import NodeRules, graph_node
from fluxqueue.queue.records import Workload

__all__ = [
    "MOST_TEMPLATES",
    "PROVISIONING_CLASS",
    "InvalidNodeShape",
    "NodeShape",
    "Prospects",
    "Room",
    "imagined_nodes",
    "request_name",
    "rooms_of",
    "template_body",
]

PROVISIONING_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""All nodes that are asked for, or none."""

MOST_TEMPLATES = 32
"""Different pods one ProvisioningRequest may name (maxItems of its podSets)."""

_POLICY = "first"
_DIGEST = 8
_LONGEST_NAME = 63
_PODS = "110"
"""Pods on a node whose shape does not say: the kubelet's own default."""


class InvalidNodeShape(ValueError):
    """A shape that cannot be meant; the message names it and what is wrong."""


class NodeShape(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A kind of node the cluster may grow by.

    Attributes
    ----------
    allocatable
        What one such node has for pods, less what DaemonSets take of it. ``pods`` is 110 where nothing is said.
    labels, taints
        It comes with.
    max_nodes
        So many there may be at most, beside those that are there.
    """

    name: str
    allocatable: dict[str, str | int | float]
    max_nodes: int
    labels: dict[str, str] = {}
    taints: list[Taint] = []


def imagined_nodes(shapes: Sequence[NodeShape], rules: NodeRules) -> dict[str, GraphNodeSpec]:
    """As many nodes of each shape as there may be, under names that no node of a cluster can have.

    Raises
    ------
    InvalidNodeShape
        Two shapes share a name, one allows no nodes, or what it has is no quantity.
    """
    made: dict[str, GraphNodeSpec] = {}
    for shape in shapes:
        if shape.max_nodes < 1:
            raise InvalidNodeShape(f"nodeShapes: {shape.name!r} allows {shape.max_nodes} nodes: say 1 or more, or leave the shape out")
        for number in range(shape.max_nodes):
            name = f"{shape.name}_{number}"
            if name in made:
                raise InvalidNodeShape(f"nodeShapes: two shapes are called {shape.name!r}: names tell them apart")
            read = graph_node(_node(name, shape), rules)
            if read.reason:
                raise InvalidNodeShape(f"nodeShapes: {shape.name!r}: {read.complaint or read.reason}")
            made[name] = read.spec
    return made


def _node(name: str, shape: NodeShape) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels={**shape.labels, names.HOSTNAME_LABEL: name}),
        spec=NodeSpec(taints=list(shape.taints)),
        status=NodeStatus(
            allocatable={"pods": _PODS, **shape.allocatable},
            conditions=[ObjectCondition(type="Ready", status="True")],
        ),
    )


class Prospects:
    """Tells which requests would fit if the cluster grew.

    Parameters
    ----------
    imagined
        What it may grow by, see `imagined_nodes`.
    """

    def __init__(self, imagined: Mapping[str, GraphNodeSpec]) -> None:
        self._imagined = dict(imagined)
        self._engine: Engine | None = None
        self._present: dict[str, GraphNodeSpec] = {}

    @property
    def any(self) -> bool:
        """Whether the cluster may grow at all."""
        return bool(self._imagined)

    async def look(self, jobspecs: Sequence[str], present: Mapping[str, GraphNodeSpec]) -> list[tuple[str, ...]]:
        """For each request the shapes it would use of nodes that are not there; none where it would not fit even then.

        Parameters
        ----------
        jobspecs
            Requests that the present nodes could never hold.
        present
            The nodes there are, by name.
        """
        return await asyncio.to_thread(self._look, jobspecs, {name: replace(spec, down=False) for name, spec in present.items()})

    def forget(self) -> None:
        """Let the graph go: nobody asks for more than there is. It is as large as the matcher's own."""
        self._engine, self._present = None, {}

    def _look(self, jobspecs: Sequence[str], present: dict[str, GraphNodeSpec]) -> list[tuple[str, ...]]:
        engine = self._fill(present)
        found: list[tuple[str, ...]] = []
        for jobspec in jobspecs:
            answer = engine.satisfy(jobspec)
            used = {share.node.rpartition("_")[0] for share in answer.shares if share.node in self._imagined}
            found.append(tuple(sorted(used)) if answer.verdict is Verdict.GRANTED else ())
        return found

    def _fill(self, present: dict[str, GraphNodeSpec]) -> Engine:
        engine, known = self._engine, self._present
        self._engine = None  # what is left half done is not asked
        if engine is None:
            engine = Engine()
            engine.init(_POLICY, nodes=[*present.values(), *self._imagined.values()])
        elif known != present:
            if gone := [name for name in known if name not in present]:
                engine.remove_nodes(gone)
            if new := [spec for name, spec in present.items() if known.get(name) != spec]:
                engine.add_nodes(new)
        self._engine, self._present = engine, present
        return engine


@dataclass(frozen=True, slots=True)
class Room:
    """Room for so many pods alike.

    Attributes
    ----------
    labels, spec
        Of one pod, as placement sees it.
    """

    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    count: int


def rooms_of(pods: Iterable[tuple[Mapping[str, str], PodSpec, int]], node_selector: Mapping[str, str]) -> list[Room]:
    """What a workload's pods need, those alike together.

    Parameters
    ----------
    pods
        Labels, spec with all defaults, and how many of each.
    node_selector
        Of their queue.
    """
    found: dict[bytes, Room] = {}
    for labels, spec, count in pods:
        room = Room(labels, _placement(spec, node_selector), count)
        key = orjson.dumps([dict(labels), room.spec], option=orjson.OPT_SORT_KEYS)
        known = found.get(key)
        found[key] = room if known is None else replace(known, count=known.count + count)
    return list(found.values())


def _placement(spec: PodSpec, node_selector: Mapping[str, str]) -> dict[str, Any]:
    requests = {name: f"{amount.normalize():f}" for name, amount in sorted(pod_requests(spec).items())}
    # Of what cannot be shared among pods the API server wants a limit too.
    limits = {name: amount for name, amount in requests.items() if name not in ("cpu", "memory", "ephemeral-storage")}
    container = {"name": "room", "image": "room", "resources": {"requests": requests, **({"limits": limits} if limits else {})}}
    made: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if selector := {**(spec.node_selector or {}), **node_selector}:
        made["nodeSelector"] = selector
    if spec.affinity:
        made["affinity"] = spec.affinity
    if spec.tolerations:
        made["tolerations"] = msgspec.to_builtins(spec.tolerations)
    return made


def request_name(workload: Workload) -> str:
    """Of its ProvisioningRequest: another one for each request, since what was asked for cannot be changed."""
    own = fluxjob_name(workload.kind, workload.name, workload.uid)
    return f"{own[: _LONGEST_NAME - _DIGEST - 1].rstrip('-')}-{workload.shape[:_DIGEST]}"


def template_body(room: Room, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The PodTemplate of a room."""
    return {"metadata": metadata, "template": {"metadata": {"labels": dict(room.labels)}, "spec": room.spec}}
