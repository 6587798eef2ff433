from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from fluxqueue.client import FluxRefused, NoCluster, NoSuchWork, NotPermitted
from fluxqueue.client.flux_connections import ProxiedFlux
from fluxqueue.kube.errors import decode_error
from fluxqueue.kube.transport import Api
from fluxqueue.kube.wire import Request, Wire


class Proxy:
    """The wire of an API server that forwards requests to an instance."""

    def __init__(self, status: int = 200, body: bytes = b"{}") -> None:
        self.requests: list[Request] = []
        self._status, self._body = status, body

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        del timeout_s, tries
        self.requests.append(request)
        if self._status >= 300:
            raise decode_error(self._status, self._body, action=request.action)
        return self._body

    async def stream(self, request: Request, **_: Any) -> AsyncGenerator[list[bytes], None]:
        self.requests.append(request)
        yield []
        if self._status >= 300:
            raise decode_error(self._status, self._body, action=request.action)
        yield [b"one", b"two"]


def flux(proxy: Proxy) -> ProxiedFlux:
    return ProxiedFlux(
        Api(cast("Wire", proxy)), "/api/v1/namespaces/team/services/http:flux-rest:5000", "secret"
    )


async def test_the_token_has_a_header_that_the_proxy_does_not_remove() -> None:
    proxy = Proxy(body=b"[]")
    assert await flux(proxy).call("GET", "/v1/jobs", query={"limit": "3"}) == b"[]"
    (request,) = proxy.requests
    assert request.path == "/api/v1/namespaces/team/services/http:flux-rest:5000/proxy/v1/jobs"
    assert dict(request.headers) == {"Fluxqueue-Token": "secret"}
    assert "secret" not in request.action


async def test_output_is_read_with_its_query() -> None:
    proxy = Proxy()
    pieces = [piece async for piece in flux(proxy).pieces("/v1/jobs/f1/output?follow=true")]
    assert pieces == [b"one\n", b"two\n"]
    assert (proxy.requests[0].path.rpartition("/proxy")[2], proxy.requests[0].query) == (
        "/v1/jobs/f1/output",
        {"follow": "true"},
    )


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (403, NotPermitted, "services/proxy, or give url="),
        (401, NotPermitted, "give that token"),
        (404, NoSuchWork, "check the id"),
        (409, FluxRefused, "Flux refused the request: .*no such queue"),
        (503, NoCluster, "wait until its brokers are online"),
    ],
)
async def test_each_refusal_is_its_own_error(status: int, kind: type[Exception], sentence: str) -> None:
    connection = flux(Proxy(status, json.dumps({"message": "no such queue"}).encode()))
    with pytest.raises(kind, match=sentence):
        await connection.call("GET", "/v1/jobs")
    with pytest.raises(kind, match=sentence):
        _ = [piece async for piece in connection.pieces("/v1/jobs/f1/output")]
    await connection.close()
