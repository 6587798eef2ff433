"""A client of the API server that uses only the standard library.

It has one keep-alive connection. The plugin reads objects, and writes only the fields of FluxJobs that people
may edit. Errors have kubectl's form, because people know ``Error from server (Forbidden)``. The services use
`fluxqueue.kube`; importing it takes longer than a whole command of the plugin.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import sys
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

from fluxqueue.cli.tables import printable
from fluxqueue.kube.kubeconfig import Connection
from fluxqueue.kube.kubeconfig_files import InvalidKubeconfig
from fluxqueue.kube.server_warnings import warnings_in
from fluxqueue.kube.tls_contexts import tls_context

__all__ = ["ApiClient", "ApiRefused", "ClusterError", "NoSuchResource", "ObjectNotFound", "ServerUnreachable"]

_TIMEOUT_S = 30.0
_BUSY = 429
_BUSY_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
_LONGEST_PAUSE_S = 30.0


class ClusterError(Exception):
    """A request failed; the message is complete."""


class ServerUnreachable(ClusterError):
    """The server did not answer."""


class ApiRefused(ClusterError):
    """The server, or a program behind it, returned an error status; ``body`` is the response."""

    def __init__(self, status: int, reason: str, message: str, body: bytes = b"") -> None:
        super().__init__(
            f"Error from server ({reason}): {message}" if reason else f"Error from server: {message}"
        )
        self.status = status
        self.reason = reason
        self.body = body


class ObjectNotFound(ApiRefused):
    """The object does not exist."""


class NoSuchResource(ApiRefused):
    """The server does not serve the resource (the CRD is not installed)."""


@dataclass(frozen=True)
class _Call:
    """One request."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    accept: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


