"""Which flavors work may use, and from when on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxqueues import Flavor
from fluxqueue.queue.model.flavors import closed_flavors, flavors_in, waits_since_s
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of, shape_of
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.start_conditions import StartConditions

FLAVORS = (Flavor("own", {"type": "own", "zone": "a"}), Flavor("spot", {"type": "spot"}, 600))
TEXT = jobspec_of("default/j", [SizedPods({}, 1)], duration_s=60, placement=PlacementRules(flavors=FLAVORS))


def work(**values: Any) -> Workload:
    return a_workload(jobspec=TEXT, shape=shape_of(TEXT), submitted_at=EPOCH, **values)


def closed(workload: Workload, passed_s: float) -> list[str]:
    return [each.name for each, _ in closed_flavors(workload, EPOCH + timedelta(seconds=passed_s))]


def test_flavors_are_read_back_as_they_were_written() -> None:
    assert [(each.name, each.wait_s, each.labels) for each in flavors_in(TEXT)] == [
        ("own", 0, ("type=own", "zone=a")),
        ("spot", 600, ("type=spot",)),
    ]
    assert flavors_in(jobspec_of("default/flavors", [SizedPods({}, 1)], duration_s=60)) == ()


def test_a_flavor_is_closed_until_work_has_waited_for_it() -> None:
    assert closed(work(), 599.9) == ["spot"]
    assert closed(work(), 600) == []


def test_the_wait_counts_from_the_earliest_start_that_its_user_allows() -> None:
    later = work(start_conditions=StartConditions(begin_at=EPOCH + timedelta(seconds=100)))
    assert closed(later, 650) == ["spot"]
    assert closed(later, 700) == []


def test_a_part_of_a_second_counts_as_a_second() -> None:
    late = a_workload(jobspec=TEXT, shape=shape_of(TEXT), submitted_at=EPOCH + timedelta(seconds=0.2))
    assert waits_since_s(late) == int(EPOCH.timestamp()) + 1


def test_work_for_a_reservation_has_no_flavors() -> None:
    rules = PlacementRules(flavors=FLAVORS, reservation="course")
    assert flavors_in(jobspec_of("default/j", [SizedPods({}, 1)], duration_s=60, placement=rules)) == ()


def test_work_without_flavors_waits_since_no_time() -> None:
    assert waits_since_s(a_workload()) == 0
    assert closed_flavors(a_workload(), EPOCH) == ()
