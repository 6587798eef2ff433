"""The address of the API server, and the credentials for it.

In a pod they come from the mounted ServiceAccount. Elsewhere the ``kubernetes`` package reads a kubeconfig, with certificates, tokens,
token files, exec plugins or OIDC. That package is imported only then, so that images for pods need not contain it. Tokens of
ServiceAccounts are valid for an hour, and certificates are rotated in place. So the configuration is read again every minute, and at once
when the server answers 401. A new token is used for the next request. New certificates are loaded into the TLS context of new connections;
open connections keep the old ones.

If the configuration cannot be read again, the present credentials are used until the server refuses them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog

__all__ = ["Credentials", "NoConfiguration"]

REFRESH_S: Final = 60.0
"""The kubelet replaces a projected token at 80 % of its life, so a minute is early enough (client-go uses the same)."""

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in which the kubelet mounts the token and the CA certificate of the API server."""

log: Final = structlog.get_logger(__name__)


class NoConfiguration(Exception):
    """No configuration for the API server was found, or it cannot be used."""


class _Unusable(Exception):
    """A configuration cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The address and credentials of an API server; ``authorization`` is the whole header."""

    host: str
    authorization: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    proxy: str | None = None
    server_hostname: str | None = None


class _Source(Protocol):
    """A source of a configuration: a kubeconfig or a ServiceAccount."""

    async def read(self, *, rejected: bool) -> _Configuration:
        """Read the configuration; ``rejected`` is true if the server refused the previous one."""

    def tls(self) -> ssl.SSLContext:
        """Create the TLS context for the configuration that was read."""


class Credentials:
    """Address, token and TLS context of one API server; created by :meth:`load`."""

    def __init__(self, source: _Source, *, origin: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._configuration = _Configuration("")
        self._read_at = float("-inf")
        self._files: tuple[tuple[str, int], ...] = ()
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
            A file, or several joined by ``:``. None stands for ``$KUBECONFIG``, or else ``~/.kube/config`` if it exists, or else the
            pod's ServiceAccount.
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
            raise NoConfiguration("no API server configured: set KUBECONFIG, write ~/.kube/config, pass a kubeconfig, or run in a pod")
        await credentials.open()
        return credentials

    async def without_identity(self) -> Credentials:
        """Return credentials for the same server that say nothing about who asks: no token, and no client certificate.

        A request with the token of somebody else must not be sent over a connection with our certificate: the server looks at certificates
        first and would take it for ours.
        """
        bare = Credentials(_Bare(self._configuration), origin=self.origin, clock=self._clock)
        await bare.open()
        return bare

    async def open(self) -> None:
        """Read the configuration for the first time. Unlike later reads, this one must succeed."""
        try:
            await self._read(rejected=False)
            self._tls = self._source.tls()
        except (_Unusable, OSError, ValueError, TypeError, AttributeError) as error:
            raise NoConfiguration(f"{self.origin} cannot be used: {error}") from error
        self._files = self._certificate_files()

    @property
    def host(self) -> str:
        """Scheme, host, port and, if there is one, path prefix of the server, without a trailing slash."""
        return self._configuration.host.rstrip("/")

    @property
    def tls(self) -> ssl.SSLContext:
        """The TLS context of new connections; always the same object."""
        return self._tls

    @property
    def server_hostname(self) -> str | None:
        """The name that the server's certificate must contain, if it differs from the host."""
        return self._configuration.server_hostname

    @property
    def proxy(self) -> str | None:
        """The HTTP proxy: that of the kubeconfig, or else of the environment; none for loopback addresses."""
        url = urlsplit(self.host)
        if self._configuration.proxy:
            return self._configuration.proxy
        if _loopback(url.hostname or "") or proxy_bypass(url.netloc):
            return None
        return getproxies().get(url.scheme)

    async def authorization(self) -> str | None:
        """Return the Authorization header, read again if it is older than a minute; None if a client certificate is used."""
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
        return self._configuration.authorization

    async def _read(self, *, rejected: bool) -> None:
        self._configuration = await self._source.read(rejected=rejected)
        self._read_at = self._clock()

    async def _reread(self, *, rejected: bool = False) -> None:
        try:
            await self._read(rejected=rejected)
            files = self._certificate_files()
            if files != self._files:
                self._reload_tls()
                self._files = files
                log.info("credentials.tls_reloaded", origin=self.origin)
            self._failing = False
        except (_Unusable, OSError, ValueError, TypeError, AttributeError) as error:
            self._read_at = self._clock()
            if not self._failing:
                self._failing = True
                log.warning("credentials.read_failed", origin=self.origin, error=str(error), consequence="the present ones are used")

    def _reload_tls(self) -> None:
        configuration = self._configuration
        if configuration.ca_file:
            self._tls.load_verify_locations(cafile=configuration.ca_file)
        if configuration.cert_file:
            self._tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)

    def _certificate_files(self) -> tuple[tuple[str, int], ...]:
        """Return path and modification time of each TLS file, so that a changed, replaced or renamed file is noticed."""
        configuration = self._configuration
        paths = (configuration.ca_file, configuration.cert_file, configuration.key_file)
        return tuple((path, Path(path).stat().st_mtime_ns) for path in paths if path)


