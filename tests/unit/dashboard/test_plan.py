from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from support.dashboard_site import NOW, at, job
from support.work_counts import assert_linear

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.plan import MOST_LANES, MOST_TRACKS, Plan, plan_of

WIDTH = 100


def plan(
    *jobs: FluxJob,
    hours: int = 0,
    reservations: tuple[FluxReservation, ...] = (),
    nodes: tuple[str, ...] | None = None,
) -> Plan:
    return plan_of([JobRow(each) for each in jobs], reservations, NOW, hours, nodes=nodes)


def reservation(**status: Any) -> FluxReservation:
    return msgspec.convert({"metadata": {"name": "maintenance"}, "status": status}, FluxReservation)


def test_each_kind_of_work_has_its_bar() -> None:
    found = plan(
        job("runs", state="Running", startedAt=at(-60), allocatedAt=at(-70), nodes="node-1"),
        job("over", state="Running", startedAt=at(-900)),
        job("reserved", reservedAt=at(600), eta=at(600)),
        job("estimated", eta=at(1_200)),
        job("unknown"),
        job("ended", state="Completed", startedAt=at(-60)),
    )
    assert [(lane.label, lane.bars[0].kind) for lane in found.lanes] == [
        ("job/over", "over"),
        ("job/runs", "running"),
        ("job/reserved", "reserved"),
        ("job/estimated", "estimate"),
    ]
    assert found.unplanned == 1
    assert "is estimated to start, from 2026-03-02 12:20 UTC, for 5m" in found.lanes[-1].bars[0].words


def test_a_bar_is_where_its_times_are() -> None:
    found = plan(job("estimated", eta=at(1_800), spec={"durationSeconds": 1_800}))
    bar = found.lanes[0].bars[0]
    scale = WIDTH / (found.end - found.begin).total_seconds()
    assert abs(bar.x - found.now_x - 1_800 * scale) < 0.02
    assert abs(bar.width - 1_800 * scale) < 0.02
    assert all(0 <= tick.x <= WIDTH for tick in found.ticks)
    assert 2 <= len(found.ticks) <= 12


def test_the_times_of_a_long_plan_have_their_days() -> None:
    assert (plan(hours=6).scale, plan(hours=24).scale, plan(hours=168).scale) == ("hour", "day", "day")


def test_what_runs_longer_than_it_stated_ends_now() -> None:
    found = plan(job("over", state="Running", startedAt=at(-900)))
    bar = found.lanes[0].bars[0]
    assert abs(bar.x + bar.width - found.now_x) < 0.02


def test_an_estimate_that_has_passed_begins_now() -> None:
    found = plan(job("late", eta=at(-600)))
    assert abs(found.lanes[0].bars[0].x - found.now_x) < 0.02


def test_work_without_an_end_is_drawn_to_the_edge() -> None:
    bar = (
        plan(job("endless", state="Running", startedAt=at(-60), spec={"durationSeconds": 0}))
        .endless[0]
        .bars[0]
    )
    assert abs(bar.x + bar.width - WIDTH) < 0.02
    assert "without an end" in bar.words


def test_it_looks_ahead_as_far_as_planned_or_as_asked() -> None:
    far = job("far", eta=at(40 * 86_400))
    assert (plan(far).end - NOW).days == 7
    assert plan(far).lanes == ()
    assert (plan(hours=6).end - NOW).total_seconds() == 6 * 3_600
    assert (plan().end - NOW).total_seconds() == 3_600


def test_what_people_set_aside_is_shown_first() -> None:
    found = plan(
        job("a", eta=at(60)),
        reservations=(reservation(state="Planned", start=at(600), end=at(900), nodes="node-8"),),
    )
    assert [lane.bars[0].kind for lane in found.lanes] == ["setaside", "estimate"]
    assert "on node-8" in found.lanes[0].bars[0].words
    assert found.lanes[0].bars[0].row is None
    for status in (
        {},
        {"state": "Over", "start": at(-900)},
        {"state": "Invalid", "start": at(600)},
        {"state": "Planned"},
    ):
        assert plan(reservations=(reservation(**status),)).lanes == ()


