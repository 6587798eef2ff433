from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest
from support.queue_builders import a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.dependencies import parse_dependencies
from fluxqueue.queue.intake import dependency_cycles, dependency_graph
from fluxqueue.queue.intake.dependency_cycles import DependencyCycles
from fluxqueue.queue.intake.dependency_graph import DependencyGraph
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.model.start_conditions import track


class CountingGraph(DependencyGraph):
    """A graph that counts the workloads that a search visits."""

    def __init__(self) -> None:
        super().__init__()
        self.visits = 0

    def _next(self, waiter: str) -> list[str]:
        self.visits += 1
        return super()._next(waiter)


class Bench:
    """Workloads that wait for each other; their names are their uids."""

    def __init__(self, **waits: str) -> None:
        self.graph = CountingGraph()
        rows = [a_workload(uid, id=WorkloadId(number), uid=uid) for number, uid in enumerate(waits, start=1)]
        self.cycles = DependencyCycles(self.graph, RecordingLedger(*((row, None) for row in rows)))
        for waiter, targets in waits.items():
            self.put(waiter, targets)

    def put(self, waiter: str, targets: str, namespace: str = "default") -> None:
        """Let a workload wait for others."""
        asked = [track(parse_dependencies(f"ok:job/{target}")[0]) for target in targets.split()]
        self.graph.put(waiter, namespace, [msgspec.structs.replace(each, target=each.name) for each in asked])
        self.cycles.note(waiter)

    def remove(self, waiter: str) -> None:
        """Let a workload leave."""
        self.graph.remove(waiter)
        self.cycles.note(waiter)

    def texts(self) -> dict[str, str]:
        """What is said of each that waits, where something is."""
        return {uid: text for uid in self.graph.waiters() if (text := self.cycles.text(uid))}


def pairs(count: int) -> dict[str, str]:
    """Workloads of which two each wait for each other."""
    return {f"a{number}": f"b{number}" for number in range(count)} | {
        f"b{number}": f"a{number}" for number in range(count)
    }


async def test_the_members_of_a_cycle_are_told_and_nobody_else() -> None:
    bench = Bench(a="b", b="c", c="a", before="a", behind="")
    assert sorted(await bench.cycles.check()) == ["a", "b", "c"]
    assert set(bench.texts()) == {"a", "b", "c"}
    assert bench.cycles.text("a") == ", which waits for ".join(
        ["Job default/a", "Job default/b", "Job default/c", "the first"]
    )
    assert await bench.cycles.check() == [], "nothing changed since"


async def test_a_pass_visits_what_changed_however_many_cycles_there_are() -> None:
    bench = Bench(**pairs(2_000))
    assert len(await bench.cycles.check()) == 4_000
    bench.graph.visits = 0
    for number in range(500):
        bench.remove(f"a{number}")
    assert bench.graph.visits == 0, "until the pass"
    assert sorted(await bench.cycles.check()) == sorted(f"b{number}" for number in range(500))
    assert bench.graph.visits <= 500
    assert len(bench.texts()) == 3_000


async def test_of_cycles_that_share_a_member_those_that_stay_are_told() -> None:
    bench = Bench(hub="a b", a="hub", b="hub")
    await bench.cycles.check()
    bench.remove("a")
    assert "b" not in await bench.cycles.check(), "it is told the same"
    assert set(bench.texts()) == {"hub", "b"}
    bench.put("b", "")
    await bench.cycles.check()
    assert bench.texts() == {}


async def test_an_edit_is_told_nothing_until_the_pass() -> None:
    bench = Bench(a="b", b="a")
    await bench.cycles.check()
    bench.put("a", "b c")
    assert set(bench.texts()) == {"b"}
    assert await bench.cycles.check() == ["a"]
    assert set(bench.texts()) == {"a", "b"}


async def test_a_new_member_beside_a_cycle_changes_nothing_of_it() -> None:
    bench = Bench(a="b", b="c", c="a")
    await bench.cycles.check()
    before = bench.texts()
    bench.put("x", "y b")
    bench.put("y", "x")
    assert sorted(await bench.cycles.check()) == ["x", "y"]
    assert {uid: text for uid, text in bench.texts().items() if uid in before} == before


async def test_a_long_pass_lets_others_go_on_and_what_they_change_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = itertools.count()
    monkeypatch.setattr(dependency_cycles, "thread_time", lambda: next(used))
    bench = Bench(**pairs(3))
    check = asyncio.create_task(bench.cycles.check())
    await asyncio.sleep(0)
    assert bench.graph.visits == 2, "of the first cycle"
    for uid in ("a0", "a2"):
        bench.remove(uid)
    await check
    await bench.cycles.check()
    assert set(bench.texts()) == {"a1", "b1"}


async def test_cycles_of_a_namespace_do_not_hide_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependency_graph, "_MOST_NAMED", 6)
    bench = Bench(**pairs(100))
    for number in (98, 99):
        bench.put(f"a{number}", f"b{number}", "theirs")
        bench.put(f"b{number}", f"a{number}", "theirs")
    await bench.cycles.check()
    assert {"a98", "b98", "a99", "b99"} <= set(bench.texts())
    assert len(bench.texts()) == 10
