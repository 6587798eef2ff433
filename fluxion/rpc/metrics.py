"""Prometheus metrics of the service.

Calls by method and status code, their durations, and the verdicts of matches are counted as they happen. The
state of the graph is read from the engine at scrape time, in the engine's thread like everything else. If a
long match is under way, a scrape omits that part instead of waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import CallContext, Stat
from fluxqueue.fluxion.rpc.owner import EngineOwner, OwnerClosed

__all__ = ["FluxionMetrics", "GraphCollector"]

_SCRAPE_WAIT_S: Final = 2.0
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class FluxionMetrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "fluxion_calls",
            "Calls by method and gRPC status code.",
            ["method", "code"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "fluxion_call_seconds",
            "Time from a request to its answer.",
            ["method"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._verdicts = Counter(
            "fluxion_verdicts", "Answers to matches by verdict.", ["verdict"], registry=self.registry
        )

    def called(self, method: str, code: str, seconds: float) -> None:
        """Count a call that ended."""
        self._calls.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)

    def answered(self, verdicts: Iterable[str]) -> None:
        """Count the verdicts in an answer."""
        for verdict in verdicts:
            self._verdicts.labels(verdict).inc()


class GraphCollector(Collector):
    """The graph at the time of a scrape."""

    def __init__(self, owner: EngineOwner) -> None:
        self._owner = owner

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield gauges of nodes, jobs and resources; none before the first Init."""
        stat = self._stat()
        if stat is None:
            return
        nodes = GaugeMetricFamily("fluxion_nodes", "Nodes in the graph.", labels=["status"])
        nodes.add_metric(["up"], stat.nodes_up)
        nodes.add_metric(["down"], stat.nodes - stat.nodes_up)
        yield nodes
        jobs = GaugeMetricFamily("fluxion_jobs", "Live jobs in the graph.", labels=["mode"])
        jobs.add_metric(["allocated"], stat.allocated_jobs)
        jobs.add_metric(["reserved"], stat.reserved_jobs)
        yield jobs
        yield GaugeMetricFamily("fluxion_vertices", "Vertices in the graph.", value=stat.vertices)
        yield GaugeMetricFamily("fluxion_epoch", "Newest leader epoch seen.", value=stat.epoch)
        for name, text, amounts in (
            ("fluxion_resource_total", "Size of the graph by resource type.", stat.total),
            (
                "fluxion_resource_free",
                "Resources that are free now on nodes that are up, by resource type.",
                stat.free,
            ),
        ):
            family = GaugeMetricFamily(name, text, labels=["type"])
            for kind, amount in amounts.items():
                family.add_metric([kind], amount)
            yield family

    def _stat(self) -> Stat | None:
        try:
            future = self._owner.submit(lambda engine: engine.stat(CallContext()))
        except OwnerClosed:
            return None
        try:
            return future.result(timeout=_SCRAPE_WAIT_S)
        except (FluxionError, CancelledError):
            return None
        except TimeoutError:
            future.cancel()
            return None
