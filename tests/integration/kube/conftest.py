"""A control plane of this room's own: its tests restart the API server,
compact etcd and need it otherwise quiet.
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from support.tcp_proxies import TcpProxy, proxy_to

from fluxqueue.kube.transport import Api
from fluxqueue.local.components import Component, ControlPlaneOptions
from fluxqueue.local.controlplane import ControlPlane

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster(service_folder: Path) -> Iterator[ControlPlane]:
    """etcd, API server and controller manager; no nodes, nobody schedules.
    Secrets bypass the watch cache, so compaction reaches them.
    """
    cluster = ControlPlane(
        service_folder / "kube",
        nodes=0,
        options=ControlPlaneOptions(api_server_flags=["--watch-cache-sizes=secrets#0"]),
    )
    cluster.start()
    cluster.stop_component(Component.SCHEDULER, graceful=False)
    cluster.stop_component(Component.KWOK, graceful=False)
    yield cluster
    cluster.destroy()


@pytest.fixture
async def api(cluster: ControlPlane) -> AsyncIterator[Api]:
    """As administrator, straight."""
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/tests") as api:
        yield api


@pytest.fixture
def room(cluster: ControlPlane) -> str:
    """A namespace of this test's own; left behind, for deleting one takes longer than most tests."""
    name = f"kube-{next(_numbers)}"
    cluster.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
async def proxy(cluster: ControlPlane) -> AsyncIterator[TcpProxy]:
    """A network to the API server that can be broken."""
    async with proxy_to(urlsplit(cluster.server).port or 0) as proxy:
        yield proxy


@pytest.fixture
def through(cluster: ControlPlane, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Api]]:
    """An Api as administrator through a proxy: ``through(proxy, timeout_s=2)``."""

    @asynccontextmanager
    async def connect(proxy: TcpProxy, **options: Any) -> AsyncIterator[Api]:
        async with Api.connect(kubeconfig_through(cluster, proxy, tmp_path), **options) as api:
            yield api

    return connect


def kubeconfig_through(cluster: ControlPlane, proxy: TcpProxy, folder: Path) -> Path:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    path = folder / f"through-{proxy.port}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def compact(cluster: ControlPlane) -> Callable[[], None]:
    """Make etcd forget all history up to now."""

    def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
        payload = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.0\r\n"
            "Host: etcd\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n"
            "\r\n"
        )
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(cluster.folder / "client:1"))
            connection.sendall(head.encode() + payload)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        top, _, content = answer.partition(b"\r\n\r\n")
        assert b" 200 " in top.splitlines()[0], answer
        result: dict[str, Any] = json.loads(content)
        return result

    def compact() -> None:
        revision = ask("/v3/kv/range", {"key": "AA==", "limit": 1})["header"]["revision"]
        ask("/v3/kv/compaction", {"revision": revision, "physical": True})

    return compact
