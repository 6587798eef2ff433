"""What a replica tells of itself for a bundle."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from starlette.requests import Request

from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import Stat
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.recovery.bundle_endpoint import bundle_endpoint

STAT = Stat("one", "lonode", 4, 3, 20, {"core": 8}, {"core": 6}, 2, 0, 0, 1)


class _Sweeper:
    def __init__(self, graph: Stat | Exception) -> None:
        self.doctor = self
        self._graph = graph

    async def graph_size(self) -> Stat:
        if isinstance(self._graph, Exception):
            raise self._graph
        return self._graph


async def told(sweeper: Any) -> dict[str, Any]:
    registry = CollectorRegistry()
    Gauge("a_metric", "One.", registry=registry).set(7)
    endpoint = bundle_endpoint(QueueConfig(), registry, lambda: sweeper)
    answer = await endpoint.answer(Request({"type": "http", "query_string": b"", "headers": []}))
    assert answer.status_code == 200
    decoded: dict[str, Any] = json.loads(bytes(answer.body))
    return decoded


async def test_a_leader_tells_settings_metrics_and_the_size_of_its_graph() -> None:
    answer = await told(_Sweeper(STAT))
    assert "a_metric 7.0" in answer["metrics"]
    assert answer["settings"]["policy"] == "lonode"
    assert (answer["graph"]["nodes"], answer["graph"]["nodes_up"], answer["graph"]["free"]) == (
        4,
        3,
        {"core": 6},
    )
    assert answer["version"]


async def test_a_follower_answers_without_a_graph() -> None:
    assert (await told(None))["graph"] is None


async def test_a_matcher_that_does_not_answer_is_a_sentence() -> None:
    assert (await told(_Sweeper(FluxionError("no answer"))))["graph"] == {"error": "no answer"}
