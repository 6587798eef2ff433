"""The queue's metrics: seconds, totals, bounded labels."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

__all__ = [
    "API_CALLS",
    "CLOCK_OFFSET_SECONDS",
    "CONTROLLER_RESTARTS",
    "COULD_FIT",
    "CYCLES",
    "CYCLE_SECONDS",
    "FLUXION_UP",
    "GRANTS",
    "IDLE",
    "IDLE_ANSWERS",
    "INHERITED",
    "LOOP_BLOCKED_SECONDS",
    "NODES",
    "OBJECT_FAILURES",
    "PENDING",
    "POSTGRES_UP",
    "PRUNED",
    "RELEASES",
    "RELEASE_SECONDS",
    "REPAIRS",
    "REQUEUES",
    "ROLE",
    "SLOTS_ENDED",
    "START_ERROR_SECONDS",
    "TRACES",
    "WITHDRAWALS",
    "WORKLOADS",
]

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

CYCLES = Counter("fluxqueue_cycles_total", "Scheduling cycles", ["result"])
CYCLE_SECONDS = Histogram("fluxqueue_cycle_duration_seconds", "Duration of a scheduling cycle", buckets=_FAST)
GRANTS = Counter("fluxqueue_grants_total", "Allocations stored")
RELEASES = Counter("fluxqueue_releases_total", "Objects released", ["mode", "result"])
RELEASE_SECONDS = Histogram("fluxqueue_release_duration_seconds", "Time from grant to release", buckets=_FAST)
REQUEUES = Counter("fluxqueue_requeues_total", "Workloads evicted from their nodes to wait again", ["reason"])
WITHDRAWALS = Counter(
    "fluxqueue_withdrawals_total",
    "Released pods of our own scheduler whose allocation was withdrawn",
    ["result"],
)
INHERITED = Counter(
    "fluxqueue_places_inherited_total", "Slots of deleted pods that were given to their replacements"
)
CONTROLLER_RESTARTS = Counter(
    "fluxqueue_controller_restarts_total",
    "Parts of the leader that an unexpected error ended, and that were started again",
    ["controller"],
)
OBJECT_FAILURES = Counter(
    "fluxqueue_object_failures_total", "Failures of one object, which is tried again alone", ["batch"]
)
START_ERROR_SECONDS = Histogram(
    "fluxqueue_start_error_seconds",
    "Time between the first estimate of a start and the start",
    ["start"],
    buckets=(1, 10, 60, 300, 900, 3_600, 14_400, 86_400),
)
SLOTS_ENDED = Counter("fluxqueue_slots_ended_total", "Slots that were freed")
REPAIRS = Counter("fluxqueue_sweep_repairs_total", "Differences that the sweep found and repaired", ["kind"])
PRUNED = Counter(
    "fluxqueue_pruned_rows_total", "Rows deleted because their work ended before the retention", ["table"]
)
IDLE = Gauge("fluxqueue_idle_workloads", "Running workloads that were told that they are idle, and are")
IDLE_ANSWERS = Counter(
    "fluxqueue_idle_answers_total", "Questions to Prometheus about the use of pods", ["result"]
)
TRACES = Counter("fluxqueue_traces_exported_total", "Traces that the collector took")
PENDING = Gauge(
    "fluxqueue_pending_workloads",
    "Waiting workloads by their namespace: the 20 with most, and _other for all others",
    ["work_namespace"],
)
COULD_FIT = Gauge(
    "fluxqueue_could_fit_workloads", "Workloads that wait for nodes and have no more pods than nodes are free"
)
NODES = Gauge(
    "fluxqueue_nodes",
    "Nodes by use: used by work of the queue, closed (not ready or cordoned), or free",
    ["use"],
)
WORKLOADS = Gauge("fluxqueue_workloads", "Workloads in the queue", ["state"])
API_CALLS = Counter("fluxqueue_api_calls_total", "Calls to the API server", ["verb", "kind", "code"])
FLUXION_UP = Gauge("fluxqueue_fluxion_up", "1 if Fluxion answers")
CLOCK_OFFSET_SECONDS = Gauge(
    "fluxqueue_clock_offset_seconds",
    "By how much a clock is ahead of the time of day, as the leader knows it",
    ["clock"],
)
LOOP_BLOCKED_SECONDS = Histogram(
    "fluxqueue_loop_blocked_seconds",
    "Blocks of the event loop that were longer than 250 ms",
    buckets=(0.5, 1, 2, 5, 10, 30),
)
POSTGRES_UP = Gauge("fluxqueue_postgres_up", "1 if Postgres answers")
ROLE = Gauge("fluxqueue_role", "1 for the role this replica has: starting, follower or leader", ["role"])
