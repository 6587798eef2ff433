"""What the webhook counts. Labels are closed sets: nothing of an object's name ever becomes one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector

__all__ = ["CONTENT_TYPE_LATEST", "MALFORMED", "Metrics"]

MALFORMED = "malformed"
"""Outcome of what was no review, or too large."""

_KINDS = frozenset({"Job", "Pod", "FluxQueue", "MiniCluster"})
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """The webhook's metrics in a registry of their own."""

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
            "fluxqueue_webhook_review_seconds", "Time from a review's body to its answer.", buckets=_SECONDS, registry=self.registry
        )
        self._expiry = Gauge(
            "fluxqueue_webhook_certificate_expiry_timestamp_seconds", "When the certificate being served ends.", registry=self.registry
        )
        self._reloads = Counter(
            "fluxqueue_webhook_certificate_reloads",
            "Certificate pairs found on disk, by result: loaded or refused.",
            ("result",),
            registry=self.registry,
        )
        self._children: dict[tuple[str, str], Counter] = {}

    def review(self, kind: str, outcome: str, seconds: float) -> None:
        """Count one answer."""
        key = (kind if kind in _KINDS else "other", outcome)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._reviews.labels(*key)
        child.inc()
        self._seconds.observe(seconds)

    def certificate(self, ends: float | None) -> None:
        """A pair was found on disk: when it ends, in seconds since the epoch, or None if it was refused."""
        if ends is None:
            self._reloads.labels("refused").inc()
            return
        self._reloads.labels("loaded").inc()
        self._expiry.set(ends)

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
