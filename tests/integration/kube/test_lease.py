"""Candidates for one lease on a real API server: one leads, and another only after the first has stopped."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from support.tcp_proxies import TcpProxy

from fluxqueue.kube.errors import NotLeading
from fluxqueue.kube.kinds import LEASES
from fluxqueue.kube.lease import LeaderLease, LeaseLost
from fluxqueue.kube.transport import Api

Through = Callable[..., AbstractAsyncContextManager[Api]]
DURATION_S = 2.0


class Throne:
    """Whoever leads sits here; two at once are a failure."""

    def __init__(self) -> None:
        self.sitting: list[str] = []
        self.reigns: list[tuple[str, float]] = []
        self.ends: list[tuple[str, float]] = []
        self.changed = asyncio.Event()

    async def sit(self, identity: str) -> None:
        assert self.sitting == [], f"{identity} leads beside {self.sitting}"
        self.sitting.append(identity)
        self.reigns.append((identity, time.monotonic()))
        self.changed.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.sitting.remove(identity)
            self.ends.append((identity, time.monotonic()))
            self.changed.set()

    async def reign(self, number: int) -> str:
        """Wait for the n-th to take the throne, and say who."""
        async with asyncio.timeout(50):
            while len(self.reigns) < number:
                self.changed.clear()
                await self.changed.wait()
        return self.reigns[number - 1][0]


@asynccontextmanager
async def campaigning(lease: LeaderLease, throne: Throne, identity: str) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(lease.run(lambda: throne.sit(identity)))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) and not isinstance(error, LeaseLost):
        raise error


def candidate(
    api: Api, room: str, identity: str, *, skew_h: float = 0, former: str = "", duration_s: float = DURATION_S
) -> LeaderLease:
    def now() -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=skew_h)

    return LeaderLease(api, room, "leader", identity, duration_s, former=former, now=now)


async def test_a_clean_stop_hands_the_lease_over_at_once(api: Api, room: str) -> None:
    throne = Throne()
    long_s = 300.0  # whoever looks again after a fifth of it would not come in time
    async with campaigning(candidate(api, room, "a", duration_s=long_s), throne, "a") as first:
        assert await throne.reign(1) == "a"
        second = candidate(api, room, "b", skew_h=24, duration_s=long_s)
        async with campaigning(second, throne, "b"):
            async with asyncio.timeout(50):
                # until it has read the Lease, it could find the release without a watch
                while second.holder != "a":
                    await asyncio.sleep(0.02)
            first.cancel()
            assert await throne.reign(2) == "b", "the release was seen, not found by looking"
            lease = await api.get(LEASES, "leader", room)
            assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("b", 1)
    released = await api.get(LEASES, "leader", room)
    assert released.spec.holder_identity in ("", None)


@pytest.mark.parametrize("skew_h", [24, -24], ids=["clock a day ahead", "clock a day behind"])
async def test_a_leader_cut_off_stops_before_another_starts_whatever_the_clocks_say(
    api: Api, proxy: TcpProxy, through: Through, room: str, skew_h: float
) -> None:
    throne = Throne()
    async with through(proxy) as shaky, campaigning(candidate(shaky, room, "cut off"), throne, "cut off"):
        assert await throne.reign(1) == "cut off"
        async with campaigning(candidate(api, room, "next", skew_h=skew_h), throne, "next"):
            proxy.stall()
            cut_at = time.monotonic()
            assert await throne.reign(2) == "next"
            assert throne.ends[0][1] < throne.reigns[1][1]
            assert throne.ends[0][1] - cut_at < DURATION_S
            assert throne.reigns[1][1] - cut_at < 2 * DURATION_S
            proxy.restore()
            proxy.cut()


async def test_a_leader_keeps_the_lease_through_a_short_break(
    api: Api, proxy: TcpProxy, through: Through, room: str
) -> None:
    throne = Throne()
    async with through(proxy) as shaky:
        lease = candidate(shaky, room, "steady")
        async with (
            campaigning(lease, throne, "steady"),
            campaigning(candidate(api, room, "other"), throne, "other"),
        ):
            leader = await throne.reign(1)
            before = await api.get(LEASES, "leader", room)
            for _ in range(3):
                proxy.cut()
                seen = before.metadata.resource_version
                async with asyncio.timeout(50):
                    while before.metadata.resource_version == seen:
                        before = await api.get(LEASES, "leader", room)
            assert throne.sitting == [leader]
            assert len(throne.reigns) == 1


async def test_work_that_fails_gives_the_lease_back_and_is_heard_of(api: Api, room: str) -> None:
    lease = candidate(api, room, "a")

    async def fail() -> None:
        assert lease.held
        raise RuntimeError("the work broke")

    with pytest.raises(RuntimeError, match="the work broke"):
        await asyncio.wait_for(lease.run(fail), 60)
    assert not lease.held
    assert (await api.get(LEASES, "leader", room)).spec.holder_identity in ("", None)


async def test_a_lease_that_somebody_else_took_is_left_at_once(api: Api, room: str) -> None:
    throne = Throne()
    lease = candidate(api, room, "a")
    async with campaigning(lease, throne, "a"):
        await throne.reign(1)
        body = {"spec": {"holderIdentity": "usurper", "leaseDurationSeconds": 60}}
        await api.patch(LEASES, "leader", body, namespace=room)
        async with asyncio.timeout(50):
            while throne.sitting:
                throne.changed.clear()
                await throne.changed.wait()
        assert not lease.held
        assert (await api.get(LEASES, "leader", room)).spec.holder_identity == "usurper"


async def test_a_new_life_in_the_same_place_does_not_wait_for_its_former_one(api: Api, room: str) -> None:
    body = {
        "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "pod-1_first", "leaseDurationSeconds": 60},
    }
    await api.create(LEASES, body, room)
    throne = Throne()
    async with campaigning(candidate(api, room, "pod-1_second", former="pod-1_"), throne, "pod-1_second"):
        started = time.monotonic()
        assert await throne.reign(1) == "pod-1_second"
        assert throne.reigns[0][1] - started < DURATION_S


async def test_who_lost_the_lease_is_told_and_does_not_campaign_again(api: Api, room: str) -> None:
    throne = Throne()
    lease = candidate(api, room, "a")
    running = asyncio.create_task(lease.run(lambda: throne.sit("a")))
    await throne.reign(1)
    await api.patch(
        LEASES, "leader", {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 1}}, namespace=room
    )
    with pytest.raises(LeaseLost, match="leader is lost: b holds it"):
        await asyncio.wait_for(running, 60)
    assert throne.sitting == []


async def test_nothing_is_written_while_the_lease_is_not_certain(
    api: Api, through: Through, proxy: TcpProxy, room: str
) -> None:
    lease = candidate(api, room, "a")
    async with through(proxy) as guarded:
        guarded.may_write = lambda: lease.held
        with pytest.raises(NotLeading, match="does not lead"):
            await guarded.create(LEASES, {"metadata": {"name": "written"}}, room)

        async def write() -> None:
            await guarded.create(LEASES, {"metadata": {"name": "written"}}, room)

        await asyncio.wait_for(lease.run(write), 60)
        with pytest.raises(NotLeading):
            await guarded.delete(LEASES, "written", namespace=room)
        assert (await guarded.get(LEASES, "written", room)).metadata.name == "written"


@pytest.mark.parametrize("checks", [1, 2])
async def test_a_lease_lost_while_the_connection_opens_stops_the_write(
    api: Api, through: Through, proxy: TcpProxy, room: str, checks: int
) -> None:
    """The Lease is lost after the first check, or after the connection is there:
    nothing arrives in either case.
    """
    body = {"metadata": {"name": "written"}}
    async with through(proxy) as guarded:
        held = iter([True] * checks)
        guarded.may_write = lambda: next(held, False)
        with pytest.raises(NotLeading, match="does not lead"):
            await guarded.create(LEASES, body, room)
        assert [lease.metadata.name for lease in await api.list(LEASES, namespace=room)] == []
        guarded.may_write = lambda: True
        assert (await guarded.create(LEASES, body, room)).metadata.name == "written"
