"""Requests to the API server with nothing but the standard library.

One keep-alive connection; the plugin reads, and changes nothing but those fields of FluxJobs that are a person's. Failures come out as
sentences in kubectl's form, because a person who sees ``Error from server (Forbidden)`` knows what to do. The services have their own
transport in `fluxqueue.kube`; this one exists because importing that one's client takes longer than everything this command does.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fluxqueue.cli.kubeconfig import Connection

__all__ = ["ApiRefused", "Cluster", "ClusterError", "NoSuchResource", "NotFound", "Unreachable"]

_TIMEOUT_S = 30.0


class ClusterError(Exception):
    """The API server could not be asked, or refused; the message is complete."""


class Unreachable(ClusterError):
    """No answer from the server."""


class ApiRefused(ClusterError):
    """The server answered with a Status that is not success, or a program behind it with ``body``."""

    def __init__(self, status: int, reason: str, message: str, body: bytes = b"") -> None:
        super().__init__(f"Error from server ({reason}): {message}" if reason else f"Error from server: {message}")
        self.status = status
        self.reason = reason
        self.body = body


class NotFound(ApiRefused):
    """No object of that name."""


class NoSuchResource(ApiRefused):
    """The server does not know the resource at all (no such CRD)."""


class Cluster:
    """One API server.

    Parameters
    ----------
    connection
        Where it is and who we are.
    timeout_s
        For connecting and for each answer; watches have none of their own.
    """

    def __init__(self, connection: Connection, timeout_s: float = _TIMEOUT_S) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._url = urllib.parse.urlsplit(connection.server)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ClusterError(f"error: {connection.server!r} is not an address of an API server")
        self._tls = _tls(connection) if self._url.scheme == "https" else None
        self._http: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def get(self, path: str, params: Mapping[str, str] | None = None, accept: str = "application/json") -> bytes:
        """Body of a GET.

        Parameters
        ----------
        path
            From the root, for example ``/api/v1/namespaces/default/pods``.
        params
            Query parameters.
        accept
            For example the server-side Table form.

        Raises
        ------
        Unreachable, NotFound, NoSuchResource, ApiRefused
            In kubectl's words.
        """
        return self._body(self._answer(path, params, accept))

    def patch(self, path: str, change: Mapping[str, Any]) -> bytes:
        """Merge a change into an object, as ``kubectl patch --type=merge``; the object afterwards.

        Parameters
        ----------
        path
            Of the object.
        change
            Only what is to change.

        Raises
        ------
        Unreachable, NotFound, NoSuchResource, ApiRefused
            In kubectl's words.
        """
        return self._body(self._answer(path, {"fieldManager": "kubectl-fluxqueue"}, "application/json", json.dumps(change).encode()))

    def post(self, path: str) -> bytes:
        """Body of a POST without one, sent once; what it asks for may take a minute.

        Raises
        ------
        Unreachable, NotFound, NoSuchResource, ApiRefused
            In kubectl's words.
        """
        self.close()
        return self._body(self._answer(path, None, "application/json", method="POST"))

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        try:
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None
        if response.status >= 300:
            raise _refusal(response.status, body)
        return body

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """Lines of a watch until the server ends it; each is a JSON watch event."""
        response = self._answer(path, {**(params or {}), "watch": "true"}, "application/json")
        try:
            if response.status >= 300:
                raise _refusal(response.status, response.read())
            if self._http is not None and self._http.sock is not None:
                self._http.sock.settimeout(None)
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            self.close()

    def _answer(
        self, path: str, params: Mapping[str, str] | None, accept: str, patch: bytes | None = None, method: str = ""
    ) -> http.client.HTTPResponse:
        target = self._url.path.rstrip("/") + path + (f"?{urllib.parse.urlencode(params)}" if params else "")
        headers = {"Accept": accept, "User-Agent": "kubectl-fluxqueue", **self._connection.headers}
        if patch is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        for attempt in (1, 2):
            reused = self._http is not None
            if self._http is None:
                self._http = self._connect()
            try:
                # Merging the same change a second time changes nothing, so a patch may be sent again as well as a question.
                self._http.request(method or ("GET" if patch is None else "PATCH"), target, body=patch, headers=headers)
                return self._http.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A kept-alive connection may have been closed by the server meanwhile; a fresh one tells the truth.
                if not reused or attempt == 2 or not isinstance(error, (http.client.RemoteDisconnected, ConnectionError)):
                    raise self._unreachable(error) from None
        raise AssertionError("the second attempt returns or raises")

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        proxy = self._connection.proxy_url
        address = urllib.parse.urlsplit(proxy) if proxy else self._url
        via, via_port = address.hostname or host, address.port or (443 if address.scheme == "https" else 80)
        if self._tls is None:
            plain = http.client.HTTPConnection(via, via_port, timeout=self._timeout_s)
            if proxy:
                plain.set_tunnel(host, port or 80)
            return plain
        secure = _NamedHTTPSConnection(via, via_port, timeout=self._timeout_s, context=self._tls)
        secure.expected_name = self._connection.tls_server_name
        if proxy:
            login = f"{address.username}:{address.password or ''}" if address.username else ""
            authorization = {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
            secure.set_tunnel(host, port or 443, headers=authorization)
        return secure

    def _unreachable(self, error: Exception) -> Unreachable:
        server = self._url.netloc
        if isinstance(error, ConnectionRefusedError):
            return Unreachable(f"The connection to the server {server} was refused - did you specify the right host or port?")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unreachable(f"Unable to connect to the server: x509: {error.verify_message} ({server})")
        if isinstance(error, TimeoutError):
            return Unreachable(f"Unable to connect to the server: {server} gave no answer in {self._timeout_s:g} s")
        return Unreachable(f"Unable to connect to the server: {server}: {error or type(error).__name__}")


class _NamedHTTPSConnection(http.client.HTTPSConnection):
    """HTTPS that may expect another name in the server's certificate (``tls-server-name``)."""

    expected_name: str | None = None
    _context: ssl.SSLContext
    _tunnel_host: str | None

    def connect(self) -> None:
        """Connect, through the proxy's tunnel if there is one, then shake hands for the expected name."""
        http.client.HTTPConnection.connect(self)
        name = self.expected_name or self._tunnel_host or self.host
        self.sock = self._context.wrap_socket(self.sock, server_hostname=name)


