"""Prices of nodes by their labels and the time, and what an allocation costs an hour by them.

An administrator lists prices (``queue.config.prices``). For a node and a time the first entry counts whose
labels the node has and whose time has come. What an allocation costs an hour, from when on, is stored with
its grant, because its nodes are known then: neither a later edit nor a node that is gone changes it, as Slurm
fixes the billing of a job at its start. The time that it held them is multiplied in Postgres
(``fluxqueue.cost_of``), so what runs, what ended and any part of both are computed by one function. All is
decimal and exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, localcontext
from typing import Any, Final

import msgspec

from fluxqueue.api.bounds import is_measured_in_bytes
from fluxqueue.api.graphnames import resource_type
from fluxqueue.fluxion.messages import NodeShare

__all__ = ["PriceEntry", "PricesConfig", "Rate", "Rates", "prices_problem", "rates_of", "units_of"]

NODE: Final = "node"
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_MOST_ENTRIES: Final = 64
_MOST_PRICES: Final = 32
_HIGHEST: Final = 1_000_000_000
_DECIMALS: Final = 9
_DIGITS: Final = 80
"""Of the arithmetic: more than the largest amounts and prices need, so that nothing is rounded."""
_LONGEST_CURRENCY: Final = 12
_RESOURCES: Final = (
    f"name {NODE}, cpu, memory, ephemeral-storage, hugepages-SIZE, or a resource such as nvidia.com/gpu"
)


class PriceEntry(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What some nodes cost from some time on.

    Attributes
    ----------
    match_labels
        Labels that a node must have; empty: all nodes.
    since
        A date, or a time (UTC unless it has a zone); none: always.
    per_hour
        Price of an hour of ``node`` (each that is held, also in part), ``cpu`` (a core), ``memory`` (a GiB),
        or another resource (a piece; a GiB of what is measured in bytes).
    """

    match_labels: dict[str, str] = {}
    since: Any = msgspec.field(default=None, name="from")
    per_hour: dict[str, Decimal]

    @property
    def begins(self) -> datetime:
        """When it begins to hold.

        Raises
        ------
        ValueError
            What is written is no time.
        """
        match self.since:
            case None:
                return _ALWAYS
            case datetime() as at:
                read = at
            case date() as day:
                read = datetime.combine(day, time())
            case str() as text:
                read = datetime.fromisoformat(text)
            case _:
                raise ValueError(self.since)
        return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)


class PricesConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What nodes cost (docs/accounting.md).

    Attributes
    ----------
    currency
        A word that is shown with prices, such as ``EUR``.
    entries
        The first that matches a node and the time counts; none: nothing has a price, and no cost is shown.
    """

    currency: str = ""
    entries: tuple[PriceEntry, ...] = ()

    @property
    def shown_currency(self) -> str:
        """The currency; empty if nothing has a price."""
        return self.currency if self.entries else ""


@dataclass(frozen=True, slots=True)
class Rate:
    """What an allocation costs an hour from a time on; `since` None: always."""

    since: datetime | None
    per_hour: Decimal


Rates = tuple[Rate, ...]
"""By time; the first has none. Empty: no price was stated, or all is free."""


def units_of(resource: str) -> int:
    """Return how many units of the graph a core, a GiB or a piece of a resource is."""
    return 1000 if resource == "cpu" else 1024 if is_measured_in_bytes(resource) else 1


def prices_problem(prices: PricesConfig) -> str:
    """Return what is wrong with the prices, and the remedy; empty if nothing is."""
    if len(prices.entries) > _MOST_ENTRIES:
        return (
            f"entries: {len(prices.entries)} are too many: keep {_MOST_ENTRIES}, without those that are over"
        )
    word = prices.currency
    if prices.entries and not (0 < len(word) <= _LONGEST_CURRENCY and word.isprintable() and " " not in word):
        return (
            f"currency: {word[:40]!r} is no word of up to {_LONGEST_CURRENCY} characters: write one, as EUR"
        )
    for number, entry in enumerate(prices.entries):
        if problem := _entry_problem(entry):
            return f"entries[{number}].{problem}"
    return ""


def _entry_problem(entry: PriceEntry) -> str:
    try:
        _ = entry.begins
    except (ValueError, OverflowError):
        return f"from: {str(entry.since)[:40]!r} is no time: write 2027-01-01, or 2027-01-01T08:00:00Z"
    if not 1 <= len(entry.per_hour) <= _MOST_PRICES:
        return f"perHour: it has {len(entry.per_hour)} prices: state 1 to {_MOST_PRICES}"
    for name, price in entry.per_hour.items():
        known = name in (NODE, "cpu") or is_measured_in_bytes(name)
        if not known and not all(name.partition("/")):
            return f"perHour: {name[:80]!r} is no resource: {_RESOURCES}"
        if not (price.is_finite() and 0 <= price <= _HIGHEST):
            return f"perHour.{name}: {str(price)[:40]} is no price: write a number from 0 to {_HIGHEST}"
        if int(price.as_tuple().exponent) < -_DECIMALS:
            return f"perHour.{name}: {str(price)[:40]} has more than {_DECIMALS} decimals: round it"
    return ""


def rates_of(
    entries: Sequence[PriceEntry],
    shares: Sequence[NodeShare],
    labels_of: Callable[[str], Mapping[str, str]],
    now: datetime,
) -> Rates:
    """Return what an allocation costs an hour, and how that changes with time.

    Parameters
    ----------
    entries
        Valid ones.
    shares
        What it holds of its nodes.
    labels_of
        Labels of a node.
    now
        The time of the grant: what held before is left out.
    """
    held: dict[tuple[int, ...], Counter[str]] = {}
    for share in shares:
        labels = labels_of(share.node).items()
        matching = tuple(n for n, entry in enumerate(entries) if entry.match_labels.items() <= labels)
        amounts = held.setdefault(matching, Counter())
        amounts[NODE] += 1
        amounts.update(share.amounts)
    begins = [entry.begins for entry in entries]
    rates: list[Rate] = []
    with localcontext() as context:
        context.prec = _DIGITS
        for at in (now, *sorted({begin for begin in begins if begin > now})):
            per_hour = sum(
                (
                    _per_hour(next((entries[n] for n in matching if begins[n] <= at), None), amounts)
                    for matching, amounts in held.items()
                ),
                Decimal(0),
            )
            if not rates or rates[-1].per_hour != per_hour:
                rates.append(Rate(at if rates else None, per_hour.normalize()))
    return tuple(rates) if any(rate.per_hour for rate in rates) else ()


def _per_hour(entry: PriceEntry | None, amounts: Mapping[str, int]) -> Decimal:
    prices = entry.per_hour.items() if entry is not None else ()
    return sum(
        (price * amounts.get(resource_type(name), 0) / units_of(name) for name, price in prices), Decimal(0)
    )
