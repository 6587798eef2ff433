"""Which work is told that it is idle, what is shown of it, and what is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs
from support.builders import make_job, make_pod, make_queue
from support.controller_bench import RecordedEvents, running, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.kube.events import Severity
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.metrics import IDLE
from fluxqueue.queue.model.groups import POD_GROUP
from fluxqueue.queue.model.idleness import IdleRules, PodName, is_unused
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.requeue_records import RequeueState, Unused
from fluxqueue.queue.model.time_limits import is_over_time_limit, over_limit_message
from fluxqueue.queue.requeue.idle_work import IdleWork
from fluxqueue.queue.requeue.prometheus import NoAnswer
from fluxqueue.queue.requeue.time_limits import TimeLimits
from fluxqueue.queue.store import DatabaseUnavailable

RULES: dict[str, Any] = {"for_seconds": 120, "grace_seconds": 120, "every_seconds": 60, "then": "end"}
SINCE = "idle since 2026-01-01T00:00:00Z (use below 5)"
TOLD = f"{SINCE}; it is ended from 2026-01-01T00:04:00Z on, unless it is used before"


class Bench:
    """A running Job of two pods, and answers once a minute."""

    def __init__(
        self, row: Workload | None = None, *pods: Any, preemption: str = "lowerPriority", **rules: Any
    ) -> None:
        self.row = row if row is not None else a_row()
        self.ledger = RecordingLedger((self.row, an_allocation(["n0", "n1"])))
        self.server, self.events = MemoryApi(), RecordedEvents()
        self.changed: list[WorkloadId] = []
        self.caches = Caches(self.server.api)
        self.limits = TimeLimits(self.server.api, self.caches, self.ledger, self.events.recorder)
        self.answer: dict[str, float] | None = {}
        self.idle = self.another_leader(**rules)
        self.server.show_in(self.caches)
        self.server.put("fluxqueues", make_queue(self.row.queue, preemption=preemption))
        self.server.put("jobs", make_job("mpi").indexed(2).uid("the-uid").build())
        for each in pods or (member("p-0"), member("p-1")):
            self.server.put("pods", each.build())

    def another_leader(self, **rules: Any) -> IdleWork:
        idle = IdleWork(
            self.caches,
            self.ledger,
            self.events.recorder,
            self.limits,
            IdleRules(**{**RULES, **rules}),
            self._ask,
        )
        idle.subscribe(self.changed.append)
        return idle

    async def _ask(self, _rules: IdleRules, known: Callable[[PodName], bool]) -> Mapping[PodName, float]:
        if self.answer is None:
            raise NoAnswer("it is away")
        answer = {("default", name): value for name, value in self.answer.items()}
        return {pod: value for pod, value in answer.items() if known(pod)}

    async def after(self, minute: float, **use: float) -> str:
        """Ask after so many minutes, and return what is said of the work then."""
        self.ledger.now = EPOCH + timedelta(minutes=minute)
        if use:
            self.answer = {name.replace("_", "-"): value for name, value in use.items()}
        await self.idle.look()
        row = self.ledger.get(self.row.id)
        assert row is not None
        return self.idle.words(row)

    @property
    def ended(self) -> bool:
        row = self.ledger.get(self.row.id)
        return row is not None and is_over_time_limit(row)


def a_row(**changes: Any) -> Workload:
    return a_workload(
        "mpi", **{"uid": "the-uid", "state": State.RUNNING, "jobid": 7, "started_at": EPOCH, **changes}
    )


def member(name: str, owner: str = "") -> Any:
    pod = make_pod(name).uid(name).on_node("n0").phase("Running")
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "mpi", "uid": "the-uid", "controller": True}
    return pod.with_("metadata.ownerReferences", [reference]) if not owner else pod.owned_by(owner)


UNUSED = {"p_0": 0.0, "p_1": 4.0}


async def test_idle_work_is_told_then_shown_and_ended_after_its_grace() -> None:
    bench = Bench()
    assert [await bench.after(minute, **UNUSED) for minute in (0, 1)] == ["", ""]
    assert await bench.after(2) == TOLD
    assert bench.events.events == [("Job mpi", "Idle", f"Job default/mpi is {TOLD}", Severity.WARNING)]
    assert bench.changed == [bench.row.id]
    assert IDLE._value.get() == 1
    assert (await bench.after(3), bench.ended) == (TOLD, False)
    assert (await bench.after(4), bench.ended) == ("", True)
    assert bench.events.reasons == ["Idle", "TimeLimit"]
    row = bench.ledger.get(bench.row.id)
    assert row is not None
    assert over_limit_message(row) == (
        f"Job default/mpi was {SINCE} and was ended: have it end when its work is done"
    )
    assert bench.changed == [bench.row.id, bench.row.id]


async def test_work_of_which_one_pod_is_used_begins_anew() -> None:
    bench = Bench()
    for minute in (0, 1, 2, 3):
        await bench.after(minute, **UNUSED)
    assert await bench.after(4, p_0=0, p_1=60) == ""
    for minute in (5, 6):
        assert await bench.after(minute, **UNUSED) == ""
    assert (await bench.after(7)).startswith("idle since 2026-01-01T00:05:00Z")
    assert not bench.ended


async def test_without_answers_nothing_is_told_or_ended_and_the_end_is_later() -> None:
    bench = Bench()
    for minute in (0, 1, 2, 3):
        await bench.after(minute, **UNUSED)
    bench.answer = None
    words = [await bench.after(minute) for minute in range(4, 20)]
    assert words[0] == TOLD
    assert words[-1] == (
        f"{SINCE} until 2026-01-01T00:03:00Z, and its use is not known since; "
        "it is not ended while that is so"
    )
    assert "from 2026-01-01T00:21:00Z on" in await bench.after(20, **UNUSED)
    assert not bench.ended
    await bench.after(21)
    assert bench.ended


async def test_an_end_that_cannot_be_stored_waits_for_the_next_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseUnavailable("it is away")

    bench = Bench()
    for minute in (0, 1, 2, 3):
        await bench.after(minute, **UNUSED)
    with monkeypatch.context() as patched:
        patched.setattr(bench.limits, "end_idle", away)
        with pytest.raises(DatabaseUnavailable):
            await bench.after(4)
    bench.answer = None
    await bench.after(4.5)
    assert not bench.ended
    await bench.after(5, **UNUSED)
    assert (bench.ended, bench.events.reasons) == (True, ["Idle", "TimeLimit"])


async def test_an_end_leaves_the_grace_of_work_that_is_preempted_at_the_same_time() -> None:
    bench = Bench()
    until_then = EPOCH + timedelta(minutes=9)
    async with bench.ledger._lock:
        ending = asyncio.create_task(bench.limits.end_idle(bench.row, SINCE))
        await asyncio.sleep(0)
        told = RequeueState(stop_at=until_then, preempted_for=3)
        bench.ledger.put(replace(bench.row, requeue_state=told), bench.ledger.allocation(bench.row.id))
    await ending
    row = bench.ledger.get(bench.row.id)
    assert row is not None
    assert (bench.ended, row.requeue_state.idle) == (True, SINCE)
    assert (row.requeue_state.stop_at, row.requeue_state.preempted_for) == (until_then, 3)


@pytest.mark.parametrize("use", [{"p_0": 0.0}, {"other": 0.0}])
async def test_a_pod_without_a_value_is_not_idle(use: dict[str, float]) -> None:
    bench = Bench()
    for minute in range(10):
        assert await bench.after(minute, **use) == ""
    assert bench.events.events == []


@pytest.mark.parametrize(
    "change",
    [
        lambda bench: bench.server.put("pods", member("p-2").build()),
        lambda bench: bench.ledger.put(a_row(id=bench.row.id, jobid=8), an_allocation(["n0", "n1"], jobid=8)),
    ],
    ids=["another size", "another allocation"],
)
async def test_another_run_begins_anew(change: Callable[[Bench], object]) -> None:
    bench = Bench()
    for minute in (0, 1, 2, 3):
        await bench.after(minute, **UNUSED, p_2=0)
    change(bench)
    assert await bench.after(4) == ""
    await bench.after(5)
    assert (await bench.after(6)).startswith("idle since 2026-01-01T00:04:00Z")
    assert not bench.ended


async def test_another_leader_begins_anew_and_says_nothing_until_then() -> None:
    bench = Bench()
    for minute in (0, 1, 2, 3):
        await bench.after(minute, **UNUSED)
    bench.idle = bench.another_leader()
    assert [await bench.after(minute) for minute in (4, 5)] == ["", ""]
    assert not bench.ended
    assert (await bench.after(6)).startswith("idle since 2026-01-01T00:04:00Z")


async def test_without_an_end_it_is_only_told() -> None:
    bench = Bench(then="notice")
    for minute in range(20):
        await bench.after(minute, **UNUSED)
    assert (await bench.after(20), bench.ended, bench.events.reasons) == (SINCE, False, ["Idle"])


async def test_a_pod_of_a_service_is_told_and_not_ended() -> None:
    row = a_row(kind="Pod", api_version="v1", uid="p-0", release_mode=ReleaseMode.POD)
    bench = Bench(row, member("p-0", owner="ReplicaSet"))
    for minute in range(20):
        await bench.after(minute, p_0=0)
    assert (await bench.after(20), bench.ended) == (SINCE, False)


async def test_a_pod_of_a_job_that_was_matched_alone_counts_with_its_job() -> None:
    row = a_row(kind="Pod", api_version="v1", uid="p-0", release_mode=ReleaseMode.POD)
    bench = Bench(row, member("p-0"))
    for minute in range(20):
        assert await bench.after(minute, p_0=0) == ""


async def test_the_pods_of_a_group_are_ended_together() -> None:
    pods = [
        make_pod(name).uid(name).label(names.POD_GROUP_LABEL, "mpi").on_node("n0").phase("Running")
        for name in ("p-0", "p-1")
    ]
    row = a_row(kind=POD_GROUP, release_mode=ReleaseMode.GROUP)
    bench = Bench(row, *pods)
    for minute in range(4):
        await bench.after(minute, p_0=0, p_1=60)
    assert bench.events.events == []
    for minute in range(4, 9):
        await bench.after(minute, **UNUSED)
    assert bench.ended


PREEMPTIBLE = f"{SINCE}; work of any priority may preempt it, unless it is used before"


def stored(bench: Bench) -> Unused | None:
    row = bench.ledger.get(bench.row.id)
    assert row is not None
    return row.requeue_state.unused


def counts(bench: Bench) -> bool:
    row = bench.ledger.get(bench.row.id)
    return row is not None and is_unused(row, bench.ledger.epoch)


async def until_preemptible(bench: Bench) -> None:
    for minute in range(4):
        await bench.after(minute, **UNUSED)
        assert stored(bench) is None
    assert await bench.after(4) == PREEMPTIBLE


async def test_work_may_be_preempted_once_its_grace_is_over_and_until_it_is_used() -> None:
    bench = Bench(then="preemptible")
    await until_preemptible(bench)
    told = (
        f"{SINCE}; from 2026-01-01T00:04:00Z on work of any priority may preempt it, unless it is used before"
    )
    assert bench.events.events == [("Job mpi", "Idle", f"Job default/mpi is {told}", Severity.WARNING)]
    assert (counts(bench), bench.ended) == (True, False)
    first = stored(bench)
    assert await bench.after(5) == PREEMPTIBLE
    assert stored(bench) is first, "nothing is written while it stays so"
    assert await bench.after(6, p_0=0, p_1=60) == ""
    assert stored(bench) is None
    for minute in (7, 8):
        await bench.after(minute, **UNUSED)
    assert stored(bench) is None, "the time begins anew"


async def test_while_its_use_is_not_known_work_is_not_preempted_for_that() -> None:
    bench = Bench(then="preemptible")
    await until_preemptible(bench)
    bench.answer = None
    assert (await bench.after(5), counts(bench)) == (PREEMPTIBLE, True)
    assert await bench.after(7) == (
        f"{SINCE} until 2026-01-01T00:04:00Z, and its use is not known since; "
        "it is not preempted for that while that is so"
    )
    assert not counts(bench)
    assert (await bench.after(8, **UNUSED), counts(bench)) == (PREEMPTIBLE, True)


async def test_another_leader_lets_work_be_preempted_with_its_first_answer() -> None:
    bench = Bench(then="preemptible")
    await until_preemptible(bench)
    former = stored(bench)
    assert former is not None
    await bench.ledger.set_unused({bench.row.id: structs.replace(former, seen_by=former.seen_by + 1)})
    bench.idle, bench.answer = bench.another_leader(then="preemptible"), None
    assert (await bench.after(5), counts(bench)) == ("", False)
    unknown = await bench.after(7, p_0=0.0)
    assert unknown.endswith("its use is not known since; it is not preempted for that while that is so")
    assert not counts(bench)
    assert (await bench.after(8, **UNUSED), counts(bench)) == (PREEMPTIBLE, True)
    assert bench.events.reasons == ["Idle"], "it was told before"


async def test_another_leader_begins_anew_with_work_that_changed_meanwhile() -> None:
    bench = Bench(then="preemptible")
    await until_preemptible(bench)
    bench.idle = bench.another_leader(then="preemptible")
    bench.server.put("pods", member("p-2").build())
    assert (await bench.after(5, **UNUSED, p_2=0), stored(bench)) == ("", None)


async def test_work_that_stops_for_it_may_go_on_in_its_grace_only() -> None:
    bench = Bench(then="preemptible")
    await until_preemptible(bench)
    row = bench.ledger.get(bench.row.id)
    assert row is not None
    until_then = EPOCH + timedelta(minutes=6)
    told = structs.replace(row.requeue_state, stop_at=until_then, preempted_for=3)
    stops = replace(row, state=State.DRAINING, reason=Reason.PREEMPTED, requeue_state=told)
    bench.ledger.put(stops, bench.ledger.allocation(row.id))
    await bench.after(6, p_0=60, p_1=60)
    assert stored(bench) is not None, "it is too late"
    bench.ledger.put(stops, bench.ledger.allocation(row.id))
    await bench.after(5, **UNUSED)
    assert counts(bench)
    await bench.after(5.5, p_0=60, p_1=60)
    assert stored(bench) is None


async def test_without_that_choice_what_was_stored_goes() -> None:
    bench = Bench(then="preemptible")
    await until_preemptible(bench)
    bench.idle = bench.another_leader(then="notice")
    assert (await bench.after(5), stored(bench)) == ("", None)


async def test_in_a_queue_without_preemption_it_is_only_told() -> None:
    bench = Bench(then="preemptible", preemption="never")
    for minute in range(9):
        await bench.after(minute, **UNUSED)
    assert (await bench.after(9), stored(bench)) == (SINCE, None)


async def test_a_pod_of_a_service_is_told_and_not_preempted_for_it() -> None:
    row = a_row(kind="Pod", api_version="v1", uid="p-0", release_mode=ReleaseMode.POD)
    bench = Bench(row, member("p-0", owner="ReplicaSet"), then="preemptible")
    for minute in range(9):
        await bench.after(minute, p_0=0)
    assert (await bench.after(9), stored(bench)) == (SINCE, None)


@pytest.mark.parametrize(("allowed", "ended"), [(True, False), (False, True)])
async def test_who_may_opt_out_is_left_alone(allowed: bool, ended: bool) -> None:
    keeps = member("p-1").annotation(names.KEEP_IDLE_ANNOTATION, "true")
    bench = Bench(None, member("p-0"), keeps, may_opt_out=allowed)
    for minute in range(6):
        await bench.after(minute, **UNUSED)
    assert (bench.ended, bool(bench.events.events)) == (ended, ended)


async def test_work_that_cannot_be_told_now_is_told_later_and_not_ended_before() -> None:
    bench = Bench()
    bench.events.full = True
    for minute in range(10):
        assert await bench.after(minute, **UNUSED) == ""
    bench.events.full = False
    assert "from 2026-01-01T00:12:00Z on" in await bench.after(10)
    assert not bench.ended


@pytest.mark.parametrize("changes", [{"state": State.DRAINING}, {"started_at": None}])
async def test_work_that_does_not_run_is_not_idle(changes: dict[str, Any]) -> None:
    bench = Bench(a_row(**changes))
    for minute in range(6):
        assert await bench.after(minute, **UNUSED) == ""


async def test_it_asks_until_it_is_cancelled() -> None:
    bench = Bench(every_seconds=1)
    bench.answer = None
    asked = 0

    async def ask(*_: object) -> Mapping[PodName, float]:
        nonlocal asked
        asked += 1
        raise NoAnswer("it is away")

    bench.idle._ask = ask
    bench.idle.resync()
    async with running(bench.idle.run()):
        await until(lambda: asked)
    assert IDLE._value.get() == 0
