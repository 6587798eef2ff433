"""Budgets: how many node-hours, core-hours or hours of another resource an account may use in a period.

Periods follow one another without a gap, in UTC, from midnight to midnight: months, quarters, years, or a
number of days. They are counted from the day in ``spec.budget.start``, in both directions, and without it
from the first of a January. The end of a period is a matter of the calendar: no job has to run at that time.

A budget is held in amount-seconds: millicores, MiB or pieces, times seconds. So figures of budgets, of
allocations and of the tables can be added up without conversion.
"""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from fluxqueue.api.bounds import is_measured_in_bytes
from fluxqueue.api.fluxaccounts import AccountBudget
from fluxqueue.api.graphnames import CPU, display_name

__all__ = [
    "HOUR_S",
    "MAX_DAYS",
    "NODE",
    "Budget",
    "BudgetPeriod",
    "InvalidPeriod",
    "amount_seconds",
    "bare_hours",
    "format_hours",
    "hours_of",
    "period_rule",
    "rounded_hours",
]

NODE: Final = "node"
"""Stands for nodes beside the resource types of the graph; each node of an allocation counts one."""
HOUR_S: Final = 3_600
MAX_DAYS: Final = 366
"""Days in the longest period."""
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_DAYS = re.compile(r"([1-9][0-9]{0,2})d")
_FIRST: Final = date(2000, 1, 1)
_EXACT_DIGITS: Final = 3


class InvalidPeriod(ValueError):
    """A period or its start cannot be read; the message names the field."""


@dataclass(frozen=True, slots=True)
class BudgetPeriod:
    """One period: from its first moment to the first one of the next period."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Budget:
    """What an account and all accounts below it may use in each period.

    Attributes
    ----------
    amounts
        Most amount-seconds of each resource type of the graph, and of `NODE`.
    months, days
        Length of a period; one of them is 0.
    first
        Day on which a period begins.
    """

    amounts: Mapping[str, int]
    months: int = 1
    days: int = 0
    first: date = _FIRST

    def period_at(self, now: datetime) -> BudgetPeriod:
        """Return the period that a time is in."""
        today = now.astimezone(UTC).date()
        if self.days:
            begun = self.first + timedelta(days=(today - self.first).days // self.days * self.days)
            return BudgetPeriod(_midnight(begun), _midnight(begun + timedelta(days=self.days)))
        passed = (today.year - self.first.year) * 12 + today.month - self.first.month
        number = passed // self.months * self.months
        if _later(self.first, number) > today:
            number -= self.months
        return BudgetPeriod(
            _midnight(_later(self.first, number)), _midnight(_later(self.first, number + self.months))
        )


def period_rule(spec: AccountBudget) -> tuple[int, int, date]:
    """Return months, days and first day of the periods of a budget.

    Raises
    ------
    InvalidPeriod
        The message says which field is wrong, and how to write it.
    """
    try:
        first = date.fromisoformat(spec.start) if spec.start else None
    except ValueError:
        raise InvalidPeriod(f"spec.budget.start: {spec.start!r} is no day: write it as 2026-10-01") from None
    if spec.period in _MONTHS:
        return _MONTHS[spec.period], 0, first or _FIRST
    found = _DAYS.fullmatch(spec.period)
    if found is None or int(found[1]) > MAX_DAYS:
        words = f"month, quarter, year, or a number of days up to {MAX_DAYS}d"
        raise InvalidPeriod(f"spec.budget.period: {spec.period!r} is no period: write {words}")
    if first is None:
        raise InvalidPeriod(
            "spec.budget.start: periods of days need the day on which the first one begins, "
            "such as 2026-10-01"
        )
    return 0, int(found[1]), first


def format_hours(kind: str, amount: float, most: float) -> str:
    """Format a part of a budget with its unit, without digits that change all the time.

    Parameters
    ----------
    kind
        Resource type of the graph, or `NODE`.
    amount
        Amount-seconds.
    most
        The whole budget; its thousandth is the smallest step.

    Examples
    --------
    >>> format_hours("cpu", 9_990_400 * 3_600, 10_000_000 * 3_600)
    '9,990 core-hours'
    >>> format_hours("node", 2.5 * 3_600, 100 * 3_600)
    '2.5 node-hours'
    """
    return f"{bare_hours(kind, amount, most)} {_unit(kind)}"


def bare_hours(kind: str, amount: float, most: float) -> str:
    """Format a part of a budget without its unit."""
    hours, digits = rounded_hours(kind, amount, most), max(_digits(kind, most), 0)
    return f"{hours:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{hours:,.0f}"


def rounded_hours(kind: str, amount: float, most: float) -> float:
    """Return a part of a budget in hours, rounded to a thousandth of the budget or less:
    use grows with every second.
    """
    return round(hours_of(kind, amount), _digits(kind, most)) + 0.0


def hours_of(kind: str, amount: float) -> float:
    """Return amount-seconds in hours of cores, GiB or pieces."""
    return amount / _units(kind) / HOUR_S


def amount_seconds(kind: str, hours: float) -> float:
    """Return hours of cores, GiB or pieces in amount-seconds."""
    return hours * _units(kind) * HOUR_S


def _units(kind: str) -> int:
    return 1_000 if kind == CPU else 1_024 if is_measured_in_bytes(display_name(kind)) else 1


def _unit(kind: str) -> str:
    if kind == NODE:
        return "node-hours"
    if kind == CPU:
        return "core-hours"
    name = display_name(kind)
    return f"GiB-hours of {name}" if is_measured_in_bytes(name) else f"hours of {name}"


def _digits(kind: str, most: float) -> int:
    """Return how many digits behind the point are shown, below 0 before it."""
    return _EXACT_DIGITS - (math.floor(math.log10(hours_of(kind, most))) if most > 0 else 0)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _later(day: date, months: int) -> date:
    """Return the day so many months later; the last of the month if that has no such day."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
