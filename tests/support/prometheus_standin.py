"""A stand-in for Prometheus on loopback: it answers each query with the use of pods that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

__all__ = ["PrometheusStandin", "answer", "prometheus_standin"]


def answer(use: dict[tuple[str, str], object]) -> bytes:
    """Return an answer as Prometheus writes it."""
    result = [
        {"metric": {"namespace": namespace, "pod": pod}, "value": [1.5, str(value)]}
        for (namespace, pod), value in use.items()
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


class PrometheusStandin:
    """What is answered, and what was asked.

    Attributes
    ----------
    use
        The value of each pod (namespace, name).
    body
        Is answered instead, with `status`; None: the use.
    queries, tokens
        What was asked, and with which header.
    """

    def __init__(self) -> None:
        self.use: dict[tuple[str, str], object] = {}
        self.body: bytes | None = None
        self.status = 200
        self.queries: list[str] = []
        self.tokens: list[str | None] = []
        self.url = ""


@contextmanager
def prometheus_standin() -> Iterator[PrometheusStandin]:
    """Serve one."""
    made = PrometheusStandin()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            made.queries += parse_qs(address.query).get("query", [])
            made.tokens.append(self.headers.get("Authorization"))
            body = made.body if made.body is not None else answer(dict(made.use))
            self.send_response(made.status if address.path == "/api/v1/query" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", made.url)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
