"""The calls against a real API server: what it refuses arrives as the right exception,
with the object's name in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from support.tcp_proxies import TcpProxy

from fluxqueue.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
)
from fluxqueue.kube.kinds import JOBS, LEASES, NAMESPACES, SECRETS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.local.controlplane import ControlPlane

Through = Callable[..., AbstractAsyncContextManager[Api]]


async def test_reads_what_it_wrote(api: Api, room: str) -> None:
    made = await api.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"key": "value"}}, room)
    read = await api.get(SECRETS, "s", room)
    assert read == made
    assert read.data == {"key": b"value"}
    assert "value" not in repr(read)
    assert (await api.version()).startswith("v1.")
    assert room in {namespace.metadata.name for namespace in await api.list(NAMESPACES)}


async def test_the_server_tells_its_time(api: Api) -> None:
    time = await api.time()
    assert time is not None
    assert abs(time - datetime.now(UTC)) < timedelta(minutes=1)


async def test_refusals_are_narrow_and_name_the_object(api: Api, room: str) -> None:
    with pytest.raises(NotFound, match=f"get Job {room}/none: 404"):
        await api.get(JOBS, "none", room)
    lease = await api.create(LEASES, {"metadata": {"name": "l"}}, room)
    with pytest.raises(AlreadyExists, match=f"create Lease {room}/l"):
        await api.create(LEASES, {"metadata": {"name": "l"}}, room)
    with pytest.raises(Invalid) as invalid:
        await api.patch(LEASES, "l", {"spec": {"leaseDurationSeconds": -1}}, namespace=room)
    assert [cause.field for cause in invalid.value.causes] == ["spec.leaseDurationSeconds"]
    await api.patch(LEASES, "l", {"metadata": {"labels": {"a": "b"}}}, namespace=room)
    with pytest.raises(Conflict):
        await api.patch(
            LEASES,
            "l",
            {"metadata": {"resourceVersion": lease.metadata.resource_version, "labels": {}}},
            namespace=room,
        )
    with pytest.raises(Conflict):
        await api.delete(LEASES, "l", namespace=room, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(Conflict):
        await api.delete(LEASES, "l", namespace=room, resource_version=lease.metadata.resource_version)
    await api.delete(LEASES, "l", namespace=room, uid=lease.metadata.uid)
    with pytest.raises(NotFound):
        await api.delete(LEASES, "l", namespace=room)


async def test_each_kind_of_patch_does_its_own(api: Api, room: str) -> None:
    await api.create(LEASES, {"metadata": {"name": "l", "labels": {"a": "1"}}}, room)
    merged = await api.patch(LEASES, "l", {"metadata": {"labels": {"a": None, "b": "1"}}}, namespace=room)
    assert merged.metadata.labels == {"b": "1"}
    operations = [{"op": "replace", "path": "/metadata/labels/b", "value": "2"}]
    assert (
        await api.patch(LEASES, "l", operations, namespace=room, patch_type=PatchType.JSON)
    ).metadata.labels == {"b": "2"}
    body = {"metadata": {"labels": {"c": "1"}}}
    strategic = await api.patch(LEASES, "l", body, namespace=room, patch_type=PatchType.STRATEGIC)
    assert strategic.metadata.labels == {"b": "2", "c": "1"}


async def test_of_two_writers_with_the_same_version_one_gets_a_conflict(api: Api, room: str) -> None:
    lease = await api.create(LEASES, {"metadata": {"name": "l"}}, room)
    version = lease.metadata.resource_version

    async def write(holder: str) -> str:
        body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder}}
        return (await api.patch(LEASES, "l", body, namespace=room)).spec.holder_identity or ""

    results = await asyncio.gather(*(write(str(number)) for number in range(8)), return_exceptions=True)
    winners = [result for result in results if isinstance(result, str)]
    assert len(winners) == 1
    assert all(isinstance(result, Conflict) for result in results if not isinstance(result, str))
    assert (await api.get(LEASES, "l", room)).spec.holder_identity == winners[0]


async def test_a_write_whose_answer_is_lost_happened_once_and_is_reported_as_unknown(
    api: Api, proxy: TcpProxy, through: Through, room: str
) -> None:
    async with through(proxy, timeout_s=1.0) as deaf:
        await deaf.get(NAMESPACES, room)
        proxy.deafen()
        with pytest.raises(Unreachable) as lost:
            await deaf.create(LEASES, {"metadata": {"name": "once"}}, room)
        proxy.cut()
        proxy.restore()
    assert lost.value.sent
    assert [lease.metadata.name for lease in await api.list(LEASES, room)] == ["once"]
    assert deaf.calls["create", "leases"] == 1


async def test_kept_connections_that_the_network_dropped_do_not_surface(
    proxy: TcpProxy, through: Through, room: str
) -> None:
    async with through(proxy) as shaky:
        for _ in range(5):
            await asyncio.gather(*(shaky.get(NAMESPACES, room) for _ in range(8)))
            proxy.cut()
        await shaky.get(NAMESPACES, room)
        await shaky.create(LEASES, {"metadata": {"name": "after"}}, room)


async def test_a_service_account_token_that_was_replaced_is_picked_up(
    cluster: ControlPlane, api: Api, room: str, tmp_path: Path
) -> None:
    await api.request("POST", f"/api/v1/namespaces/{room}/serviceaccounts", body={"metadata": {"name": "sa"}})
    kubeconfig = await asyncio.to_thread(cluster.service_account_kubeconfig, room, "sa")
    config = yaml.safe_load(kubeconfig.read_text())
    real = config["users"][0]["user"].pop("token")
    config["users"][0]["user"]["tokenFile"] = "token"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    (tmp_path / "token").write_text("not.a.token\n")
    async with Api.connect(tmp_path / "config") as mine:
        with pytest.raises(Unauthorized):
            await mine.get(LEASES, "l", room)
        (tmp_path / "token").write_text(f"{real}\n")
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{room}:sa"):
            await mine.get(LEASES, "l", room)
