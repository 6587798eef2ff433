"""Requests with flavors: which nodes they get, and when."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support import fluxion_builders
from support.fluxion_builders import engine, jobspec, node, nodes, slot

from fluxqueue.fluxion.changes import AddNodes, CancelJobs
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import CallContext, MatchResult, MatchVerdict

GRANTED, RESERVED, BUSY, NEVER = (
    MatchVerdict.GRANTED,
    MatchVerdict.RESERVED,
    MatchVerdict.BUSY,
    MatchVerdict.UNSATISFIABLE,
)
NOW_S = 1_000_000
WAITS = (("reserved", 0), ("spot", 600), ("demand", 1_200))


def request(count: int = 1, waits: Any = WAITS, cpu: int = 400, **options: Any) -> str:
    """A request for so many nodes of one of the flavors."""
    spec = json.loads(jobspec(nodes(count, slot(1, cpu=cpu)), **options))
    spec["attributes"]["system"]["flavors"] = [
        {"name": name, "wait": wait, "labels": [f"type={name}"]} for name, wait in waits
    ]
    return json.dumps(spec)


def cluster(**counts: int) -> Engine:
    """So many nodes of each flavor."""
    return engine(
        *(
            node(f"{flavor}-{number}", labels=(f"type={flavor}",), cpu=400)
            for flavor, count in counts.items()
            for number in range(count)
        ),
        call=at(0),
    )


def ask(made: Engine, text: str, jobid: int, call: CallContext | None = None, **options: Any) -> MatchResult:
    return fluxion_builders.ask(made, text, jobid, call or at(0), **options)


def at(passed: int) -> CallContext:
    return CallContext(now=NOW_S + passed)


def since_now(made: Engine, text: str, jobid: int, passed: int = 0, **options: Any) -> MatchResult:
    """Ask for a job that waits since `NOW_S`, so many seconds later."""
    return ask(made, text, jobid, at(passed), waits_since=NOW_S, **options)


def hosts(answer: MatchResult) -> list[str]:
    return [share.node for share in answer.shares]


def test_a_reservation_is_dropped_when_its_nodes_are_of_two_flavors() -> None:
    made = cluster(reserved=2, spot=1)
    since_now(made, request(2), 1)
    reserved = since_now(made, request(2), 2, reserve=True)
    assert hosts(reserved) == ["reserved-0", "reserved-1"]
    assert made.apply([AddNodes([node("reserved-1", labels=("type=spot",), cpu=400)])], at(0)).displaced == (
        2,
    )
    nodes = ("reserved-0", "reserved-1")
    assert made.reserve_at(2, request(2), reserved.at, nodes, at(0)).verdict is not RESERVED


def test_a_reservation_in_one_flavor_stays_when_another_label_changes() -> None:
    made = cluster(reserved=2, spot=1)
    since_now(made, request(2), 1)
    reserved = since_now(made, request(2), 2, reserve=True)
    assert (
        made.apply(
            [AddNodes([node("reserved-1", labels=("new", "type=reserved"), cpu=400)])], at(0)
        ).displaced
        == ()
    )
    made.cancel(2)
    assert (
        made.reserve_at(2, request(2), reserved.at, ("reserved-0", "reserved-1"), at(0)).verdict is RESERVED
    )


def test_work_that_soon_may_use_a_flavor_keeps_no_other_from_a_smaller_start() -> None:
    made, text = cluster(reserved=2, spot=2), request(2, waits=(("reserved", 0), ("spot", 3_600)))
    ask(made, request(1, duration=100_000), 1)
    sizes: dict[str, Any] = {"min_slots": 1, "duration_s": 1_000}
    assert ask(made, text, 2, waits_since=NOW_S - 3_590, **sizes).verdict is BUSY
    assert hosts(ask(made, text, 3, waits_since=NOW_S, **sizes)) == ["reserved-1"]


def test_a_flavor_without_a_wait_is_open_also_to_work_of_a_clock_that_is_ahead() -> None:
    made = cluster(reserved=1, spot=1)
    assert hosts(since_now(made, request(), 1, passed=-5)) == ["reserved-0"]
    assert since_now(made, request(), 2, passed=-5).verdict is BUSY


def test_work_gets_the_first_flavor_with_room() -> None:
    made = cluster(spot=1, reserved=1, demand=1)
    assert hosts(ask(made, request(), 1)) == ["reserved-0"]
    assert hosts(ask(made, request(), 2)) == ["spot-0"]
    assert hosts(ask(made, request(), 3)) == ["demand-0"]


def test_work_gets_no_flavor_before_it_has_waited_for_it() -> None:
    made = cluster(spot=1, demand=1, reserved=1)
    assert hosts(since_now(made, request(duration=9_000), 1)) == ["reserved-0"]
    answer = since_now(made, request(), 2, 599)
    assert answer.verdict is BUSY
    assert answer.reason.startswith("flavor 'reserved': ")
    assert hosts(since_now(made, request(), 2, 600)) == ["spot-0"]
    assert since_now(made, request(), 3, 1_199).reason.count("flavor") == 2
    assert hosts(since_now(made, request(), 3, 1_200)) == ["demand-0"]


def test_a_gang_is_in_one_flavor() -> None:
    made = cluster(reserved=1, spot=2)
    assert hosts(ask(made, request(2), 1)) == ["spot-0", "spot-1"]
    assert ask(cluster(reserved=1, spot=1), request(2), 1).verdict is NEVER


def test_a_reservation_begins_when_a_later_flavor_may_be_used_and_is_free() -> None:
    made = cluster(reserved=1, spot=1)
    since_now(made, request(duration=9_000), 1)
    reserved = since_now(made, request(), 2, reserve=True)
    assert (reserved.verdict, reserved.at - NOW_S, hosts(reserved)) == (RESERVED, 600, ["spot-0"])
    started = since_now(made, request(), 2, 600, reserve=True)
    assert (started.verdict, hosts(started)) == (GRANTED, ["spot-0"])


def test_nodes_of_a_closed_flavor_are_used_until_the_reservation_there_begins() -> None:
    made = cluster(reserved=1, spot=1)
    since_now(made, request(duration=9_000), 1)
    since_now(made, request(), 2, reserve=True)
    assert hosts(ask(made, request(duration=600), 3)) == ["spot-0"]
    made.apply([CancelJobs([3])])
    assert ask(made, request(duration=601), 4).verdict is BUSY


def test_a_reservation_is_in_the_flavor_that_is_free_first() -> None:
    made = cluster(reserved=1, spot=1)
    since_now(made, request(duration=100), 1)
    assert since_now(made, request(), 2, reserve=True).at == NOW_S + 100


def test_a_reservation_that_is_due_starts_in_an_earlier_flavor_that_is_free() -> None:
    made = cluster(reserved=1, spot=1)
    since_now(made, request(duration=9_000), 1)
    since_now(made, request(), 2, reserve=True)
    made.apply([CancelJobs([1])])
    assert hosts(since_now(made, request(), 2, 600, reserve=True)) == ["reserved-0"]


def test_a_reservation_moves_to_an_earlier_flavor_that_becomes_free_before() -> None:
    made = cluster(reserved=1, spot=1)
    since_now(made, request(duration=9_000), 1)
    since_now(made, request(), 2, reserve=True)
    assert since_now(made, request(), 2, 10, reserve=True, improve=True).at == NOW_S + 600
    made.apply([CancelJobs([1])])
    improved = since_now(made, request(), 2, 20, reserve=True, improve=True)
    assert (improved.verdict, hosts(improved)) == (GRANTED, ["reserved-0"])


def test_work_never_fits_only_if_no_flavor_could_hold_it() -> None:
    made = cluster(reserved=1, demand=2)
    later = since_now(made, request(2), 1)
    assert later.verdict is BUSY
    assert later.reason == "flavor 'reserved': wants 2 nodes, 1 of 3 satisfies: type=reserved"
    assert made.satisfy(request(2)).verdict is GRANTED
    never = since_now(made, request(3), 1)
    assert never.verdict is NEVER
    assert never.reason.count("flavor '") == 3
    assert "flavor 'spot': wants 3 nodes, no node of 3 satisfies: type=spot" in never.reason
    assert made.satisfy(request(3)).reason == never.reason


def test_moldable_work_starts_smaller_in_the_first_flavor_that_has_room() -> None:
    made = cluster(reserved=1, spot=1)
    since_now(made, request(duration=9_000), 1)
    assert hosts(since_now(made, request(2, duration=60), 2, 600, min_slots=1)) == ["spot-0"]


def test_a_flavor_is_not_for_work_in_a_reservation() -> None:
    answer = ask(cluster(reserved=1), request(reservation="course"), 1)
    assert answer.verdict is MatchVerdict.INVALID
    assert "a job for a reservation runs on its nodes" in answer.reason


FLAVORS = st.lists(st.sampled_from(["reserved", "spot", "demand"]), min_size=1, max_size=8)
JOBS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2_000), st.integers(1, 3_000), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(FLAVORS, JOBS)
def test_each_start_is_in_the_first_open_flavor_that_has_enough(types: list[str], jobs: Any) -> None:
    made = engine(
        *(node(f"{kind}-{number}", labels=(f"type={kind}",), cpu=400) for number, kind in enumerate(types)),
        call=at(0),
    )
    base, free = NOW_S, {f"{kind}-{number}" for number, kind in enumerate(types)}
    planned: dict[int, tuple[int, int]] = {}
    for jobid, (count, waited, duration, reserve) in enumerate(jobs, 1):
        text = request(count, duration=duration)
        answer = ask(made, text, jobid, waits_since=base - waited, reserve=reserve)
        opened = [name for name, wait in WAITS if wait <= waited]
        chosen = {host.partition("-")[0] for host in hosts(answer)}
        assert len(chosen) <= 1
        if answer.verdict is GRANTED:
            (flavor,) = chosen
            assert flavor in opened
            before = opened[: opened.index(flavor)]
            if not planned:
                assert all(sum(host.startswith(each) for host in free) < count for each in before)
            free -= set(hosts(answer))
        elif answer.verdict is RESERVED:
            (flavor,) = chosen
            assert answer.at >= base - waited + dict(WAITS)[flavor]
            planned[jobid] = answer.at, count
        else:
            assert not chosen
            if not planned and answer.verdict is BUSY:
                assert all(sum(host.startswith(each) for host in free) < count for each in opened)
        fits_ever = any(types.count(name) >= count for name, _ in WAITS)
        assert (answer.verdict is NEVER) is not fits_ever