class ApiClient:
    """A client of one API server.

    Parameters
    ----------
    connection
        Address and credentials.
    timeout_s
        Time limit of connecting and of each response; watches have no time limit.
    """

    def __init__(self, connection: Connection, timeout_s: float = _TIMEOUT_S) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._url = _address(connection.server, ("http", "https"), "an address of an API server")
        self._proxy = (
            _address(connection.proxy_url, ("http",), "an http proxy (proxy-url)")
            if connection.proxy_url
            else None
        )
        try:
            self._tls = tls_context(connection) if self._url.scheme == "https" else None
        except InvalidKubeconfig as error:
            raise ClusterError(f"error: {error}") from None
        self._http: http.client.HTTPConnection | None = None
        self._warned: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def again(self) -> ApiClient:
        """Return another client of the same server: a connection that watches answers nothing else."""
        return ApiClient(self._connection, self._timeout_s)

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a GET and return the body.

        Parameters
        ----------
        path
            Absolute path, for example ``/api/v1/namespaces/default/pods``.
        params
            Query parameters.
        accept
            Media type of the response, for example that of a server-side Table.
        headers
            Further headers.

        Raises
        ------
        ServerUnreachable, ObjectNotFound, NoSuchResource, ApiRefused
            With kubectl's message.
        """
        return self._body(self._answer(_Call("GET", path, params, accept, headers or {})))

    def patch(self, path: str, change: Mapping[str, Any]) -> bytes:
        """Patch an object, as ``kubectl patch --type=merge`` does, and return the patched object.

        Raises
        ------
        ServerUnreachable, ObjectNotFound, NoSuchResource, ApiRefused
            With kubectl's message.
        """
        merge = {"Content-Type": "application/merge-patch+json"}
        field_manager = {"fieldManager": "kubectl-fluxqueue"}
        return self._body(
            self._answer(_Call("PATCH", path, field_manager, headers=merge, body=json.dumps(change).encode()))
        )

    def post(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a POST, once, and return the body of the response, which may take a minute.

        Parameters
        ----------
        path
            Absolute path.
        body
            Sent as JSON; nothing is sent for None.
        headers
            Further headers.
        params
            Query parameters.

        Raises
        ------
        ServerUnreachable, ObjectNotFound, NoSuchResource, ApiRefused
            With kubectl's message.
        """
        self.close()
        content = None if body is None else json.dumps(body).encode()
        typed = {} if body is None else {"Content-Type": "application/json"}
        return self._body(
            self._answer(_Call("POST", path, params, headers={**typed, **(headers or {})}, body=content))
        )

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        try:
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None
        self._warn(response.headers.get_all("Warning") or ())
        if response.status >= 300:
            raise _refusal(response.status, body)
        return body

    def _warn(self, warnings: Iterable[str]) -> None:
        """Print the warnings of the server, each once, as kubectl does: fluxqueue's admission writes some."""
        for text in warnings_in(warnings):
            if text not in self._warned:
                self._warned.add(text)
                print(f"Warning: {printable(text)}", file=sys.stderr)

    def watch(
        self, path: str, params: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Iterator[bytes]:
        """Watch a resource; yield each watch event as a line of JSON until the server ends the watch.

        Parameters
        ----------
        path, params
            The resource, and query parameters.
        timeout_s
            How long nothing may come; None: for ever.
        """
        return self.lines(path, {**(params or {}), "watch": "true"}, timeout_s)

    def lines(
        self, path: str, params: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Iterator[bytes]:
        """Send a GET and yield the body line by line, as it comes: a watch, or the log of a pod;
        parameters as `watch`.
        """
        response = self._answer(_Call("GET", path, params))
        try:
            if response.status >= 300:
                raise _refusal(response.status, response.read())
            if self._http is not None and self._http.sock is not None:
                self._http.sock.settimeout(timeout_s)
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            self.close()

    def _answer(self, call: _Call) -> http.client.HTTPResponse:
        """Return the response; a server that is busy (429) did nothing, and is asked again when it says so,
        a few times.
        """
        for pause_s in _BUSY_PAUSES_S:
            response = self._sent(call)
            if response.status != _BUSY:
                return response
            asked = response.getheader("Retry-After") or ""
            response.read()
            time.sleep(min(int(asked), _LONGEST_PAUSE_S) if asked.isdecimal() and len(asked) < 6 else pause_s)
        return self._sent(call)

    def _sent(self, call: _Call) -> http.client.HTTPResponse:
        # What a person typed as a name is a name here, and no other path or query.
        path = urllib.parse.quote(call.path, safe="/:@,;=+$!*'()~", errors="surrogateescape")
        target = (
            self._url.path.rstrip("/")
            + path
            + (f"?{urllib.parse.urlencode(call.params)}" if call.params else "")
        )
        headers = http.client.HTTPMessage()  # which can have several headers of one name
        named = {
            "Accept": call.accept,
            "User-Agent": "kubectl-fluxqueue",
            **call.headers,
            **self._connection.headers,
        }
        for name, value in (*named.items(), *self._connection.impersonation):
            headers[name] = value
        for attempt in (1, 2):
            reused = self._http is not None
            if self._http is None:
                self._http = self._connect()
            try:
                # A merge patch has the same result when it is repeated, so it may be sent again like a GET.
                self._http.request(
                    call.method, target, body=call.body, headers=cast(Mapping[str, str], headers)
                )
                return self._http.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # The server may have closed the kept-alive connection meanwhile; a new connection shows
                # whether it is reachable.
                if (
                    not reused
                    or attempt == 2
                    or not isinstance(error, (http.client.RemoteDisconnected, ConnectionError))
                ):
                    raise self._unreachable(error) from None
        raise AssertionError("the second attempt returns or raises")

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        proxy = self._proxy
        address = proxy or self._url
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
            authorization = (
                {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
            )
            secure.set_tunnel(host, port or 443, headers=authorization)
        return secure

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        server = self._url.netloc
        if isinstance(error, ConnectionRefusedError):
            return ServerUnreachable(
                f"The connection to the server {server} was refused - did you specify the right host or port?"
            )
        if isinstance(error, ssl.SSLCertVerificationError):
            return ServerUnreachable(
                f"Unable to connect to the server: x509: {error.verify_message} ({server})"
            )
        if isinstance(error, TimeoutError):
            return ServerUnreachable(
                f"Unable to connect to the server: {server} did not answer within {self._timeout_s:g} s"
            )
        return ServerUnreachable(
            f"Unable to connect to the server: {server}: {error or type(error).__name__}"
        )


class _NamedHTTPSConnection(http.client.HTTPSConnection):
    """An HTTPS connection that can expect another name in the server's certificate (``tls-server-name``)."""

    expected_name: str | None = None
    _context: ssl.SSLContext
    _tunnel_host: str | None

    def connect(self) -> None:
        """Connect, through the proxy's tunnel if there is one, then start TLS with the expected name."""
        http.client.HTTPConnection.connect(self)
        name = self.expected_name or self._tunnel_host or self.host
        self.sock = self._context.wrap_socket(self.sock, server_hostname=name)


def _address(text: str, schemes: tuple[str, ...], what: str) -> urllib.parse.SplitResult:
    """Return the parts of an address.

    Raises
    ------
    ClusterError
        It is none, or of a scheme that is not understood.
    """
    try:
        parts = urllib.parse.urlsplit(text)
        if parts.scheme in schemes and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # a port above 65535, a bracket without its other
        pass
    shown = re.sub(r"//[^/]*@", "//", text)  # without a password
    raise ClusterError(f"error: {shown!r} is not {what}")


def _refusal(status: int, body: bytes) -> ApiRefused:
    """Return the error for a Status object, or for any other error response."""
    try:
        answer = json.loads(body)
        reason, message, details = (
            str(answer.get("reason", "")),
            str(answer.get("message", "")),
            answer.get("details") or {},
        )
    except (ValueError, AttributeError):
        text = " ".join(body.decode(errors="replace").split())[:200]
        if status == 404:
            return NoSuchResource(
                status, "NotFound", text or "the server could not find the requested resource"
            )
        return ApiRefused(status, "", text or f"HTTP {status}")
    if status == 401:
        return ApiRefused(
            status, reason, "You must be logged in to the server (the credentials were not accepted)"
        )
    if status == 404:
        return (ObjectNotFound if details.get("name") else NoSuchResource)(status, reason, message)
    return ApiRefused(status, reason, message or f"HTTP {status}", body)
