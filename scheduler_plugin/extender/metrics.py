"""Metrics of the extender, in the registry of the scheduler's own metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from fluxqueue.scheduler_plugin.metrics import REGISTRY

__all__ = ["EXPIRY", "RELOADS", "REQUESTS", "SECONDS", "CertificateGauges"]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

REQUESTS = Counter(
    "fluxqueue_extender_requests_total",
    "Requests of kube-scheduler, by verb and result: done, refused (no node is left, or no bind) or error",
    ["verb", "result"],
    registry=REGISTRY,
)
SECONDS = Histogram(
    "fluxqueue_extender_request_duration_seconds",
    "Time from the head of a request to its response, including reading the body",
    ["verb"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
EXPIRY = Gauge(
    "fluxqueue_extender_certificate_expiry_timestamp_seconds",
    "Expiry of the served certificate",
    registry=REGISTRY,
)
RELOADS = Counter(
    "fluxqueue_extender_certificate_reloads_total",
    "Certificate pairs found on disk, by result: loaded or refused",
    ["result"],
    registry=REGISTRY,
)


class CertificateGauges:
    """Counts certificate pairs for `fluxqueue.serving.served_certificate.ServedCertificate`."""

    def certificate(self, ends: float | None) -> None:
        """Record a pair that was found on disk: its end in seconds since the epoch,
        or None if it was refused.
        """
        if ends is None:
            RELOADS.labels("refused").inc()
            return
        RELOADS.labels("loaded").inc()
        EXPIRY.set(ends)
