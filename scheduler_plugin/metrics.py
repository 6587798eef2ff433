"""The scheduler's metrics. They have the names of kube-scheduler's where the meaning is the same, so that its
dashboards work.

They are in a registry of their own: the program shares modules with the queue and would otherwise export the
queue's metrics as zeros.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.gc_collector import GCCollector

from fluxqueue.api.names import SCHEDULER_NAME

__all__ = [
    "API_CALLS",
    "ATTEMPTS",
    "ATTEMPTS_OF_POD",
    "ATTEMPT_SECONDS",
    "BIND_CONFLICTS",
    "BIND_LIMIT",
    "BIND_SECONDS",
    "BOUND_GANGS",
    "LOOP_BLOCKED_SECONDS",
    "PENDING",
    "REGISTRY",
    "REPORTS",
    "ROLE",
    "SLI_SECONDS",
    "Result",
    "attempted",
]

_FAST = (
    0.001,
    0.002,
    0.004,
    0.008,
    0.016,
    0.032,
    0.064,
    0.128,
    0.256,
    0.512,
    1.024,
    2.048,
    4.096,
    8.192,
    16.384,
)
_LONG = (*(0.01 * 2**n for n in range(20)),)

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

ATTEMPTS = Counter(
    "scheduler_schedule_attempts_total",
    "Attempts to bind pods; unschedulable means that the node cannot take the pod, error a bind that failed",
    ["profile", "result"],
    registry=REGISTRY,
)
ATTEMPT_SECONDS = Histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Time from the first check of a pod to its binding or refusal",
    ["profile", "result"],
    buckets=_FAST,
    registry=REGISTRY,
)
SLI_SECONDS = Histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Time from the first observation of a released pod to its binding",
    ["attempts"],
    buckets=_LONG,
    registry=REGISTRY,
)
ATTEMPTS_OF_POD = Histogram(
    "scheduler_pod_scheduling_attempts",
    "Attempts needed to bind a pod",
    buckets=(1, 2, 4, 8, 16),
    registry=REGISTRY,
)
PENDING = Gauge(
    "scheduler_pending_pods",
    "Released pods that are not bound: active (about to be), "
    "gated (waiting for their gang or a volume), unschedulable (refused)",
    ["queue"],
    registry=REGISTRY,
)
BIND_SECONDS = Histogram(
    "fluxqueue_scheduler_bind_duration_seconds", "Duration of one Binding", buckets=_FAST, registry=REGISTRY
)
BIND_LIMIT = Gauge(
    "fluxqueue_scheduler_bind_limit", "Bindings that may be in flight at once", registry=REGISTRY
)
BIND_CONFLICTS = Counter(
    "fluxqueue_scheduler_bind_conflicts_total",
    "Bindings refused by the API server because the pod had changed",
    registry=REGISTRY,
)
BOUND_GANGS = Counter(
    "fluxqueue_scheduler_gangs_total",
    "Gangs whose pods were all checked and bound together",
    registry=REGISTRY,
)
REPORTS = Counter(
    "fluxqueue_scheduler_reports_total", "PodScheduled conditions written", ["reason"], registry=REGISTRY
)
LOOP_BLOCKED_SECONDS = Histogram(
    "fluxqueue_loop_blocked_seconds",
    "Blocks of the event loop that were longer than 250 ms",
    buckets=(0.5, 1, 2, 5, 10, 30),
    registry=REGISTRY,
)
API_CALLS = Counter(
    "fluxqueue_api_calls_total", "Calls to the API server", ["verb", "kind", "code"], registry=REGISTRY
)
ROLE = Gauge(
    "fluxqueue_role",
    "1 for the role this replica has: starting, follower or leader",
    ["role"],
    registry=REGISTRY,
)


class Result:
    """The values of the label ``result``, as the stock scheduler writes them."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


def attempted(result: str, seconds: float) -> None:
    """Count one attempt and its duration."""
    ATTEMPTS.labels(SCHEDULER_NAME, result).inc()
    ATTEMPT_SECONDS.labels(SCHEDULER_NAME, result).observe(seconds)
