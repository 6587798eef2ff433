"""What the budgets of accounts leave, in one cycle, and when they begin again.

A workload is matched only if the budget of its account, and of each one above it, holds all of this: what
freed allocations used since the period began, what running ones used until now, what they may still use, and
what the workload may use itself. So a budget is never exceeded by a start. Only what runs longer than it said
exceeds it.

- Work may still use what it holds until it reaches its duration, which counts from the moment all its pods
  are on their nodes. Work without a duration may use what it holds until the period ends.
- All that running work may still use counts in the present period, also beyond its end. So no period begins
  with work on it for which it has no budget.
- A reservation counts as if the work ran.

Before a match it is known what work requests; what it gets may be more (whole nodes, whole vertices), and is
measured on the answer, before the grant is stored. What an answer came to that was over a budget is
remembered for some minutes (`MeasuredAnswer`): else the same work would be matched in vain in each cycle, and
work behind it would never be looked at. What waits for a budget counts as over it by itself
(`OverLimit.alone`): in a queue with ``atLimit: stop`` it keeps nobody, as its time may come in the next
period only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from fluxqueue.api.fluxaccounts import BudgetAmount, BudgetStatus
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.graphnames import POD_SLOTS, resource_name
from fluxqueue.api.moldable import molded_duration
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.accounts import NO_ACCOUNTS, AccountTree
from fluxqueue.queue.model.budgets import NODE, BudgetPeriod, bare_hours, format_hours, rounded_hours
from fluxqueue.queue.model.moldable import is_moldable, planned_duration_s
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.model.spending import Spending, amounts_of_shares
from fluxqueue.queue.scheduling.limits.limit_scopes import OverLimit, ScopeKey
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.demands import FOREVER_S, known_amounts

__all__ = ["USED_UP", "BudgetLine", "BudgetRoom", "MeasuredAnswer"]

USED_UP = " is used up until "
"""In a sentence that has the day on which a budget begins again."""
_ROUNDING = 1 + 1e-9
_MOST_MEASURED = 1_024
_Amounts = Mapping[str, float]
_Held = tuple[str, Mapping[str, int], float | None]
"""Account, amounts, and for how many seconds more; None: until the period ends."""
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """What the matcher's answer came to that was over a budget, its duration, and when that was."""

    amounts: Mapping[str, int]
    duration_s: int | None
    at: datetime


