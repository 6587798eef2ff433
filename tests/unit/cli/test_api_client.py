import datetime
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fluxqueue.cli.api_client import (
    ApiClient,
    ApiRefused,
    ClusterError,
    NoSuchResource,
    ObjectNotFound,
    ServerUnreachable,
)
from fluxqueue.kube.kubeconfig import Connection

Answer = tuple[int, bytes]
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server on a free port that gives the answers of a table, by path, and counts its connections."""
    running: list[ThreadingHTTPServer] = []

    def start(
        answers: dict[str, Answer],
        *,
        tls: ssl.SSLContext | None = None,
        hang_up: bool = False,
        seen: list[str] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if seen is not None:
                    seen.append(
                        f"{self.client_address[1]} {self.path} {self.headers.get('Authorization', '-')}"
                    )
                    seen.extend(self.headers.get_all("Impersonate-Group") or ())
                status, body = answers.get(self.path.split("?")[0], (404, b"404 page not found\n"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for warning in warnings:
                    self.send_header("Warning", warning)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = hang_up

            def do_PATCH(self) -> None:
                text_shown = self.rfile.read(int(self.headers["Content-Length"]))
                if seen is not None:
                    seen.append(f"{self.headers['Content-Type']} {text_shown.decode()}")
                self.do_GET()

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        running.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def status(code: int, reason: str, message: str, **details: str) -> Answer:
    return code, json.dumps(
        {"kind": "Status", "reason": reason, "message": message, "details": details}
    ).encode()


@pytest.mark.parametrize(
    ("answer", "kind", "text_shown"),
    [
        pytest.param(
            status(404, "NotFound", 'jobs.batch "x" not found', name="x"),
            ObjectNotFound,
            'Error from server (NotFound): jobs.batch "x" not found',
            id="no such object",
        ),
        pytest.param(
            (404, b"404 page not found\n"),
            NoSuchResource,
            "Error from server (NotFound): 404 page not found",
            id="no such resource",
        ),
        pytest.param(
            status(403, "Forbidden", 'User "ada" cannot list'),
            ApiRefused,
            'Error from server (Forbidden): User "ada" cannot list',
            id="forbidden",
        ),
        pytest.param(
            status(401, "Unauthorized", "Unauthorized"),
            ApiRefused,
            "Error from server (Unauthorized): You must be logged in to the server (the credentials were "
            "not accepted)",
            id="not logged in",
        ),
        pytest.param(
            (502, b"<html>bad\ngateway</html>"),
            ApiRefused,
            "Error from server: <html>bad gateway</html>",
            id="a proxy's page",
        ),
        pytest.param((500, b"[]"), ApiRefused, "Error from server: []", id="JSON that is no Status"),
    ],
)
def test_refusals_are_worded_as_kubectl_does(
    answer: Answer, kind: type[ApiRefused], text_shown: str, serve: Serve
) -> None:
    with ApiClient(Connection(serve({"/x": answer}))) as cluster, pytest.raises(kind) as caught:
        cluster.get("/x")
    assert str(caught.value) == text_shown


def test_warnings_of_the_server_are_printed_once(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    warnings = ('299 - "Job a/b: label x has \\"no\\" effect"', "not a warning")
    with ApiClient(Connection(serve({"/x": (200, b"1")}, warnings=warnings))) as cluster:
        cluster.get("/x")
        cluster.get("/x")
    assert capsys.readouterr().err == 'Warning: Job a/b: label x has "no" effect\n'


def test_one_connection_serves_several_requests_with_our_credentials(serve: Serve) -> None:
    seen: list[str] = []
    server = serve({"/a": (200, b"1"), "/b": (200, b"2")}, seen=seen)
    with ApiClient(Connection(server, headers={"Authorization": "Bearer t"})) as cluster:
        assert (cluster.get("/a"), cluster.get("/b", {"limit": "1"})) == (b"1", b"2")
    port = seen[0].split()[0]
    assert seen == [f"{port} /a Bearer t", f"{port} /b?limit=1 Bearer t"]


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(serve: Serve) -> None:
    with ApiClient(Connection(serve({"/a": (200, b"1")}, hang_up=True))) as cluster:
        assert [cluster.get("/a") for _ in range(3)] == [b"1", b"1", b"1"]


def test_a_server_behind_a_path_is_found(serve: Serve) -> None:
    with ApiClient(Connection(serve({"/clusters/7/a": (200, b"1")}) + "/clusters/7")) as cluster:
        assert cluster.get("/a") == b"1"


def test_a_watch_gives_lines_until_the_server_ends_it(serve: Serve) -> None:
    with ApiClient(Connection(serve({"/w": (200, b'{"a":1}\n{"a":2}\n')}))) as cluster:
        assert list(cluster.watch("/w", {"resourceVersion": "1"})) == [b'{"a":1}\n', b'{"a":2}\n']


def test_a_name_is_a_name_and_no_other_path(serve: Serve) -> None:
    seen: list[str] = []
    client = ApiClient(Connection(serve({}, seen=seen)))
    for name in ("ü x", "a?watch=1", "a#b", "\udcff", "a\r\nb", "https:pod:8443"):
        with pytest.raises(ApiRefused):
            client.get(f"/jobs/{name}")
    paths = [line.split(" ")[1] for line in seen]
    assert paths == [
        "/jobs/%C3%BC%20x",
        "/jobs/a%3Fwatch=1",
        "/jobs/a%23b",
        "/jobs/%FF",
        "/jobs/a%0D%0Ab",
        "/jobs/https:pod:8443",
    ]
    client.close()


def test_each_group_of_an_impersonated_person_is_a_header(serve: Serve) -> None:
    seen: list[str] = []
    groups = (("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    with ApiClient(Connection(serve({"/a": (200, b"")}, seen=seen), impersonation=groups)) as client:
        client.get("/a")
    assert seen[1:] == ["a", "b"]


def test_a_busy_server_is_asked_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"/a": status(429, "TooManyRequests", "later")}
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            answers["/a"] = (200, b"done")

    monkeypatch.setattr("fluxqueue.cli.api_client.time.sleep", pause)
    client = ApiClient(Connection(serve(answers)))
    assert client.get("/a") == b"done"
    answers["/a"] = status(429, "TooManyRequests", "later")
    with pytest.raises(ApiRefused, match="later"):
        client.get("/a")
    assert pauses == [1.0, 2.0, 1.0, 2.0, 4.0, 8.0]
    client.close()


@pytest.mark.parametrize(
    "proxy", ["socks5://127.0.0.1:1080", "https://127.0.0.1:3128", "http://127.0.0.1:99999"]
)
def test_a_proxy_that_is_not_understood_is_named(proxy: str) -> None:
    with pytest.raises(ClusterError, match="is not an http proxy"):
        ApiClient(Connection("https://127.0.0.1:1", proxy_url=proxy))
    with pytest.raises(ClusterError, match="error: 'socks5://proxy' is not"):
        ApiClient(Connection("https://127.0.0.1:1", proxy_url="socks5://me:secret@proxy"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_refused_connection_is_worded_as_kubectl_does() -> None:
    port = _free_port()
    with (
        ApiClient(Connection(f"http://127.0.0.1:{port}")) as cluster,
        pytest.raises(ServerUnreachable) as caught,
    ):
        cluster.get("/x")
    assert str(caught.value) == (
        f"The connection to the server 127.0.0.1:{port} was refused - did you specify the right host or port?"
    )


def test_a_silent_server_is_given_up_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        cluster = ApiClient(Connection(f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout_s=0.2)
        with cluster, pytest.raises(ServerUnreachable, match=r"did not answer within 0\.2 s"):
            cluster.get("/x")


@pytest.mark.parametrize("server", ["ftp://x", "nonsense", "https://", "https://x:99999", "https://[::1"])
def test_an_address_that_is_none_is_refused(server: str) -> None:
    with pytest.raises(ClusterError, match="is not an address of an API server"):
        ApiClient(Connection(server))


class _Authority:
    """A certificate authority for one test."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._signed(self.key.public_key(), "authority", None)

    def _signed(self, public: ec.EllipticCurvePublicKey, name: str, san: str | None) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=san is None, path_length=None), critical=True)
        )
        if san is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(san)]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def pair(self, name: str) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._signed(key.public_key(), name, name).public_bytes(serialization.Encoding.PEM), pem


