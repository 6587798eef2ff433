"""Waiting work of a namespace beyond its budget is a row without a request,
until earlier work does not wait any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from support.builders import make_job, make_queue
from support.controller_bench import managed_caches, running_controllers, subscribed, until
from support.memory_api import MemoryApi
from support.memory_store import MemoryStore, memory_ledger
from support.queue_builders import a_job
from support.queue_records import described

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import FluxQueue, WaitingBudget
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake import object_reader
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.intake.namespace_budgets import NamespaceBudgets
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import UNREAD, NewWorkload, Workload
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

TWO = WaitingBudget(workloads=2)


@dataclass
class Bench:
    """A ledger in memory, and what the objects of its work say now."""

    store: MemoryStore
    ledger: Ledger
    caches: Caches
    budget: WaitingBudget
    objects: dict[str, NewWorkload] = field(default_factory=dict)
    enqueued: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budgets = NamespaceBudgets(self.caches, self.ledger, self.budget, self.enqueued.setdefault)
        subscribe(self.caches, self.ledger, self.budgets)

    async def submit(self, *names: str, **changes: Any) -> None:
        """Take in new or edited work in one batch, and then whatever is enqueued by that."""
        for name in names:
            self.objects[f"uid-{name}"] = described(name, **{"namespace": "default", **changes})
        await self.read(*(f"uid-{name}" for name in names))
        await self.settle()

    async def read(self, *uids: str) -> None:
        """Take in these objects in one batch."""
        await self.ledger.upsert(self.budgets.assign([self.objects[uid] for uid in uids]))

    async def settle(self) -> None:
        """Take in what was enqueued, until nothing is."""
        while self.enqueued:
            uids = [*self.enqueued]
            self.enqueued.clear()
            await self.read(*uids)

    async def end(self, *names: str) -> None:
        await self.ledger.finish(
            [Ending(self.row(name).id, State.CANCELLED, Outcome.CANCELLED) for name in names]
        )
        await self.settle()

    def row(self, name: str) -> Workload:
        row = self.ledger.by_uid(f"uid-{name}")
        assert row is not None
        return row

    def states(self, names: str) -> str:
        """One letter for each workload: r waits with its request, - without, R has a reason of its own."""
        rows = [self.row(name) for name in names]
        return "".join(
            "-" if row.left_out else "r" if row.jobspec and row.reason is Reason.NONE else "R" for row in rows
        )

    def queue(self, name: str, **waiting: int) -> None:
        """Make a queue with a budget for each namespace."""
        document = make_queue(name, limits={"perNamespace": {"waiting": waiting}})
        self.caches.fluxqueues.apply(msgspec.convert(document, FluxQueue))


async def a_bench(budget: WaitingBudget = TWO, store: MemoryStore | None = None) -> Bench:
    store = store or MemoryStore()
    return Bench(store, await memory_ledger(store=store), managed_caches(MemoryApi()), budget)


async def test_work_beyond_the_budget_is_a_row_without_a_request() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c")
    await bench.submit("d")
    assert bench.states("abcd") == "rr--"
    left_out = bench.row("c")
    assert (left_out.shape, left_out.reason, left_out.generation) == ("", Reason.QUEUE_LIMIT, UNREAD)
    assert left_out.message == (
        "Job default/c is beyond what may wait of namespace 'default' at once (2 workloads over all "
        "queues): it is considered, "
        "in the order of submission, when earlier work of the namespace starts, ends or is deleted; delete "
        "what is not needed, submit less at once, or have the budget raised"
    )


async def test_no_cycle_considers_what_was_left_out() -> None:
    bench = await a_bench()
    backlogs = subscribed(Backlogs(bench.ledger), bench.ledger)
    await bench.submit("a", "b", "c")
    assert [*backlogs.refreshing()]
    assert [bench.row(name).id in backlogs for name in "abc"] == [True, True, False]


async def test_the_oldest_is_considered_when_earlier_work_ends() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c", "d", "e")
    await bench.end("b")
    assert bench.states("acde") == "rr--"
    await bench.end("a", "c")
    assert bench.states("de") == "rr"


async def test_many_follow_where_there_is_much_room() -> None:
    bench = await a_bench(WaitingBudget(workloads=400))
    first, then = [f"a{number}" for number in range(400)], [f"b{number}" for number in range(500)]
    await bench.submit(*first, *then)
    await bench.end(*first)
    assert [bench.row(name).left_out for name in then] == [False] * 400 + [True] * 100


async def test_the_bytes_of_requests_count_too() -> None:
    bench = await a_bench(WaitingBudget(requests_mi_b=1))
    await bench.submit("a", jobspec="x" * 600_000)
    await bench.submit("b", jobspec="x" * 500_000)
    assert bench.states("ab") == "r-"
    await bench.submit("c", jobspec="x")
    assert bench.states("abc") == "r--", "a short one does not pass a long one that was submitted before"
    await bench.end("a")
    assert bench.states("bc") == "rr"


async def test_a_namespace_may_always_have_one_request() -> None:
    bench = await a_bench(WaitingBudget(requests_mi_b=1))
    await bench.submit("a", jobspec="x" * 2_000_000)
    await bench.submit("b")
    assert bench.states("ab") == "r-"


async def test_other_namespaces_are_not_concerned() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c")
    await bench.submit("d", namespace="other")
    assert bench.states("abcd") == "rr-r"


async def test_a_queue_may_have_a_budget_of_its_own() -> None:
    bench = await a_bench(WaitingBudget(workloads=3))
    bench.queue("small", workloads=1)
    await bench.submit("a", "b", queue="small")
    await bench.submit("c", "d", "e")
    assert bench.states("abcde") == "r-rr-"
    assert "(3 workloads over all queues, 1 workloads in the queue 'small')" in bench.row("b").message
    await bench.end("a")
    assert bench.states("bcde") == "rrr-"
    await bench.end("c")
    assert bench.states("bde") == "rrr"


async def test_work_that_has_its_request_keeps_it() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c")
    await bench.submit("a", priority=5)
    await bench.read("uid-a", "uid-b", "uid-c")
    assert bench.states("abc") == "rr-"
    bench.ledger.apply(
        Delta(workloads=(replace(bench.row("a"), generation=UNREAD, reason=Reason.PREEMPTED),))
    )
    await bench.read("uid-a")
    assert bench.states("bc") == "r-"
    assert bench.row("a").jobspec, "requeued work keeps its place"


async def test_an_edit_that_makes_a_request_longer_must_fit() -> None:
    bench = await a_bench(WaitingBudget(requests_mi_b=1))
    await bench.submit("a", jobspec="x" * 600_000)
    await bench.submit("b", jobspec="x" * 100_000)
    await bench.submit("b", jobspec="x" * 90_000, generation=2)
    assert bench.states("ab") == "rr"
    await bench.submit("b", jobspec="x" * 500_000, generation=3)
    assert bench.states("ab") == "r-"
    await bench.submit("b", jobspec="x" * 80_000, generation=4)
    assert bench.states("ab") == "rr"


async def test_work_that_moves_to_a_full_queue_is_left_out_there() -> None:
    bench = await a_bench(WaitingBudget(workloads=9))
    bench.queue("small", workloads=1)
    await bench.submit("a", queue="small")
    await bench.submit("b")
    await bench.submit("b", queue="small")
    assert bench.states("ab") == "r-"
    await bench.submit("b")
    assert bench.states("ab") == "rr"


async def test_work_that_starts_makes_room() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c")
    started = replace(bench.row("a"), state=State.ALLOCATED)
    bench.ledger.apply(Delta(workloads=(started,)))
    await bench.settle()
    assert bench.states("c") == "r"


async def test_what_was_left_out_may_be_cancelled_held_or_become_invalid() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c", "d", "e", "f")
    await bench.end("c")
    await bench.submit("d", jobspec="", shape="", reason=Reason.INVALID_REQUEST, message="no")
    await bench.submit("e", reason=Reason.HELD, message="held")
    assert bench.states("abdef") == "rrR--", "a hold of what is not considered is shown when its turn comes"
    await bench.end("a", "b")
    assert bench.states("ef") == "Rr"


async def test_a_new_leader_reads_no_request_that_was_left_out_and_decides_the_same() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c", "d")
    assert [bool(row.jobspec) for row in await bench.store.pending()] == [True, True, False, False]
    after = await a_bench(store=bench.store)
    after.objects = bench.objects
    await after.read("uid-d", "uid-c", "uid-b", "uid-a")  # in any order
    await after.settle()
    assert after.states("abcd") == "rr--"
    await after.end("a")
    assert after.states("bcd") == "rr-"


async def test_a_raised_budget_lets_the_oldest_in_whatever_is_read_first() -> None:
    bench = await a_bench()
    await bench.submit("a", "b", "c", "d")
    after = await a_bench(WaitingBudget(workloads=3), bench.store)
    after.objects = bench.objects
    await after.read("uid-d", "uid-c")
    await after.settle()
    assert after.states("abcd") == "rrr-"


async def test_without_budgets_everything_has_its_request() -> None:
    bench = await a_bench(WaitingBudget())
    await bench.submit(*(f"a{number}" for number in range(500)))
    assert all(row.jobspec for row in bench.ledger.all())


async def test_the_intake_considers_the_next_when_a_job_is_deleted() -> None:
    api = MemoryApi()
    caches, ledger = managed_caches(api), await memory_ledger()
    intake = IntakeController(api.api, caches, ledger, Trigger(lambda _task: None), waiting=TWO)
    subscribe(caches, ledger, intake)
    for name in "abcd":
        caches.jobs.apply(
            a_job(make_job(name).suspended().annotation("fluxqueue/suspended-by", "webhook"), uid=name)
        )
    async with running_controllers(intake):
        await until(lambda: len(ledger.all()) == 4)
        assert [row.name for row in ledger.all() if row.left_out] == ["c", "d"]
        job = caches.jobs.get("default", "a")
        assert job is not None
        caches.jobs.remove(job)
        await until(lambda: [row.name for row in ledger.all() if row.left_out] == ["d"])


async def test_a_sweep_does_not_describe_what_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def describe(job: Any, *args: Any, **more: Any) -> NewWorkload | None:
        read.append(job.metadata.name)
        return describe_job(job, *args, **more)

    monkeypatch.setattr(object_reader, "describe_job", describe)
    api = MemoryApi()
    caches, ledger = managed_caches(api), await memory_ledger()
    intake = IntakeController(api.api, caches, ledger, Trigger(lambda _task: None), waiting=TWO)
    subscribe(caches, ledger, intake)
    names = ["a", "b", "c", "d"]
    for name in names:
        caches.jobs.apply(
            a_job(make_job(name).suspended().annotation("fluxqueue/suspended-by", "webhook"), uid=name)
        )
    await intake.take_in(names)
    await intake.take_in(names)
    read.clear()
    await intake.take_in(names)
    assert read == []
