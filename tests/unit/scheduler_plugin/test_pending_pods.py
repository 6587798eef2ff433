"""When a pod that waits is reported, and how its attempts are counted; the clock is a number."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from support.scheduler_processes import released

from fluxqueue.api.pods import Pod
from fluxqueue.scheduler_plugin.assignments import NodeAssignment
from fluxqueue.scheduler_plugin.gangs import Member
from fluxqueue.scheduler_plugin.pending_pods import HAND_OVER_S, LAG_S, PATIENCE_S, PendingPods
from fluxqueue.scheduler_plugin.reports import PodScheduledReason, SchedulingReporter

WAITING = PodScheduledReason.WAITING_FOR_GANG


class Bench:
    """Records of pods at a time that the test sets, and their reports."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reports: list[tuple[str, str, str]] = []
        self.pending = PendingPods(cast("SchedulingReporter", self), lambda: self.now)

    def unscheduled(self, pod: Pod, reason: str, message: str) -> None:
        self.reports.append((pod.metadata.name, reason, message))

    def member(self, name: str = "p", node: str = "n1") -> Member:
        pod = msgspec.convert(released(name, node).namespace("default").uid(f"uid-{name}").build(), Pod)
        self.pending.add(pod.metadata.uid)
        return Member(pod, NodeAssignment(node, "7", 2), self.now)

    def refuse(self, member: Member, *, may_lag: bool = False) -> float | None:
        return self.pending.refuse(member, "too little cpu left", self.now, may_lag=may_lag)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_refusal_is_reported_at_once_with_the_name_of_the_node(bench: Bench) -> None:
    assert bench.refuse(bench.member()) is None
    assert bench.reports == [("p", "Unschedulable", "node n1: too little cpu left")]
    assert bench.pending.count("unschedulable") == 1


def test_a_refusal_that_may_come_from_a_lagging_watch_is_reported_only_if_it_lasts(bench: Bench) -> None:
    member = bench.member()
    assert bench.refuse(member, may_lag=True) == LAG_S
    bench.now += LAG_S / 2
    assert bench.refuse(member, may_lag=True) == LAG_S / 2
    assert bench.reports == []
    bench.now += LAG_S / 2
    assert bench.refuse(member, may_lag=True) is None
    assert [name for name, _, _ in bench.reports] == ["p"]


def test_the_time_of_a_refusal_starts_again_with_another_node(bench: Bench) -> None:
    bench.refuse(bench.member(), may_lag=True)
    bench.now += LAG_S
    assert bench.refuse(bench.member(node="n2"), may_lag=True) == LAG_S


def test_waiting_pods_are_reported_after_a_while_each_in_its_time(bench: Bench) -> None:
    first = bench.member("first")
    bench.now += 1
    second = bench.member("second")
    assert bench.pending.wait([first, second], WAITING, "no gang") == PATIENCE_S - 1
    bench.now += PATIENCE_S - 1
    assert bench.pending.wait([first, second], WAITING, "no gang") == 1
    assert bench.reports == [("first", WAITING, "no gang")]
    assert bench.pending.count("gated") == 2


def test_a_gang_with_a_reported_refusal_is_left_to_the_queue_for_a_while(bench: Bench) -> None:
    refused, other = bench.member("refused"), bench.member("other")
    assert bench.pending.handed_over_s([refused, other]) == 0.0
    bench.refuse(refused)
    bench.now += 1
    assert bench.pending.handed_over_s([refused, other]) == HAND_OVER_S - 1
    assert bench.pending.handed_over_s([bench.member("refused", "n2")]) == 0.0


def test_attempts_add_up_until_the_pod_is_dropped(bench: Bench) -> None:
    member = bench.member()
    bench.refuse(member)
    assert bench.pending.tried(member) == 2
    assert bench.pending.count("active") == 1
    bench.pending.drop(member.uid)
    assert bench.pending.tried(member) == 1
    assert bench.pending.count("active") == 0
