"""Limits of a queue and of its namespaces in whole cycles:
which work waits, which starts, and when that ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest
from support.controller_bench import until
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import NamespaceLimits, Policy, QueueLimits, WorkloadLimits
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.changes import Ending, ReasonChange
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.reasons import wait_reasons
from fluxqueue.queue.scheduling.reasons.wait_text import at_limit
from fluxqueue.queue.store import Store
from fluxqueue.queue.tasks.triggers import ControlTask


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


def states(bench: Bench, names: Iterable[str]) -> str:
    """One letter for each workload: R has nodes, L is over a limit, w waits for another reason."""
    rows = [bench.row(name) for name in names]
    return "".join(
        "R" if row.state is State.ALLOCATED else "L" if row.reason is Reason.QUEUE_LIMIT else "w"
        for row in rows
    )


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


@pytest.mark.parametrize("policy", list(Policy))
async def test_no_more_run_than_the_queue_allows_and_an_end_starts_the_next(
    bench: Bench, policy: Policy
) -> None:
    bench.policy, bench.limits = policy, QueueLimits(running=2)
    await bench.submit(*(job(name, 1, "1") for name in "abcd"))
    await bench.cycle()
    assert states(bench, "abcd") == "RRLL"
    assert (
        bench.row("c").message
        == "the queue 'default' may run 2 workloads at once, and 2 run or have nodes reserved"
    )
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bcd") == "RRL"


@pytest.mark.parametrize("policy", list(Policy))
async def test_work_over_the_limit_of_its_namespace_lets_others_start(bench: Bench, policy: Policy) -> None:
    bench.policy, bench.limits = policy, QueueLimits(per_namespace=NamespaceLimits(running=1))
    await bench.submit(
        job("a", 1, "1", namespace="x"), job("b", 1, "1", namespace="x"), job("c", 1, "1", namespace="y")
    )
    await bench.cycle()
    assert states(bench, "abc") == "RLR"
    assert "namespace 'x' in the queue 'default' may run 1 " in bench.row("b").message


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_grant_on_too_many_nodes_is_cancelled_and_smaller_work_starts(
    bench: Bench, policy: Policy
) -> None:
    bench.policy, bench.limits = policy, QueueLimits(nodes=2)
    await bench.submit(job("a", 1, "8"), job("b", 2, "8"), job("c", 1, "8"))
    await bench.cycle()
    assert states(bench, "abc") == "RLR"
    assert "may use 2 nodes at once: it uses 1, and 3 with this" in bench.row("b").message
    assert set(await bench.held()) == {bench.row("a").jobid, bench.row("c").jobid}


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    "limits", [QueueLimits(nodes=2), QueueLimits(per_workload=WorkloadLimits(nodes=2))], ids=["queue", "each"]
)
async def test_much_work_that_alone_is_too_wide_lets_what_is_behind_it_start(
    bench: Bench, policy: Policy, limits: QueueLimits
) -> None:
    bench.policy, bench.limits = policy, limits
    await bench.submit(
        *(job(f"wide-{number}", 3 + number % 2, "8", f"{number + 1}m") for number in range(45)),
        job("a", 1, "8"),
    )
    for _ in range(5):
        await bench.cycle()
    assert states(bench, ["wide-0", "wide-44", "a"]) == "LLR"
    assert "and this would get 3: ask for less" in bench.row("wide-0").message
    bench.limits = QueueLimits(nodes=4)
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, ["wide-0"]) == "R"


@pytest.mark.parametrize("policy", list(Policy))
async def test_much_work_that_is_too_wide_beside_others_lets_what_is_behind_it_start(
    bench: Bench, policy: Policy
) -> None:
    bench.policy, bench.limits = policy, QueueLimits(nodes=3)
    await bench.submit(job("runs", 2, "8"))
    await bench.cycle()
    await bench.submit(
        *(job(f"wide-{number}", 2, "8", f"{number + 1}m") for number in range(45)), job("a", 1, "8")
    )
    for _ in range(5):
        await bench.cycle()
    assert states(bench, ["wide-0", "wide-44", "a"]) == "LLR"
    await end(bench, "runs")
    await bench.cycle()
    assert states(bench, ["wide-0"]) == "R"


async def test_cores_count_as_requested(bench: Bench) -> None:
    bench.limits = QueueLimits(cores=6)
    await bench.submit(job("a", 2, "2"), job("b", 1, "4"), job("c", 2, "1"))
    await bench.cycle()
    assert states(bench, "abc") == "RLR"


async def test_an_edit_of_the_limits_takes_effect_in_the_next_cycle(bench: Bench) -> None:
    bench.limits = QueueLimits(running=1)
    await bench.submit(job("a", 1, "1"), job("b", 4, "8"), job("c", 1, "1", "10m"))
    await bench.cycle()
    assert states(bench, "abc") == "RLL"
    bench.limits = None
    bench.policy = Policy.EASY
    await bench.cycle()
    assert states(bench, "abc") == "RwR"
    assert "reserved for it" in bench.row("b").message


async def test_a_reservation_counts_as_use_so_that_it_can_start(bench: Bench) -> None:
    bench.policy, bench.limits = Policy.EASY, QueueLimits(running=2)
    await bench.submit(job("a", 1, "8", "1h"), job("b", 4, "8", "1h"), job("c", 1, "8", "10m"))
    await bench.cycle()
    assert states(bench, "abc") == "RwL"
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bc") == "Rw"


async def test_a_reservation_over_an_edited_limit_is_dropped_with_that_cause(bench: Bench) -> None:
    bench.policy = Policy.EASY
    await bench.submit(job("a", 1, "8", "1h"), job("b", 4, "8", "1h"))
    await bench.cycle()
    assert bench.ledger.reservation(bench.row("b").id) is not None
    bench.limits = QueueLimits(nodes=2)
    await bench.cycle()
    assert states(bench, "ab") == "RL"
    assert bench.ledger.reservation(bench.row("b").id) is None
    assert await bench.store.reservations() == []
    assert set(await bench.held()) == {bench.row("a").jobid}


async def test_unsatisfiable_work_over_a_limit_is_unsatisfiable(bench: Bench) -> None:
    bench.limits = QueueLimits(running=1)
    await bench.submit(job("a", 1, "1"), job("huge", 1, "64"))
    await bench.cycle()
    assert bench.row("huge").reason is Reason.UNSATISFIABLE


async def test_of_much_work_over_a_limit_a_few_are_told_in_each_cycle_and_none_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def note(workload: Workload, quotas: Quotas, *, exact: bool) -> ReasonChange:
        told.append(workload.name)
        return at_limit(workload, quotas, exact=exact)

    monkeypatch.setattr(wait_reasons, "at_limit", note)
    monkeypatch.setattr(wait_reasons, "EXPLAINED", 1)
    monkeypatch.setattr(wait_reasons, "_MOST_TOLD", 3)
    bench.limits = QueueLimits(running=1)
    await bench.submit(*(job(name, 1, "1") for name in "abcdef"))
    bench.asked.clear()
    await bench.cycle()
    assert [bench.row(name).reason for name in "abcdef"] == [
        Reason.NONE,
        *[Reason.QUEUE_LIMIT] * 3,
        Reason.NONE,
        Reason.NONE,
    ]
    await until(lambda: ControlTask.SCHEDULE in bench.asked)
    await bench.cycle()
    assert states(bench, "abcdef") == "RLLLLL"
    told.clear()
    await bench.cycle()
    assert told == ["b"]
