"""What `fluxqueue verify` says of programs that do not answer as they have to."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fluxqueue.api.names import OPERATOR_TOKEN_HEADER
from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.cli import verify

HOLDS = {"response": {"allowed": True, "patch": "W10=", "patchType": "JSONPatch"}}
LEADS = {"ready": True, "role": "leader", "missing": {}}


@dataclass
class Programs:
    """One HTTPS server that answers for all programs."""

    folder: Path
    port: int = 0
    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    tokens: list[str | None] = field(default_factory=list)

    def run(self, *more: str) -> list[str]:
        """Return the arguments of a verification."""
        url = f"https://127.0.0.1:{self.port}"
        files = [
            "--webhook-ca",
            f"{self.folder}/ca.crt",
            "--queue-ca",
            f"{self.folder}/ca.crt",
            "--token",
            f"{self.folder}/token",
        ]
        return ["--webhook", url, "--queue", url, *files, "--timeout", "0", *more]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    now = dt.datetime.now(dt.UTC)
    authority = make_authority("test", now)
    leaf = issue_leaf(authority, ServingNames(addresses=("127.0.0.1",)), now)
    for name, content in (
        ("ca.crt", authority.certificate),
        ("tls.crt", leaf.certificate),
        ("tls.key", leaf.key),
        ("token", b"a-token\n"),
    ):
        (tmp_path / name).write_bytes(content)
    made = Programs(
        tmp_path,
        answers={"/mutate": [(200, HOLDS)], "/status": [(200, LEADS)], "/doctor": [(200, {"findings": []})]},
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            planned = made.answers[self.path.partition("?")[0]]
            status, document = planned.pop(0) if len(planned) > 1 else planned[0]
            made.tokens.append(self.headers.get(OPERATOR_TOKEN_HEADER))
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    made.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_program_is_asked_and_the_queue_with_its_token(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main(programs.run()) == 0
    assert [line[:2] for line in capsys.readouterr().out.splitlines()] == ["ok"] * 3
    assert programs.tokens == [None, "a-token", "a-token"], "the webhook needs none"


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/mutate", (200, {"response": {"allowed": True}}), "has to hold it"),
        ("/mutate", (500, b"broken"), "answered 500: broken"),
        ("/mutate", (200, b"<html>"), "answered no JSON"),
        ("/mutate", (200, []), "answered no JSON object"),
        (
            "/status",
            (200, {**LEADS, "missing": {"fluxion": "Fluxion does not answer"}}),
            "is not ready: Fluxion does not answer",
        ),
        ("/status", (200, {**LEADS, "role": "follower"}), "answered as follower, and not as leader"),
        ("/status", (401, b"whose token?"), "answered 401: whose token?"),
        ("/doctor", (503, {"error": "this replica does not lead"}), "answered 503"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    programs: Programs, capsys: pytest.CaptureFixture[str], path: str, answer: tuple[int, Any], said: str
) -> None:
    programs.answers[path] = [answer]
    assert verify.main(programs.run()) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [said in line for line in lines if line.startswith("FAIL")] == [True]
    assert len(lines) == 3, "the other checks run all the same"


def test_another_replica_may_answer_first(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_PAUSE_S", 0.0)
    programs.answers["/status"] = [(200, {**LEADS, "role": "follower"}), (503, b""), (200, LEADS)]
    assert verify.main(programs.run("--timeout", "60")) == 0


def test_findings_of_the_doctor_are_no_failure_of_the_installation(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.answers["/doctor"] = [(200, {"findings": [{}, {}]})]
    assert verify.main(programs.run()) == 0
    assert "has 2 findings: see kubectl fluxqueue doctor" in capsys.readouterr().out


def test_a_certificate_of_somebody_else_is_refused(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    (programs.folder / "ca.crt").write_bytes(make_authority("other", dt.datetime.now(dt.UTC)).certificate)
    assert verify.main(programs.run()) == 1
    assert capsys.readouterr().out.count("certificate verify failed") == 3


@pytest.mark.parametrize(
    ("missing", "said"), [("ca.crt", "cannot read the authority"), ("token", "cannot read the token")]
)
def test_a_file_that_is_missing_is_named(
    programs: Programs, capsys: pytest.CaptureFixture[str], missing: str, said: str
) -> None:
    (programs.folder / missing).unlink()
    assert verify.main(programs.run()) == 1
    assert said in capsys.readouterr().out