@dataclass(slots=True)
class BudgetLine:
    """The budget of one account in the present period.

    Attributes
    ----------
    account
        Its name.
    period
        When it began and ends.
    most, used, promised
        Amount-seconds by resource type: the budget, what was used until now, and what running and reserved
        work may still use.
    passed_s, left_s
        Seconds of the period until now, and from now on.
    """

    account: str
    period: BudgetPeriod
    most: Mapping[str, int]
    used: dict[str, float] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)
    passed_s: float = 0.0
    left_s: float = 0.0

    @property
    def key(self) -> ScopeKey:
        """Identifies it among limits."""
        return Reason.ACCOUNT_LIMIT, self.account, None

    def left(self, kind: str) -> float:
        """Return what further work may use of a resource type that has a budget."""
        return self.most[kind] - self.used.get(kind, 0.0) - self.promised.get(kind, 0.0)

    def refusal(self, wanted: _Amounts, *, endless: bool = False) -> OverLimit | None:
        """Return why work that may use these amount-seconds does not start; None if it may.

        Parameters
        ----------
        wanted
            By resource type.
        endless
            True for work without a duration. It is told no figure of its own: that is another one every
            second.
        """
        for kind, most in self.most.items():
            asked = wanted.get(kind, 0.0)
            if asked > 0 and asked > self.left(kind) + most * (_ROUNDING - 1):
                return self._over(kind, asked, endless=endless)
        return None

    def reached(self) -> OverLimit:
        """Return that work waits for this budget, without figures."""
        text = (
            f"the budget of the account {self.account!r} leaves too little for it in this period "
            "(spec.budget of its FluxAccount)"
        )
        return OverLimit(self.key, text, alone=True)

    def status(self) -> BudgetStatus:
        """Return what its FluxAccount shows."""
        amounts = []
        for kind, most in self.most.items():
            figures = (most, self.used.get(kind, 0.0), self.promised.get(kind, 0.0), self.left(kind))
            hours, used, promised, left = (rounded_hours(kind, figure, most) for figure in figures)
            name = "nodes" if kind == NODE else resource_name(kind)
            amounts.append(BudgetAmount(name=name, hours=hours, used=used, promised=promised, left=left))
        start, end = (
            f"{edge.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for edge in (self.period.start, self.period.end)
        )
        return BudgetStatus(start=start, end=end, amounts=amounts)

    def copy(self) -> BudgetLine:
        """Return a copy of which parts can be taken by itself."""
        return BudgetLine(
            self.account,
            self.period,
            self.most,
            dict(self.used),
            dict(self.promised),
            self.passed_s,
            self.left_s,
        )

    def promise(self, amounts: Mapping[str, int], seconds: float | None, sign: int = 1) -> None:
        """Count what work may still use in so many seconds, None: until the period ends;
        or count it no longer, with a sign of -1.
        """
        lasts_s = sign * (self.left_s if seconds is None else seconds)
        for kind in self.most:
            if amount := amounts.get(kind):
                self.promised[kind] = self.promised.get(kind, 0.0) + amount * lasts_s

    def _over(self, kind: str, asked: float, *, endless: bool) -> OverLimit:
        most = self.most[kind]
        budget, wanted = format_hours(kind, most, most), "" if endless else bare_hours(kind, asked, most)
        if asked > most * _ROUNDING:
            text = f"the budget of the account {self.account!r} is {budget} for a period, and "
            if endless:
                text += (
                    "this, which has no duration, may use more until its end: state a duration, "
                    "ask for less, or have it raised"
                )
            else:
                text += f"this may use {wanted}: ask for less, or less time, or have the budget raised"
            return OverLimit(self.key, text, kind, alone=True)
        used, promised = (
            bare_hours(kind, figures.get(kind, 0.0), most) for figures in (self.used, self.promised)
        )
        until = f"{self.period.end.astimezone(UTC):%Y-%m-%d}"
        text = (
            f"the budget of the account {self.account!r} is used up until {until}: {used} of {budget} are "
            f"used, {promised} may still be used by running work, and "
        )
        text += (
            "this, which has no duration, may use more than the rest until then"
            if endless
            else f"this may use {wanted}"
        )
        return OverLimit(self.key, text, kind, alone=True)