class _Kubeconfig:
    """Kubeconfig files, read by the library. Its loader caches the token of an exec plugin; a refused token is dropped."""

    def __init__(self, files: str, context: str | None) -> None:
        self._files = files
        self._context = context
        self._loader: Any = None
        self._loaded: Any = None

    async def read(self, *, rejected: bool) -> _Configuration:
        try:
            from kubernetes.aio.client.configuration import Configuration
            from kubernetes.aio.config.config_exception import ConfigException
            from kubernetes.aio.config.kube_config import load_kube_config
        except ModuleNotFoundError as error:
            raise _Unusable(f"the library {error.name} is not installed: run in a pod, with its ServiceAccount") from None
        try:
            if self._loader is not None and not rejected:
                await self._loader.load_and_set(self._loaded)
            elif missing := _missing(self._files):
                raise _Unusable(f"no such file: {missing}")
            else:
                self._loaded = self._loaded or Configuration()
                self._loader = await load_kube_config(
                    config_file=self._files, context=self._context, client_configuration=self._loaded, persist_config=False
                )
        except ConfigException as error:
            raise _Unusable(str(error)) from error
        loaded = self._loaded
        token = loaded.api_key.get("BearerToken")
        return _Configuration(
            host=str(loaded.host),
            authorization=str(token).strip() if token else None,  # a token file often ends in a newline, which no header may contain
            ca_file=loaded.ssl_ca_cert,
            cert_file=loaded.cert_file,
            key_file=loaded.key_file,
            proxy=str(loaded.proxy) if loaded.proxy else None,
            server_hostname=loaded.tls_server_name or None,
        )

    def tls(self) -> ssl.SSLContext:
        from kubernetes.aio.client.rest import RESTClientObject

        # The library's client is created only for its TLS context; requests do not use its models.
        context: ssl.SSLContext = RESTClientObject(self._loaded).ssl_context
        return context


def _missing(files: str) -> str:
    return ", ".join(path for path in files.split(os.pathsep) if path and not Path(path).expanduser().is_file())


class _ServiceAccount:
    """The token and CA certificate that the kubelet mounts, and the address that it sets in the environment."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    async def read(self, *, rejected: bool) -> _Configuration:
        host, port = (self._environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if not host or not port:
            raise _Unusable("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set")
        token = (self._folder / "token").read_text().strip()
        if not token:
            raise _Unusable(f"{self._folder / 'token'} is empty")
        address = f"[{host}]" if ":" in host else host
        return _Configuration(f"https://{address}:{port}", f"Bearer {token}", str(self._folder / "ca.crt"))

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._folder / "ca.crt")


class _Bare:
    """Address and authority of another configuration, without an identity."""

    def __init__(self, configuration: _Configuration) -> None:
        self._configuration = replace(configuration, authorization=None, cert_file=None, key_file=None)

    async def read(self, *, rejected: bool) -> _Configuration:
        return self._configuration

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._configuration.ca_file)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
