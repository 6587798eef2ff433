"""Requests to the REST service of a MiniCluster: directly, or through the API server for whoever cannot reach
its network.

The API server forwards a request to a Service for those who may get ``services/proxy``. It removes the
``Authorization`` header, so the token of the instance has a header of its own there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol

import aiohttp

from fluxqueue.api.names import OPERATOR_TOKEN_HEADER
from fluxqueue.client.errors import FluxQueueError, FluxRefused, NoCluster, NoSuchWork, NotPermitted
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api

__all__ = ["DirectFlux", "FluxConnection", "ProxiedFlux"]

_TIMEOUT_S = 60.0
_IDLE_S = 4 * 3600.0


class FluxConnection(Protocol):
    """Sends requests to one instance."""

    async def call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None
    ) -> bytes:
        """Send a request and return the body of the answer.

        Raises
        ------
        FluxQueueError
            The instance refuses, or does not answer.
        """

    def pieces(self, path: str) -> AsyncIterator[bytes]:
        """Read an answer that goes on, in pieces of any length."""

    async def close(self) -> None:
        """Close the connections."""


class DirectFlux:
    """Requests to the address of the service.

    Parameters
    ----------
    url
        For example ``http://flux-rest.team.svc:5000``, or that of a port that kubectl forwards.
    token
        The bearer token of the instance.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S, sock_read=_IDLE_S)
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}, timeout=timeout)

    async def call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None
    ) -> bytes:
        """Send a request and return the body of the answer."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with self._session.request(
                method, self._url + path, params=query, json=body, timeout=timeout
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._unreachable(error) from None
        if answer.status >= 300:
            raise _refusal(answer.status, content)
        return content

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        """Read an answer that goes on, in pieces of any length."""
        try:
            async with self._session.get(self._url + path) as answer:
                if answer.status >= 300:
                    raise _refusal(answer.status, await answer.read())
                async for piece in answer.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._unreachable(error) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def _unreachable(self, error: Exception) -> NoCluster:
        cause = str(error) or type(error).__name__
        return NoCluster(
            f"the Flux instance at {self._url} does not answer ({cause}): check the address, "
            "or leave url= out"
        )


class ProxiedFlux:
    """Requests through the API server.

    Parameters
    ----------
    api
        The API server.
    service
        The path of the Service, without ``/proxy``.
    token
        The bearer token of the instance.
    """

    def __init__(self, api: Api, service: str, token: str) -> None:
        self._api = api
        self._path = f"{service}/proxy"
        self._headers = {OPERATOR_TOKEN_HEADER: token}

    async def call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None
    ) -> bytes:
        """Send a request and return the body of the answer."""
        try:
            return await self._api.request(
                method, self._path + path, query=query, body=body, timeout_s=_TIMEOUT_S, headers=self._headers
            )
        except ApiError as error:
            raise _from_proxy(error) from None

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        """Read an answer that goes on, in pieces of any length."""
        place, _, query = path.partition("?")
        parameters = dict(pair.split("=", 1) for pair in query.split("&") if pair)
        try:
            async with aclosing(
                self._api.lines(self._path + place, query=parameters, idle_s=_IDLE_S, headers=self._headers)
            ) as pieces:
                async for lines in pieces:
                    for line in lines:
                        yield line + b"\n"
        except ApiError as error:
            raise _from_proxy(error) from None

    async def close(self) -> None:
        """Do nothing: the connections belong to the client."""


def _from_proxy(error: ApiError) -> FluxQueueError:
    if error.status == 403:
        return NotPermitted(
            f"{error}: ask for the right to use services/proxy, or give url=, "
            "for example of kubectl port-forward"
        )
    return _refusal(error.status, json.dumps({"detail": error.message}).encode())


def _refusal(status: int, content: bytes) -> FluxQueueError:
    try:
        detail = json.loads(content)["detail"]
        sentence = (
            detail
            if isinstance(detail, str)
            else "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in detail)
        )
    except (ValueError, KeyError, TypeError, IndexError):
        sentence = " ".join(content.decode(errors="replace").split())[:200] or f"HTTP {status}"
    if status == 404:
        return NoSuchWork(f"{sentence}: check the id of the job")
    if status == 401:
        return NotPermitted(f"{sentence}: give that token")
    if status >= 500 or status == 0:
        return NoCluster(
            f"the Flux instance does not answer ({sentence}): "
            "wait until its brokers are online (kubectl get miniclusters)"
        )
    return FluxRefused(f"Flux refused the request: {sentence}: correct what it names")
