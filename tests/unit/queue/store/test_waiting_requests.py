"""The figures of waiting requests follow each row that changes."""

from __future__ import annotations

from dataclasses import replace

from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.store.waiting_requests import RequestUse, WaitingRequests


def test_a_request_counts_in_its_namespace_and_queue_while_its_work_waits() -> None:
    requests, row = WaitingRequests(), a_workload(jobspec="x" * 100)
    requests.change(None, row)
    assert requests.held("default") == {"default": RequestUse(1, 100)}
    moved = replace(row, queue="other", jobspec="x" * 70)
    requests.change(row, moved)
    assert requests.held("default") == {"other": RequestUse(1, 70)}
    started = replace(moved, state=State.ALLOCATED)
    requests.change(moved, started)
    assert requests.held("default") == {}
    requests.change(started, replace(started, state=State.RUNNING))
    requests.change(started, None)
    assert requests.held("default") == {}


def test_work_that_was_left_out_is_known_in_the_order_of_submission() -> None:
    requests = WaitingRequests()
    first, second, third = (a_workload(jobspec="", reason=Reason.QUEUE_LIMIT) for _ in range(3))
    for row in (third, first, second):
        requests.change(None, row)
    assert [workload for _, workload in requests.left_out("default")["default"]] == [
        first.id,
        second.id,
        third.id,
    ]
    requests.change(second, None)
    requests.change(first, replace(first, jobspec="{}", reason=Reason.NONE))
    assert [workload for _, workload in requests.left_out("default")["default"]] == [third.id]
    requests.change(third, replace(third, reason=Reason.HELD))
    assert requests.left_out("default") == {}


def test_work_without_a_request_for_another_reason_counts_nowhere() -> None:
    requests, row = WaitingRequests(), a_workload(jobspec="", reason=Reason.INVALID_REQUEST)
    requests.change(None, row)
    requests.change(row, None)
    assert (requests.held("default"), requests.left_out("default")) == ({}, {})


def test_a_namespace_is_eased_when_a_request_of_it_does_not_wait_any_more() -> None:
    requests, row = WaitingRequests(), a_workload()
    requests.change(None, row)
    requests.change(row, replace(row, reason=Reason.WAITING_FOR_NODES))
    assert requests.take_eased() == set()
    requests.change(row, None)
    assert requests.take_eased() == {"default"}
    assert requests.take_eased() == set()
