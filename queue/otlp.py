"""Sends spans to an OpenTelemetry collector by OTLP over HTTP, as the variables ``OTEL_EXPORTER_OTLP_*`` say.

Only a queue that exports traces imports this module: the packages below belong to the extra ``traces``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from fluxqueue.queue.model.traces import EndedWorkload, Span, spans_of, trace_id
from fluxqueue.queue.traces import NotExported

__all__ = ["OtlpSender"]

_TIMEOUT_S = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpSender:
    """Sends the spans of workloads; blocks for some seconds at most."""

    def __init__(self) -> None:
        # What it logs may contain an address with a password; `send` says what matters.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(timeout=_TIMEOUT_S)
        self._resource = Resource.create({"service.name": "fluxqueue"})

    def send(self, ended: Sequence[EndedWorkload]) -> None:
        """Send the spans of these workloads.

        Raises
        ------
        NotExported
            The collector did not take them.
        """
        batch = [
            self._readable(trace_id(each.workload.uid), span) for each in ended for span in spans_of(each)
        ]
        if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
            raise NotExported(f"the collector did not take the traces of {len(ended)} workloads")

    def close(self) -> None:
        """End a `send` that waits for another attempt, and close the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # not typed there

    def _readable(self, trace: int, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(trace, span.id),
            parent=_context(trace, span.parent) if span.parent is not None else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(each.name, each.attributes, _nanoseconds(each.at)) for each in span.events],
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
        )


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