def _server_tls(authority: _Authority, folder: Path) -> ssl.SSLContext:
    cert, key = authority.pair("api.example")
    (folder / "server.pem").write_bytes(key + cert)
    (folder / "ca.pem").write_bytes(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_shows_a_client_certificate_and_expects_the_stated_server_name(serve: Serve, tmp_path: Path) -> None:
    authority = _Authority()
    server = serve({"/x": (200, b"yes")}, tls=_server_tls(authority, tmp_path))
    cert, key = authority.pair("ada")
    chosen = Connection(
        server, ca_pem=authority.pem, tls_server_name="api.example", client_cert_pem=cert, client_key_pem=key
    )
    with ApiClient(chosen) as cluster:
        assert cluster.get("/x") == b"yes"


@pytest.mark.parametrize(
    ("name", "own_authority", "text_shown"),
    [
        pytest.param("other.example", True, "x509: .*other.example", id="another name"),
        pytest.param(
            "api.example",
            False,
            "x509: .*(self-signed|unable to get|signature failure)",
            id="an authority nobody knows",
        ),
    ],
)
def test_does_not_connect_to_a_server_with_another_certificate(
    name: str, own_authority: bool, text_shown: str, serve: Serve, tmp_path: Path
) -> None:
    authority = _Authority()
    server = serve({}, tls=_server_tls(authority, tmp_path))
    trusted = authority.pem if own_authority else _Authority().pem
    with (
        ApiClient(Connection(server, ca_pem=trusted, tls_server_name=name)) as cluster,
        pytest.raises(ServerUnreachable, match=text_shown),
    ):
        cluster.get("/x")


def test_a_certificate_and_a_key_that_do_not_belong_together_are_refused() -> None:
    authority = _Authority()
    cert, _ = authority.pair("a")
    _, key = authority.pair("a")
    with pytest.raises(ClusterError, match="do not form a pair"):
        ApiClient(Connection("https://x", client_cert_pem=cert, client_key_pem=key))


def test_an_authority_that_is_no_certificate_is_refused() -> None:
    with pytest.raises(ClusterError, match="holds no PEM certificate"):
        ApiClient(Connection("https://x", ca_pem=b"nothing"))


def test_a_patch_is_a_merge_of_json_in_the_plugins_name(serve: Serve) -> None:
    seen: list[str] = []
    url = serve({"/x": (200, b"{}"), "/y": status(403, "Forbidden", "no")}, seen=seen)
    with ApiClient(Connection(server=url)) as cluster:
        assert cluster.patch("/x", {"spec": {"hold": True}}) == b"{}"
        with pytest.raises(ApiRefused, match="Forbidden"):
            cluster.patch("/y", {})
    assert seen[0] == 'application/merge-patch+json {"spec": {"hold": true}}'
    assert seen[1].split()[1] == "/x?fieldManager=kubectl-fluxqueue"
