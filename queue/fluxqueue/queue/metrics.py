"""The queue's metrics: seconds, totals, bounded labels."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

__all__ = [
    "API_CALLS",
    "CYCLES",
    "CYCLE_SECONDS",
    "FLUXION_UP",
    "GRANTS",
    "INHERITED",
    "POSTGRES_UP",
    "RELEASES",
    "RELEASE_SECONDS",
    "REPAIRS",
    "REQUEUES",
    "ROLE",
    "SLOTS_ENDED",
    "WORKLOADS",
]

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

CYCLES = Counter("fluxqueue_cycles_total", "Scheduling cycles", ["result"])
CYCLE_SECONDS = Histogram("fluxqueue_cycle_duration_seconds", "Time a scheduling cycle took", buckets=_FAST)
GRANTS = Counter("fluxqueue_grants_total", "Allocations stored")
RELEASES = Counter("fluxqueue_releases_total", "Objects let go", ["mode", "result"])
RELEASE_SECONDS = Histogram("fluxqueue_release_duration_seconds", "From grant to release", buckets=_FAST)
REQUEUES = Counter("fluxqueue_requeues_total", "Workloads taken back from their nodes to wait again", ["reason"])
INHERITED = Counter("fluxqueue_places_inherited_total", "Places of pods that went, taken over by their successors")
SLOTS_ENDED = Counter("fluxqueue_slots_ended_total", "Places of pods given back")
REPAIRS = Counter("fluxqueue_sweep_repairs_total", "Differences the sweep found and mended", ["kind"])
WORKLOADS = Gauge("fluxqueue_workloads", "Workloads in the queue", ["state"])
API_CALLS = Counter("fluxqueue_api_calls_total", "Calls to the API server", ["verb", "kind", "code"])
FLUXION_UP = Gauge("fluxqueue_fluxion_up", "Whether Fluxion answers")
POSTGRES_UP = Gauge("fluxqueue_postgres_up", "Whether Postgres answers")
ROLE = Gauge("fluxqueue_role", "1 for the role this replica has: starting, follower or leader", ["role"])
