from datetime import timedelta
from typing import Any

import pytest
from queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.kube.events import Severity
from fluxqueue.queue.controllers.tellings import NOTABLE_S, Told, tellings
from fluxqueue.queue.records import Workload

NEW = Told()


def after(workload: Workload, seconds: float, told: Told = NEW) -> tuple[list[str], Told, float | None]:
    """Reasons told this long after it was submitted."""
    said, told, again_s = tellings(workload, told, workload.submitted_at + timedelta(seconds=seconds))
    return [telling.reason for telling in said], told, again_s


def waiting(reason: Reason = Reason.WAITING_FOR_NODES, message: str = "8 cpu are short", **changes: Any) -> Workload:
    return a_workload(reason=reason, message=message, **changes)


def started(workload_told: Told = NEW, seconds: float = 1) -> list[str]:
    return after(a_workload(state=State.ALLOCATED, jobid=7, hosts="n1"), seconds, workload_told)[0]


def test_work_that_starts_at_once_is_told_nothing() -> None:
    said, told, again_s = after(a_workload(), 0.5)
    assert (said, again_s) == ([], None)
    assert started(told) == []


def test_waiting_is_told_once_it_is_notable_and_then_the_release() -> None:
    said, told, again_s = after(waiting(), 2)
    assert (said, again_s) == ([], NOTABLE_S - 2)
    assert started(told, 9) == []
    said, told, again_s = after(waiting(), NOTABLE_S + 1, told)
    assert (said, again_s) == (["WaitingForNodes"], None)
    assert started(told, 60) == ["Released"]


def test_the_reasons_of_waiting_follow_each_other_untold() -> None:
    _, told, _ = after(waiting(), 20)
    assert after(waiting(Reason.BLOCKED_BY_RESERVATION), 30, told)[0] == []
    assert after(waiting(message="4 cpu are short"), 40, told)[0] == []


@pytest.mark.parametrize("reason", [Reason.UNSATISFIABLE, Reason.INVALID_REQUEST, Reason.UNKNOWN_QUEUE, Reason.QUEUE_NOT_ALLOWED])
def test_what_a_person_can_mend_is_told_at_once_and_again_when_it_says_something_else(reason: Reason) -> None:
    said, told, _ = after(waiting(reason, "the cpu"), 0.5)
    assert said == [str(reason)]
    assert after(waiting(reason, "the cpu"), 1, told)[0] == []
    assert after(waiting(reason, "the memory"), 2, told)[0] == [str(reason)]
    assert started(told) == [], "mended at once, it did not wait"


def test_a_hold_is_told_at_once() -> None:
    assert after(waiting(Reason.HELD, "by somebody"), 0.5)[0] == ["Held"]


def test_a_requeue_is_told_with_its_cause_as_a_warning_and_so_is_the_start_after_it() -> None:
    requeued = waiting(Reason.START_TIMEOUT, "pod x was not bound in 300 s", requeues=1)
    said, told, _ = tellings(requeued, NEW, requeued.submitted_at)
    assert [(one.reason, one.message, one.severity) for one in said] == [("Requeued", "pod x was not bound in 300 s", Severity.WARNING)]
    assert after(requeued, 1, told)[0] == [], "the reason was told with it"
    assert started(told) == ["Released"]


def test_who_suspended_his_own_job_is_not_told() -> None:
    assert after(waiting(Reason.USER_SUSPENDED, "by its user", requeues=1), 60)[0] == []
    assert after(waiting(Reason.USER_SUSPENDED), 60)[0] == []
