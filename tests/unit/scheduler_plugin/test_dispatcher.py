"""From a released pod to its bind or its report, with a scripted API server and without real waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from support.builders import NodeBuilder, make_node
from support.scheduler_processes import released

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, Conflict, Forbidden, Invalid, Unreachable
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin import binder as binder_module
from fluxqueue.scheduler_plugin.binder import Binder
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import ClusterView, FitResult, FitStatus, check_gang
from fluxqueue.scheduler_plugin.claims import ClaimBinder
from fluxqueue.scheduler_plugin.dispatcher import Dispatcher
from fluxqueue.scheduler_plugin.limits import BindLimit
from fluxqueue.scheduler_plugin.pending_pods import HAND_OVER_S, LAG_S, PATIENCE_S
from fluxqueue.scheduler_plugin.reports import SchedulingReporter


class Claims:
    """A claim binder with a scripted result, which it returns while `open` is set."""

    def __init__(self) -> None:
        self.answer: FitResult | ApiError = FitResult()
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def prepare(self, pod: Pod, _node: str) -> FitResult:
        self.asked.append(pod.metadata.name)
        await self.open.wait()
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


class Bench:
    """A dispatcher on caches that the test fills, and the API server."""

    def __init__(self) -> None:
        self.now = 100.0
        self.bound: list[tuple[str, str]] = []
        self.answers: dict[str, list[ApiError]] = {}
        self.reports: list[tuple[str, str, str]] = []
        api = cast("Api", self)
        self.caches = SchedulerCaches(api)
        self.claims = Claims()
        recorder = EventRecorder(api, instance="a")
        self.reporter = SchedulingReporter(api, self.caches, recorder)
        binder = Binder(api, self.caches, BindLimit(clock=lambda: self.now))
        self.dispatcher = Dispatcher(
            self.caches, binder, cast("ClaimBinder", self.claims), self.reporter, lambda: self.now
        )
        self.shown: dict[str, int] = {}

    async def bind(self, name: str, _namespace: str, node: str, **_preconditions: Any) -> None:
        await asyncio.sleep(0)
        if self.answers.get(name):
            raise self.answers[name].pop(0)
        self.bound.append((name, node))

    async def patch(self, _kind: object, name: str, body: dict[str, Any], **_options: object) -> None:
        condition = body["status"]["conditions"][0]
        self.reports.append((name, condition["reason"], condition["message"]))

    async def create(self, _kind: object, _body: dict[str, Any], _namespace: str) -> None:
        return

    def put(
        self,
        name: str,
        node: str = "n1",
        *,
        gang: int = 0,
        cpu: str = "1",
        allocation: str = "7",
        bound: str = "",
        index: int | None = None,
        **fields: Any,
    ) -> None:
        self.shown[name] = self.shown.get(name, 0) + 1
        pod = (
            released(name, node, gang=gang, cpu=cpu, allocation=allocation)
            .namespace("default")
            .uid(f"uid-{name}")
        )
        pod = pod.with_("metadata.resourceVersion", str(self.shown[name]))
        pod = pod if index is None else pod.index(index)
        for path, value in fields.items():
            pod = pod.with_(path.replace("__", "."), value)
        self.caches.pods.apply(msgspec.convert((pod.on_node(bound) if bound else pod).build(), Pod))

    def drop(self, name: str) -> None:
        pod = self.caches.pods.get("default", name)
        assert pod is not None
        self.caches.pods.remove(pod)

    def node(self, made: NodeBuilder) -> None:
        self.shown["node"] = self.shown.get("node", 0) + 1
        self.caches.nodes.apply(
            msgspec.convert(made.with_("metadata.resourceVersion", str(self.shown["node"])).build(), Node)
        )

    async def settled(self) -> None:
        """Wait until nothing is in progress except delays of the clock."""
        async with asyncio.timeout(60):
            for _ in range(3):
                await self.dispatcher._queue.join()
                await self.reporter.flush()
                await asyncio.sleep(0.01)

    async def later(self, seconds: float) -> None:
        """Advance the clock, and check all gangs."""
        self.now += seconds
        for key in self.dispatcher._gangs.keys:
            self.dispatcher._queue.add(key)
        await self.settled()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(binder_module, "_pause_s", lambda _error, _failures: 0.0)
    made = Bench()
    made.node(make_node("n1", cpu="4"))
    running = asyncio.create_task(made.dispatcher.run())
    await asyncio.sleep(0)
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_pod_is_bound_and_nothing_else_is_written(bench: Bench) -> None:
    bench.put("p")
    await bench.settled()
    assert bench.bound == [("p", "n1")]
    assert bench.reports == []


async def test_a_bound_pod_is_not_bound_again_before_the_watch_shows_it(bench: Bench) -> None:
    bench.put("p")
    await bench.settled()
    bench.put("p", metadata__labels__changed="yes")
    await bench.later(1)
    assert bench.bound == [("p", "n1")]


async def test_pods_that_are_bound_but_not_shown_yet_leave_no_room_for_others(bench: Bench) -> None:
    for number in range(3):
        bench.put(f"p{number}", cpu="2", allocation=str(number))
    await bench.settled()
    assert len(bench.bound) == 2
    (refused,) = bench.reports
    assert refused[1] == "Unschedulable"


async def test_a_gang_is_bound_in_the_order_of_its_ranks(bench: Bench) -> None:
    for index in (2, 0, 1):
        bench.put(f"g{index}", gang=3, index=index)
    await bench.settled()
    assert bench.bound == [("g0", "n1"), ("g1", "n1"), ("g2", "n1")]


async def test_no_pod_of_a_gang_is_bound_if_one_does_not_fit(bench: Bench) -> None:
    bench.put("g0", gang=2, cpu="1")
    bench.put("g1", gang=2, cpu="9")
    await bench.settled()
    assert bench.bound == []
    assert [(name, reason) for name, reason, _ in bench.reports] == [("g1", "Unschedulable")]
    await bench.later(PATIENCE_S)
    assert bench.reports[1][:2] == ("g0", "WaitingForGang")
    assert "g1" in bench.reports[1][2]
    assert list(bench.caches.pods_on("n1")) == []


async def test_an_incomplete_gang_is_reported_once_after_a_while(bench: Bench) -> None:
    bench.put("g0", gang=2)
    await bench.later(PATIENCE_S - 0.1)
    assert bench.reports == []
    await bench.later(0.2)
    await bench.later(60)
    assert [(name, reason) for name, reason, _ in bench.reports] == [("g0", "WaitingForGang")]


async def test_too_little_room_is_reported_at_once(bench: Bench) -> None:
    bench.put("p", cpu="9")
    await bench.settled()
    assert bench.reports == [("p", "Unschedulable", "node n1 has too little cpu left")]


async def test_a_refusal_that_a_lagging_watch_may_cause_is_checked_twice(bench: Bench) -> None:
    bench.put("p", "n2")
    await bench.settled()
    assert bench.reports == []
    bench.node(make_node("n2"))
    await bench.settled()
    assert bench.bound == [("p", "n2")]
    bench.node(make_node("n1").cordoned())
    bench.put("q")
    await bench.settled()
    await bench.later(LAG_S - 0.1)
    assert bench.reports == []
    await bench.later(0.2)
    assert bench.reports == [("q", "Unschedulable", "node n1 is cordoned")]
    bench.node(make_node("n1"))
    await bench.settled()
    assert bench.bound[1:] == [("q", "n1")]


async def test_a_refused_pod_is_checked_again_when_a_pod_of_its_node_ends(bench: Bench) -> None:
    bench.put("there", cpu="4", bound="n1")
    bench.put("p")
    await bench.settled()
    assert bench.bound == []
    bench.put("there", cpu="4", bound="n1", status__phase="Succeeded")
    await bench.settled()
    assert bench.bound == [("p", "n1")]


async def test_a_gang_with_a_reported_refusal_is_left_to_the_queue_for_a_while(bench: Bench) -> None:
    bench.put("there", cpu="4", allocation="3", bound="n1")
    bench.node(make_node("n2"))
    for index, node in enumerate(("n2", "n1")):
        bench.put(f"g{index}", node, gang=2, index=index)
    await bench.settled()
    assert [reason for _, reason, _ in bench.reports] == ["Unschedulable"]
    bench.put("there", cpu="4", allocation="3", bound="n1", status__phase="Succeeded")
    await bench.later(HAND_OVER_S - 0.1)
    assert bench.bound == []
    await bench.later(0.2)
    assert sorted(bench.bound) == [("g0", "n2"), ("g1", "n1")]


async def test_a_gang_that_gets_other_nodes_is_bound_at_once(bench: Bench) -> None:
    bench.put("there", cpu="4", allocation="3", bound="n1")
    bench.node(make_node("n2"))
    for index, node in enumerate(("n2", "n1")):
        bench.put(f"g{index}", node, gang=2, index=index)
    await bench.settled()
    bench.now += 1
    for index in range(2):
        bench.put(f"g{index}", "n2", gang=2, index=index, allocation="8")
    await bench.settled()
    assert sorted(bench.bound) == [("g0", "n2"), ("g1", "n2")]


async def test_a_pod_that_was_overtaken_is_bound_as_the_watch_shows_it_next(bench: Bench) -> None:
    bench.answers["p"] = [Conflict(409, "Conflict", "changed")]
    bench.put("p")
    await bench.settled()
    assert (bench.bound, bench.reports) == ([], [])
    bench.put("p", metadata__labels__changed="yes")
    await bench.settled()
    assert bench.bound == [("p", "n1")]


async def test_the_others_of_a_gang_go_on_when_one_is_refused_by_the_server(bench: Bench) -> None:
    bench.answers["g1"] = [Invalid(422, "Invalid", "bind Pod default/g1: no")]
    for index in range(3):
        bench.put(f"g{index}", gang=3)
    await bench.settled()
    assert [name for name, _ in bench.bound] == ["g0", "g2"]
    assert bench.reports == [("g1", "Unschedulable", "node n1: bind Pod default/g1: no")]


async def test_missing_rights_are_reported_as_our_error_and_not_as_the_nodes(bench: Bench) -> None:
    bench.answers["p"] = [Forbidden(403, "Forbidden", "bind Pod default/p: User x cannot create resource")]
    bench.put("p")
    await bench.settled()
    assert (
        "p",
        "SchedulerError",
        "node n1: bind Pod default/p: User x cannot create resource",
    ) in bench.reports
    await until(lambda: bool(bench.bound))
    await bench.settled()
    assert bench.dispatcher.problem == ""


async def test_a_problem_of_all_binds_is_a_problem_of_the_program(bench: Bench) -> None:
    bench.answers["p"] = [
        Forbidden(403, "Forbidden", "bind Pod default/p: User x cannot create resource")
    ] * 100
    bench.put("p")
    await bench.settled()
    assert bench.dispatcher.problem == "bind Pod default/p: User x cannot create resource"


async def test_a_bind_with_an_unknown_outcome_is_retried(bench: Bench) -> None:
    bench.answers["p"] = [Unreachable("no answer", sent=True)] * 5
    bench.put("p")
    await until(lambda: bool(bench.bound))
    assert bench.reports == []


def claiming(**fields: Any) -> dict[str, Any]:
    return {"spec__volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}], **fields}


async def test_a_pod_waits_for_its_claim_and_gets_a_reason_after_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fluxqueue.scheduler_plugin.dispatcher.check_gang",
        lambda members, _: {pod.metadata.uid: FitResult() for pod, _ in members},
    )
    bench.claims.answer = FitResult(
        FitStatus.WAITS, "PersistentVolumeClaim default/data is being provisioned"
    )
    bench.put("p", **claiming())
    await bench.settled()
    assert (bench.bound, bench.reports) == ([], [])
    assert list(bench.caches.pods_on("n1")) == []
    await bench.later(PATIENCE_S)
    assert bench.reports == [
        ("p", "WaitingForVolume", "PersistentVolumeClaim default/data is being provisioned")
    ]
    bench.claims.answer = FitResult()
    await bench.later(1)
    assert bench.bound == [("p", "n1")]


async def test_a_claim_that_cannot_be_prepared_holds_its_own_pod_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fluxqueue.scheduler_plugin.dispatcher.check_gang",
        lambda members, _: {pod.metadata.uid: FitResult() for pod, _ in members},
    )
    bench.claims.answer = Unreachable("away", sent=True)
    bench.put("started", gang=3, bound="n1")
    bench.put("g1", gang=3, **claiming())
    bench.put("g2", gang=3)
    await bench.settled()
    assert bench.bound == [("g2", "n1")]


async def test_other_work_goes_on_between_the_checks_of_pods_that_are_bound_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def check(members: Sequence[tuple[Pod, str]], cluster: ClusterView) -> dict[str, FitResult]:
        checked.extend(pod.metadata.name for pod, _ in members)
        if checked == ["g1"]:
            asyncio.get_running_loop().call_soon(bench.drop, "g2")
            asyncio.get_running_loop().call_soon(bench.put, "g3", "n2")
        return check_gang(members, cluster)

    monkeypatch.setattr("fluxqueue.scheduler_plugin.dispatcher.check_gang", check)
    bench.node(make_node("n2", cpu="4").uid("n2"))
    for name in ("g1", "g2", "g3"):
        bench.put(name, gang=4)
    bench.put("started", gang=4, bound="n1")
    await bench.settled()
    assert sorted(bench.bound) == [("g1", "n1"), ("g3", "n2")]
    assert checked == ["g1", "g3"]


async def test_a_pod_refused_because_of_one_that_then_waits_is_checked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_volumes(members: Sequence[tuple[Pod, str]], cluster: ClusterView) -> dict[str, FitResult]:
        bare = [(replace(pod, spec=replace(pod.spec, volumes=None)), node) for pod, node in members]
        return check_gang(bare, cluster)

    monkeypatch.setattr("fluxqueue.scheduler_plugin.dispatcher.check_gang", without_volumes)
    bench.claims.answer = FitResult(
        FitStatus.WAITS, "PersistentVolumeClaim default/data is being provisioned"
    )
    bench.claims.open.clear()
    bench.put("claims", cpu="4", allocation="1", **claiming())
    await until(lambda: bench.claims.asked == ["claims"])
    bench.put("plain", cpu="4", allocation="2")
    await until(lambda: [name for name, _, _ in bench.reports] == ["plain"])
    assert bench.bound == []
    bench.claims.open.set()
    await bench.settled()
    assert bench.bound == [("plain", "n1")]
