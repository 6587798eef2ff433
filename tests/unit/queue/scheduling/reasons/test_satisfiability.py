"""Satisfiability: few questions to the matcher, and answers that hold for one version of the graph."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from operator import itemgetter

import pytest
from support.matcher_questions import MatcherQuestions
from support.queue_bench import Bench, a_machine, a_node, job
from support.work_counts import assert_linear

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShapes
from fluxqueue.queue.scheduling.reasons import satisfiability
from fluxqueue.queue.scheduling.reasons.satisfiability import SatisfiabilityCache, in_namespace_turns


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_machine() as made:
        await made.graph.ensure()
        yield made


@pytest.fixture
def questions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> MatcherQuestions:
    return MatcherQuestions(bench.fluxion, monkeypatch)


def cache(bench: Bench) -> SatisfiabilityCache:
    return SatisfiabilityCache(bench.ledger, bench.graph, NodeShapes({}))


def ids(bench: Bench, *names: str) -> list[WorkloadId]:
    return [bench.row(name).id for name in names]


async def test_a_larger_request_of_a_family_that_fits_answers_for_smaller_ones(
    bench: Bench, questions: MatcherQuestions
) -> None:
    await bench.submit(job("four", 4, "8"), job("two", 2, "8"), job("one", 1, "8"))
    known = cache(bench)
    assert not await known.check(ids(bench, "four", "two", "one"))
    assert known.unsatisfiable == {}
    assert len(questions.satisfied) == 1


async def test_a_request_for_more_nodes_than_there_are_is_unsatisfiable(
    bench: Bench, questions: MatcherQuestions
) -> None:
    await bench.submit(job("five", 5, "8"))
    known = cache(bench)
    await known.check(ids(bench, "five"))
    await known.check(ids(bench, "five"))
    assert set(known.unsatisfiable) == {bench.row("five").shape}
    assert len(questions.satisfied) == 1


async def test_answers_are_forgotten_when_the_graph_changes(bench: Bench) -> None:
    await bench.submit(job("five", 5, "8"))
    known = cache(bench)
    await known.check(ids(bench, "five"))
    bench.nodes.apply(a_node("n4"))
    await bench.graph.ensure()
    assert known.unsatisfiable == {}
    await known.check(ids(bench, "five"))
    assert known.unsatisfiable == {}


async def test_answers_by_the_match_policy_of_a_queue_are_not_taken_over(bench: Bench) -> None:
    await bench.submit(job("a", 1, "8"))
    row = bench.row("a")
    change = ReasonChange(workload=row.id, reason=Reason.UNSATISFIABLE, message="too large")
    known = cache(bench)
    known.learn([change], {"default": "lonodex"})
    assert known.unsatisfiable == {}
    known.learn([change], {})
    assert known.unsatisfiable[row.shape].reason == "too large"


async def test_slow_answers_to_one_namespace_leave_time_for_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question takes a second here: a cycle asks four, of both namespaces in turn."""
    names = [f"tolerating-{number}" for number in range(9)]
    many = [
        job(name, 1, "8", tolerations=[{"key": name, "operator": "Exists"}], namespace="a") for name in names
    ]
    await bench.submit(
        *many, job("other", 1, "8", tolerations=[{"key": "x", "operator": "Exists"}], namespace="b")
    )
    waiting = [each.id for each in bench.ledger.all()]
    other = next(each.id for each in bench.ledger.all() if each.namespace == "b")
    monkeypatch.setattr(satisfiability, "time", SlowClock())
    known = cache(bench)

    left = [await known.check(waiting) for _ in range(3)]

    assert [len(each) for each in left] == [6, 2, 0]
    assert other not in left[0]


async def test_others_get_turns_while_much_work_is_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.submit(*(job(f"w{number}", number % 4 + 1, "8") for number in range(8)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def turns_of_check() -> int:
        before = turns
        await cache(bench).check([each.id for each in bench.ledger.all()])
        return turns - before

    others = asyncio.create_task(count())
    at_once = await turns_of_check()
    monkeypatch.setattr(satisfiability, "_PART", 1)
    assert await turns_of_check() >= at_once + 8
    others.cancel()


class SlowClock:
    """A clock that goes on by a second with each look."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def perf_counter(self) -> float:
        self._now_s += 1.0
        return self._now_s


def test_turns_of_namespaces_take_as_long_as_there_is_work_in_them() -> None:
    """One namespace of very much work among very many of little took the product of both."""

    def turns(number: int) -> Callable[[], object]:
        items = [*(("much", each) for each in range(number)), *((f"a-{each}", 0) for each in range(number))]
        return lambda: in_namespace_turns(items, itemgetter(0))

    assert_linear(turns)


def test_each_namespace_has_its_turn_in_the_order_of_its_work() -> None:
    items = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6)]
    found = [number for _, number in in_namespace_turns(items, itemgetter(0))]
    assert found == [1, 3, 5, 2, 6, 4]
