"""Metrics of the webhook. Labels have closed sets of values: no label contains a name of an object."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector

from fluxqueue.serving.connections import ConnectionEnding

__all__ = ["CONTENT_TYPE_LATEST", "FAILED", "MALFORMED", "WebhookMetrics"]

MALFORMED = "malformed"
"""Outcome of a body that was not a review."""

FAILED = "failed"
"""Outcome of a review that was refused because of an internal error."""

_KINDS = frozenset({"Job", "Pod", "FluxQueue", "FluxReservation", "MiniCluster"})
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class WebhookMetrics:
    """The webhook's metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._reviews = Counter(
            "fluxqueue_webhook_reviews",
            "Admission reviews answered, by kind of object and outcome.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "fluxqueue_webhook_review_seconds",
            "Time from a review's body to the response.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._expiry = Gauge(
            "fluxqueue_webhook_certificate_expiry_timestamp_seconds",
            "Expiry of the served certificate.",
            registry=self.registry,
        )
        self._reloads = Counter(
            "fluxqueue_webhook_certificate_reloads",
            "Certificate pairs found on disk, by result: loaded or refused.",
            ("result",),
            registry=self.registry,
        )
        self._ended = Counter(
            "fluxqueue_webhook_connections_ended",
            "Connections that were ended because of a limit, by limit.",
            ("limit",),
            registry=self.registry,
        )
        self._blocked = Histogram(
            "fluxqueue_loop_blocked_seconds",
            "Blocks of the event loop that were longer than 250 ms",
            buckets=(0.5, 1, 2, 5, 10, 30),
            registry=self.registry,
        )
        self._children: dict[tuple[str, str], Counter] = {}

    def review(self, kind: str, outcome: str, seconds: float) -> None:
        """Count one response."""
        key = (kind if kind in _KINDS else "other", outcome)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._reviews.labels(*key)
        child.inc()
        self._seconds.observe(seconds)

    def connection_ended(self, ending: ConnectionEnding) -> None:
        """Count a connection that was ended because of a limit."""
        self._ended.labels(ending.value).inc()

    def loop_blocked(self, seconds: float) -> None:
        """Record a block of the event loop."""
        self._blocked.observe(seconds)

    def certificate(self, ends: float | None) -> None:
        """Record a pair that was found on disk: its end in seconds since the epoch,
        or None if it was refused.
        """
        if ends is None:
            self._reloads.labels("refused").inc()
            return
        self._reloads.labels("loaded").inc()
        self._expiry.set(ends)

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry)
