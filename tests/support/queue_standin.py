"""A stand-in for the queue's port for operators:
it answers history, report and doctor over HTTPS to who has a token for fluxqueue.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair


@dataclass
class QueueStandin:
    """Where it is, what it was asked, and as whom; ``refused`` has sentences by path and groups."""

    url: str
    ca: Path
    asked: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)


def history(now: dt.datetime, jobs: int = 60) -> dict[str, Mapping[str, Any]]:
    """Return answers with some work of the last week."""

    def text(seconds: float) -> str:
        return (now - dt.timedelta(seconds=seconds)).isoformat()

    rows = [
        {
            "namespace": "blue",
            "kind": "Job",
            "name": f"lammps-{number}",
            "queue": "default",
            "user": "alice",
            "state": "Completed",
            "outcome": "Succeeded",
            "wait_s": float(4 ** (number % 8)),
            "run_s": 600.0 + number,
            "submitted_at": text(9_000 * number + 4_000),
            "finished_at": text(9_000 * number),
        }
        for number in range(jobs)
    ]
    days = [
        {
            "day": text(86_400 * day)[:10],
            "cpu_s": 3_600.0 * (20 + 7 * (day % 3)),
            "node_s": 9_000.0,
            "gpu_s": 0.0,
        }
        for day in range(7)
    ]
    finding = {
        "sentence": "Fluxion holds 4 cpu of node-2 for a job that has ended",
        "invariant": "I1",
        "what": "leaked",
        "remedy": "the next sweep frees it",
    }
    return {
        "/history": {"jobs": rows, "next": None},
        "/report": {"rows": days},
        "/doctor": {"findings": [finding], "repaired": []},
    }


@contextmanager
def run_queue_standin(folder: Path) -> Iterator[QueueStandin]:
    """Serve until the end of the context."""
    now = dt.datetime.now(dt.UTC)
    authority = make_authority("standin", now)
    write_pair(folder, issue_leaf(authority, ServingNames((), ("127.0.0.1",)), now), now)
    ca = folder / "standin-ca.crt"
    ca.write_bytes(authority.certificate)
    standin = QueueStandin("", ca, answers=history(now))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(standin))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    standin.url = f"https://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield standin
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def _handler(standin: QueueStandin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            claims = _claims(self.headers.get("Authorization", ""))
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            standin.asked.append((url.path, query, str(claims.get("sub", ""))))
            fine = claims.get("aud") == ["fluxqueue"]
            refused = standin.refused.get((url.path, query.get("by", "")), "")
            error = {"error": refused or "the token is not for fluxqueue"}
            body = json.dumps(standin.answers[url.path] if fine and not refused else error).encode()
            self.send_response((400 if refused else 200) if fine else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    return Handler


def claims_token(subject: str) -> str:
    """Return a text that the stand-in takes for a token of an account for fluxqueue; nobody signed it."""
    claims = (
        base64.urlsafe_b64encode(json.dumps({"aud": ["fluxqueue"], "sub": subject}).encode())
        .decode()
        .rstrip("=")
    )
    return f"header.{claims}.signature"


def _claims(header: str) -> dict[str, Any]:
    try:
        part = header.removeprefix("Bearer ").split(".")[1]
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims
