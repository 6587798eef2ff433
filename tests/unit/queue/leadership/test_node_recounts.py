"""How often nodes are counted again because of devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from support.controller_bench import until
from support.queue_bench import a_node

from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.leadership.node_recounts import NodeRecounts


async def test_devices_that_all_nodes_reach_have_all_counted_a_few_times_however_many_claims_change() -> None:
    counted: list[int] = []
    cycles: list[None] = []

    class Counting(ForeignPods):
        def __init__(self) -> None:
            """Count nothing."""

        def recount(self, nodes: Iterable[str]) -> None:
            counted.append(len([*nodes]))

    caches = Caches(cast("Api", None), devices=True)
    for number in range(200):
        caches.nodes.apply(a_node(f"n{number}"))
    changed = NodeRecounts(caches, Counting(), lambda: cycles.append(None)).devices_changed
    for _ in range(1_000):
        changed(None)
    assert counted == [200, 200]
    await until(lambda: len(counted) == 3)
    changed(frozenset({"n1"}))
    assert (counted, len(cycles)) == ([200, 200, 200, 1], 4), "those of one node at once"
