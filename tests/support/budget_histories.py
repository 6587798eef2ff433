"""Random histories of work under budgets, with crashes, and an account book of their own.

A history submits, grants, starts, ends, requeues and replaces work, moves the clock over ends of periods, and
lets the leader die: before a commit, after a commit that it never heard of, or in between. The granting is
that of a cycle: the room of `BudgetKeeper`, measured by `Quotas`. What was used is written down apart from
it, as times at which nodes were held.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
from support.builders import make_account
from support.memory_store import MemoryStore
from support.queue_builders import a_new_workload

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending, Eviction, Requeue
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import Grant, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.budget_keeper import BudgetKeeper
from fluxqueue.queue.scheduling.limits.budgets import BudgetRoom
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["BudgetHistory"]

_PARENTS = {"site": "", "a": "site", "b": "site", "a1": "a"}
_PERIODS = (
    {"period": "1d", "start": "2026-01-01"},
    {"period": "3d", "start": "2025-12-31"},
    {"period": "month"},
)
_HOUR = timedelta(hours=1)
_SLACK = 1e-6


@dataclass(frozen=True)
class Held:
    """Nodes that work of an account held: cores and nodes, from its grant over its start (None: never) to its
    end (None: still).
    """

    account: str
    cores: int
    nodes: int
    endless: bool
    begin: datetime
    started: datetime | None = None
    end: datetime | None = None

    def amount(self, kind: str) -> int:
        """What of a resource it held."""
        return self.cores if kind == "cpu" else self.nodes


class BudgetHistory:
    """One history.

    Parameters
    ----------
    seed
        Of its random choices.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        self._store = MemoryStore(lambda: self.now)
        self._held: dict[WorkloadId, Held] = {}
        self._past: list[Held] = []
        self._number = 0
        self._tree = account_tree([self._account(name) for name in _PARENTS])
        self._ledger: Ledger
        self._keeper: BudgetKeeper
        self.refused = self.granted = self.crashes = 0

    def _account(self, name: str) -> FluxAccount:
        spec: dict[str, object] = {"parent": _PARENTS[name]} if _PARENTS[name] else {}
        if name == "site" or self._random.random() < 0.5:
            period = self._random.choice(_PERIODS)
            hours = {"cpu": self._random.randint(4, 60)}
            nodes = {"nodeHours": self._random.randint(2, 30)} if self._random.random() < 0.5 else {}
            spec["budget"] = {**period, "resourceHours": hours, **nodes}
        return msgspec.convert(make_account(name, **spec), FluxAccount)

    async def run(self, steps: int) -> None:
        """Make so many steps; each one is checked."""
        await self._lead()
        changes = (
            self._submit,
            self._cycle,
            self._cycle,
            self._start,
            self._end,
            self._pass_time,
            self._requeue,
            self._die,
        )
        for _ in range(steps):
            await self._random.choice(changes)()
            await self._end_those_at_their_limit()
            self.check()

    async def _lead(self) -> None:
        """A new leader takes over: all it knows is in the tables."""
        self._ledger = Ledger(self._store, await self._store.acquire_leadership("replica"), lambda: self.now)
        await self._ledger.load()
        self._keeper = BudgetKeeper(self._ledger)

    async def _die(self) -> None:
        """Die: between two changes, or after a commit whose answer never came."""
        self.crashes += 1
        if self._held and self._random.random() < 0.7:
            workload = self._random.choice(sorted(self._held))
            await self._store.finish(
                self._ledger.epoch, [Ending(workload, State.COMPLETED, Outcome.SUCCEEDED)]
            )
            self._note_end(workload)
        await self._lead()

    async def _submit(self) -> None:
        self._number += 1
        pods, cores = self._random.randint(1, 3), self._random.randint(1, 4)
        duration_s = self._random.choice([None, 600, 3_600, 7_200, 40_000])
        spec = jobspec_of("default/x", [SizedPods({"cpu": Decimal(cores)}, pods)], duration_s=duration_s or 0)
        account = self._random.choice(sorted(_PARENTS))
        shape = f"{pods} {cores} {duration_s}"
        new = a_new_workload(
            f"u{self._number}", jobspec=spec, shape=shape, pods=pods, duration_s=duration_s, account=account
        )
        await self._ledger.upsert([new])

    async def _cycle(self) -> None:
        """Grant, in order, all that the budgets let start; some get more than they asked for."""
        room = await self._keeper.room(self._tree)
        self._compare(room)
        quotas, backlog = Quotas({}, (), self._tree, budgets=room), Backlog(self._ledger.pending())
        grants: list[tuple[Grant, Held]] = []
        within = quotas.within("default", backlog)
        for row, workload in enumerate(backlog):
            refused = quotas.refusal(workload)
            assert within[row] or refused or room.measured_refusal(workload), (
                "a row is closed although its workload may start"
            )
            held = self._nodes_for(workload)
            shares = tuple(
                NodeShare(f"n{node}", {}, {"cpu": held.cores * 1000 // held.nodes})
                for node in range(held.nodes)
            )
            hosts = [share.node for share in shares]
            over = refused or quotas.excess(workload, hosts, shares)
            fits = self._fits(held, workload.duration_s, [each for _, each in grants])
            assert fits is (over is None), f"{over}: {held}"
            if over is not None:
                self.refused += 1
                assert over.alone
                assert "the budget of the account" in over.message
                continue
            quotas.add_usage(workload, hosts, shares)
            (jobid,) = await self._ledger.next_jobids(1)
            end = self.now + timedelta(seconds=workload.duration_s) if workload.duration_s else None
            grants.append(
                (
                    Grant(
                        workload=workload.id,
                        jobid=jobid,
                        shares=shares,
                        hosts=tuple(hosts),
                        start=self.now,
                        end=end,
                    ),
                    held,
                )
            )
        await self._ledger.grant([grant for grant, _ in grants])
        self.granted += len(grants)
        self._held.update((grant.workload, held) for grant, held in grants)

    def _nodes_for(self, workload: Workload) -> Held:
        cores = int(workload.shape.split()[1]) * workload.pods
        nodes = self._random.randint(1, workload.pods)
        per_node = -(-cores // nodes) + self._random.choice([0, 0, 1])
        return Held(workload.account, per_node * nodes, nodes, workload.duration_s is None, self.now)

    async def _start(self) -> None:
        waiting = [each for each, held in self._held.items() if held.started is None]
        if waiting:
            chosen = self._random.choice(sorted(waiting))
            await self._ledger.mark_started([chosen])
            self._held[chosen] = replace(self._held[chosen], started=self.now)

    async def _end(self) -> None:
        if self._held:
            await self._finish(self._random.choice(sorted(self._held)))

    async def _finish(self, workload: WorkloadId) -> None:
        await self._ledger.finish([Ending(workload, State.COMPLETED, Outcome.SUCCEEDED)])
        self._note_end(workload)

    async def _requeue(self) -> None:
        if self._held:
            workload = self._random.choice(sorted(self._held))
            await self._ledger.evict([Eviction(workload=workload, reason=Reason.PREEMPTED, message="")])
            await self._ledger.requeue(
                [Requeue(workload=workload, reason=Reason.PREEMPTED, message="", kept=())]
            )
            self._note_end(workload)

    def _note_end(self, workload: WorkloadId) -> None:
        self._past.append(replace(self._held.pop(workload), end=self.now))

    async def _pass_time(self) -> None:
        """Move the clock, at most to the next time at which work reaches its duration."""
        ends = [end for each in self._held if (end := self._limit(each)) is not None]
        later = self.now + self._random.choice([_HOUR / 7, _HOUR, 9 * _HOUR, 40 * _HOUR])
        self.now = min([later, *ends])

    async def _end_those_at_their_limit(self) -> None:
        for workload in [
            each for each in self._held if (end := self._limit(each)) is not None and end <= self.now
        ]:
            await self._finish(workload)

    def _limit(self, workload: WorkloadId) -> datetime | None:
        row, held = self._ledger.get(workload), self._held[workload]
        if row is None or row.duration_s is None or held.started is None:
            return None
        return held.started + timedelta(seconds=row.duration_s)

    # ---- the book ------------------------------------------------------------------------------------------

    def _below(self, account: str, name: str) -> bool:
        return name in self._tree.path_of(account)

    def _used(self, name: str, kind: str, start: datetime) -> float:
        """Hours that an account used since a time."""
        every = [*self._past, *self._held.values()]
        return sum(
            each.amount(kind) * max(((each.end or self.now) - max(each.begin, start)) / _HOUR, 0.0)
            for each in every
            if self._below(each.account, name)
        )

    def _promised(self, name: str, kind: str, end: datetime, more: list[tuple[Held, int | None]]) -> float:
        """Hours that running work may still use."""
        running = [
            (held, row.duration_s if (row := self._ledger.get(each)) is not None else 0)
            for each, held in self._held.items()
        ]
        total = 0.0
        for held, duration_s in [*running, *more]:
            began = held.started or self.now
            until = end if duration_s is None else began + timedelta(seconds=duration_s)
            total += (
                held.amount(kind) * max((until - self.now) / _HOUR, 0.0)
                if self._below(held.account, name)
                else 0.0
            )
        return total

    def _fits(self, held: Held, duration_s: int | None, granted: list[Held]) -> bool:
        """True if the book says that every budget holds one more, beside what was granted in this cycle."""
        more = [(each, self._durations[id(each)]) for each in granted] + [(held, duration_s)]
        self._durations[id(held)] = duration_s
        for over in self._tree.budgets_over(held.account):
            assert over.budget is not None
            period = over.budget.period_at(self.now)
            for kind, most in over.budget.amounts.items():
                hours = most / 3_600 / (1_000 if kind == "cpu" else 1)
                if (
                    self._used(over.name, kind, period.start)
                    + self._promised(over.name, kind, period.end, more)
                    > hours + _SLACK
                ):
                    return False
        return True

    def _compare(self, room: BudgetRoom) -> None:
        """The figures of the queue are those of the book, exactly, whatever crashed before."""
        self._durations: dict[int, int | None] = {}
        for name, line in room.lines.items():
            for kind in line.most:
                unit = 3_600.0 * (1_000 if kind == "cpu" else 1)
                used, promised = (
                    self._used(name, kind, line.period.start),
                    self._promised(name, kind, line.period.end, []),
                )
                assert abs(line.used[kind] / unit - used) < _SLACK, (name, kind)
                assert abs(line.promised.get(kind, 0.0) / unit - promised) < _SLACK, (name, kind)

    def check(self) -> None:
        """Nothing is used beyond a budget but by what ran already:
        before its time counted, or on from a period before.
        """
        for name, account in self._tree.accounts.items():
            if account.budget is None:
                continue
            period = account.budget.period_at(self.now)
            for kind, most in account.budget.amounts.items():
                hours = most / 3_600 / (1_000 if kind == "cpu" else 1)
                used = self._used(name, kind, period.start)
                assert used <= hours + self._ran_already(name, kind, period.start) + _SLACK, (
                    name,
                    kind,
                    used,
                    hours,
                )

    def _ran_already(self, name: str, kind: str, start: datetime) -> float:
        """Hours of endless work from a period before, and of nodes that were held before their work
        started.
        """
        total = 0.0
        for each in [*self._past, *self._held.values()]:
            if not self._below(each.account, name):
                continue
            end = each.end or self.now
            since = max(each.begin, start)
            until = end if each.endless and each.begin < start else min(each.started or end, end)
            total += each.amount(kind) * max((until - since) / _HOUR, 0.0)
        return total


def summary(histories: Mapping[int, BudgetHistory]) -> tuple[int, int, int]:
    """Return how often these histories granted, refused and crashed."""
    every = histories.values()
    return (
        sum(each.granted for each in every),
        sum(each.refused for each in every),
        sum(each.crashes for each in every),
    )
