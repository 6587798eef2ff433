"""The charge of accounts for what they used, on real tables:
exact, halved with time, and the same whenever it runs.
"""

from __future__ import annotations

import math
import random
from datetime import timedelta

import pytest
from support.queue_records import Leader
from support.stepped_clock import SteppedClock

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.submitters import LONGEST_SUBMITTER, readable_submitter
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, StaleLeader, Store, Unstorable

HALF_LIFE_S = 3_600.0
CORES = {"cpu": 0.001}
RATE = 4
"""Cores of an allocation on two nodes."""


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def leader(pool: Database, epoch: Epoch, clock: SteppedClock) -> Leader:
    return Leader(Store(pool, clock), epoch)


async def run(
    leader: Leader, clock: SteppedClock, name: str, account: str, begin: float, end: float | None
) -> None:
    """Run work of an account from one minute to another; None: it still runs."""
    clock.set(begin)
    (workload,) = await leader.allocate(name, account=account)
    if end is not None:
        clock.set(end)
        await leader.store.finish(leader.epoch, [Ending(workload.id, State.COMPLETED, Outcome.SUCCEEDED)])


async def charge(leader: Leader) -> dict[str, float]:
    return await leader.store.charge_accounts(leader.epoch, HALF_LIFE_S, CORES)


def decayed(minutes_ago_began: float, minutes_ago_ended: float = 0) -> float:
    """Core-seconds of an allocation, each halved for every hour that it is ago."""
    factor = HALF_LIFE_S / math.log(2)
    halved = math.pow(0.5, minutes_ago_ended * 60 / HALF_LIFE_S) - math.pow(
        0.5, minutes_ago_began * 60 / HALF_LIFE_S
    )
    return RATE * factor * halved


async def test_use_counts_from_the_grant_to_the_end_and_half_after_a_half_life(
    leader: Leader, clock: SteppedClock
) -> None:
    await run(leader, clock, "ended", "physics", 0, 30)
    await run(leader, clock, "runs", "biology", 20, None)
    await run(leader, clock, "nobody's", "", 20, None)
    clock.set(60)
    assert await charge(leader) == pytest.approx({"physics": decayed(60, 30), "biology": decayed(40)})
    clock.set(120)
    assert await charge(leader) == pytest.approx({"physics": decayed(60, 30) / 2, "biology": decayed(100)})


async def test_it_does_not_matter_how_often_accounts_are_charged(leader: Leader, clock: SteppedClock) -> None:
    await run(leader, clock, "a", "physics", 0, None)
    for minute in (1, 2, 2, 3, 30, 90):
        clock.set(minute)
        found = await charge(leader)
    assert found == pytest.approx({"physics": decayed(90)})
    for minute in (80, 90):
        clock.set(minute)
        assert await charge(leader) == pytest.approx({"physics": decayed(90)}), (
            "a clock that went back charges nothing twice"
        )


async def test_use_of_long_ago_is_forgotten_and_not_charged_again(
    leader: Leader, clock: SteppedClock
) -> None:
    await run(leader, clock, "a", "physics", 0, 1)
    clock.set(60 * 24 * 365 * 10)
    assert set(await charge(leader)) == {"physics"}
    assert await charge(leader) == {}
    await run(leader, clock, "b", "biology", 60 * 24 * 365 * 10, None)
    clock.set(60 * 24 * 365 * 10 + 1)
    assert await charge(leader) == pytest.approx({"biology": decayed(1)})


async def test_each_resource_counts_by_its_weight(leader: Leader, clock: SteppedClock) -> None:
    await run(leader, clock, "a", "physics", 0, None)
    clock.set(1)
    found = await leader.store.charge_accounts(leader.epoch, 1e9, {"memory": 10.0, "nvidia.com:gpu": 1.0})
    assert found == pytest.approx({"physics": 2 * 4 * 10.0 * timedelta(minutes=1).total_seconds()}, rel=1e-5)
    clock.set(2)
    assert await leader.store.charge_accounts(leader.epoch, 1e9, {}) == pytest.approx(found, rel=1e-5)


async def test_a_former_leader_charges_nobody(leader: Leader, store: Store) -> None:
    await store.acquire_leadership("replica-1")
    with pytest.raises(StaleLeader):
        await charge(leader)


async def charge_users(leader: Leader, *accounts: str) -> dict[str, dict[str, float]]:
    return await leader.store.charge_users(leader.epoch, HALF_LIFE_S, CORES, accounts)


async def test_users_are_charged_as_their_accounts(leader: Leader, clock: SteppedClock) -> None:
    for begin, end, user in (
        (0, 30, "alice"),
        (10, None, "bob"),
        (10, None, "system:serviceaccount:science:robot"),
        (20, None, ""),
    ):
        clock.set(begin)
        (workload,) = await leader.allocate(f"of-{user}"[:9], account="physics", submitted_by=user)
        if end is not None:
            clock.set(end)
            await leader.store.finish(leader.epoch, [Ending(workload.id, State.COMPLETED, Outcome.SUCCEEDED)])
    clock.set(40)
    programs = "system:serviceaccounts:science"
    for _ in range(2):
        found = await charge_users(leader, "physics", "biology")
        expected = {"alice": decayed(40, 10), "bob": decayed(30), programs: decayed(30) + decayed(20)}
        assert found == {"physics": pytest.approx(expected), "biology": {}}
    clock.set(100)
    found = await charge_users(leader, "physics")
    assert found["physics"] == pytest.approx(
        {"alice": decayed(100, 70), "bob": decayed(90), programs: decayed(90) + decayed(80)}
    )
    assert sum(found["physics"].values()) == pytest.approx((await charge(leader))["physics"])


async def test_users_of_an_account_that_is_not_shared_any_more_are_forgotten(
    leader: Leader, clock: SteppedClock
) -> None:
    clock.set(0)
    await leader.allocate("a", account="physics", submitted_by="alice")
    clock.set(1)
    assert set((await charge_users(leader, "physics"))["physics"]) == {"alice"}
    assert await charge_users(leader) == {}
    clock.set(2)
    found = await charge_users(leader, "physics")
    assert found["physics"] == pytest.approx({"alice": decayed(2)}), "all that is known is charged again"


def user_name(size: int) -> str:
    """A name of so many bytes that Postgres cannot compress."""
    letters = random.Random(1)
    return "".join(chr(letters.randint(0x4E00, 0x9FFF)) for _ in range(size // 3)).ljust(
        size // 3 + size % 3, "a"
    )


async def test_the_longest_names_of_an_account_and_of_a_user_are_charged(
    leader: Leader, clock: SteppedClock
) -> None:
    account, user = "a" * 253, user_name(LONGEST_SUBMITTER)
    assert readable_submitter(user) == user
    clock.set(0)
    await leader.allocate("a", account=account, submitted_by=user)
    clock.set(1)
    assert set((await charge_users(leader, account))[account]) == {user}


async def test_a_longer_name_is_not_stored(leader: Leader) -> None:
    with pytest.raises(Unstorable):
        await leader.submit("too-long", submitted_by=user_name(3_072))
