"""Does a store stay equal to the API server, whatever happens in between?

Every test ends by comparing the store with a fresh list, and the changes that handlers saw with what may
happen to an object.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import pytest
from structlog.testing import capture_logs
from support.tcp_proxies import TcpProxy

from fluxqueue.api.clusterobjects import Secret
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.kube.errors import Forbidden, NotFound
from fluxqueue.kube.kinds import LEASES, PODS, SECRETS, Kind, T
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.kube.reflector import Reflector, WatchTimes
from fluxqueue.kube.transport import Api, CompletedCall
from fluxqueue.local.components import Component
from fluxqueue.local.controlplane import ControlPlane

Through = Callable[..., AbstractAsyncContextManager[Api]]


class OddSpec(PartialObject, frozen=True):
    holder_identity: Literal["good"] | None = None


class OddLease(PartialObject, frozen=True):
    """A Lease, but only some fit."""

    metadata: ObjectMeta = ObjectMeta()
    spec: OddSpec = OddSpec()


ODD_LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, OddLease)
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", True, Secret)


class History:
    """What handlers were told, checked as it comes: per uid one ADDED, then versions, then one DELETED."""

    def __init__(self, store: ObjectCache[Any]) -> None:
        self.counts = dict.fromkeys(ChangeKind, 0)
        self._last: dict[str, str | None] = {}
        self.faults: list[str] = []
        store.add_handler(self.take)

    def take(self, change: Change[Any]) -> None:
        self.counts[change.kind] += 1
        uid, version = change.obj.metadata.uid, change.obj.metadata.resource_version
        if change.kind is ChangeKind.ADDED:
            if uid in self._last:
                self.faults.append(f"{uid} added twice")
        elif self._last.get(uid) is None:
            self.faults.append(f"{uid} {change.kind} while not there")
        elif change.kind is ChangeKind.MODIFIED and self._last[uid] == version:
            self.faults.append(f"{uid} told twice of {version}")
        self._last[uid] = None if change.kind is ChangeKind.DELETED else version


@asynccontextmanager
async def reflecting(
    api: Api, kind: Kind[T], namespace: str, **options: Any
) -> AsyncIterator[tuple[Reflector[T], ObjectCache[T], History]]:
    store: ObjectCache[T] = ObjectCache()
    history = History(store)
    reflector = Reflector(api, kind, store, namespace=namespace, **options)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflector.run())
        yield reflector, store, history
        task.cancel()
    assert history.faults == []


def versions(objects: list[T]) -> dict[str, tuple[str, str]]:
    return {obj.metadata.name: (obj.metadata.uid, obj.metadata.resource_version) for obj in objects}


async def settle(
    store: ObjectCache[T], truth: Api, kind: Kind[T], namespace: str, *, within_s: float = 90
) -> None:
    """Wait until the store equals a fresh list."""
    expected = versions(await truth.list(kind, namespace))
    changed = asyncio.Event()
    store.add_handler(lambda _: changed.set())
    try:
        async with asyncio.timeout(within_s):
            while versions(store.list()) != expected:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        stored = versions(store.list())
        differ = {name for name in stored.keys() | expected.keys() if stored.get(name) != expected.get(name)}
        pytest.fail(f"not equal after {within_s} s: {sorted(differ)[:5]} and {max(0, len(differ) - 5)} more")


async def until(condition: Callable[[], object], what: str, *, within_s: float = 90) -> None:
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not within {within_s} s: {what}")


def a_pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "none.invalid/none"}]},
    }


def a_secret(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "stringData": {"key": "value"}}


async def create_many(api: Api, kind: Kind[Any], bodies: list[dict[str, Any]], namespace: str) -> None:
    async with asyncio.TaskGroup() as group:
        for body in bodies:
            group.create_task(api.create(kind, body, namespace))


@pytest.fixture
async def pods_allowed(api: Api, room: str) -> str:
    """The room, once its default ServiceAccount is there: pods are refused before."""
    async with asyncio.timeout(60):
        while True:
            try:
                await api.get(SERVICE_ACCOUNTS, "default", room)
            except NotFound:
                await asyncio.sleep(0.02)
            else:
                return room


async def test_more_than_a_thousand_objects_come_in_pages_and_changes_follow(
    api: Api, pods_allowed: str
) -> None:
    room = pods_allowed
    await create_many(api, PODS, [a_pod(f"p{i}") for i in range(1_100)], room)
    before = api.calls["list", "pods"]
    async with reflecting(api, PODS, room) as (reflector, store, history):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        assert len(store) == 1_100
        assert api.calls["list", "pods"] - before == 3
        assert reflector.healthy
        await api.patch(PODS, "p7", {"metadata": {"labels": {"seen": "yes"}}}, namespace=room)
        await api.request("DELETE", PODS.path(room, "p8"), body={"gracePeriodSeconds": 0})
        await api.create(PODS, a_pod("late"), room)
        await settle(store, api, PODS, room)
        assert (history.counts[ChangeKind.ADDED], history.counts[ChangeKind.DELETED]) == (1_101, 1)
        assert history.counts[ChangeKind.MODIFIED] >= 1
        assert reflector.relists == 1


async def test_bookmarks_move_the_version_on_while_nothing_happens(api: Api, room: str) -> None:
    async with reflecting(api, LEASES, room, times=WatchTimes(lasts_s=(4, 4))) as (reflector, store, history):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        start = int(reflector.resource_version)
        await create_many(api, LEASES, [{"metadata": {"name": f"{room}-{i}"}} for i in range(5)], "default")
        await until(lambda: int(reflector.resource_version) > start, "a bookmark with a newer version")
        assert sum(history.counts.values()) == 0
        await until(lambda: reflector.reconnects > 0, "the server ends the watch")
        await api.create(LEASES, {"metadata": {"name": "late"}}, room)
        await settle(store, api, LEASES, room)
        assert reflector.relists == 1


async def test_no_change_is_lost_or_reported_twice_however_often_the_connection_breaks(
    api: Api, proxy: TcpProxy, through: Through, room: str
) -> None:
    draw = random.Random(7)
    names = [f"c{i}" for i in range(40)]

    async def churn(name: str) -> None:
        for step in itertools.count(1):
            await api.create(LEASES, {"metadata": {"name": name}}, room)
            await api.patch(LEASES, name, {"metadata": {"labels": {"step": str(step)}}}, namespace=room)
            last = step >= 12 and proxy.accepted > 3
            if not last or draw.random() < 0.5:
                await api.delete(LEASES, name, namespace=room)
            if last:
                return

    async with through(proxy) as shaky, reflecting(shaky, LEASES, room) as (reflector, store, history):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        churning = asyncio.gather(*(churn(name) for name in names))
        while not churning.done():
            await asyncio.wait({churning}, timeout=0.3)
            proxy.cut()
        await churning
        await settle(store, api, LEASES, room)
        assert reflector.relists == 1
        assert history.counts[ChangeKind.ADDED] - history.counts[ChangeKind.DELETED] == len(store)


async def test_a_connection_that_is_only_apparently_open_is_closed_and_nothing_is_missed(
    api: Api, proxy: TcpProxy, through: Through, room: str
) -> None:
    async with (
        through(proxy) as shaky,
        reflecting(shaky, LEASES, room, times=WatchTimes(idle_s=1.0)) as (reflector, store, _),
    ):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        await until(lambda: proxy.open_connections > 0 and reflector.last_error is None, "a watch")
        proxy.stall()
        await create_many(api, LEASES, [{"metadata": {"name": f"c{i}"}} for i in range(5)], room)
        await until(lambda: reflector.last_error is not None, "the silence is noticed", within_s=5)
        assert reflector.relists == 1
        proxy.restore()
        await settle(store, api, LEASES, room)


async def test_two_timeouts_in_a_row_make_it_list_again(api: Api, room: str) -> None:
    """A server restored from a backup sends nothing that is newer than what we know;
    only a list shows what it has.
    """
    async with reflecting(api, LEASES, room, times=WatchTimes(idle_s=0.3)) as (reflector, _, _):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        await until(lambda: reflector.relists > 1, "another list")


async def test_an_expired_version_leads_to_a_list_whose_difference_is_reported(
    api: Api, proxy: TcpProxy, through: Through, room: str, compact: Callable[[], None]
) -> None:
    await create_many(api, SECRETS, [a_secret(name) for name in ("stays", "goes", "changes", "again")], room)
    async with (
        through(proxy, timeout_s=2.0) as shaky,
        reflecting(shaky, SECRETS, room) as (reflector, store, history),
    ):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        old = store.get(room, "again")
        proxy.refuse()
        await api.delete(SECRETS, "goes", namespace=room)
        await api.delete(SECRETS, "again", namespace=room)
        await api.patch(SECRETS, "changes", {"metadata": {"labels": {"a": "b"}}}, namespace=room)
        await create_many(api, SECRETS, [a_secret(name) for name in ("comes", "again")], room)
        compact()
        proxy.restore()
        await settle(store, api, SECRETS, room)
        assert reflector.relists == 2
        assert history.counts == {ChangeKind.ADDED: 6, ChangeKind.MODIFIED: 1, ChangeKind.DELETED: 2}
        new = store.get(room, "again")
        assert old is not None
        assert new is not None
        assert old.metadata.uid != new.metadata.uid


async def test_a_list_whose_moment_is_forgotten_between_two_pages_starts_over(
    cluster: ControlPlane, api: Api, room: str, compact: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_many(api, SECRETS, [a_secret(f"s{i:03}") for i in range(30)], room)
    monkeypatch.setattr("fluxqueue.kube.reflector.PAGE_LIMIT", 10)
    listed: list[int] = []

    def after_each(call: CompletedCall) -> None:
        if (call.verb, call.kind) == ("list", "secrets"):
            listed.append(call.status)
            if len(listed) == 1:
                cluster.client.request("DELETE", SECRETS.path(room, "s001"))
                cluster.client.request("POST", SECRETS.path(room), a_secret("s999"))
                compact()

    api.on_call = after_each
    async with reflecting(api, SECRETS, room) as (reflector, store, _):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        assert listed == [200, 410, 200, 200, 200]
        await settle(store, api, SECRETS, room)
        assert len(store) == 30


async def test_a_restart_of_the_api_server_is_survived(cluster: ControlPlane, api: Api, room: str) -> None:
    async with reflecting(api, LEASES, room) as (reflector, store, _):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        await asyncio.to_thread(cluster.restart_component, Component.API_SERVER, graceful=False)
        await api.create(LEASES, {"metadata": {"name": "after"}}, room)
        await settle(store, api, LEASES, room)
        assert reflector.last_error is None


async def test_missing_rights_are_shown_and_logged_once_and_gaining_them_is_enough(
    cluster: ControlPlane, api: Api, room: str
) -> None:
    await api.request(
        "POST", f"/api/v1/namespaces/{room}/serviceaccounts", body={"metadata": {"name": "watcher"}}
    )
    kubeconfig = await asyncio.to_thread(cluster.service_account_kubeconfig, room, "watcher")
    with capture_logs() as logs:
        async with Api.connect(kubeconfig) as poor, reflecting(poor, LEASES, room) as (reflector, store, _):
            await until(lambda: poor.calls["list", "leases"] >= 2, "a second try")
            assert isinstance(reflector.last_error, Forbidden)
            assert "list leases" in str(reflector.last_error)
            assert not reflector.healthy
            rules = [
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]}
            ]
            rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{room}"
            subject = {"kind": "ServiceAccount", "name": "watcher", "namespace": room}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "watch"}
            await api.request("POST", f"{rbac}/roles", body={"metadata": {"name": "watch"}, "rules": rules})
            await api.request(
                "POST",
                f"{rbac}/rolebindings",
                body={"metadata": {"name": "w"}, "roleRef": role, "subjects": [subject]},
            )
            await asyncio.wait_for(reflector.synced.wait(), 60)
            await settle(store, api, LEASES, room)
            await until(lambda: reflector.last_error is None, "the error is over")
    assert [entry["log_level"] for entry in logs if entry["event"] == "reflector.failed"] == ["error"]


async def test_an_object_that_does_not_fit_is_left_out_and_named_and_hinders_no_other(
    api: Api, room: str
) -> None:
    def held_by(identity: str) -> dict[str, Any]:
        return {"spec": {"holderIdentity": identity}}

    await create_many(
        api, LEASES, [{"metadata": {"name": name}, **held_by(name)} for name in ("good", "odd")], room
    )
    async with reflecting(api, ODD_LEASES, room) as (reflector, store, _):
        await asyncio.wait_for(reflector.synced.wait(), 60)
        assert [obj.metadata.name for obj in store.list()] == ["good"]
        assert [*reflector.undecodable] == [(room, "odd")]
        assert "holderIdentity" in reflector.undecodable[room, "odd"]
        await api.patch(LEASES, "odd", held_by("good"), namespace=room)
        await until(lambda: store.get(room, "odd"), "the mended one")
        assert reflector.undecodable == {}
        await api.patch(LEASES, "good", held_by("spoilt"), namespace=room)
        await until(lambda: store.get(room, "good") is None, "the spoilt one is left out")
        assert [*reflector.undecodable] == [(room, "good")]
        await api.delete(LEASES, "good", namespace=room)
        await until(lambda: reflector.undecodable == {}, "the spoilt one is gone")
        assert reflector.relists == 1