def _tls(connection: Connection) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=connection.ca_pem.decode() if connection.ca_pem else None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise ClusterError("error: certificate-authority holds no PEM certificate") from None
    # Strict mode (default since Python 3.13) refuses authorities without key identifiers, which Go and so every cluster accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.client_cert_pem and connection.client_key_pem:
        # The ssl module reads key pairs from files only: one that nobody else can read, gone when the pair is loaded.
        with tempfile.TemporaryDirectory(prefix="fluxqueue-") as folder:
            pair = Path(folder) / "pair.pem"
            handle = os.open(pair, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(connection.client_key_pem.rstrip() + b"\n" + connection.client_cert_pem)
            try:
                context.load_cert_chain(pair)
            except ssl.SSLError as error:
                raise ClusterError(f"error: tls: the client certificate and key do not form a pair: {error.reason}") from None
    return context


def _refusal(status: int, body: bytes) -> ApiRefused:
    """The server's Status object, or whatever else it sent, as an error."""
    try:
        answer = json.loads(body)
        reason, message, details = str(answer.get("reason", "")), str(answer.get("message", "")), answer.get("details") or {}
    except (ValueError, AttributeError):
        text = " ".join(body.decode(errors="replace").split())[:200]
        if status == 404:
            return NoSuchResource(status, "NotFound", text or "the server could not find the requested resource")
        return ApiRefused(status, "", text or f"HTTP {status}")
    if status == 401:
        return ApiRefused(status, reason, "You must be logged in to the server (the credentials were not accepted)")
    if status == 404:
        return (NotFound if details.get("name") else NoSuchResource)(status, reason, message)
    return ApiRefused(status, reason, message or f"HTTP {status}", body)
