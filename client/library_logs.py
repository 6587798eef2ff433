"""Logs of the client go to Python's `logging`, where the program that uses it decides about them.

The rooms that the client shares with the services write structlog events. Where nobody configured structlog,
it would print them to standard output, which belongs to that program.
"""

from __future__ import annotations

import structlog

__all__ = ["use_standard_logging"]


def use_standard_logging() -> None:
    """Send structlog's events to `logging`, unless the program configured structlog itself."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
