"""Exports the way of every workload that has ended to an OpenTelemetry collector.

The transitions in Postgres are the source. So nothing is measured or kept in memory for traces, no part of
the queue waits for the collector, and what ended while it could not be reached is exported later. A new
leader begins a minute before its start; spans that it exports once more have the same ids.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from fluxqueue.queue.metrics import TRACES
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.model.traces import EndedWorkload
from fluxqueue.queue.store import DatabaseUnavailable

__all__ = ["EndedSource", "NotExported", "TraceExport", "TraceSender", "TracesUnavailable", "make_sender"]

log: Final = structlog.get_logger()

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_INTERVAL_S: Final = 5.0
_SETTLED_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 60.0
_BACK: Final = timedelta(seconds=60)
_AT_ONCE: Final = 100


class TracesUnavailable(ValueError):
    """A collector is named, and the packages that export to it are not installed."""


class NotExported(Exception):
    """The collector did not take the spans."""


class EndedSource(Protocol):
    """What has ended, in the order of the ends: the store."""

    async def ended_after(
        self, at: datetime, after: WorkloadId, *, settled_s: float, limit: int
    ) -> list[EndedWorkload]:
        """Return what ended after this position."""
        ...


class TraceSender(Protocol):
    """Sends spans; see `fluxqueue.queue.otlp.OtlpSender`."""

    def send(self, ended: Sequence[EndedWorkload]) -> None:
        """Send, or raise `NotExported`."""
        ...

    def close(self) -> None:
        """End what waits."""
        ...


def make_sender(environment: Mapping[str, str] = os.environ) -> TraceSender | None:
    """Return the sender that the environment describes; None where no collector is named.

    Raises
    ------
    TracesUnavailable
        The extra ``traces`` is not installed.
    """
    named = next((name for name in _ENDPOINTS if environment.get(name)), None)
    if named is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from fluxqueue.queue.otlp import OtlpSender  # 10 MB of memory that only this needs
    except ImportError as error:
        raise TracesUnavailable(
            f"{named} is set, and {error.name} is not installed: install fluxqueue[traces], or unset it"
        ) from None
    return OtlpSender()


class TraceExport:
    """Reads what has ended, and sends it.

    Parameters
    ----------
    source
        The store.
    sender
        Sends a batch.
    now
        The time of the tables.
    interval_s, settled_s
        How often it reads, and how old an end must be: an earlier end may be committed later.
    """

    def __init__(
        self,
        source: EndedSource,
        sender: TraceSender,
        now: datetime,
        *,
        interval_s: float = _INTERVAL_S,
        settled_s: float = _SETTLED_S,
    ) -> None:
        self._source = source
        self._sender = sender
        self._at, self._after = now - _BACK, WorkloadId(0)
        self._interval_s = interval_s
        self._settled_s = settled_s

    async def run(self) -> None:
        """Export until cancelled."""
        pause_s = self._interval_s
        try:
            while True:
                try:
                    while await self._export() == _AT_ONCE:
                        pass
                    pause_s = self._interval_s
                except (NotExported, DatabaseUnavailable) as error:
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    log.warning("traces.not_exported", error=str(error), retry_s=pause_s)
                await asyncio.sleep(pause_s)
        finally:
            self._sender.close()

    async def _export(self) -> int:
        """Export the next workloads; return how many."""
        ended = await self._source.ended_after(
            self._at, self._after, settled_s=self._settled_s, limit=_AT_ONCE
        )
        if ended:
            await asyncio.to_thread(self._sender.send, ended)
            last = ended[-1].workload
            self._at, self._after = last.finished_at or self._at, last.id
            TRACES.inc(len(ended))
        return len(ended)
