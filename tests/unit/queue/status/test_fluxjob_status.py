"""What FluxJobs show of position and start, and how often it is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.records import (
    Epoch,
    FluxionJobId,
    Transition,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.status.fluxjob_status import (
    ShownEstimates,
    estimates_to_show,
    published_promise,
    status_json,
    status_of,
)

ONE, TWO = WorkloadId(1), WorkloadId(2)
SPEC = {"objectRef": {"kind": "Job", "name": "a", "uid": "uid-a"}}


def at(minutes: int, position: int = 1, *, reserved: bool = False) -> Estimate:
    eta = EPOCH + timedelta(minutes=minutes)
    return Estimate(
        position=position,
        eta=eta,
        eta_soonest=EPOCH,
        eta_first=EPOCH + timedelta(minutes=9),
        reserved=reserved,
    )


def test_a_reservation_is_shown_with_the_estimate_that_it_makes_exact() -> None:
    status = status_of(a_workload(), at(5, reserved=True))
    assert (status.position, status.eta, status.reserved_at) == (
        1,
        "2026-01-01T00:05:00Z",
        "2026-01-01T00:05:00Z",
    )
    assert (status.eta_soonest, status.eta_first) == ("2026-01-01T00:00:00Z", "2026-01-01T00:09:00Z")


def test_the_first_estimate_is_shown_to_the_end() -> None:
    promised = a_workload(state=State.RUNNING, promised_at=EPOCH + timedelta(minutes=9))
    assert status_of(promised).eta_first == "2026-01-01T00:09:00Z"
    waits_again = a_workload(promised_at=EPOCH)
    assert status_of(waits_again, at(5)).eta_first == "2026-01-01T00:00:00Z", (
        "the first estimate does not change"
    )


def test_the_first_estimate_of_a_former_leader_is_read_for_the_same_wait_only() -> None:
    workload = a_workload()
    shown = msgspec.convert(
        {"status": status_json(status_of(workload, at(5))), "metadata": {"name": "a"}, "spec": SPEC}, FluxJob
    )
    assert published_promise(shown, workload) == EPOCH + timedelta(minutes=9)
    assert published_promise(shown, replace(workload, submitted_at=EPOCH + timedelta(hours=1))) is None
    assert published_promise(None, workload) is None
    for damaged in (None, "soon", "2026-01-01T00:00:00"):
        status = msgspec.structs.replace(shown.status, eta_first=damaged)
        assert published_promise(msgspec.structs.replace(shown, status=status), workload) is None


def test_an_estimate_without_a_reservation_shows_none() -> None:
    assert status_of(a_workload(), at(5)).reserved_at is None


def test_work_without_an_estimate_shows_its_state() -> None:
    status = status_of(a_workload(state=State.RUNNING))
    assert (status.state, status.position, status.eta) == ("Running", None, None)


def test_a_job_that_gave_pods_back_shows_the_nodes_that_it_kept_and_why() -> None:
    given = RequeueState(
        given_back=GivenBack(jobid=7, ranks=(0, 2), stop_at=EPOCH, message="2 pods end of the 4")
    )
    workload = a_workload(state=State.RUNNING, jobid=7, hosts="n[0-3]", requeue_state=given)
    assert (status_of(workload).nodes, status_of(workload).message) == ("n[1,3]", "2 pods end of the 4")
    again = replace(workload, jobid=FluxionJobId(8))
    assert (status_of(again).nodes, status_of(again).message) == ("n[0-3]", "")


def test_the_reason_of_every_requeue_is_shown_whatever_it_waits_for_now() -> None:
    transitions = [
        Transition(
            workload=ONE,
            at=EPOCH + timedelta(minutes=number),
            before=State.ALLOCATED,
            after=State.DRAINING,
            reason="BindFailed",
            detail=f"pod {number} " + "x" * 5000,
            epoch=Epoch(1),
        )
        for number in (1, 2)
    ]
    status = status_of(a_workload(reason=Reason.WAITING_FOR_NODES, requeues=2), requeues=transitions)
    reasons = status.requeue_reasons or []
    assert [(each.at, each.reason, each.message[:5]) for each in reasons] == [
        ("2026-01-01T00:01:00Z", "BindFailed", "pod 1"),
        ("2026-01-01T00:02:00Z", "BindFailed", "pod 2"),
    ]
    assert all(len(each.message) <= 1000 for each in reasons)
    assert status_of(a_workload()).requeue_reasons is None


def test_a_reservation_that_moves_is_shown_at_once_as_the_reason_says() -> None:
    shown: ShownEstimates = {ONE: (at(5, reserved=True), 100.0)}
    assert estimates_to_show(shown, {ONE: at(15, reserved=True)}, 101.0)[1] == [ONE]
    assert estimates_to_show(shown, {ONE: at(5, position=2, reserved=True)}, 101.0)[1] == []


def test_a_new_estimate_is_shown_at_once_and_a_changed_one_after_half_a_minute() -> None:
    shown: ShownEstimates = {}
    shown, changed, _ = estimates_to_show(shown, {ONE: at(5)}, 0)
    assert changed == [ONE]
    shown, changed, _ = estimates_to_show(shown, {ONE: at(6), TWO: at(8, 2)}, 20)
    assert (changed, shown[ONE]) == ([TWO], (at(5), 0))
    shown, changed, _ = estimates_to_show(shown, {ONE: at(7), TWO: at(8, 2)}, 31)
    assert (changed, shown[ONE]) == ([ONE], (at(7), 31))


def test_an_estimate_that_stays_costs_no_write_however_old_it_is() -> None:
    shown, *_ = estimates_to_show({}, {ONE: at(5)}, 0)
    assert estimates_to_show(shown, {ONE: at(5)}, 1000)[:2] == (shown, [])


def test_a_lost_reservation_is_shown_at_once() -> None:
    shown, *_ = estimates_to_show({}, {ONE: at(5, reserved=True)}, 0)
    shown, changed, _ = estimates_to_show(shown, {ONE: at(5)}, 1)
    assert (changed, shown[ONE]) == ([ONE], (at(5), 1))


def test_a_new_reservation_is_shown_within_seconds_because_the_reason_names_it_at_once() -> None:
    shown, *_ = estimates_to_show({}, {ONE: at(5)}, 0)
    reserved = {ONE: at(6, reserved=True)}
    assert estimates_to_show(shown, reserved, 3)[:2] == (shown, [])
    shown, changed, _ = estimates_to_show(shown, reserved, 4)
    assert (changed, shown[ONE]) == ([ONE], (at(6, reserved=True), 4))


def test_other_positions_and_starts_are_shown_within_seconds_while_few_change() -> None:
    many = {WorkloadId(number): at(5, number) for number in range(1, 10)}
    shown, *_ = estimates_to_show({}, many, 0)
    moved = {number: at(5, (each.position or 0) - 1) for number, each in many.items() if number > 1}
    assert estimates_to_show(shown, moved, 1, early=20).changed == []
    assert estimates_to_show(shown, moved, 2, early=20)[1:] == ([*range(2, 10)], 8)
    assert estimates_to_show(shown, moved, 2, early=3)[1:] == ([2, 3, 4], 3), "the first in their queues"
    assert estimates_to_show(shown, moved, 2, early=0).changed == []


def test_another_soonest_start_alone_is_worth_no_early_write() -> None:
    shown, *_ = estimates_to_show({}, {ONE: at(5)}, 0)
    assert estimates_to_show(shown, {ONE: replace(at(5), eta_soonest=EPOCH)}, 20, early=20).changed == []


def test_only_the_first_hundred_are_shown_and_started_work_is_forgotten() -> None:
    many = {WorkloadId(number): at(5, number) for number in range(1, 121)}
    shown, changed, _ = estimates_to_show({}, many, 0)
    assert len(changed) == len(shown) == 100
    assert estimates_to_show(shown, {}, 1)[:2] == ({}, [])


def test_many_queues_write_few_estimates_at_once_and_all_of_them_in_time() -> None:
    known = {WorkloadId(number): at(5, 1 + number // 30) for number in range(1, 300)}
    shown: ShownEstimates = {}
    written: list[WorkloadId] = []
    for second in range(0, 32, 2):
        shown, changed, _ = estimates_to_show(shown, known, second, most=20)
        assert len(changed) <= 20
        written += changed
    assert set(written[:29]) == set(range(1, 30)), "the heads of the queues come first"
    assert set(written) == known.keys()


def test_a_head_is_shown_again_before_work_far_behind_it_is_shown_first() -> None:
    shown, *_ = estimates_to_show({}, {ONE: at(5)}, 0, most=1)
    _, changed, _ = estimates_to_show(shown, {ONE: at(6), TWO: at(8, 90)}, 60, most=1)
    assert changed == [ONE]


def test_reservations_are_shown_however_many_other_estimates_change() -> None:
    known = {ONE: at(5), TWO: at(8, 2, reserved=True)}
    assert estimates_to_show({}, known, 0, most=0) == ({TWO: (known[TWO], 0)}, [TWO], 0)
