"""A small blocking client of the API server, for building and watching over a control plane.

The programs of this project speak to the API server through ``fluxqueue.kube``. Here the server is only just coming up, there is no
event loop, and a handful of requests is all there is: is it ready, make these nodes, give me a token, has this Secret changed. One
connection per thread, kept alive, opened again when the server went away.
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

__all__ = ["ApiError", "ApiServerClient"]


class ApiError(RuntimeError):
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
    """Requests to one API server, as one identity.

    Parameters
    ----------
    port
        Where it listens on the loopback address.
    authority
        Certificate of its authority.
    identity
        Our client certificate.
    timeout_s
        For each single request.
    """

    def __init__(self, port: int, authority: Path, identity: KeyPair, timeout_s: float = 20) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(identity.certificate, identity.key)
        self._local = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []
        self._closings = 0

    @property
    def port(self) -> int:
        """Where the server listens."""
        return self._port

    def request(self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None, patch: str = "merge") -> Any:
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

        Raises
        ------
        ApiError
            For every status from 400 on, with the server's message.
        OSError, http.client.HTTPException
            The server cannot be reached.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            kind = {"apply": "application/apply-patch+yaml"}.get(patch, f"application/{patch}-patch+json")
            headers["Content-Type"] = kind if method == "PATCH" else "application/json"
        status, data = self._send(method, target, content, headers)
        if status >= 400:
            raise ApiError(status, _message(method, path, status, data))
        try:
            return json.loads(data)
        except ValueError:
            return data.decode(errors="replace")

    def get(self, path: str, **query: str) -> Any:
        """``GET``, see `request`."""
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Any | None:
        """``GET`` an object that may not exist."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def reachable(self, path: str) -> bool:
        """Whether ``path`` answers with success now; never raises for a server that is away."""
        try:
            self.request("GET", path)
        except (OSError, http.client.HTTPException, ApiError):
            return False
        return True

    def close(self) -> None:
        """Close the connections of all threads; the next request opens one again."""
        self._closings += 1
        while self._opened:
            self._opened.pop().close()
        self._local = threading.local()

    def _forget(self, connection: http.client.HTTPSConnection) -> None:
        connection.close()
        self._local.connection = None
        with contextlib.suppress(ValueError):
            self._opened.remove(connection)

    def _send(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            try:
                return self._exchange(connection, method, target, content, headers)
            except (ConnectionError, http.client.RemoteDisconnected, ssl.SSLError):
                pass  # the server closed it while idle, or was started anew
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=self._timeout_s, context=self._tls)
        self._local.connection = connection
        self._opened.append(connection)
        return self._exchange(connection, method, target, content, headers)

    def _exchange(
        self, connection: http.client.HTTPSConnection, method: str, target: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """One request and its answer; the connection is given up if that fails, or if all were closed meanwhile by another thread."""
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
