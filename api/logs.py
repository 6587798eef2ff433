"""The logging of all programs: one JSON object per line on standard error, with ids and without secrets."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

__all__ = ["configure_logging"]


def configure_logging(level: str = "info") -> None:
    """Configure structlog, and the standard library's logging, which the dependencies use.

    Parameters
    ----------
    level
        ``debug``, ``info``, ``warning`` or ``error``.

    Raises
    ------
    ValueError
        The level is another word.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"{level!r} is not a log level: write debug, info, warning or error")
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]
    wrapper_class = structlog.make_filtering_bound_logger(number)
    logger_factory = structlog.WriteLoggerFactory(sys.stderr)
    forward = _Forward(structlog.wrap_logger(logger_factory(), processors, wrapper_class))
    logging.basicConfig(handlers=[forward], level=max(number, logging.WARNING), force=True)
    structlog.configure(
        processors=processors,
        wrapper_class=wrapper_class,
        logger_factory=logger_factory,
        cache_logger_on_first_use=True,
    )


class _Forward(logging.Handler):
    """Writes records of the standard library's logging as structlog does.

    It has a logger of its own: structlog's configuration can be replaced later by one that sends its events
    to `logging`, as the Python client's does, and a record would go round without end.
    """

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
