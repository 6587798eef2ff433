"""Where the API server is and how we prove who we are.

The ``kubernetes`` package reads the configuration: a kubeconfig with certificates, tokens, token files, exec plugins or OIDC, or the
ServiceAccount of a pod. It reads it once; but tokens of ServiceAccounts live an hour, and certificates are rotated in place. So the
same loader runs again every minute and at once when the server answers 401. What it finds goes into the next request (token) or into
the TLS context that new connections use (certificates, CA); connections that are open stay as they are.

A configuration that cannot be read again is no reason to stop: the credentials in hand go on being used until the server refuses
them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes.aio.config.kube_config import load_kube_config

__all__ = ["Credentials", "NoConfiguration"]

REFRESH_S: Final = 60.0
"""The kubelet replaces a projected token at 80 % of its life, so a minute is soon enough (client-go uses the same)."""

Loader = Callable[[Any, bool], Awaitable[None]]
"""Fills a ``kubernetes`` configuration; the flag says that what it gave last time was refused."""

log: Final = structlog.get_logger(__name__)


class NoConfiguration(Exception):
    """Nothing says where the API server is, or what says so cannot be used."""


class Credentials:
    """Address, token and TLS context of one API server; :meth:`load` makes them."""

    def __init__(self, load: Loader, *, origin: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._clock = clock
        self._configuration = Configuration()
        self._read_at = float("-inf")
        self._files: tuple[tuple[str, int], ...] = ()
        self._lock = asyncio.Lock()
        self._failing = False
        self._tls: ssl.SSLContext
        self.origin = origin

    @classmethod
    async def load(cls, kubeconfig: Path | str | None = None, context: str | None = None) -> Credentials:
        """Find the configuration as kubectl does, then as a pod does.

        Parameters
        ----------
        kubeconfig
            A file, or several joined by ``:``. None takes ``$KUBECONFIG``, else ``~/.kube/config`` if there is one, else the
            ServiceAccount of the pod we run in.
        context
            Of the kubeconfig; None is its current one.

        Raises
        ------
        NoConfiguration
            With what was looked for, or what is wrong with what was found.
        """
        default = Path.home() / ".kube/config"
        files = str(kubeconfig or os.environ.get("KUBECONFIG") or (default if default.is_file() else ""))
        if files:
            credentials = cls(_from_kubeconfig(files, context), origin=f"kubeconfig {files}")
        elif os.environ.get(SERVICE_HOST_ENV_NAME):
            credentials = cls(_in_cluster(SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME, os.environ), origin="the pod's ServiceAccount")
        else:
            raise NoConfiguration("no API server configured: set KUBECONFIG, write ~/.kube/config, pass a kubeconfig, or run in a pod")
        await credentials.open()
        return credentials

    async def open(self) -> None:
        """Read the configuration for the first time; unlike later readings, this one must succeed."""
        try:
            await self._read(rejected=False)
            # The library's client is made for its TLS context only: requests go out as raw bytes, past its models.
            self._tls = RESTClientObject(self._configuration).ssl_context
        except (ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
            raise NoConfiguration(f"{self.origin} cannot be used: {error}") from error
        self._files = self._certificate_files()

    @property
    def host(self) -> str:
        """Scheme, host and port, and a path prefix if the server has one; no slash at the end."""
        return str(self._configuration.host).rstrip("/")

    @property
    def tls(self) -> ssl.SSLContext:
        """The context new connections use; the same object for life."""
        return self._tls

    @property
    def server_hostname(self) -> str | None:
        """The name the server's certificate must carry, where it differs from the host."""
        return self._configuration.tls_server_name or None

    @property
    def proxy(self) -> str | None:
        """The HTTP proxy on the way: the cluster's own, else the environment's, and never one for loopback addresses."""
        url = urlsplit(self.host)
        if self._configuration.proxy:
            return str(self._configuration.proxy)
        if _loopback(url.hostname or "") or proxy_bypass(url.netloc):
            return None
        return getproxies().get(url.scheme)

    async def authorization(self) -> str | None:
        """The Authorization header, read again if it is older than a minute; None where a certificate speaks for us."""
        if self._clock() - self._read_at >= REFRESH_S:
            async with self._lock:
                if self._clock() - self._read_at >= REFRESH_S:
                    await self._reread()
        return self._header()

    async def renew(self, rejected: str | None) -> bool:
        """Read the configuration again because the server refused it.

        Parameters
        ----------
        rejected
            The header it refused. If another call has renewed it meanwhile, nothing is read.

        Returns
        -------
        bool
            Whether there is now another header to try.
        """
        async with self._lock:
            if self._header() == rejected:
                await self._reread(rejected=True)
            return self._header() != rejected

    def _header(self) -> str | None:
        text = self._configuration.api_key.get("BearerToken")
        return str(text).strip() if text else None  # a token file often ends in a newline, which no header may carry

    async def _read(self, *, rejected: bool) -> None:
        await self._load(self._configuration, rejected)
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
        except (ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
            self._read_at = self._clock()
            if not self._failing:
                self._failing = True
                log.warning("credentials.not_readable", origin=self.origin, error=str(error), consequence="going on with those in hand")

    def _reload_tls(self) -> None:
        if self._configuration.ssl_ca_cert:
            self._tls.load_verify_locations(cafile=self._configuration.ssl_ca_cert)
        if self._configuration.cert_file:
            self._tls.load_cert_chain(self._configuration.cert_file, keyfile=self._configuration.key_file)

    def _certificate_files(self) -> tuple[tuple[str, int], ...]:
        """Paths and times of the TLS files: changed, replaced or renamed all show."""
        paths = (self._configuration.ssl_ca_cert, self._configuration.cert_file, self._configuration.key_file)
        return tuple((str(path), Path(path).stat().st_mtime_ns) for path in paths if path)


def _from_kubeconfig(files: str, context: str | None) -> Loader:
    """Run the library's loader; what it remembers (an exec plugin's token until it expires) is dropped once the server refused it."""
    loader: Any = None

    async def load(configuration: Any, rejected: bool) -> None:
        nonlocal loader
        if loader is not None and not rejected:
            await loader.load_and_set(configuration)
            return
        if missing := _missing(files):
            raise ConfigException(f"no such file: {missing}")
        loader = await load_kube_config(config_file=files, context=context, client_configuration=configuration, persist_config=False)

    return load


def _missing(files: str) -> str:
    return ", ".join(path for path in files.split(os.pathsep) if path and not Path(path).expanduser().is_file())


def _in_cluster(token_file: str, ca_file: str, environ: Mapping[str, str]) -> Loader:
    async def load(configuration: Any, _rejected: bool) -> None:
        InClusterConfigLoader(token_file, ca_file, try_refresh_token=False, environ=environ).load_and_set(configuration)

    return load


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
