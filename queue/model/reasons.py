"""Kinds of reasons: whether work with a reason is matched, waits for a limit, or waits for other work."""

from __future__ import annotations

from fluxqueue.api.fluxjobs import Reason

__all__ = ["LIMIT_REASONS", "MATCHABLE_REASONS", "WAITS_FOR_OTHERS"]

MATCHABLE_REASONS = frozenset(
    {
        Reason.NONE,
        Reason.WAITING_FOR_NODES,
        Reason.BLOCKED_BY_RESERVATION,
        Reason.RESERVATION,
        Reason.QUEUE_LIMIT,
        Reason.ACCOUNT_LIMIT,
        Reason.NODES_UNAVAILABLE,
        Reason.PREEMPTED,
        Reason.PROVISIONING,
        Reason.DEADLINE_UNREACHABLE,
    }
    | {Reason.RELEASE_FAILED, Reason.BIND_FAILED, Reason.START_TIMEOUT}
)
"""Reasons of workloads that are matched in every cycle; any other reason blocks."""

LIMIT_REASONS = frozenset({Reason.QUEUE_LIMIT, Reason.ACCOUNT_LIMIT})
"""Reasons of workloads that wait for a limit and not for nodes."""

WAITS_FOR_OTHERS = frozenset({Reason.WAITING_FOR_DEPENDENCY, Reason.WAITING_FOR_BEGIN})
"""Reasons of work that is matched once other work, or a time, has come: its start can be estimated."""
