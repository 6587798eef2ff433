"""The keeper of priorities: what it adds, when, and that nothing is added without weights."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.controller_bench import running, until
from support.memory_store import MemoryStore, memory_ledger
from support.queue_builders import EPOCH, a_new_workload

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.scheduling.priority_keeper import PriorityKeeper
from fluxqueue.queue.store import DatabaseUnavailable, Unstorable
from fluxqueue.queue.store.ledger import Ledger

DAY_S = 86_400.0
_versions = itertools.count(1)


class Place:
    """A queue with accounts a and b, of which b is to have three quarters."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.queues: ObjectCache[FluxQueue] = ObjectCache()
        self.reordered = 0
        self.uses: dict[str, float] = {}
        self.users: dict[str, dict[str, float]] = {}
        accounts = msgspec.convert(
            [make_account("a", shares=1, shareAmongUsers=True), make_account("b", shares=3)],
            list[FluxAccount],
        )
        self.keeper = PriorityKeeper(
            ledger,
            self.queues,
            lambda: account_tree(accounts),
            half_life_s=DAY_S,
            resource_weights={"cpu": 1.0},
            reordered=self._note,
        )

    def _note(self) -> None:
        self.reordered += 1

    def weigh(self, **spec: Any) -> None:
        document = {"metadata": {"name": "default", "resourceVersion": str(next(_versions))}, "spec": spec}
        self.queues.replace([msgspec.convert(document, FluxQueue)])

    async def order(self) -> str:
        await self.keeper.refresh()
        return "".join(each.uid for each in self.ledger.pending())


