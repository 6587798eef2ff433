"""For how long work is idle by answers that come and stay away, and what is said of it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from support.builders import PodBuilder, make_pod
from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.idleness import (
    Idleness,
    IdleRules,
    ends_for_good,
    is_idle,
    is_unused,
    waits_last,
)
from fluxqueue.queue.model.records import Epoch, FluxionJobId
from fluxqueue.queue.model.requeue_records import Moved, RequeueState, Unused

RULES = IdleRules(for_seconds=300, grace_seconds=120, every_seconds=60, then="end")
BEGUN = Idleness((None, frozenset({"a"})), EPOCH, EPOCH)


def seen_at(*at_s: float, known: Idleness = BEGUN) -> Idleness:
    for each in at_s:
        known = known.seen(EPOCH + timedelta(seconds=each), RULES)
    return known


def pod(name: str, node: str = "n0") -> PodBuilder:
    made = make_pod(name)
    return made.on_node(node) if node else made


def read(builder: PodBuilder) -> Pod:
    return msgspec.convert(builder.build(), Pod)


def pods(*names: str, node: str = "n0") -> list[Pod]:
    return [read(pod(name, node)) for name in names]


def test_work_is_told_when_answers_show_it_as_idle_for_long_enough() -> None:
    assert not seen_at(60, 120, 180, 240).is_to_be_told(RULES)
    told = seen_at(60, 120, 180, 240, 300)
    assert told.is_to_be_told(RULES)
    assert not told.told(ends=True).is_to_be_told(RULES)


def test_a_hole_between_two_answers_does_not_count() -> None:
    assert seen_at(60, 120).seen_s == 120
    assert seen_at(60, 120, 120 + 151).seen_s == 120
    assert seen_at(60, 120, 120 + 150).seen_s == 270
    assert seen_at(60, 30).seen_s == 60, "a clock that steps back"


def test_it_ends_after_its_grace_and_later_after_a_hole() -> None:
    told = seen_at(60, 120, 180, 240, 300).told(ends=True)
    assert told.words(RULES, told.last) == (
        "idle since 2026-01-01T00:00:00Z (use below 5); "
        "it is ended from 2026-01-01T00:07:00Z on, unless it is used before"
    )
    assert not seen_at(360, known=told).is_over(RULES)
    assert seen_at(360, 420, known=told).is_over(RULES)
    later = seen_at(1300, 1360, known=told)
    assert not later.is_over(RULES)
    assert "from 2026-01-01T00:23:40Z on" in later.words(RULES, later.last)
    assert seen_at(1420, known=later).is_over(RULES)


def test_work_that_is_only_told_never_ends() -> None:
    told = seen_at(150, 300).told(ends=False)
    assert not seen_at(400, 500, 600, known=told).is_over(RULES)
    assert told.words(RULES, told.last) == "idle since 2026-01-01T00:00:00Z (use below 5)"


def test_nothing_is_said_of_a_time_without_answers() -> None:
    told = seen_at(150, 300).told(ends=True)
    assert told.words(RULES, EPOCH + timedelta(seconds=900)) == (
        "idle since 2026-01-01T00:00:00Z (use below 5) until 2026-01-01T00:05:00Z, "
        "and its use is not known since; it is not ended while that is so"
    )


@pytest.mark.parametrize(
    ("use", "idle"),
    [
        ({"a": 0.0, "b": 4.9}, True),
        ({"a": 0.0, "b": 5.0}, False),
        ({"a": 0.0, "b": math.inf}, False),
        ({"a": 0.0, "b": math.nan}, False),
        ({"a": 0.0}, None),
        ({"a": 50.0}, False),
        ({}, None),
    ],
)
def test_all_pods_must_be_known_and_below(use: dict[str, float], idle: bool | None) -> None:
    values = {("default", name): value for name, value in use.items()}
    assert is_idle(pods("a", "b"), values, 5.0) is idle


def test_no_pods_and_pods_without_a_node_are_not_idle() -> None:
    assert is_idle([], {}, 5.0) is None
    assert is_idle(pods("a", node=""), {("default", "a"): 0.0}, 5.0) is None


def test_a_value_of_another_namespace_is_none() -> None:
    assert is_idle(pods("a"), {("other", "a"): 0.0}, 5.0) is None


def test_what_an_owner_creates_again_does_not_end_for_good() -> None:
    bare = pod("a").with_("spec.restartPolicy", "Always")
    service = bare.owned_by("ReplicaSet", "web")
    once = service.with_("spec.restartPolicy", "Never")
    assert [ends_for_good("Pod", [read(each)]) for each in (bare, service, once)] == [True, False, True]
    assert ends_for_good("Job", [read(service)])


def test_only_what_was_preempted_while_it_was_idle_waits_last() -> None:
    unused = Unused(jobid=7, pods="x", since=EPOCH, seen_at=EPOCH, seen_by=3)
    row = a_workload("mpi", jobid=7, state=State.RUNNING, requeue_state=RequeueState(unused=unused))
    assert (is_unused(row, Epoch(3)), is_unused(row, Epoch(4)), waits_last(row)) == (True, False, False)
    assert not is_unused(replace(row, jobid=FluxionJobId(8)), Epoch(3)), "it was started again"
    pending = replace(row, state=State.PENDING, jobid=None)
    assert (waits_last(pending), waits_last(replace(pending, requeue_state=RequeueState()))) == (True, False)
    moved = Moved(at=EPOCH, first=9, since=EPOCH, nodes=1)
    state = RequeueState(unused=unused, preempted_for=9, moved=moved)
    assert not waits_last(replace(pending, requeue_state=state))
