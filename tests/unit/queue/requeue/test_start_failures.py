"""What keeps released pods from their nodes."""

from __future__ import annotations

import msgspec
from support.builders import NodeBuilder, make_node, make_pod
from support.queue_builders import a_pod, an_allocation
from support.start_pods import FULL, ROW, TWO, pod, refused, unbindable

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.records import SlotState
from fluxqueue.queue.requeue.start_failures import (
    StartFailure,
    StartFailureCause,
    find_bind_refusal,
    find_closed_nodes,
    find_timeout,
    lost_nodes,
)


def test_a_start_has_not_failed_if_every_slot_has_a_bound_pod() -> None:
    assert find_timeout(TWO, [pod("a"), pod("b")], 300) is None


def test_the_message_of_the_stock_scheduler_comes_with_the_refusing_node() -> None:
    failed = find_timeout(TWO, [pod("a"), refused("b")], 300)
    assert failed == StartFailure(
        Reason.BIND_FAILED,
        "pod b could not be bound to n2 in 300 s: 0/4 nodes are available: 1 node(s) were unschedulable",
        ("n2",),
        pods=(refused("b"),),
    )


def test_pods_that_were_not_created_are_counted() -> None:
    failed = find_timeout(TWO, [pod("a")], 300)
    assert failed is not None
    assert (failed.reason, failed.nodes) == (Reason.START_TIMEOUT, ())
    assert failed.message.startswith(
        "1 of 2 pods were not created in 300 s: a quota or an admission plugin may refuse them"
    )


def test_pods_that_are_being_deleted_are_not_blamed_on_a_quota() -> None:
    deleted = pod(
        "b",
        make_pod("b")
        .on_node("n2")
        .phase("Running")
        .with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"),
    )
    failed = find_timeout(TWO, [pod("a"), deleted], 300)
    assert failed is not None
    assert failed.message == "1 of 2 pods are missing: 1 is being deleted and is replaced once gone"


def test_the_gate_of_another_controller_is_named() -> None:
    failed = find_timeout(TWO, [pod("a"), pod("b", make_pod("b").gate("example.com/wait"))], 300)
    assert failed is not None
    assert failed.foreign_gate
    assert "example.com/wait of another controller" in failed.message


def test_a_late_pod_is_reported_without_siblings_that_still_have_time() -> None:
    failed = find_timeout(TWO, [refused("a"), refused("b")], 300, late={"b"})
    assert failed is not None
    assert [each.metadata.uid for each in failed.pods] == ["b"]
    assert find_timeout(TWO, [pod("a")], 300, late={"c"}) is None


def test_a_pod_that_waits_for_its_own_slot_is_not_late() -> None:
    assert find_timeout(TWO, [pod("a"), pod("b", make_pod("b").gate("fluxqueue"))], 300) is None


def test_only_open_slots_count_as_lost() -> None:
    allocation = an_allocation(["n1", "n2"], states=[SlotState.ENDED, SlotState.TAKEN])
    assert lost_nodes(ROW, allocation, {"n1"}.__contains__) == ()
    assert lost_nodes(ROW, allocation, {"n1", "n2"}.__contains__) == ("n2",)


def test_the_message_of_our_scheduler_comes_with_the_refusing_node() -> None:
    failed = find_bind_refusal([unbindable("c", "n3"), unbindable()])
    assert failed.message == f"pod b, and 1 more could not be bound to n2: {FULL}"
    assert (failed.reason, failed.nodes, failed.cause) == (
        Reason.BIND_FAILED,
        ("n2", "n3"),
        StartFailureCause.UNBINDABLE,
    )


def test_pods_that_our_scheduler_has_and_does_not_refuse_keep_their_slots() -> None:
    released = [pod("a", make_pod("a").by_fluxion("n1")), pod("b", make_pod("b").by_fluxion("n2"))]
    failed = find_timeout(TWO, released, 300)
    assert failed is not None
    assert failed.scheduler_waits
    assert failed.message.endswith("is the scheduler of fluxqueue running?")
    waiting = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "WaitingForVolume",
        "message": "claim data waits for its volume",
    }
    failed = find_timeout(
        TWO,
        [pod("a", make_pod("a").by_fluxion("n1").with_("status.conditions", [waiting])), released[1]],
        300,
    )
    assert failed is not None
    assert failed.message.endswith("claim data waits for its volume")


def test_where_a_pod_of_the_gang_is_missing_waiting_does_not_help() -> None:
    failed = find_timeout(TWO, [pod("a", make_pod("a").by_fluxion("n1"))], 300)
    assert failed is not None
    assert not failed.scheduler_waits


def node(builder: NodeBuilder) -> Node:
    return msgspec.convert(builder.uid("n").build(), Node)


def test_a_pod_whose_node_closed_before_it_was_bound_is_found_at_once() -> None:
    waits = a_pod(make_pod("b"), uid="b")
    nodes = {"n1": node(make_node("n1").cordoned()), "n2": node(make_node("n2").cordoned())}
    failure = find_closed_nodes(TWO, [pod("a"), waits], nodes.get)
    assert failure is not None
    assert (failure.message, failure.pods) == ("pod b cannot be bound: node n2 is cordoned", (waits,))
    assert find_closed_nodes(TWO, [pod("a")], nodes.get) is None


def test_a_node_that_is_not_ready_is_tolerated_for_a_while() -> None:
    assert (
        find_closed_nodes(TWO, [a_pod(make_pod("b"), uid="b")], {"n2": node(make_node("n2").not_ready())}.get)
        is None
    )
