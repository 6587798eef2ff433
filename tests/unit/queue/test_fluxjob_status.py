"""What FluxJobs tell of place and start, and how often."""

from __future__ import annotations

from datetime import timedelta

from queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.controllers.fluxjobs import Shown, estimates_to_show, status_of
from fluxqueue.queue.records import Estimate, WorkloadId

ONE, TWO = WorkloadId(1), WorkloadId(2)


def at(minutes: int, position: int = 1, *, reserved: bool = False) -> Estimate:
    eta = EPOCH + timedelta(minutes=minutes)
    return Estimate(position=position, eta=eta, eta_soonest=EPOCH, eta_first=EPOCH + timedelta(minutes=9), reserved=reserved)


def test_a_reservation_is_told_beside_the_estimate_it_makes_exact() -> None:
    status = status_of(a_workload(), at(5, reserved=True))
    assert (status.position, status.eta, status.reserved_at) == (1, "2026-01-01T00:05:00Z", "2026-01-01T00:05:00Z")
    assert (status.eta_soonest, status.eta_first) == ("2026-01-01T00:00:00Z", "2026-01-01T00:09:00Z")


def test_an_estimate_without_a_reservation_promises_none() -> None:
    assert status_of(a_workload(), at(5)).reserved_at is None


def test_work_without_an_estimate_still_tells_its_state() -> None:
    status = status_of(a_workload(state=State.RUNNING))
    assert (status.state, status.position, status.eta) == ("Running", None, None)


def test_a_new_estimate_is_told_at_once_and_a_changed_one_after_half_a_minute() -> None:
    shown: Shown = {}
    shown, changed = estimates_to_show(shown, {ONE: at(5)}, 0)
    assert changed == [ONE]
    shown, changed = estimates_to_show(shown, {ONE: at(6), TWO: at(8, 2)}, 20)
    assert (changed, shown[ONE]) == ([TWO], (at(5), 0))
    shown, changed = estimates_to_show(shown, {ONE: at(7), TWO: at(8, 2)}, 31)
    assert (changed, shown[ONE]) == ([ONE], (at(7), 31))


def test_an_estimate_that_stays_costs_no_write_however_old_it_is() -> None:
    shown, _ = estimates_to_show({}, {ONE: at(5)}, 0)
    assert estimates_to_show(shown, {ONE: at(5)}, 1000) == (shown, [])


def test_only_the_first_hundred_are_told_and_who_starts_is_forgotten() -> None:
    many = {WorkloadId(number): at(5, number) for number in range(1, 121)}
    shown, changed = estimates_to_show({}, many, 0)
    assert len(changed) == len(shown) == 100
    assert estimates_to_show(shown, {}, 1) == ({}, [])
