"""A small blocking client of the API server, to set up and supervise a control plane.

The services use ``fluxqueue.kube``. Here there is no event loop, the server is starting, and only few
requests are needed: to check that it is ready, to create nodes, to get tokens, to read Secrets. Each thread
has one keep-alive connection, which is opened again after the server has closed it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fluxqueue.local.pki import KeyPair

__all__ = ["ApiServerClient", "ApiServerError", "administrator_client"]


class ApiServerError(RuntimeError):
    """The API server refused a request.

    Attributes
    ----------
    status
        The HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiServerClient:
    """Requests to one API server, as one identity."""

    def __init__(
        self, port: int, authority: Path, identity: KeyPair, timeout_s: float = 20, host: str = "127.0.0.1"
    ) -> None:
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(identity.certificate, identity.key)
        self._local = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []
        self._closings = 0

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._port

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
        patch: str = "merge",
        user: str | None = None,
    ) -> Any:
        """Send one request and return the decoded answer (text if it is not JSON).

        Parameters
        ----------
        method, path
            As on the wire; ``path`` begins with a slash.
        body
            Sent as JSON.
        query
            Query parameters.
        patch
            Kind of a ``PATCH``: ``merge``, ``strategic-merge`` or ``json``; ``apply`` for server-side apply.
        user
            Impersonated with this name.

        Raises
        ------
        ApiError
            For every status from 400 on, with the server's message.
        OSError, http.client.HTTPException
            The server cannot be reached.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": "application/json"}
        if user is not None:
            headers["Impersonate-User"] = user
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            kind = {"apply": "application/apply-patch+yaml"}.get(patch, f"application/{patch}-patch+json")
            headers["Content-Type"] = kind if method == "PATCH" else "application/json"
        status, data = self._send(method, target, content, headers)
        if status >= 400:
            raise ApiServerError(status, _message(method, path, status, data))
        try:
            return json.loads(data)
        except ValueError:
            return data.decode(errors="replace")

    def get(self, path: str, **query: str) -> Any:
        """Send a ``GET`` with query parameters; see `request`."""
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Any | None:
        """Read an object; None if it does not exist."""
        try:
            return self.request("GET", path)
        except ApiServerError as error:
            if error.status == 404:
                return None
            raise

    def reachable(self, path: str) -> bool:
        """True if a ``GET`` of ``path`` succeeds now; false if the server cannot be reached."""
        try:
            self.request("GET", path)
        except (OSError, http.client.HTTPException, ApiServerError):
            return False
        return True

    def close(self) -> None:
        """Close the connections of all threads; the next request opens a new one."""
        self._closings += 1
        while self._opened:
            self._opened.pop().close()
        self._local = threading.local()

    def _forget(self, connection: http.client.HTTPSConnection) -> None:
        connection.close()
        self._local.connection = None
        with contextlib.suppress(ValueError):
            self._opened.remove(connection)

    def _send(
        self, method: str, target: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            try:
                return self._exchange(connection, method, target, content, headers)
            except (ConnectionError, http.client.RemoteDisconnected, ssl.SSLError):
                pass  # the server closed it while it was idle, or was restarted
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._tls
        )
        self._local.connection = connection
        self._opened.append(connection)
        return self._exchange(connection, method, target, content, headers)

    def _exchange(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        target: str,
        content: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, bytes]:
        """Send one request; the connection is closed if it fails,
        or if another thread called `close` meanwhile.
        """
        closings = self._closings
        kept = False
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            answer = response.status, response.read()
            kept = closings == self._closings
        finally:
            if not kept:
                self._forget(connection)
        return answer


def _message(method: str, path: str, status: int, data: bytes) -> str:
    try:
        reason = json.loads(data)["message"]
    except (ValueError, KeyError, TypeError):
        reason = data.decode(errors="replace")[:400]
    return f"{method} {path} was answered with {status}: {reason}"


def administrator_client(folder: Path, host: str = "127.0.0.1") -> ApiServerClient:
    """Return a client, as administrator, of the control plane that runs in ``folder``,
    for any process that may read the folder.
    """
    pki = folder / "pki"
    return ApiServerClient(
        int((folder / "port").read_text()),
        pki / "ca.crt",
        KeyPair(pki / "admin.crt", pki / "admin.key"),
        host=host,
    )
