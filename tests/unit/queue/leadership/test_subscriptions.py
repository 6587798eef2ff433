"""Who is told of which change stands in one place, and all of it is carried out in a leader."""

from __future__ import annotations

import ast
from pathlib import Path

from support.controller_bench import RecordedEvents, managed_caches
from support.memory_api import MemoryApi
from support.memory_store import memory_ledger

from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.leadership.context import LeaderContext
from fluxqueue.queue.leadership.controllers import make_controllers
from fluxqueue.queue.leadership.planning import make_capacity, make_planning
from fluxqueue.queue.leadership.subscriptions import SOURCES, told
from fluxqueue.queue.leadership.writers import make_writers
from fluxqueue.queue.model.idleness import IdleRules, PrometheusRules
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShape
from fluxqueue.queue.status.work_status_writer import WorkStatusWriter
from fluxqueue.queue.tasks.triggers import Trigger

QUEUE = Path(__file__).parents[4] / "queue"
VIEWS = {
    f"cluster/{name}.py"
    for name in (
        *("accounts", "composite_trees", "context_builder", "devices", "gang_objects"),
        *("reservations", "storage"),
    )
}
"""Parts of `Caches`, which follow the caches that they are made of in every replica, before any leader."""


def test_nothing_subscribes_but_the_table_and_the_views_of_the_caches() -> None:
    subscribing = {
        str(path.relative_to(QUEUE))
        for path in QUEUE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("add_handler", "adding_handler", "subscribe", "subscribe_slots", "subscribe_order")
    }
    assert subscribing == {*VIEWS, "leadership/subscriptions.py"}


async def test_each_handler_of_the_table_is_called_once_in_a_leader_and_in_its_order() -> None:
    memory, fluxion = MemoryApi(), LocalFluxion()
    caches, ledger = managed_caches(memory), await memory_ledger()
    config = QueueConfig(
        node_shapes=(NodeShape(name="big", max_nodes=1, allocatable={"cpu": "8"}),),
        idle=IdleRules(prometheus=PrometheusRules(url="http://prometheus:9090"), query="use"),
    )
    trigger, recorder = Trigger(lambda _task: None), RecordedEvents().recorder
    context = LeaderContext(memory.api, caches, ledger, trigger, recorder, config)
    capacity = make_capacity(context, fluxion)
    controllers = make_controllers(context, capacity.port_volume_pools)
    planning = make_planning(context, capacity, controllers.requeuer)
    writers = make_writers(context, planning, controllers.idle).controllers
    calls = [
        (source.name, getattr(handler, "__func__", None))
        for source, _, handler in told(caches, ledger, capacity, controllers, planning, *writers)
    ]
    assert calls == [
        (source.name, handler)
        for source in SOURCES
        for handler in source.handlers
        for _ in range(3 if handler is WorkStatusWriter.workload_changed else 1)
    ]
    await fluxion.close()
