"""Which Events are due for a workload, when, and how often."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.kube.events import Severity
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.groups import OVERDUE_S
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.status.events import AGAIN_S, EXPIRES_S, NOTABLE_S, LastReport, due_events

NEW = LastReport()


def after(
    workload: Workload, seconds: float, last: LastReport = NEW
) -> tuple[list[str], LastReport, float | None]:
    """Reasons of the Events that are due this long after the submission."""
    events, last, again_s = due_events(workload, last, workload.submitted_at + timedelta(seconds=seconds))
    return [event.reason for event in events], last, again_s


def waiting(
    reason: Reason = Reason.WAITING_FOR_NODES, message: str = "8 cpu are short", **changes: Any
) -> Workload:
    return a_workload(reason=reason, message=message, **changes)


def started(last: LastReport = NEW, seconds: float = 1) -> list[str]:
    return after(a_workload(state=State.ALLOCATED, jobid=7, hosts="n1"), seconds, last)[0]


def test_work_that_starts_at_once_gets_no_event() -> None:
    events, last, again_s = after(a_workload(), 0.5)
    assert (events, again_s) == ([], None)
    assert started(last) == []


def test_waiting_is_reported_once_it_is_notable_and_then_the_release() -> None:
    events, last, again_s = after(waiting(), 2)
    assert (events, again_s) == ([], NOTABLE_S - 2)
    assert started(last, 9) == []
    events, last, again_s = after(waiting(), NOTABLE_S + 1, last)
    assert (events, again_s) == (["WaitingForNodes"], None)
    assert started(last, 60) == ["Released"]


def test_of_the_reasons_to_wait_that_follow_each_other_only_the_first_is_reported() -> None:
    _, last, _ = after(waiting(), 20)
    assert after(waiting(Reason.BLOCKED_BY_RESERVATION), 30, last)[0] == []
    assert after(waiting(message="4 cpu are short"), 40, last)[0] == []


@pytest.mark.parametrize(
    "reason", [Reason.UNSATISFIABLE, Reason.INVALID_REQUEST, Reason.UNKNOWN_QUEUE, Reason.QUEUE_NOT_ALLOWED]
)
def test_a_problem_for_a_person_is_reported_at_once_and_again_when_it_changes(reason: Reason) -> None:
    events, last, _ = after(waiting(reason, "the cpu"), 0.5)
    assert events == [str(reason)]
    assert after(waiting(reason, "the cpu"), 1, last)[0] == []
    assert after(waiting(reason, "the memory"), 2, last)[0] == [str(reason)]
    assert started(last) == [], "it was solved at once, so the work did not wait"


def test_a_hold_is_reported_at_once() -> None:
    assert after(waiting(Reason.HELD, "by somebody"), 0.5)[0] == ["Held"]


def test_a_group_that_stays_incomplete_is_reported_as_a_warning() -> None:
    group = waiting(Reason.WAITING_FOR_GROUP, "2 of 4 pods exist")
    assert after(group, 0.5)[0] == []
    events, last, _ = due_events(group, NEW, group.submitted_at + timedelta(seconds=OVERDUE_S))
    assert [(event.reason, event.severity) for event in events] == [("WaitingForGroup", Severity.WARNING)]
    assert after(group, OVERDUE_S + 1, last)[0] == []


def test_a_requeue_is_reported_with_its_cause_and_so_is_the_start_after_it() -> None:
    requeued = waiting(Reason.START_TIMEOUT, "pod x was not bound in 300 s", requeues=1)
    events, last, _ = due_events(requeued, NEW, requeued.submitted_at)
    assert [(event.reason, event.message, event.severity) for event in events] == [
        ("Requeued", "pod x was not bound in 300 s", Severity.WARNING)
    ]
    assert after(requeued, 1, last)[0] == [], "the reason was part of the Event"
    assert started(last) == ["Released"]


def test_a_user_who_suspended_a_job_gets_no_event() -> None:
    assert after(waiting(Reason.USER_SUSPENDED, "by its user", requeues=1), 60)[0] == []
    assert after(waiting(Reason.USER_SUSPENDED), 60)[0] == []


WAITS = waiting()
BLOCKED = replace(WAITS, reason=Reason.BLOCKED_BY_RESERVATION, message="of job/a")


def expected(minutes: float, position: int = 3) -> Estimate:
    return Estimate(position=position, eta=WAITS.submitted_at + timedelta(minutes=minutes))


def told(
    workload: Workload, seconds: float, last: LastReport, estimate: Estimate | None
) -> tuple[list[tuple[str, bool]], LastReport]:
    """Messages of the Events that are due, each with whether it repeats another,
    and the report after them.
    """
    events, last, _ = due_events(
        workload, last, workload.submitted_at + timedelta(seconds=seconds), estimate=estimate
    )
    return [(event.message, event.repeats) for event in events], last


def test_the_event_about_a_wait_says_until_when() -> None:
    events, last = told(WAITS, 20, NEW, expected(30))
    at = f"{WAITS.submitted_at + timedelta(minutes=30):%Y-%m-%dT%H:%M:%SZ}"
    assert events == [
        (f"8 cpu are short; expected to start by {at}, position 3 in the queue 'default'", False)
    ]
    assert isinstance(last.eta, datetime)


def test_a_wait_is_told_again_before_the_event_expires_with_the_present_reason() -> None:
    _, last = told(WAITS, 20, NEW, None)
    assert told(WAITS, 20 + EXPIRES_S - 1, last, None)[0] == []
    events, last = told(BLOCKED, 20 + EXPIRES_S, last, None)
    assert events == [("of job/a", True)]
    assert told(BLOCKED, 60 + EXPIRES_S, last, None)[0] == []


@pytest.mark.parametrize("reason", [Reason.UNSATISFIABLE, Reason.HELD])
def test_what_a_person_has_to_solve_is_told_again_too(reason: Reason) -> None:
    work = replace(WAITS, reason=reason)
    _, last = told(work, 1, NEW, None)
    assert told(work, EXPIRES_S + 2, last, None)[0] == [("8 cpu are short", True)]


def test_a_start_that_moved_is_told_again_but_not_soon() -> None:
    _, last = told(WAITS, 20, NEW, expected(60))
    assert told(WAITS, 20 + AGAIN_S - 1, last, expected(120))[0] == []
    assert told(WAITS, 20 + AGAIN_S, last, expected(65))[0] == [], "five minutes are no news"
    (event,), last = told(WAITS, 20 + AGAIN_S, last, expected(120))
    assert event[1]
    assert told(WAITS, 30 + AGAIN_S, last, expected(240))[0] == []