def test_the_number_of_bars_is_bounded() -> None:
    found = plan(*(job(f"j{number}", eta=at(number)) for number in range(MOST_LANES + 7)))
    assert (len(found.lanes), found.hidden) == (MOST_LANES, 7)


def test_texts_that_are_no_times_and_huge_durations_harm_nothing() -> None:
    found = plan(
        job("odd", eta="soon", reservedAt="later"),
        job("runs", state="Running", startedAt="yesterday", allocatedAt=""),
        job("long", eta=at(60), spec={"durationSeconds": 2**53}),
    )
    assert [lane.label for lane in found.lanes] == ["job/long"]


def test_by_node_each_node_has_the_work_that_it_has() -> None:
    found = plan(
        job("wide", state="Running", startedAt=at(-60), nodes="node-[1-2]", spec={"pods": 2}),
        job("waits", eta=at(600)),
        nodes=("node-1", "node-2", "node-3"),
    )
    assert [(lane.label, [bar.label for bar in lane.bars]) for lane in found.nodes] == [
        ("node-1", ["job/wide"]),
        ("node-2", ["job/wide"]),
        ("node-3", []),
    ]
    assert [bar.again for lane in found.nodes for bar in lane.bars] == [False, True]
    assert [lane.label for lane in found.lanes] == ["job/waits"]
    assert found.bars == 3


def test_work_that_shares_a_node_has_a_track_of_its_own() -> None:
    jobs = [
        job(f"j{number}", state="Running", startedAt=at(-60 - number), nodes="node-1")
        for number in range(MOST_TRACKS + 3)
    ]
    (lane,) = plan(*jobs, nodes=("node-1",)).nodes
    assert sorted(bar.track for bar in lane.bars) == list(range(MOST_TRACKS))
    assert lane.tracks == MOST_TRACKS


def test_what_is_set_aside_is_drawn_on_its_nodes() -> None:
    status = {"state": "Planned", "start": at(600), "end": at(900), "nodes": "node-[2-3]"}
    found = plan(reservations=(reservation(**status),), nodes=("node-1", "node-2"))
    assert [[bar.kind for bar in lane.bars] for lane in found.nodes] == [[], ["setaside"]]
    assert (
        plan(reservations=(reservation(**{**status, "nodes": "node-[2"}),), nodes=("node-2",)).nodes[0].bars
        == ()
    )


def test_a_few_long_jobs_do_not_make_all_others_short() -> None:
    jobs = [
        job(f"j{number}", state="Running", startedAt=at(-60), spec={"durationSeconds": 7_200})
        for number in range(9)
    ]
    found = plan(*jobs, job("long", state="Running", startedAt=at(-60), spec={"durationSeconds": 500_000}))
    assert (found.end - NOW).total_seconds() == 7_140


def test_nodes_that_have_no_lane_are_counted() -> None:
    found = plan(nodes=tuple(f"node-{number}" for number in range(MOST_LANES + 4)))
    assert (len(found.nodes), found.hidden) == (MOST_LANES, 4)


def test_nodes_with_work_have_lanes_before_idle_ones() -> None:
    names = tuple(f"n{number}" for number in range(2 * MOST_LANES))
    found = plan(job("runs", state="Running", startedAt=at(-60), nodes=names[-1]), nodes=names)
    assert [lane.label for lane in found.nodes] == [*names[: MOST_LANES - 1], names[-1]]
    assert (found.bars, found.hidden) == (1, MOST_LANES)


def test_jobs_for_which_a_node_has_no_track_are_counted() -> None:
    jobs = [
        job(f"j{number}", state="Running", startedAt=at(-60 - number), nodes="node-[1-2]")
        for number in range(MOST_TRACKS + 3)
    ]
    assert plan(*jobs, nodes=("node-1", "node-2")).undrawn == 3
    assert plan(*jobs[:MOST_TRACKS], nodes=("node-1", "node-2")).undrawn == 0