@dataclass(slots=True)
class BudgetRoom:
    """The budgets of all accounts, and what this cycle takes of them.

    Attributes
    ----------
    now
        Of the cycle.
    tree
        All accounts.
    lines
        Of each account that has a budget.
    measured
        By account and shape: answers that were over a budget, also those of the cycles before.
    """

    now: datetime
    tree: AccountTree = NO_ACCOUNTS
    lines: Mapping[str, BudgetLine] = field(default_factory=dict)
    measured: dict[tuple[str, str], MeasuredAnswer] = field(default_factory=dict)
    _held: dict[WorkloadId, _Held] = field(default_factory=dict)
    _over: dict[str, tuple[BudgetLine, ...]] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, now: datetime, spending: Spending, measured: dict[tuple[str, str], MeasuredAnswer] | None = None
    ) -> BudgetRoom:
        """Return the room before anything that runs is counted."""
        lines: dict[str, BudgetLine] = {}
        for name, period in spending.periods.items():
            budget = spending.tree.accounts[name].budget
            if budget is not None:
                used = {kind: spending.used.get((name, kind), 0.0) for kind in budget.amounts}
                passed_s, left_s = (now - period.start).total_seconds(), (period.end - now).total_seconds()
                lines[name] = BudgetLine(
                    name, period, budget.amounts, used, {}, max(passed_s, 0.0), max(left_s, 0.0)
                )
        return cls(now, spending.tree, lines, {} if measured is None else measured)

    @property
    def any(self) -> bool:
        """True if an account has a budget."""
        return bool(self.lines)

    def over(self, account: str) -> tuple[BudgetLine, ...]:
        """Return the budgets that the work of an account uses."""
        lines = self._over.get(account)
        if lines is None:
            found = (
                (self.lines.get(each.name) for each in self.tree.budgets_over(account)) if self.lines else ()
            )
            lines = self._over[account] = tuple(line for line in found if line is not None)
        return lines

    def count_running(self, workload: Workload, allocation: Allocation, amounts: Mapping[str, int]) -> None:
        """Count what an allocation used until now, and may still use; a remnant is to end now."""
        lines = self.over(workload.account)
        if not lines:
            return
        held_s = max((self.now - allocation.granted_at).total_seconds(), 0.0)
        for line in lines:
            seconds = min(held_s, line.passed_s)
            for kind in line.most:
                if amount := amounts.get(kind):
                    line.used[kind] = line.used.get(kind, 0.0) + amount * seconds
        if not allocation.remnant:
            self._promise(workload, amounts, _remaining_s(workload, allocation, self.now))

    def refusal(self, workload: Workload, nodes: int = 1) -> OverLimit | None:
        """Return which budget keeps a workload from being matched now, if it gets so many nodes;
        None if none does.
        """
        lines = self.over(workload.account)
        return self._refusal(lines, _requested(workload, nodes), workload.duration_s) if lines else None

    def excess(self, workload: Workload, shares: Sequence[NodeShare]) -> OverLimit | None:
        """Return which budget keeps a workload from starting on these shares; None if none does."""
        lines = self.over(workload.account)
        if not lines or not shares:
            return None
        amounts = amounts_of_shares(shares)
        duration_s = _molded_s(workload, amounts)
        over = self._refusal(lines, amounts, duration_s)
        if over is not None:
            if len(self.measured) >= _MOST_MEASURED:
                del self.measured[next(iter(self.measured))]
            self.measured[workload.account, workload.shape] = MeasuredAnswer(amounts, duration_s, self.now)
        return over

    def measured_refusal(self, workload: Workload) -> OverLimit | None:
        """Return which budget keeps a workload from being matched now, by the answer that was found for it;
        None if none does.
        """
        answer = self.measured.get((workload.account, workload.shape))
        return (
            None
            if answer is None
            else self._refusal(self.over(workload.account), answer.amounts, answer.duration_s)
        )

    def reached(self, workload: Workload, is_closed: Callable[[ScopeKey], bool]) -> OverLimit | None:
        """Return in general terms which budget a workload waits for that `close` leaves out;
        None if it waits for none.
        """
        if (over := self.refusal(workload) or self.measured_refusal(workload)) is not None:
            return self.lines[over.key[1]].reached()
        return next((line.reached() for line in self.over(workload.account) if is_closed(line.key)), None)

    def left_for_later(self, is_closed: Callable[[ScopeKey], bool]) -> bool:
        """Return whether the work of an account waits for the next cycle,
        of which this one found answers that are over a budget.
        """
        found = {account for (account, _), answer in self.measured.items() if answer.at == self.now}
        return any(is_closed(line.key) for account in found for line in self.over(account))

    def _refusal(
        self, lines: Iterable[BudgetLine], amounts: Mapping[str, int], duration_s: int | None
    ) -> OverLimit | None:
        for line in lines:
            seconds = line.left_s if duration_s is None else float(duration_s)
            wanted = {kind: amounts.get(kind, 0) * seconds for kind in line.most}
            if (over := line.refusal(wanted, endless=duration_s is None)) is not None:
                return over
        return None

    def add(self, workload: Workload, shares: Sequence[NodeShare] = ()) -> bool:
        """Count what a workload may use that starts or has these shares reserved; without them, the most that
        its request can come to.

        Work that is counted already stays as it is.
        """
        lines = self.over(workload.account)
        if not lines or workload.id in self._held:
            return False
        amounts = amounts_of_shares(shares) if shares else _requested(workload, workload.pods)
        duration_s = _molded_s(workload, amounts) if shares else workload.duration_s
        self._promise(workload, amounts, duration_s)
        return True

    def remove(self, workload: WorkloadId) -> bool:
        """Count no longer what a workload may still use; return True if it was counted."""
        held = self._held.pop(workload, None)
        if held is None:
            return False
        account, amounts, seconds = held
        for line in self.over(account):
            line.promise(amounts, seconds, -1)
        return True

    def _promise(self, workload: Workload, amounts: Mapping[str, int], seconds: float | None) -> None:
        self._held[workload.id] = workload.account, amounts, seconds
        for line in self.over(workload.account):
            line.promise(amounts, seconds)

    def close(self, mask: _Mask, backlog: Backlog, is_closed: Callable[[ScopeKey], bool]) -> None:
        """Clear the rows of a backlog's mask that are over a budget.

        Parameters
        ----------
        is_closed
            Tells which accounts wait for the next cycle.
        """
        by_account = [self.over(name) for name in backlog.account_names]
        if not any(by_account):
            return
        aside = [any(is_closed(line.key) for line in lines) for lines in by_account]
        if any(aside):
            mask &= ~np.array(aside, dtype=np.bool_)[backlog.accounts]
        known = backlog.request_kinds().durations
        ends = max((line.left_s for lines in by_account for line in lines), default=0.0)
        longest = float(np.where(known >= FOREVER_S, ends, known).max(initial=0))
        durations = known[backlog.kinds].astype(np.float64)
        endless = durations >= FOREVER_S
        for kind in sorted({kind for lines in by_account for line in lines for kind in line.most}):
            least = np.array([_least(lines, kind, self._left) for lines in by_account])
            largest = 1.0 if kind == NODE else float(backlog.amounts_of_shapes(kind).max(initial=0))
            if largest * longest <= least.min():
                # the largest request for the longest time is within the budget of which least is left
                continue
            left = least[backlog.accounts]
            rate = np.array([_least(lines, kind, self._rate_left) for lines in by_account])[backlog.accounts]
            by_shape = (
                np.ones(backlog.shape_total)
                if kind == NODE
                else backlog.amounts_of_shapes(kind).astype(np.float64)
            )
            asked = by_shape[backlog.shapes]
            over = np.where(endless, asked > rate, asked * durations > left)
            mask &= ~(over & (asked > 0))
        self._close_measured(mask, backlog)

    def _close_measured(self, mask: _Mask, backlog: Backlog) -> None:
        """Clear the rows of work for which an answer was found that is still over a budget."""
        numbers = {name: number for number, name in enumerate(backlog.account_names)}
        closed = []
        for (account, shape), answer in self.measured.items():
            number, row = numbers.get(account), backlog.shape_number(shape)
            if (
                number is not None
                and row is not None
                and self._refusal(self.over(account), answer.amounts, answer.duration_s) is not None
            ):
                closed.append(row * len(numbers) + number)
        if closed:
            mask &= ~np.isin(backlog.shapes * len(numbers) + backlog.accounts, closed)

    @staticmethod
    def _left(line: BudgetLine, kind: str) -> float:
        return line.left(kind) + line.most[kind] * (_ROUNDING - 1)

    @classmethod
    def _rate_left(cls, line: BudgetLine, kind: str) -> float:
        """Return how much of a resource type can be used without an interruption until the period ends."""
        return cls._left(line, kind) / line.left_s if line.left_s else float("inf")

    def trial(self, accounts: Iterable[str]) -> BudgetRoom:
        """Return a copy for work of these accounts that is not counted yet."""
        lines = {line.account: line.copy() for account in accounts for line in self.over(account)}
        return BudgetRoom(self.now, self.tree, lines, self.measured)

    def copy(self) -> BudgetRoom:
        """Return a copy of which parts can be taken by itself."""
        lines = {name: line.copy() for name, line in self.lines.items()}
        return BudgetRoom(self.now, self.tree, lines, self.measured, dict(self._held))


