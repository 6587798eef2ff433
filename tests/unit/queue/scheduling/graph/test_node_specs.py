"""Which nodes are read again for the graph, and when the answer is another one."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import cast

import msgspec
import pytest
from support.builders import make_node
from support.recording_ledger import RecordingLedger

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import GraphNodeSpec, Pool
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.daemonsets import DaemonSetRequests
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools
from fluxqueue.queue.scheduling.graph.node_specs import NodeSpecs


def _node(name: str, version: int, cpu: str = "4", *, deleted: bool = False) -> Node:
    builder = make_node(name, cpu=cpu).uid(f"uid-{name}").with_("metadata.resourceVersion", str(version))
    return msgspec.convert(
        (builder.with_("metadata.deletionTimestamp", "2030-01-01T00:00:00Z") if deleted else builder).build(),
        Node,
    )


class _DaemonSets:
    """Of each node DaemonSets take what the test says."""

    def __init__(self) -> None:
        self.taken: dict[str, DaemonSetRequests] = {}
        self.changed: set[str] = set()

    def take_daemonset_changes(self) -> set[str]:
        changed, self.changed = self.changed, set()
        return changed

    def daemonset_requests(self, nodes: list[Node]) -> dict[str, DaemonSetRequests]:
        return {
            node.metadata.name: self.taken[node.metadata.name]
            for node in nodes
            if node.metadata.name in self.taken
        }


class Bench:
    """Three nodes, and a record of those that are read."""

    def __init__(self) -> None:
        self.nodes: ObjectCache[Node] = ObjectCache()
        self.nodes.replace([_node(name, 1) for name in ("n0", "n1", "n2")])
        self.daemons = _DaemonSets()
        self.pools = PortVolumePools(RecordingLedger(), lambda name: self.limits.get(name, {}))
        self.limits: dict[str, Mapping[str, int]] = {}
        self.read: list[str] = []
        self.problem: Exception | None = None
        self.specs = NodeSpecs(self.nodes, self._spec, cast(ForeignPods, self.daemons), self.pools)
        self.nodes.add_handler(self.specs.node_changed)

    def _spec(self, node: Node, taken: Mapping[str, Decimal]) -> GraphNodeSpec:
        if self.problem is not None:
            raise self.problem
        self.read.append(node.metadata.name)
        cpu = int((node.status.allocatable or {})["cpu"]) - int(taken.get("cpu", 0))
        return GraphNodeSpec(node.metadata.name, (Pool("cpu", cpu),))

    def take_read(self) -> list[str]:
        """Return the nodes that were read since the last call."""
        read, self.read = self.read, []
        return sorted(read)


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    assert set(made.specs.present()) == {"n0", "n1", "n2"}
    assert made.take_read() == ["n0", "n1", "n2"]
    return made


def test_nodes_that_did_not_change_are_not_read_again(bench: Bench) -> None:
    before = bench.specs.present()
    assert bench.specs.present() is before
    assert bench.take_read() == []


def test_a_change_that_makes_no_difference_keeps_the_answer(bench: Bench) -> None:
    before = bench.specs.present()
    bench.nodes.apply(_node("n1", 2))
    assert bench.specs.present() is before
    assert bench.take_read() == ["n1"]


def test_a_changed_node_is_another_answer_and_leaves_the_former_as_it_was(bench: Bench) -> None:
    before = bench.specs.present()
    bench.nodes.apply(_node("n1", 2, cpu="8"))
    after = bench.specs.present()
    assert (before["n1"].pools, after["n1"].pools) == ((Pool("cpu", 4),), (Pool("cpu", 8),))
    assert after["n0"] is before["n0"]
    assert bench.take_read() == ["n1"]


def test_nodes_come_and_go(bench: Bench) -> None:
    bench.nodes.apply(_node("n3", 1))
    bench.nodes.remove(_node("n0", 1))
    bench.nodes.apply(_node("n1", 2, deleted=True))
    assert set(bench.specs.present()) == {"n2", "n3"}
    assert bench.take_read() == ["n3"]


def test_what_daemonsets_take_is_read_again(bench: Bench) -> None:
    bench.daemons.taken["n2"] = DaemonSetRequests({"cpu": Decimal(1)})
    bench.daemons.changed.add("n2")
    assert bench.specs.present()["n2"].pools == (Pool("cpu", 3),)
    assert bench.take_read() == ["n2"]
    assert bench.specs.largest_daemon_use()


def test_types_that_work_requests_are_pools_of_every_node(bench: Bench) -> None:
    bench.pools.types = frozenset({"volumes:csi:ebs"})
    bench.limits["n0"] = {"volumes:csi:ebs": 4}
    found = bench.specs.present()
    assert [found[name].pools[-1].total for name in ("n0", "n1")] == [4, 1_000]
    bench.take_read()
    bench.limits["n1"] = {"volumes:csi:ebs": 7}
    assert bench.specs.present()["n1"].pools[-1].total == 7
    assert bench.take_read() == ["n1"]
    bench.pools.types = frozenset()
    assert all(len(spec.pools) == 1 for spec in bench.specs.present().values())


def test_a_node_that_could_not_be_read_is_read_the_next_time(bench: Bench) -> None:
    bench.nodes.apply(_node("n1", 2, cpu="8"))
    bench.problem = ValueError("a broken node")
    with pytest.raises(ValueError, match="a broken node"):
        bench.specs.present()
    bench.problem = None
    assert bench.specs.present()["n1"].pools == (Pool("cpu", 8),)