def test_a_window_is_shown_as_it_is_asked_for() -> None:
    window = NOW + timedelta(minutes=10), NOW + timedelta(minutes=12)
    found = plan_of(
        [JobRow(job("runs", state="Running", startedAt=at(-60))), JobRow(job("later", eta=at(3_600)))],
        (),
        NOW,
        window=(window[0] - timedelta(minutes=10), window[1]),
    )
    assert [lane.label for lane in found.lanes] == ["job/runs"]
    assert (found.begin, found.end, found.now_x) == (NOW, window[1], 0.0)
    assert found.scale == "hour"
    far = plan_of([], (), NOW, window=(NOW + timedelta(days=3), NOW + timedelta(days=3, minutes=7)))
    assert far.scale == "day"
    assert len(far.ticks) >= 5


def test_waiting_work_waits_for_what_ends_where_it_starts() -> None:
    found = plan(
        job("first", state="Running", startedAt=at(0), allocatedAt=at(0)),
        job("second", state="Running", startedAt=at(-20), allocatedAt=at(-20)),
        job("long", state="Running", startedAt=at(0), spec={"durationSeconds": 9_000}),
        job("at-once", eta=at(300)),
        job("later", eta=at(900)),
        job("too-soon", eta=at(100)),
    )
    waits = {lane.label: lane.bars[0].waits for lane in found.lanes if lane.bars[0].kind == "estimate"}
    assert waits == {
        "job/at-once": ("blue-second", "blue-first"),
        "job/later": ("blue-at-once",),
        "job/too-soon": (),
    }
    words = {lane.label: lane.bars[0].words for lane in found.lanes}
    assert words["job/at-once"].endswith("for 5m, when job/second, job/first end")
    assert words["job/later"].endswith(", after job/at-once ends")


def test_work_without_an_end_is_folded_away_from_all_work() -> None:
    service = job("service", state="Running", startedAt=at(-60), nodes="node-1", spec={"durationSeconds": 0})
    found = plan(service, job("runs", state="Running", startedAt=at(-60)))
    assert [lane.label for lane in found.lanes] == ["job/runs"]
    assert [lane.label for lane in found.endless] == ["job/service"]
    by_node = plan(service, nodes=("node-1",))
    assert ([bar.label for bar in by_node.nodes[0].bars], by_node.endless) == (["job/service"], ())


def test_services_are_folded_away_in_proportion_to_their_number() -> None:
    def folding(count: int) -> Callable[[], object]:
        endless = {"durationSeconds": 0}
        names = [f"service-{number}" for number in range(count)]
        rows = [JobRow(job(name, state="Running", startedAt=at(-60), spec=endless)) for name in names]
        return lambda: plan_of(rows, (), NOW)

    assert_linear(folding, MOST_LANES)


def test_a_rack_has_the_work_of_its_nodes_once() -> None:
    wide = job("wide", state="Running", startedAt=at(-60), nodes="node-[1-3]", spec={"pods": 3})
    small = job("small", state="Running", startedAt=at(-30), nodes="node-2")
    nodes, racks = ("node-1", "node-2", "node-3"), {"node-1": "r1", "node-2": "r1", "node-3": "r2"}
    found = plan_of([JobRow(wide), JobRow(small)], (), NOW, nodes=nodes, racks=racks)
    assert [(lane.label, [bar.label for bar in lane.bars], lane.tracks) for lane in found.nodes] == [
        ("r1", ["job/wide", "job/small"], 2),
        ("r2", ["job/wide"], 1),
    ]


def test_waiting_work_without_a_lane_does_not_make_what_runs_short() -> None:
    runs = job("runs", state="Running", startedAt=at(-60), spec={"durationSeconds": 7_260})
    soon = [job(f"soon-{number}", eta=at(60 + number)) for number in range(MOST_LANES)]
    far = [job(f"far-{number}", eta=at(500_000)) for number in range(4 * MOST_LANES)]
    assert (plan(runs, *soon, *far).end - NOW).total_seconds() == 3_600
