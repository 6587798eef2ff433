"""Kinds of reasons: whether work with a reason is matched, waits for a limit, or waits for other work."""

from __future__ import annotations

from fluxqueue.api.reasons import reasons_that

__all__ = ["LIMIT_REASONS", "MATCHABLE_REASONS", "WAITS_FOR_OTHERS"]

MATCHABLE_REASONS = reasons_that(lambda facts: facts.matched)
"""Reasons of workloads that are matched in every cycle; any other reason blocks."""

LIMIT_REASONS = reasons_that(lambda facts: facts.limit)
"""Reasons of workloads that wait for a limit and not for nodes."""

WAITS_FOR_OTHERS = reasons_that(lambda facts: facts.for_others)
"""Reasons of work that is matched once other work, or a time, has come: its start can be estimated."""
