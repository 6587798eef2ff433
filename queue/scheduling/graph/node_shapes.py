"""Nodes by which the cluster may grow, and which work could use them.

An administrator names the shapes of nodes that may be added, and how many of each. Whether work that no
present node could hold would fit then is a question for the matcher, in a graph of its own. That graph has
the present nodes, all of them up, and the greatest number of nodes of each shape. Nothing is ever allocated
in it, and it is kept only while there are questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectCondition, ObjectMeta
from fluxqueue.api.nodes import Node, NodeSpec, NodeStatus, Taint
from fluxqueue.fluxion.changes import AddNodes, RemoveNodes
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.graph.nodes import NodeRules, graph_node
from fluxqueue.fluxion.messages import GraphNodeSpec, MatchVerdict, Pool
from fluxqueue.queue.cluster.port_volume_pools import with_pools

__all__ = ["InvalidNodeShape", "NodeShape", "NodeShapes", "possible_nodes"]

_POLICY = "first"
_PODS = "110"
"""Pods on a node whose shape does not state them: the default of the kubelet."""


class InvalidNodeShape(ValueError):
    """A node shape is invalid. The message names it and the problem."""


class NodeShape(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A kind of node the cluster may grow by.

    Attributes
    ----------
    allocatable
        What one such node has for pods, less what DaemonSets take of it. ``pods`` is 110 if it is not stated.
    labels, taints
        Of such a node.
    max_nodes
        Most nodes of this shape, in addition to the present nodes.
    """

    name: str
    allocatable: dict[str, str | int | float]
    max_nodes: int
    labels: dict[str, str] = {}
    taints: list[Taint] = []


def possible_nodes(shapes: Sequence[NodeShape], rules: NodeRules) -> dict[str, GraphNodeSpec]:
    """Return the greatest number of nodes of each shape, with names that no node of a cluster can have.

    Raises
    ------
    InvalidNodeShape
        Two shapes share a name, one allows no nodes, or what it has is no quantity.
    """
    made: dict[str, GraphNodeSpec] = {}
    for shape in shapes:
        if shape.max_nodes < 1:
            raise InvalidNodeShape(
                f"nodeShapes: {shape.name!r} allows {shape.max_nodes} nodes: set 1 or more, "
                "or leave the shape out"
            )
        for number in range(shape.max_nodes):
            name = f"{shape.name}_{number}"
            if name in made:
                raise InvalidNodeShape(
                    f"nodeShapes: two shapes are called {shape.name!r}: names must be unique"
                )
            read = graph_node(_node(name, shape), rules)
            if read.reason:
                raise InvalidNodeShape(f"nodeShapes: {shape.name!r}: {read.problem or read.reason}")
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


class NodeShapes:
    """Answers which requests would fit a larger cluster.

    Parameters
    ----------
    possible
        Nodes by which it may grow, see `possible_nodes`.
    """

    def __init__(self, possible: Mapping[str, GraphNodeSpec]) -> None:
        self._possible = dict(possible)
        self._engine: Engine | None = None
        self._nodes: dict[str, GraphNodeSpec] = {}

    @property
    def any(self) -> bool:
        """True if the cluster may grow at all."""
        return bool(self._possible)

    async def needed(
        self, jobspecs: Sequence[str], present: Mapping[str, GraphNodeSpec], pools: tuple[Pool, ...] = ()
    ) -> list[tuple[str, ...]]:
        """Return for each request the shapes of the added nodes it would use; none if it would not fit even
        then.

        Parameters
        ----------
        jobspecs
            Requests that the present nodes could never hold.
        present
            The present nodes, by name.
        pools
            What every node has that it does not report.
        """
        nodes = {name: replace(spec, down=False) for name, spec in present.items()}
        nodes.update((name, with_pools(spec, pools)) for name, spec in self._possible.items())
        return await asyncio.to_thread(self._needed, jobspecs, nodes)

    def forget(self) -> None:
        """Drop the graph, because no work needs more nodes. It is as large as the matcher's own."""
        self._engine, self._nodes = None, {}

    def _needed(self, jobspecs: Sequence[str], nodes: dict[str, GraphNodeSpec]) -> list[tuple[str, ...]]:
        engine = self._fill(nodes)
        needed: list[tuple[str, ...]] = []
        for jobspec in jobspecs:
            answer = engine.satisfy(jobspec)
            used = {share.node.rpartition("_")[0] for share in answer.shares if share.node in self._possible}
            needed.append(tuple(sorted(used)) if answer.verdict is MatchVerdict.GRANTED else ())
        return needed

    def _fill(self, nodes: dict[str, GraphNodeSpec]) -> Engine:
        engine, known = self._engine, self._nodes
        self._engine = None  # a graph that is changed only in part is not used
        if engine is None:
            engine = Engine()
            engine.init(_POLICY, nodes=[*nodes.values()])
        elif known != nodes:
            if gone := [name for name in known if name not in nodes]:
                engine.apply([RemoveNodes(gone)])
            if new := [spec for name, spec in nodes.items() if known.get(name) != spec]:
                engine.apply([AddNodes(new)])
        self._engine, self._nodes = engine, nodes
        return engine
