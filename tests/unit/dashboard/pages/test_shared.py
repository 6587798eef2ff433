from support.dashboard_site import NOW, Stage, at, job

from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.job_rows import planned_end
from fluxqueue.dashboard.pages.shared import planned_start, visible_rows


def test_a_reservation_comes_before_an_estimate() -> None:
    start = planned_start(job("a", reservedAt=at(60), eta=at(600)))
    assert start is not None
    assert (start - NOW).total_seconds() == 60
    assert planned_start(job("a")) is None


def test_an_end_is_bounded_and_may_be_unknown() -> None:
    end = planned_end(job("a", spec={"durationSeconds": 2**53}), NOW)
    assert end is not None
    assert end.year < 2040
    assert planned_end(job("a", spec={"durationSeconds": 0}), NOW) is None
    assert planned_end(job("a", spec={"durationSeconds": 2**53}), NOW.replace(year=9995)) is None


def test_rows_are_those_that_somebody_sees() -> None:
    stage = Stage()
    stage.show(job("a"), job("b", "red"))
    assert [row.namespace for row in visible_rows(stage.site, Visible(frozenset({"red"})))] == ["red"]
