from typing import Any

import msgspec
import pytest
from support.builders import make_reservation

from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.fluxion.messages import AdvanceReservation
from fluxqueue.queue.model.occurrences import Occurrence
from fluxqueue.queue.model.reservation_plans import (
    BookedReservation,
    NodeView,
    ReservationPlan,
    choose_nodes,
    plan_of,
)

NINE = "2026-12-01T09:00:00"
NODES = [
    NodeView("n3", {"rack": "a"}),
    NodeView("n1", {"rack": "a"}),
    NodeView("n2", {"rack": "b"}),
    NodeView("n4", {"rack": "a"}, up=False),
]


def plan(**spec: Any) -> ReservationPlan:
    return plan_of(
        msgspec.convert(
            make_reservation("course", **{"start": NINE, "nodes": ["n1"], **spec}), FluxReservation
        )
    )


def test_a_plan_has_what_the_object_says() -> None:
    read = plan(nodes=["n2", "n1", "n2"], namespaces=["a"], queues=["q"])
    assert (read.name, read.uid, read.names, read.count, read.problem) == (
        "course",
        "uid-course",
        ("n1", "n2"),
        None,
        "",
    )
    assert read.times is not None
    assert read.times.length_s == 3_600


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"start": "soon"}, "spec.start: 'soon' is not a time"),
        ({"nodes": {}}, "spec.nodes: write names, count or selector"),
        ({"namespaces": None}, "spec: say who may use it"),
    ],
)
def test_what_a_webhook_that_is_away_let_through_is_a_problem(spec: dict[str, Any], problem: str) -> None:
    read = plan(**spec)
    assert read.problem.startswith(problem)
    assert read.refusal("default", "default").startswith("is not valid: ")


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"namespaces": ["default"]}, ""),
        ({"queues": ["default"]}, ""),
        ({"namespaces": ["default"], "queues": ["default"]}, ""),
        ({"namespaces": ["other"]}, "is not for namespace 'default'"),
        ({"queues": ["other"]}, "is not for the queue 'default'"),
        ({"namespaces": ["default"], "queues": []}, "is not for the queue 'default'"),
        ({"maintenance": True}, "is a maintenance, in which nothing runs"),
    ],
)
def test_namespace_and_queue_must_be_named_where_some_are(spec: dict[str, Any], refusal: str) -> None:
    found = plan(**spec).refusal("default", "default")
    assert found.startswith(refusal)
    assert bool(found) == bool(refusal)


def test_named_nodes_are_no_choice_and_need_not_exist() -> None:
    assert choose_nodes(plan(nodes=["x", "n1"]), NODES) == ("n1", "x")


def test_all_nodes_with_the_labels_are_taken_up_or_not() -> None:
    assert choose_nodes(plan(nodes={"selector": {"rack": "a"}}), NODES) == ("n1", "n3", "n4")


def test_a_number_of_nodes_is_chosen_by_how_soon_they_are_free_then_by_name() -> None:
    assert choose_nodes(plan(nodes={"count": 2}), NODES, busy={"n1": 60.0}) == ("n2", "n3")
    assert choose_nodes(plan(nodes={"count": 2, "selector": {"rack": "a"}}), NODES) == ("n1", "n3")


def test_chosen_nodes_stay_while_they_are_there_up_and_not_taken() -> None:
    two = plan(nodes={"count": 2})
    assert choose_nodes(two, NODES, kept=("n3", "n2"), busy={"n3": 60.0}) == ("n2", "n3")
    assert choose_nodes(two, NODES, kept=("n4", "gone", "n2")) == ("n1", "n2")
    assert choose_nodes(two, NODES, kept=("n2", "n3"), taken={"n3"}) == ("n1", "n2")
    assert choose_nodes(plan(nodes={"count": 1}), NODES, kept=("n2", "n3")) == ("n2",)
    assert choose_nodes(plan(nodes={"count": 9}), NODES) == ("n1", "n2", "n3")


def booked(on: str, *times: tuple[int, int], **spec: Any) -> BookedReservation:
    return BookedReservation(plan(**spec), tuple(on), tuple(Occurrence(*each) for each in times))


def test_what_the_matcher_gets() -> None:
    assert booked("ab", (5, 9), maintenance=True).for_matcher() == AdvanceReservation(
        "course", ("a", "b"), ((5, 9),), maintenance=True
    )


def test_a_reservation_is_active_within_its_first_time() -> None:
    assert [booked("a", (5, 9), (15, 19)).active(now) for now in (4, 5, 8, 9)] == [False, True, True, False]
    assert not booked("a").active(5)


def test_two_reservations_meet_on_a_common_node_at_a_common_time() -> None:
    mine = booked("ab", (5, 9), (15, 19))
    assert mine.meets(booked("bc", (8, 10), (18, 30))) == Occurrence(8, 9)
    assert mine.meets(booked("bc", (9, 15))) is None
    assert mine.meets(booked("c", (5, 9))) is None


def test_missing_nodes_are_counted() -> None:
    assert booked("ab", (5, 9), nodes={"count": 3}).missing == 1
    assert booked("ab", (5, 9)).missing == 0


def test_times_that_cannot_be_computed_are_a_problem_of_their_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflows(*_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr("fluxqueue.queue.model.reservation_plans.occurrences", overflows)
    words = "spec: its times cannot be computed (date value out of range): correct start, repeat or timeZone"
    assert (plan().times, plan().problem) == (None, words)
