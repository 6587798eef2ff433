"""What an allocation costs an hour: computed by hand, and for any prices equal to the sum of its parts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal, localcontext

import pytest

from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.prices import PriceEntry, PricesConfig, Rates, prices_problem, rates_of

NOW = datetime(2026, 11, 1, tzinfo=UTC)
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
LABELS: Mapping[str, Mapping[str, str]] = {"a1": {"gpu": "a100", "site": "x"}, "c1": {}, "c2": {"site": "x"}}


def entry(since: object = None, labels: Mapping[str, str] | None = None, /, **per_hour: str) -> PriceEntry:
    prices = {name.replace("gpus", "nvidia.com/gpu"): Decimal(price) for name, price in per_hour.items()}
    return PriceEntry(match_labels=dict(labels or {}), since=since, per_hour=prices)


def share(node: str, cores: float = 0, gib: float = 0, gpus: int = 0) -> NodeShare:
    amounts = {"cpu": round(cores * 1000), "memory": round(gib * 1024), "nvidia.com:gpu": gpus, "pods": 1}
    return NodeShare(node, {"default": 1}, amounts)


def rates(entries: list[PriceEntry], *shares: NodeShare, now: datetime = NOW) -> Rates:
    assert prices_problem(PricesConfig(currency="EUR", entries=tuple(entries))) == ""
    return rates_of(entries, shares, lambda node: LABELS.get(node, {}), now)


def per_hour(found: Rates, at: datetime) -> Decimal:
    return next((r.per_hour for r in reversed(found) if r.since is None or r.since <= at), Decimal(0))


def test_cores_memory_devices_and_nodes_add_up() -> None:
    (rate,) = rates([entry(node="0.5", cpu="0.04", memory="0.005", gpus="2.5")], share("a1", 2.5, 1.5, 2))
    assert (rate.since, rate.per_hour) == (None, Decimal("5.6075")), "0.5 + 0.1 + 0.0075 + 5"


def test_the_first_entry_of_a_node_counts() -> None:
    entries = [entry(None, {"gpu": "a100"}, gpus="3"), entry(cpu="0.1")]
    (rate,) = rates(entries, share("a1", 8, gpus=2), share("c1", 8), share("unknown", 1))
    assert rate.per_hour == Decimal("6.9"), "a1: 2 GPUs, and its cores are free; the others: 9 cores"


def test_without_a_price_there_is_no_rate() -> None:
    assert rates([], share("c1", 8)) == ()
    assert rates([entry(None, {"gpu": "a100"}, cpu="1"), entry(cpu="0")], share("c1", 8)) == ()


def test_a_later_price_holds_from_its_time_on() -> None:
    entries = [
        entry(date(2027, 1, 1), cpu="0.2"),
        entry("2026-12-01", {"gpu": "a100"}, cpu="9"),
        entry(cpu="0.1"),
    ]
    found = rates(entries, share("c1", 10))
    assert [(each.since, each.per_hour) for each in found] == [(None, Decimal(1)), (NEW_YEAR, Decimal(2))]
    (rate,) = rates(entries, share("c1", 10), now=NEW_YEAR)
    assert (rate.since, rate.per_hour) == (None, Decimal(2)), "what held before is over"
    assert rates([entry("2027-01-01T01:00:00+01:00", cpu="1")], share("c1", 1))[1].since == NEW_YEAR


@pytest.fixture
def _exact() -> Iterator[None]:
    with localcontext(Context(prec=80)):
        yield


@pytest.mark.usefixtures("_exact")
def test_parts_cost_what_the_whole_costs_and_each_node_its_first_entry() -> None:
    chance = random.Random(7)
    times = [None, *(datetime(2027, month, 1, tzinfo=UTC) for month in range(1, 5))]
    for _ in range(200):
        entries = [
            entry(
                chance.choice(times),
                chance.choice([{}, {"site": "x"}, {"gpu": "a100"}]),
                node=str(chance.randrange(10**9)),
                cpu=f"0.{chance.randrange(10**9):09d}",
                memory=f"{chance.randrange(99)}.{chance.randrange(10**9):09d}",
            )
            for _ in range(chance.randrange(5))
        ]
        shares = [
            share(node, chance.randrange(10**6) / 1000, chance.randrange(10**6) / 1024)
            for node in chance.choices(list(LABELS), k=3)
        ]
        whole, parts = rates(entries, *shares), [rates(entries, each) for each in shares]
        for at in (NOW, *filter(None, times)):
            assert per_hour(whole, at) == sum(per_hour(part, at) for part in parts)
            for one, part in zip(shares, parts, strict=True):
                matching = [
                    each
                    for each in entries
                    if each.begins <= at and each.match_labels.items() <= LABELS[one.node].items()
                ]
                held = {"node": Decimal(1), "cpu": Decimal(one.amounts["cpu"]) / 1000}
                held["memory"] = Decimal(one.amounts["memory"]) / 1024
                prices = matching[0].per_hour if matching else {}
                assert per_hour(part, at) == sum(price * held[name] for name, price in prices.items())


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (entry(cpu="-1"), "entries[0].perHour.cpu: -1 is no price: write a number from 0 to 1000000000"),
        (entry(cpu="NaN"), "entries[0].perHour.cpu: NaN is no price"),
        (entry(gpus="Infinity"), "entries[0].perHour.nvidia.com/gpu: Infinity is no price"),
        (entry(cpu="0.0000000001"), "more than 9 decimals: round it"),
        (entry(gpu="1"), "entries[0].perHour: 'gpu' is no resource: name node, cpu, memory,"),
        (entry(), "entries[0].perHour: it has 0 prices: state 1 to 32"),
        (entry("soon", cpu="1"), "entries[0].from: 'soon' is no time: write 2027-01-01"),
        (entry(7, cpu="1"), "entries[0].from: '7' is no time"),
    ],
)
def test_bad_prices_are_named_with_a_remedy(bad: PriceEntry, problem: str) -> None:
    assert problem in prices_problem(PricesConfig(currency="EUR", entries=(bad,)))


def test_prices_need_a_currency_and_are_not_endless() -> None:
    good = entry(cpu="1")
    for word in ("", "two words", "thirteen-letters"):
        assert "write one, as EUR" in prices_problem(PricesConfig(currency=word, entries=(good,)))
    assert "entries: 65 are too many" in prices_problem(PricesConfig(currency="EUR", entries=(good,) * 65))
    assert prices_problem(PricesConfig()) == ""
