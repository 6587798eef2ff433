"""What the service counts, for Prometheus.

Calls by method and status code, their durations, and the verdicts of matches are counted as they happen. The state of the graph is
asked of the engine at scrape time, in the engine's thread like everything else; a scrape that would have to wait too long for a long
match leaves that part out rather than hold up the scraper.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Final

from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import Call, Stat
from fluxqueue.fluxion.owner import EngineOwner, OwnerClosed
from fluxqueue.proto.v1 import fluxion_pb2 as pb

__all__ = ["GraphCollector", "Metrics"]

_SCRAPE_WAIT_S: Final = 2.0
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter("fluxion_calls", "Calls by method and gRPC status code.", ["method", "code"], registry=self.registry)
        self._seconds = Histogram(
            "fluxion_call_seconds", "Time from a request to its answer.", ["method"], buckets=_BUCKETS, registry=self.registry
        )
        self._verdicts = Counter("fluxion_verdicts", "Answers to matches by verdict.", ["verdict"], registry=self.registry)

    def called(self, method: str, code: str, seconds: float) -> None:
        """Count a call that ended."""
        self._calls.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)

    def answered(self, method: str, response: Message) -> None:
        """Count what became of the jobs in an answer."""
        if isinstance(response, pb.MatchBatchResponse):
            for result in response.results:
                self._verdicts.labels(pb.Verdict.Name(result.verdict).lower()).inc()
        elif isinstance(response, pb.MatchResult) and method != "Satisfy":
            self._verdicts.labels(pb.Verdict.Name(response.verdict).lower()).inc()
        elif isinstance(response, pb.MatchResponse):
            self._verdicts.labels("reserved" if response.reserved else "granted").inc()


class GraphCollector(Collector):
    """The graph as it is when somebody looks."""

    def __init__(self, owner: EngineOwner) -> None:
        self._owner = owner

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Gauges of nodes, jobs and resources; none before the first Init."""
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
            ("fluxion_resource_free", "What is free now on nodes that are up, by resource type.", stat.free),
        ):
            family = GaugeMetricFamily(name, text, labels=["type"])
            for kind, amount in amounts.items():
                family.add_metric([kind], amount)
            yield family

    def _stat(self) -> Stat | None:
        try:
            future = self._owner.submit(lambda engine: engine.stat(Call()))
        except OwnerClosed:
            return None
        try:
            return future.result(timeout=_SCRAPE_WAIT_S)
        except (FluxionError, CancelledError):
            return None
        except TimeoutError:
            future.cancel()
            return None
