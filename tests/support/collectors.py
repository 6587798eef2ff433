"""An OpenTelemetry collector that keeps what it gets:
OTLP over HTTP, decoded with OpenTelemetry's own messages.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Collector", "collector"]


class Collector:
    """What arrived.

    Attributes
    ----------
    spans
        In the order of arrival.
    headers
        Of the last request, in lower case.
    status
        Answered to each request.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.spans: list[Span] = []
        self.headers: dict[str, str] = {}
        self.services: set[str] = set()
        self.status = 200

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            }
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def trace(self, uid: str) -> list[Span]:
        """Return the spans of the object with this uid, the whole first."""
        wanted = bytes.fromhex(uid.replace("-", ""))
        return sorted(
            (span for span in self.spans if span.trace_id == wanted),
            key=lambda span: (span.parent_span_id, span.start_time_unix_nano),
        )


@contextmanager
def collector() -> Iterator[Collector]:
    """Serve on a free port of the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        kept: ClassVar[Collector]

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.kept.headers = {name.lower(): value for name, value in self.headers.items()}
            if self.kept.status == 200:
                self.kept.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(self.kept.status if self.path == "/v1/traces" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Handler.kept = Collector(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
