"""The address of the API server, and the credentials for it.

In a pod they come from the mounted ServiceAccount, elsewhere from a kubeconfig
(:mod:`fluxqueue.kube.kubeconfig`). Tokens of ServiceAccounts are valid for an hour, and certificates are
rotated in place. So the configuration is read again every minute, and at once when the server answers 401. An
exec plugin runs again only when what it said is refused or about to expire. A new token is used for the next
request. New certificates are loaded into the TLS context of new connections; open connections keep the old
ones.

If the configuration cannot be read again, the present credentials are used until the server refuses them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog

from fluxqueue.kube.kubeconfig import (
    SERVICE_ACCOUNT,
    Connection,
    connection,
    in_cluster,
)
from fluxqueue.kube.kubeconfig_files import InvalidKubeconfig
from fluxqueue.kube.tls_contexts import load_pair, tls_context

__all__ = ["Credentials", "NoConfiguration"]

REFRESH_S: Final = 60.0
"""The kubelet replaces a projected token at 80 % of its life,
so a minute is early enough (client-go uses the same)."""

log: Final = structlog.get_logger(__name__)


class NoConfiguration(Exception):
    """No configuration for the API server was found, or it cannot be used."""


class _Source(Protocol):
    """A source of a configuration: a kubeconfig or a ServiceAccount."""

    async def read(self, *, rejected: bool) -> Connection:
        """Read the configuration; ``rejected`` is true if the server refused the previous one."""


class Credentials:
    """Address, token and TLS context of one API server; created by :meth:`load`."""

    def __init__(self, source: _Source, *, origin: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._connection = Connection("")
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()
        self._failing = False
        self._tls: ssl.SSLContext
        self.origin = origin

    @classmethod
    async def load(cls, kubeconfig: Path | str | None = None, context: str | None = None) -> Credentials:
        """Find the configuration as kubectl does, or else that of the pod.

        Parameters
        ----------
        kubeconfig
            A file, or several joined by ``:``. None stands for ``$KUBECONFIG``, or else ``~/.kube/config`` if
            it exists, or else the pod's ServiceAccount.
        context
            Context of the kubeconfig; None is its current one.

        Raises
        ------
        NoConfiguration
            With the places that were searched, or the problem of the configuration.
        """
        default = Path.home() / ".kube/config"
        files = str(kubeconfig or os.environ.get("KUBECONFIG") or (default if default.is_file() else ""))
        if files:
            credentials = cls(_Kubeconfig(files, context), origin=f"kubeconfig {files}")
        elif os.environ.get("KUBERNETES_SERVICE_HOST"):
            credentials = cls(_ServiceAccount(SERVICE_ACCOUNT, os.environ), origin="the pod's ServiceAccount")
        else:
            raise NoConfiguration(
                "no API server configured: set KUBECONFIG, write ~/.kube/config, pass a kubeconfig, "
                "or run in a pod"
            )
        await credentials.open()
        return credentials

    async def without_identity(self) -> Credentials:
        """Return credentials for the same server that say nothing about who asks: no token, and no client
        certificate.

        A request with the token of somebody else must not be sent over a connection with our certificate: the
        server looks at certificates first and would take it for ours.
        """
        bare = Credentials(_Bare(self._connection), origin=self.origin, clock=self._clock)
        await bare.open()
        return bare

    async def open(self) -> None:
        """Read the configuration for the first time. Unlike later reads, this one must succeed."""
        try:
            await self._read(rejected=False)
            self._tls = tls_context(self._connection)
        except (InvalidKubeconfig, OSError, ValueError, TypeError, AttributeError) as error:
            raise NoConfiguration(f"{self.origin} cannot be used: {error}") from error

    @property
    def host(self) -> str:
        """Scheme, host, port and, if there is one, path prefix of the server, without a trailing slash."""
        return self._connection.server.rstrip("/")

    @property
    def tls(self) -> ssl.SSLContext:
        """The TLS context of new connections; always the same object."""
        return self._tls

    @property
    def server_hostname(self) -> str | None:
        """The name that the server's certificate must contain, if it differs from the host."""
        return self._connection.tls_server_name

    @property
    def proxy(self) -> str | None:
        """The HTTP proxy: that of the kubeconfig, or else of the environment; none for loopback addresses."""
        url = urlsplit(self.host)
        if self._connection.proxy_url:
            return self._connection.proxy_url
        if _loopback(url.hostname or "") or proxy_bypass(url.netloc):
            return None
        return getproxies().get(url.scheme)

    async def authorization(self) -> str | None:
        """Return the Authorization header, read again if it is older than a minute;
        None if a client certificate is used.
        """
        if self._clock() - self._read_at >= REFRESH_S:
            async with self._lock:
                if self._clock() - self._read_at >= REFRESH_S:
                    await self._reread()
        return self._header()

    async def renew(self, rejected: str | None) -> bool:
        """Read the configuration again after the server refused it.

        Parameters
        ----------
        rejected
            The refused header. Nothing is read if another call has renewed it meanwhile.

        Returns
        -------
        bool
            True if there is another header to try.
        """
        async with self._lock:
            if self._header() == rejected:
                await self._reread(rejected=True)
            return self._header() != rejected

    def _header(self) -> str | None:
        return self._connection.headers.get("Authorization")

    async def _read(self, *, rejected: bool) -> None:
        self._connection = await self._source.read(rejected=rejected)
        self._read_at = self._clock()

    async def _reread(self, *, rejected: bool = False) -> None:
        former = self._connection
        try:
            await self._read(rejected=rejected)
            if _certificates(self._connection) != _certificates(former):
                self._reload_tls()
                log.info("credentials.tls_reloaded", origin=self.origin)
            self._failing = False
        except (InvalidKubeconfig, OSError, ValueError, TypeError, AttributeError) as error:
            self._connection, self._read_at = former, self._clock()
            if not self._failing:
                self._failing = True
                log.warning(
                    "credentials.read_failed",
                    origin=self.origin,
                    error=str(error),
                    consequence="the present ones are used",
                )

    def _reload_tls(self) -> None:
        if self._connection.ca_pem:
            self._tls.load_verify_locations(cadata=self._connection.ca_pem.decode())
        load_pair(self._tls, self._connection)


def _certificates(connection: Connection) -> tuple[bytes | None, ...]:
    return connection.ca_pem, connection.client_cert_pem, connection.client_key_pem


class _Kubeconfig:
    """Kubeconfig files, read in a thread, since an exec plugin may take its time."""

    def __init__(self, files: str, context: str | None) -> None:
        self._files = files
        self._context = context
        self._former: Connection | None = None

    async def read(self, *, rejected: bool) -> Connection:
        if (
            not rejected
            and self._former is not None
            and self._former.plugin_valid_until > time.time() + 2 * REFRESH_S
        ):
            return self._former
        self._former = await asyncio.to_thread(self._read)
        return self._former

    def _read(self) -> Connection:
        if not any(Path(path).is_file() for path in self._files.split(os.pathsep)):
            raise InvalidKubeconfig(f"no such file: {self._files}")
        return connection(None, self._context, {**os.environ, "KUBECONFIG": self._files})


class _ServiceAccount:
    """The token and CA certificate that the kubelet mounts, and the address that it sets in the
    environment.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    async def read(self, *, rejected: bool) -> Connection:
        return in_cluster(self._environ, self._folder)


class _Bare:
    """Address and authority of another configuration, without an identity."""

    def __init__(self, connection: Connection) -> None:
        self._connection = replace(connection, headers={}, client_cert_pem=None, client_key_pem=None)

    async def read(self, *, rejected: bool) -> Connection:
        return self._connection


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