class Clock:
    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def place(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Place:
    store = MemoryStore(clock)
    made = Place(await memory_ledger(clock, store))

    async def charge(*_: Any) -> dict[str, float]:
        return made.uses

    async def charge_users(
        _epoch: int, _half_life_s: float, _weights: object, accounts: list[str]
    ) -> dict[str, dict[str, float]]:
        assert accounts == ["a"], "only what is shared among users is charged"
        return made.users

    monkeypatch.setattr(store, "charge_accounts", charge)
    monkeypatch.setattr(store, "charge_users", charge_users)
    return made


async def submit(place: Place, *uids: str, **changes: Any) -> None:
    await place.ledger.upsert([a_new_workload(uid, **changes) for uid in uids])


async def test_without_weights_the_order_is_priority_and_submit_time(place: Place) -> None:
    place.weigh()
    place.uses = {"a": 1.0, "b": 100.0}
    await submit(place, "1", account="b")
    await submit(place, "2", account="a")
    await submit(place, "3", priority=1)
    assert await place.order() == "312"
    assert place.reordered == 0


async def test_the_account_that_used_less_than_its_share_comes_first(place: Place) -> None:
    place.weigh(priorityWeights={"fairShare": 1000})
    await submit(place, "1", account="a")
    await submit(place, "2", account="b")
    await submit(place, "3")
    place.uses = {"a": 1.0, "b": 2.0}
    assert await place.order() == "213"
    place.uses = {"a": 1.0, "b": 4.0}
    assert await place.order() == "123"
    assert place.reordered == 2
    assert await place.order() == "123"
    assert place.reordered == 2, "nothing changed"


async def test_who_used_less_of_an_account_comes_first_in_it_and_before_the_next_account(
    place: Place,
) -> None:
    place.weigh(priorityWeights={"fairShare": 1000})
    place.uses = {"a": 1.0, "b": 4.0}
    await submit(place, "1", account="b", submitted_by="carol")
    await submit(place, "2", account="a", submitted_by="alice")
    await submit(place, "3", account="a", submitted_by="bob")
    await submit(place, "4", account="a", submitted_by="new")
    place.users = {"a": {"alice": 9.0, "bob": 1.0}}
    assert await place.order() == "4321"
    place.users = {"a": {"alice": 1.0, "bob": 9.0}}
    assert await place.order() == "4231"


async def test_new_work_gets_its_priority_at_once_and_an_edit_of_its_queue_counts_at_once(
    place: Place,
) -> None:
    place.weigh(priorityWeights={"fairShare": 1000})
    place.uses = {"a": 1.0, "b": 2.0}
    await place.keeper.refresh()
    await submit(place, "1", account="a")
    await submit(place, "2", account="b")
    assert [each.uid for each in place.ledger.pending()] == ["2", "1"]
    await submit(place, "2", account="b", queue="other", generation=2)
    assert [each.uid for each in place.ledger.pending()] == ["1", "2"]


async def test_age_counts_up_to_the_maximum_and_a_priority_of_its_own_with_its_weight(
    place: Place, clock: Clock
) -> None:
    place.weigh(
        priority=5, priorityWeights={"age": 100, "maxAgeSeconds": 3600, "queue": 0, "priorityClass": 2}
    )
    await submit(place, "1", priority=5)
    clock.now += timedelta(minutes=30)
    await submit(place, "2", priority=25)
    assert await place.order() == "12"
    assert [each.order_priority for each in place.ledger.pending()] == [50, 40]
    clock.now += timedelta(hours=5)
    assert await place.order() == "21"
    assert [each.order_priority for each in place.ledger.pending()] == [140, 100]


async def test_the_end_of_the_weights_ends_their_order(place: Place) -> None:
    place.weigh(priorityWeights={"fairShare": 1000})
    place.uses = {"a": 1.0, "b": 2.0}
    await submit(place, "1", account="a")
    await submit(place, "2", account="b")
    assert await place.order() == "21"
    place.weigh()
    assert await place.order() == "12"


async def test_a_ledger_that_is_loaded_again_keeps_the_order(place: Place) -> None:
    place.weigh(priorityWeights={"fairShare": 1000})
    place.uses = {"a": 1.0, "b": 2.0}
    await submit(place, "1", account="a")
    await submit(place, "2", account="b")
    await place.keeper.refresh()
    await place.ledger.load()
    assert [each.uid for each in place.ledger.pending()] == ["2", "1"]


async def test_only_an_edit_of_a_spec_asks_for_more_than_the_minute_does(place: Place) -> None:
    place.weigh()
    (queue,) = place.queues.list()
    place.keeper.rules_changed(Change(ChangeKind.MODIFIED, queue, queue))
    assert not place.keeper._asked.is_set()
    place.keeper.rules_changed(Change(ChangeKind.ADDED, None, queue))
    assert place.keeper._asked.is_set()


async def test_while_postgres_is_away_the_order_stays_and_the_next_minute_continues(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluxqueue.queue.scheduling.priority_keeper._PACE_S", 0.01)
    place.weigh(priorityWeights={"fairShare": 1000})
    place.uses = {"a": 1.0, "b": 2.0}
    await submit(place, "1", account="a")
    await submit(place, "2", account="b")
    assert await place.order() == "21"
    answers = iter([DatabaseUnavailable("away"), {"a": 1.0, "b": 9.0}])

    async def charge(*_: Any) -> Any:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr(place.ledger.account_use, "charge_accounts", charge)
    told: list[bool] = []
    place.keeper.subscribe(lambda: told.append(True))
    async with running(place.keeper.run()):
        place.keeper.resync()
        await until(lambda: not place.keeper._asked.is_set())
        assert (told, [each.uid for each in place.ledger.pending()]) == ([], ["2", "1"])
        place.keeper.resync()
        await until(lambda: told)
    assert [each.uid for each in place.ledger.pending()] == ["1", "2"]


async def test_a_charge_that_does_not_fit_into_the_tables_keeps_nothing_else_from_being_computed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.weigh(priorityWeights={"fairShare": 1000, "age": 0})
    place.uses, place.users = {"a": 1.0, "b": 4.0}, {"a": {"alice": 9.0, "bob": 1.0}}
    await submit(place, "1", account="b")
    await submit(place, "2", account="a", submitted_by="alice")
    await submit(place, "3", account="a", submitted_by="bob")
    assert await place.order() == "321"

    async def refuse(*_: Any) -> Any:
        raise Unstorable("index row size 3096 exceeds 2704")

    monkeypatch.setattr(place.ledger.account_use, "charge_users", refuse)
    place.uses = {"a": 4.0, "b": 1.0}
    assert await place.order() == "132", "the users keep their use, the accounts go on"
    monkeypatch.setattr(place.ledger.account_use, "charge_accounts", refuse)
    assert await place.order() == "132"
    place.weigh(priorityWeights={"queue": 1})
    assert await place.order() == "123"
