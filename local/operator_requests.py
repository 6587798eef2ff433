"""Requests to the operators' ports of a local cluster's programs, as Prometheus and
`kubectl fluxqueue doctor` send them.

The administrator requests tokens of a ServiceAccount. The programs are this machine's own, reached over
loopback, and may still serve the placeholder, so their certificates are not verified here; the command-line
client verifies them.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fluxqueue.api.names import OPERATOR_AUDIENCE, OPERATOR_TOKEN_HEADER
from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.pki import write_private

__all__ = ["OperatorRefused", "OperatorRequests", "write_queue_authority"]

_LIFETIME_S = 3_600
_RENEW_S = 600.0


def write_queue_authority(client: ApiServerClient, file: Path, release: str) -> Path:
    """Write the authority that signs the certificates of a release, for clients that verify,
    and return the file.
    """
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{release}-webhook"
    bundle = client.get(path)["webhooks"][0]["clientConfig"]["caBundle"]
    return write_private(file, base64.b64decode(bundle))


class OperatorRefused(RuntimeError):
    """The program answered with an error status."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body.decode(errors='replace')[:300]}")
        self.status = status
        self.body = body


class OperatorRequests:
    """Sends requests with tokens of ServiceAccounts.

    Parameters
    ----------
    client
        Returns a client of the API server, as administrator.
    namespace, account
        The ServiceAccount; for a POST, the one whose name ends with ``-repair``.
    """

    def __init__(self, client: Callable[[], ApiServerClient], namespace: str, account: str) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self._account = account
        self._tokens: dict[tuple[str, str], tuple[float, str]] = {}

    def metrics(self, port: int, timeout_s: float = 10) -> bytes:
        """Return ``/metrics`` of the program on a port."""
        return self._send(
            "GET", port, "/metrics", {"Authorization": f"Bearer {self._token(self._account, '')}"}, timeout_s
        )

    def get(self, port: int, path: str, timeout_s: float = 60) -> Any:
        """Return the decoded response of another path."""
        return json.loads(
            self._send(
                "GET",
                port,
                path,
                {OPERATOR_TOKEN_HEADER: self._token(self._account, OPERATOR_AUDIENCE)},
                timeout_s,
            )
        )

    def post(self, port: int, path: str, timeout_s: float = 180) -> Any:
        """Send a POST and return the decoded response."""
        token = self._token(f"{self._account}-repair", OPERATOR_AUDIENCE)
        return json.loads(self._send("POST", port, path, {OPERATOR_TOKEN_HEADER: token}, timeout_s))

    def _token(self, account: str, audience: str) -> str:
        renew_at, token = self._tokens.get((account, audience), (0.0, ""))
        if time.monotonic() >= renew_at:
            spec = {"expirationSeconds": _LIFETIME_S, **({"audiences": [audience]} if audience else {})}
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            token = self._client().request("POST", f"{self._path}/{account}/token", body)["status"]["token"]
            self._tokens[account, audience] = time.monotonic() + _RENEW_S, token
        return token

    def _send(self, method: str, port: int, path: str, headers: dict[str, str], timeout_s: float) -> bytes:
        """Return the answer; a program that has too many tokens to review says so,
        and is asked again in a second.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._send_once(method, port, path, headers, timeout_s)
            except OperatorRefused as refused:
                if refused.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() + 1 > deadline:
                    raise
                time.sleep(1)

    @staticmethod
    def _send_once(method: str, port: int, path: str, headers: dict[str, str], timeout_s: float) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout_s, context=context)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"port {port} did not answer {path}: {error!r}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise OperatorRefused(answer.status, body)
        return body
