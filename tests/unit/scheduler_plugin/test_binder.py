"""The meaning of the API server's responses to a Binding."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from support.scheduler_processes import released

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin import binder as binder_module
from fluxqueue.scheduler_plugin.assignments import NodeAssignment
from fluxqueue.scheduler_plugin.binder import Binder, BindOutcome
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.gangs import Member
from fluxqueue.scheduler_plugin.limits import BindLimit


class Bench:
    """A pod assumed on its node, and an API server with scripted responses;
    after the last one it succeeds.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: list[ApiError] = []
        self.caches = SchedulerCaches(cast("Api", None))
        self.limit = BindLimit(first=16, clock=lambda: 0.0)
        self.binder = Binder(cast("Api", self), self.caches, self.limit)
        self.pod = self.put(1)
        self.caches.assume(self.pod, "n1")
        self.member = Member(self.pod, NodeAssignment("n1", "7"), 0.0)

    def put(self, version: int) -> Pod:
        made = (
            released("p", "n1").namespace("default").uid("u").with_("metadata.resourceVersion", str(version))
        )
        pod = msgspec.convert(made.build(), Pod)
        self.caches.pods.apply(pod)
        return pod

    async def bind(self, name: str, namespace: str, node: str, **preconditions: Any) -> None:
        self.asked.append({"name": name, "namespace": namespace, "node": node, **preconditions})
        if self.answers:
            raise self.answers.pop(0)

    @property
    def assumed(self) -> bool:
        return self.caches.assumed_node("u") is not None


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(binder_module, "_pause_s", lambda _error, _failures: 0.0)
    return Bench()


async def test_a_binding_names_the_pod_as_it_was_checked(bench: Bench) -> None:
    result = await bench.binder.bind(bench.member)
    assert result.outcome is BindOutcome.BOUND
    (asked,) = bench.asked
    assert (
        asked.items()
        >= {"name": "p", "namespace": "default", "node": "n1", "uid": "u", "resource_version": "1"}.items()
    )
    assert bench.assumed, "the watch does not show it yet"


@pytest.mark.parametrize(
    "error",
    [Conflict(409, "Conflict", "changed"), NotFound(404, "NotFound", "gone")],
    ids=lambda error: error.reason,
)
async def test_a_pod_that_changed_is_left_to_the_watch(bench: Bench, error: ApiError) -> None:
    bench.answers = [error]
    result = await bench.binder.bind(bench.member)
    assert result.outcome is BindOutcome.CHANGED
    assert len(bench.asked) == 1
    assert bench.limit.value == 16


async def test_a_pod_that_has_changed_in_the_watch_is_not_bound(bench: Bench) -> None:
    bench.put(2)
    assert (await bench.binder.bind(bench.member)).outcome is BindOutcome.CHANGED
    assert bench.asked == []
    assert bench.limit.in_flight == 0


@pytest.mark.parametrize(
    "error",
    [
        TooManyRequests(429, "TooManyRequests", "busy"),
        ServerError(503, "", "no"),
        Unreachable("no answer", sent=True),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_busy_server_gets_retries_and_fewer_binds_at_once(bench: Bench, error: ApiError) -> None:
    bench.answers = [error]
    assert (await bench.binder.bind(bench.member)).outcome is BindOutcome.BOUND
    assert len(bench.asked) == 2
    assert bench.limit.value == 8


async def test_an_unreachable_server_does_not_count_as_busy(bench: Bench) -> None:
    bench.answers = [Unreachable("refused", sent=False)]
    assert (await bench.binder.bind(bench.member)).outcome is BindOutcome.BOUND
    assert bench.limit.value == 16


async def test_a_pod_whose_bind_has_an_unknown_outcome_stays_on_its_node(bench: Bench) -> None:
    bench.answers = [Unreachable("no answer", sent=True)] * 10
    result = await bench.binder.bind(bench.member)
    assert result.outcome is BindOutcome.UNKNOWN
    assert len(bench.asked) == binder_module.TRIES
    assert bench.assumed
    assert bench.limit.in_flight == 0


async def test_a_bind_that_arrived_although_its_answer_was_lost_is_found_by_the_next_try(
    bench: Bench,
) -> None:
    bench.answers = [
        Unreachable("no answer", sent=True),
        Conflict(409, "Conflict", "already assigned to node n1"),
    ]
    assert (await bench.binder.bind(bench.member)).outcome is BindOutcome.CHANGED
    assert bench.assumed


@pytest.mark.parametrize(
    "error",
    [Invalid(422, "Invalid", "no"), Forbidden(403, "Forbidden", "the namespace is being terminated")],
    ids=lambda error: str(error.status),
)
async def test_a_pod_that_is_refused_counts_no_more(bench: Bench, error: ApiError) -> None:
    bench.answers = [error]
    result = await bench.binder.bind(bench.member)
    assert (result.outcome, result.message) == (BindOutcome.REFUSED, error.message)
    assert not bench.assumed


@pytest.mark.parametrize(
    "error",
    [Unauthorized(401, "", "who"), Forbidden(403, "Forbidden", "User x cannot create resource pods/binding")],
    ids=lambda error: str(error.status),
)
async def test_a_lack_of_rights_is_not_the_pods_fault(bench: Bench, error: ApiError) -> None:
    bench.answers = [error]
    assert (await bench.binder.bind(bench.member)).outcome is BindOutcome.UNAUTHORIZED
    assert not bench.assumed


async def test_a_former_leader_stops(bench: Bench) -> None:
    bench.answers = [NotLeading("not leading")]
    with pytest.raises(NotLeading):
        await bench.binder.bind(bench.member)
    assert bench.limit.in_flight == 0


async def test_the_pause_is_at_least_the_one_the_server_requests() -> None:
    assert binder_module._pause_s(TooManyRequests(429, "", "busy", retry_after_s=7.0), 0) == 7.0
    assert 0.05 <= binder_module._pause_s(ServerError(500, "", "no"), 0) <= 0.1
