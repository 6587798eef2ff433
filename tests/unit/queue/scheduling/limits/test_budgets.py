"""What a budget leaves: what was used, what running work may still use, and what its refusals say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from support.builders import make_account
from support.queue_builders import a_workload

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload
from fluxqueue.queue.model.spending import Spending, amounts_of_shares
from fluxqueue.queue.scheduling.limits.budgets import BudgetRoom
from fluxqueue.queue.scheduling.limits.limit_scopes import OverLimit
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CORE_HOUR = 1_000 * 3_600


def a_room(used: float = 0.0, now: datetime = NOW, **budget: Any) -> BudgetRoom:
    """Return the room of an account ``md`` below ``site``, which has the budget,
    and of which so many core-hours are used.
    """
    documents = [make_account("site", budget=budget), make_account("md", parent="site", namespaces=["a"])]
    tree = account_tree([msgspec.convert(each, FluxAccount) for each in documents])
    found = tree.accounts["site"].budget
    assert found is not None
    return BudgetRoom.begin(
        now, Spending(tree, {"site": found.period_at(now)}, {("site", "cpu"): used * CORE_HOUR}, stale=False)
    )


def work(cores: int = 1, hours: float | None = 1, pods: int = 1, **changes: Any) -> Workload:
    duration_s = None if hours is None else int(hours * 3_600)
    spec = jobspec_of("a/x", [SizedPods({"cpu": Decimal(cores)}, pods)], duration_s=duration_s)
    settings = {
        "account": "md",
        "namespace": "a",
        "queue": "q",
        "duration_s": duration_s,
        "pods": pods,
        "jobspec": spec,
        "shape": spec,
    }
    return a_workload(**{**settings, **changes})


def shares(*cores: int) -> tuple[NodeShare, ...]:
    return tuple(NodeShare(f"n{number}", {}, {"cpu": each * 1_000}) for number, each in enumerate(cores))


def run(
    room: BudgetRoom,
    workload: Workload,
    granted: datetime,
    *cores: int,
    end: datetime | None = None,
    remnant: bool = False,
) -> None:
    held, jobid = shares(*cores), FluxionJobId(7)
    allocation = Allocation(
        jobid=jobid,
        workload=workload.id,
        shares=held,
        granted_at=granted,
        start=granted,
        end=end,
        remnant=remnant,
    )
    room.count_running(workload, allocation, amounts_of_shares(held))


def says(over: OverLimit | None) -> str:
    return "" if over is None else over.message


def test_what_is_left_may_be_used_to_the_last_hour_and_no_further() -> None:
    room = a_room(used=90, resourceHours={"cpu": 100})
    assert room.refusal(work(cores=10)) is None
    over = room.refusal(work(cores=11))
    assert over is not None
    assert (over.reason, over.alone, over.kind) == (Reason.ACCOUNT_LIMIT, True, "cpu")
    assert over.message == (
        "the budget of the account 'site' is used up until 2026-12-01: 90 of 100 core-hours are used, 0 may "
        "still be used by running work, and this may use 11"
    )


def test_work_that_asks_for_more_than_the_whole_budget_is_told_so() -> None:
    assert says(a_room(resourceHours={"cpu": 100}).refusal(work(cores=2, hours=51))) == (
        "the budget of the account 'site' is 100 core-hours for a period, and this may use 102: "
        "ask for less, or less time, "
        "or have the budget raised"
    )


def test_running_work_counts_with_what_it_used_and_what_it_may_still_use() -> None:
    room = a_room(resourceHours={"cpu": 100})
    running = work(hours=5, state=State.RUNNING, started_at=NOW - 2 * HOUR)
    run(room, running, NOW - 3 * HOUR, 10, end=NOW + 2 * HOUR)
    assert (room.lines["site"].used["cpu"], room.lines["site"].promised["cpu"]) == (
        30 * CORE_HOUR,
        30 * CORE_HOUR,
    )
    assert room.refusal(work(cores=40)) is None
    assert "30 of 100 core-hours are used, 30 may still be used" in says(room.refusal(work(cores=41)))


def test_of_work_that_ran_before_the_period_only_the_part_in_it_is_used() -> None:
    room = a_room(now=datetime(2026, 12, 1, 1, tzinfo=UTC), resourceHours={"cpu": 100})
    run(room, work(hours=48, state=State.RUNNING, started_at=NOW), NOW, 1)
    assert room.lines["site"].used["cpu"] == CORE_HOUR
    assert room.lines["site"].promised["cpu"] == 35 * CORE_HOUR


def test_the_time_of_work_that_did_not_start_yet_begins_now_and_a_remnant_may_use_no_more() -> None:
    room = a_room(resourceHours={"cpu": 100})
    run(room, work(hours=5, state=State.ALLOCATED), NOW - HOUR, 1)
    assert room.lines["site"].promised["cpu"] == 5 * CORE_HOUR
    run(room, work(hours=5, id=2), NOW - HOUR, 1, remnant=True)
    assert (room.lines["site"].used["cpu"], room.lines["site"].promised["cpu"]) == (
        2 * CORE_HOUR,
        5 * CORE_HOUR,
    )


def test_work_that_overruns_counts_until_its_moved_end() -> None:
    room = a_room(resourceHours={"cpu": 100})
    run(
        room,
        work(hours=1, state=State.RUNNING, started_at=NOW - 3 * HOUR),
        NOW - 3 * HOUR,
        1,
        end=NOW + HOUR / 2,
    )
    assert room.lines["site"].promised["cpu"] == CORE_HOUR / 2


def test_work_without_an_end_counts_until_the_period_ends() -> None:
    room = a_room(used=88, resourceHours={"cpu": 100})
    assert room.refusal(work(hours=None)) is None, "12 hours are left of the month"
    assert says(room.refusal(work(cores=2, hours=None))) == (
        "the budget of the account 'site' is used up until 2026-12-01: 88 of 100 core-hours are used, 0 may "
        "still be used by running work, and this, which has no duration, "
        "may use more than the rest until then"
    )
    assert says(room.refusal(work(cores=9, hours=None))) == (
        "the budget of the account 'site' is 100 core-hours for a period, and this, which has no duration, "
        "may use more until its end: state a duration, ask for less, or have it raised"
    )


def test_what_work_without_an_end_is_told_stays_while_nothing_else_changes() -> None:
    at_noon, later = (a_room(now=NOW + each, resourceHours={"cpu": 100}) for each in (0 * HOUR, HOUR))
    assert says(at_noon.refusal(work(cores=64, hours=None))) == says(
        later.refusal(work(cores=64, hours=None))
    )


def test_nodes_count_each_and_are_measured_on_the_answer() -> None:
    room = a_room(nodeHours=3)
    assert room.refusal(work(pods=4)) is None, "they may share nodes"
    assert room.excess(work(pods=4), shares(1, 1, 1)) is None
    assert "and this may use 4" in says(room.excess(work(pods=4), shares(1, 1, 1, 1)))
    assert "and this may use 4" in says(room.refusal(work(hours=4)))


def test_what_it_gets_counts_if_that_is_more_than_it_asked_for() -> None:
    room = a_room(resourceHours={"cpu": 10})
    assert room.refusal(work(cores=10)) is None
    assert "and this may use 16" in says(room.excess(work(cores=10), shares(16)))


def test_what_starts_in_a_cycle_takes_its_part_until_it_is_given_back() -> None:
    quotas = Quotas({}, (), budgets=a_room(resourceHours={"cpu": 10}))
    first, second = work(cores=6), work(cores=5, id=2)
    assert quotas.limited("q")
    quotas.add_usage(first, ["n0"], shares(6))
    assert quotas.refusal(second) is not None
    assert quotas.without([first.id]).refusal(second) is None
    assert quotas.refusal(second) is not None, "the copy is a copy"
    quotas.remove_usage(first.id)
    assert quotas.refusal(second) is None


def test_rows_over_a_budget_are_closed_whatever_their_duration_and_others_stay_open() -> None:
    quotas = Quotas({}, (), budgets=a_room(used=88, resourceHours={"cpu": 100}))
    rows = [
        work(cores=12, id=1),
        work(cores=13, id=2),
        work(cores=1, hours=13, id=3),
        work(hours=None, id=4),
        work(cores=2, hours=None, id=5),
        work(cores=99, id=6, account=""),
    ]
    backlog = Backlog(rows)
    assert [backlog[row].id for row, open_ in enumerate(quotas.within("q", backlog)) if open_] == [1, 4, 6]
    assert "is used up until 2026-12-01" in quotas.reached(rows[1], exact=True).message
    assert "2026" not in quotas.reached(rows[1]).message, (
        "it is told once, and may wait for longer than the period"
    )


def test_no_more_are_matched_together_than_may_all_start() -> None:
    quotas = Quotas({}, (), budgets=a_room(resourceHours={"cpu": 10}, nodeHours=5))
    assert quotas.together([work(cores=2, id=number) for number in range(1, 9)]) == 5
    assert quotas.together([work(cores=1, pods=3, id=number) for number in range(1, 9)]) == 1


def a_pass(quotas: Quotas, backlog: Backlog, *gets: int) -> list[int]:
    """Return the ids of what starts on such nodes in one cycle, where each is matched that may be."""
    started: list[int] = []
    tried: set[int] = set()
    while (
        rows := [row for row in np.flatnonzero(quotas.within("q", backlog)).tolist() if row not in tried]
    ) and (row := rows[0]) >= 0:
        tried.add(row)
        given = shares(*gets[: backlog[row].pods])
        if (over := quotas.excess(backlog[row], ["n0"], given)) is not None:
            quotas.set_aside(backlog[row], over)
        else:
            quotas.add_usage(backlog[row], ["n0"], given)
            started.append(backlog[row].id)
    return started


def test_after_many_refused_answers_the_account_waits_and_the_next_cycle_goes_on_behind_them() -> None:
    room = a_room(nodeHours=3)
    gangs = [work(pods=4, hours=1 + number / 60, id=number + 1) for number in range(45)]
    backlog = Backlog([*gangs, work(id=99)])
    cycles: list[Quotas] = []
    for _ in range(3):
        now = NOW + len(cycles) * HOUR / 60
        cycles.append(Quotas({}, (), budgets=BudgetRoom(now, room.tree, room.copy().lines, room.measured)))
        started = a_pass(cycles[-1], backlog, 1, 1, 1, 1)
        assert started == ([99] if len(cycles) == 3 else [])
    assert [each.left_for_later for each in cycles] == [True, True, False]
    full = Quotas({}, (), budgets=BudgetRoom(NOW + HOUR, room.tree, room.lines, room.measured))
    for gang in gangs[:20]:
        full.set_aside(gang, OverLimit((Reason.ACCOUNT_LIMIT, "site", None), "it may use 2 nodes at once"))
    assert not full.left_for_later, "what waits for a limit waits for the end of other work"
    first, behind = gangs[0], work(id=98)
    assert "and this may use 4" in cycles[2].reached(first, exact=True).message
    leaves = (
        "the budget of the account 'site' leaves too little for it in this period (spec.budget of its "
        "FluxAccount)"
    )
    assert [cycles[0].reached(each).message for each in (first, behind)] == [leaves, leaves], (
        "it is not kept by a quota"
    )


def test_an_answer_that_was_over_a_budget_counts_for_equal_work_until_there_is_room_for_it() -> None:
    room = a_room(nodeHours=3)
    equal = Backlog([work(pods=4, id=number) for number in range(1, 30)])
    quotas = Quotas({}, (), budgets=room)
    assert a_pass(quotas, equal, 1, 1, 1, 1) == []
    assert not quotas.left_for_later, "only the first was matched"
    raised = a_room(nodeHours=4)
    assert a_pass(
        Quotas({}, (), budgets=BudgetRoom(NOW, raised.tree, raised.lines, room.measured)), equal, 1, 1, 1, 1
    ) == [1]


def test_the_status_shows_what_is_left() -> None:
    room = a_room(used=90, resourceHours={"cpu": 100}, nodeHours=4)
    run(room, work(hours=2, state=State.RUNNING, started_at=NOW - HOUR), NOW - HOUR, 6, 5)
    status = room.lines["site"].status()
    assert (status.start, status.end) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
    shown = {each.name: (each.hours, each.used, each.promised, each.left) for each in status.amounts or ()}
    assert shown == {"cpu": (100, 101, 11, -12), "nodes": (4, 2, 2, 0)}
