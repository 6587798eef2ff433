from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.builders import make_node
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Flavor, FluxQueue, FluxQueueSpec, Members, Policy, QueueState
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.records import SlotState
from fluxqueue.queue.status.fluxqueue_status import queue_status, usage_by_queue
from fluxqueue.queue.status.usage import WorkUsage

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, tzinfo=UTC)


def a_queue(**spec: Any) -> FluxQueue:
    return FluxQueue(metadata=ObjectMeta(name="q", generation=4), spec=FluxQueueSpec(**spec))


def conditions(queue: FluxQueue, *labels: dict[str, str]) -> dict[str, tuple[str, str]]:
    nodes = [
        msgspec.convert(make_node(f"n{at}").with_("metadata.labels", of).build(), Node)
        for at, of in enumerate(labels)
    ]
    return {
        found.type: (found.status, found.reason)
        for found in queue_status(queue, WorkUsage(), nodes, NOW).conditions or ()
    }


def test_a_node_counts_once_for_each_queue_and_only_while_it_has_an_open_slot() -> None:
    running = a_workload(queue="a", state=State.RUNNING, jobid=1)
    draining = a_workload(queue="a", state=State.DRAINING, jobid=2)
    other = a_workload(queue="b", state=State.ALLOCATED, jobid=3)
    live = [
        (running, an_allocation(["n1", "n1", "n2"])),
        (draining, an_allocation(["n2", "n3"], states=[SlotState.FREE, SlotState.ENDED])),
        (other, an_allocation(["n1"])),
    ]
    usage = usage_by_queue([running, draining, other, a_workload(queue="b"), a_workload(queue="c")], live)
    assert usage == {"a": WorkUsage(0, 2, 2), "b": WorkUsage(1, 1, 1), "c": WorkUsage(1, 0, 0)}


@pytest.mark.parametrize(
    ("state", "accepting", "starting"),
    [
        (QueueState.OPEN, ("True", "Open"), ("True", "Open")),
        (QueueState.HELD, ("True", "Held"), ("False", "Held")),
        (QueueState.DRAINED, ("False", "Drained"), ("True", "Open")),
    ],
)
def test_conditions_explain_the_state(
    state: QueueState, accepting: tuple[str, str], starting: tuple[str, str]
) -> None:
    assert conditions(a_queue(state=state), {}) == {"Accepting": accepting, "Starting": starting}


def test_a_node_selector_that_matches_no_node_is_reported() -> None:
    queue = a_queue(node_selector={"disk": "ssd", "gen": "2"})
    assert conditions(queue, {"disk": "ssd"}, {"gen": "2"})["Starting"] == ("False", "NoNodes")
    assert conditions(queue, {"disk": "ssd", "gen": "2", "more": "x"})["Starting"] == ("True", "Open")


def test_a_flavor_that_no_node_has_is_named() -> None:
    flavors = [Flavor("own", {"kind": "own"}), Flavor("spot", {"kind": "spot", "zone": "a"}, 60)]
    queue = a_queue(flavors=flavors)
    assert conditions(queue, {"kind": "own"}, {"kind": "spot", "zone": "a"})["Starting"] == ("True", "Open")
    assert conditions(queue, {"kind": "own"})["Starting"] == ("True", "Open")
    assert conditions(queue, {"kind": "spot"})["Starting"] == ("False", "NoNodes")
    nodes = [msgspec.convert(make_node("n").with_("metadata.labels", {"kind": "own"}).build(), Node)]
    found = queue_status(queue, WorkUsage(), nodes, NOW).conditions or []
    assert found[1].message == (
        "work is started when it fits; no node has the labels of spot (kind=spot, zone=a): "
        "correct spec.flavors or label nodes"
    )


def test_no_node_has_a_flavor_that_the_selector_of_the_queue_rules_out() -> None:
    flavors = [Flavor("own", {"kind": "own"}), Flavor("spot", {"kind": "spot"}, 60)]
    queue = a_queue(flavors=flavors, node_selector={"kind": "own"})
    nodes = [msgspec.convert(make_node("n").with_("metadata.labels", {"kind": "own"}).build(), Node)]
    found = queue_status(queue, WorkUsage(), nodes, NOW).conditions or []
    assert "no node has the labels of spot (kind=spot)" in (found[1].message or "")


@pytest.mark.parametrize(
    ("spec", "status", "lost"),
    [
        ({"policy": Policy.FCFS}, "True", ""),
        ({}, "False", "not in force: spec.policy easy"),
        (
            {"policy": Policy.CONSERVATIVE, "match_policy": "first"},
            "False",
            "not in force: spec.policy conservative, spec.matchPolicy",
        ),
    ],
)
def test_a_foreign_matcher_is_said_with_what_it_cannot_do(
    spec: dict[str, Any], status: str, lost: str
) -> None:
    shown = queue_status(a_queue(**spec), WorkUsage(), [], NOW, foreign_matcher=True).conditions or []
    (condition,) = (each for each in shown if each.type == "PolicyInForce")
    assert (condition.status, condition.reason) == (status, "ForeignMatcher")
    assert "without backfill" in condition.message
    assert lost in condition.message


def test_our_own_matcher_is_not_mentioned() -> None:
    assert "PolicyInForce" not in conditions(a_queue())


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    queue = a_queue()
    first = queue_status(queue, WorkUsage(1, 2, 3), [], NOW)
    shown = msgspec.structs.replace(queue, status=first)
    assert queue_status(shown, WorkUsage(1, 2, 3), [], LATER) == first
    held = msgspec.structs.replace(shown, spec=FluxQueueSpec(state=QueueState.HELD))
    accepting, starting = queue_status(held, WorkUsage(1, 2, 3), [], LATER).conditions or []
    assert (accepting.last_transition_time, starting.last_transition_time) == (
        "2026-03-01T12:00:00Z",
        "2026-03-01T13:00:00Z",
    )


@pytest.mark.parametrize(
    ("members", "may"),
    [
        (Members(), True),
        (Members(names=["science"]), True),
        (Members(names=["other"]), False),
        (Members(match_labels={"team": "x"}), True),
        (Members(match_labels={"team": "x", "tier": "gold"}), False),
        (Members(names=["other"], match_labels={"team": "x"}), True),
        (Members(names=[], match_labels={}), True),
    ],
)
def test_a_namespace_is_admitted_by_name_or_by_all_labels(members: Members, may: bool) -> None:
    assert members.admits("science", {"team": "x", "env": "prod"}) is may