def _requested(workload: Workload, nodes: int) -> Mapping[str, int]:
    return {**known_amounts(workload.jobspec), NODE: nodes}


def _molded_s(workload: Workload, amounts: Mapping[str, int]) -> int | None:
    """Return the duration of a workload with as many pods as it gets."""
    pods = amounts.get(POD_SLOTS, 0)
    if workload.duration_s is None or not is_moldable(workload) or not 0 < pods < workload.pods:
        return workload.duration_s
    return molded_duration(workload.duration_s, workload.pods, pods)


def _remaining_s(workload: Workload, allocation: Allocation, now: datetime) -> float | None:
    """Return for how many seconds running work may go on using what it holds; None: until the period ends."""
    duration_s = planned_duration_s(workload)
    if duration_s is None:
        return None
    began = now if workload.state is State.ALLOCATED else workload.started_at or allocation.granted_at
    end = began + timedelta(seconds=duration_s)
    if allocation.end is not None and allocation.end > end:
        end = allocation.end  # it overruns, and nobody ends it
    return max((end - now).total_seconds(), 0.0)


def _least(lines: Iterable[BudgetLine], kind: str, figure: Callable[[BudgetLine, str], float]) -> float:
    figures: list[float] = [figure(line, kind) for line in lines if kind in line.most]
    return min(figures, default=float("inf"))
