"""The probes of a rendered container, executed as the kubelet does, but for a process on this machine."""

from __future__ import annotations

import functools
import http.client
import socket
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Probe", "read_probe"]


@dataclass(frozen=True)
class Probe:
    """One probe.

    Attributes
    ----------
    port
        TCP port, for a connection or a request.
    path
        Path of an HTTP request; None only opens a connection.
    tls
        True for HTTPS; like the kubelet, the probe does not verify the certificate.
    command
        A command whose exit code is the result, instead of a connection or request.
    timeout_s
        Time limit of the probe.
    """

    port: int = 0
    path: str | None = None
    tls: bool = False
    command: tuple[str, ...] = ()
    timeout_s: float = 1.0

    def passes(self, environment: Mapping[str, str]) -> bool:
        """Execute the probe once; ``environment`` is that of a command."""
        try:
            if self.command:
                done = subprocess.run(
                    self.command,
                    capture_output=True,
                    timeout=self.timeout_s,
                    check=False,
                    env=dict(environment),
                )
                return done.returncode == 0
            if self.path is None:
                with socket.create_connection(("127.0.0.1", self.port), timeout=self.timeout_s):
                    return True
            return self._status(self.path) < 400
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False

    def _status(self, path: str) -> int:
        connection: http.client.HTTPConnection
        if self.tls:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=self.timeout_s, context=_trusting()
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()


@functools.cache
def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def read_probe(manifest: Mapping[str, Any] | None, ports: Mapping[str, int]) -> Probe | None:
    """Read a probe of a container.

    Parameters
    ----------
    manifest
        A ``readinessProbe``, ``startupProbe`` or ``livenessProbe``; None if the container has none.
    ports
        The container's ports by name.
    """
    if not manifest:
        return None
    timeout_s = float(manifest.get("timeoutSeconds", 1))
    if exec_ := manifest.get("exec"):
        return Probe(command=tuple(exec_["command"]), timeout_s=timeout_s)
    target = manifest.get("httpGet") or manifest.get("tcpSocket") or manifest["grpc"]
    port = target["port"]
    number = port if isinstance(port, int) else ports[port]
    if "httpGet" in manifest:
        return Probe(
            port=number,
            path=target.get("path", "/"),
            tls=target.get("scheme") == "HTTPS",
            timeout_s=timeout_s,
        )
    return Probe(port=number, timeout_s=timeout_s)
