"""Answers of the extended matching calls."""

from __future__ import annotations

import pytest
from support.fluxion_builders import NOW, ask, check_books, engine, jobspec, node, nodes, slot

from fluxqueue.api.graphnames import taint_property
from fluxqueue.api.nodes import Taint
from fluxqueue.api.taints import PRESSURES
from fluxqueue.fluxion.changes import CancelJobs, CancelPart, ExtendJob, SetNodeStatus, SetProperties
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import (
    ClockMixed,
    InitError,
    NotInitialised,
    StaleEpoch,
    UnknownJob,
    WrongInstance,
)
from fluxqueue.fluxion.match.shortcuts import Shortcut
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, JobMode, MatchVerdict, NodeShare

THREE = (
    node("a", cpu=4_000, memory=1_024, pods=10),
    node("b", cpu=4_000, memory=1_024, pods=10),
    node("c", cpu=4_000, pods=10),
)


def test_slots_fill_the_lowest_nodes_first_and_shares_count_them_by_node() -> None:
    made = engine(*THREE)
    result = ask(made, jobspec(slot(5, cpu=1_000, pods=1)), 7)
    assert result.verdict is MatchVerdict.GRANTED
    assert (result.jobid, result.at, result.end) == (7, 1_000, 1_060)
    assert result.shares == (
        NodeShare("a", {"w": 4}, {"cpu": 4_000, "pods": 4}),
        NodeShare("b", {"w": 1}, {"cpu": 1_000, "pods": 1}),
    )
    check_books(made)


def test_a_request_is_rounded_up_to_whole_vertices() -> None:
    made = engine(*THREE)
    assert ask(made, jobspec(slot(1, cpu=250, memory=300))).shares[0].amounts == {"cpu": 300, "memory": 512}


def test_the_remainder_of_a_pool_can_be_used() -> None:
    made = engine(node("a", cpu=7_910))
    assert ask(made, jobspec(slot(1, cpu=7_910))).shares[0].amounts == {"cpu": 7_910}


def test_one_per_node_takes_as_many_nodes_as_asked() -> None:
    made = engine(*THREE)
    result = ask(made, jobspec(nodes(3, slot(1, cpu=500))))
    assert [share.node for share in result.shares] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "policy", ["low", "high", "lonode", "hinode", "lonodex", "hinodex", "locality", "variation"]
)
@pytest.mark.parametrize("unlike", [False, True], ids=["alike", "unlike"])
def test_a_request_of_its_own_policy_is_placed_as_in_a_graph_of_that_policy(
    policy: str, unlike: bool
) -> None:
    mixed, pure = engine(*THREE), engine(*THREE, policy=policy)
    for jobid, pods in enumerate((1, 5, 2), 1):
        text = jobspec(slot(pods, cpu=1_000), *([slot(1, "other", cpu=500)] if unlike else []))
        (result,) = mixed.match_batch([JobMatchRequest(text, jobid, policy=policy)], NOW).results
        assert result == pure.match_batch([JobMatchRequest(text, jobid)], NOW).results[0]
    check_books(mixed)


def test_a_policy_of_whole_nodes_holds_for_its_own_requests_and_reservations() -> None:
    made = engine(*THREE)
    one = jobspec(slot(1, cpu=1_000))
    whole, shared = made.match_batch(
        [JobMatchRequest(one, 1, policy="lonodex"), JobMatchRequest(one, 2)], NOW
    ).results
    assert (whole.shares[0].node, whole.shares[0].exclusive) == ("a", True)
    assert shared.shares[0].node == "b"
    reserved = made.reserve_at(3, one, 2_000, ["b"], NOW, policy="lonodex")
    assert (reserved.verdict, reserved.shares[0].exclusive) == (MatchVerdict.RESERVED, True)
    check_books(made)


def test_an_unknown_policy_of_a_request_is_an_invalid_request() -> None:
    made = engine(*THREE)
    (result,) = made.match_batch(
        [JobMatchRequest(jobspec(slot(1, cpu=1_000)), 1, policy="best")], NOW
    ).results
    assert result.verdict is MatchVerdict.INVALID
    assert "'best'" in result.reason


def test_constraints_and_exclusions_leave_nodes_out() -> None:
    made = engine(
        node("a", cpu=400), node("b", labels=("ssd",), cpu=400), node("c", labels=("ssd", "old"), cpu=400)
    )
    wanted = jobspec(
        slot(1, cpu=100), constraints={"and": [{"properties": ["ssd"]}, {"not": [{"hostlist": ["x[1-9]"]}]}]}
    )
    assert ask(made, wanted).shares[0].node == "b"
    assert ask(made, wanted, exclude=("b",)).shares[0].node == "c"


def test_a_job_id_makes_a_request_repeatable() -> None:
    made = engine(*THREE)
    first = ask(made, jobspec(slot(2, cpu=1_000)), 9)
    assert ask(made, jobspec(slot(2, cpu=1_000)), 9) == first
    assert len(made.list_jobs(NOW)) == 1


@pytest.mark.parametrize(
    ("levels", "verdict", "reason"),
    [
        ([slot(1, cpu=9_000)], MatchVerdict.UNSATISFIABLE, "no node has 9 cpu: the largest has 4 cpu in all"),
        ([slot(20, cpu=1_000)], MatchVerdict.UNSATISFIABLE, "wants 20 slots, the empty cluster holds 12"),
        (
            [nodes(4, slot(1, cpu=100))],
            MatchVerdict.UNSATISFIABLE,
            "wants 4 nodes, the empty cluster holds 3",
        ),
        ([slot(1, fpga=1)], MatchVerdict.UNSATISFIABLE, "no node has 1 fpga: none has any"),
        ([slot(10, cpu=1_000)], MatchVerdict.BUSY, "wants 10 slots, free now: 8"),
        ([slot(10, "pod", cpu=1_000)], MatchVerdict.BUSY, "wants 10 pods, free now: 8"),
        ([slot(10, "pod.1", cpu=1_000)], MatchVerdict.BUSY, "wants 10 pods, free now: 8"),
        ([nodes(3, slot(1, cpu=100), exclusive=True)], MatchVerdict.BUSY, "wants 3 nodes, free now: 2"),
        ([slot(0, cpu=1)], MatchVerdict.UNSATISFIABLE, "a count in the request is 0: nothing can satisfy it"),
        (
            [nodes(1)],
            MatchVerdict.INVALID,
            "resources: nothing is exclusive: ask for a slot, or set exclusive: true",
        ),
    ],
)
def test_a_refusal_is_busy_or_unsatisfiable_with_a_reason(
    levels: list[dict[str, object]], verdict: MatchVerdict, reason: str
) -> None:
    made = engine(*THREE)
    ask(made, jobspec(slot(4, cpu=1_000)), 1)
    result = ask(made, jobspec(*levels))
    if reason.startswith("wants 3 nodes"):
        assert result.verdict is MatchVerdict.BUSY
        return
    assert (result.verdict, result.reason) == (verdict, reason)


def test_a_constraint_no_node_satisfies_is_named() -> None:
    result = ask(engine(*THREE), jobspec(slot(1, cpu=100), constraints={"properties": ["gold"]}))
    assert result.verdict is MatchVerdict.UNSATISFIABLE
    assert result.shortages[0].type == "constraint"
    assert result.shortages[0].constraint == '{"properties":["gold"]}'


def test_an_answer_does_not_repeat_a_long_constraint() -> None:
    long = {"in": ["zone", *(f"zone-{number}" for number in range(500))]}
    result = ask(engine(*THREE), jobspec(slot(1, cpu=100), constraints=long))
    assert (result.shortages[0].type, result.shortages[0].constraint) == ("constraint", "")
    assert "zone=zone-0 or zone=zone-1" in result.reason
    assert len(result.reason) < 500


def test_tolerations_are_compared_with_the_taints_that_nodes_have_at_the_time() -> None:
    made, gpu, disk = (
        engine(node("a", cpu=400)),
        taint_property(Taint("gpu", "", "NoSchedule")),
        taint_property(PRESSURES["DiskPressure"]),
    )
    intolerant, tolerant = (
        jobspec(slot(1, cpu=100), constraints={"tolerates": texts}) for texts in ([], ["gpu:"])
    )
    made.apply([SetProperties({"a": {gpu: ""}})], NOW)
    refused = ask(made, intolerant, 1)
    assert (refused.verdict, refused.reason) == (
        MatchVerdict.UNSATISFIABLE,
        "wants 1 node, no node of 1 satisfies: without the taint gpu=:NoSchedule",
    )
    assert ask(made, tolerant, 2).verdict is MatchVerdict.GRANTED
    made.apply([SetProperties({"a": {disk: ""}})], NOW)
    assert ask(made, tolerant, 3).verdict is MatchVerdict.BUSY, "pressure passes"
    made.apply([SetProperties({"a": {}})], NOW)
    assert ask(made, intolerant, 1).verdict is MatchVerdict.GRANTED


def test_what_is_short_for_the_moment_is_said_without_the_taints_of_other_nodes() -> None:
    made = engine(node("a", cpu=400), node("b", cpu=800, labels=("x",)))
    made.apply([SetProperties({"b": {taint_property(Taint("gpu", "", "NoSchedule")): ""}})], NOW)
    wants = jobspec(slot(1, cpu=400), constraints={"tolerates": []})
    assert ask(made, wants, 1).verdict is MatchVerdict.GRANTED
    assert ask(made, wants, 2).reason == "no node has 0.4 cpu free: none has any free"
    large = jobspec(slot(1, cpu=800), constraints={"tolerates": []})
    assert (
        ask(made, large, 3).reason
        == "no node (without the taint gpu=:NoSchedule) has 0.8 cpu: the largest has 0.4 cpu in all"
    )


def test_down_nodes_make_a_request_busy_and_not_unsatisfiable() -> None:
    made = engine(node("a", cpu=400), node("b", down=True, cpu=400))
    assert ask(made, jobspec(nodes(2, slot(1, cpu=100)))).verdict is MatchVerdict.BUSY
    made.apply([SetNodeStatus({"b": True})], NOW)
    assert ask(made, jobspec(nodes(2, slot(1, cpu=100)))).verdict is MatchVerdict.GRANTED


def test_a_batch_may_stop_at_the_first_that_is_not_granted() -> None:
    made = engine(*THREE)
    jobs = [
        JobMatchRequest(jobspec(slot(count, cpu=1_000)), number) for number, count in enumerate((8, 8, 1), 1)
    ]
    assert [r.verdict for r in made.match_batch(jobs, NOW).results] == [
        MatchVerdict.GRANTED,
        MatchVerdict.BUSY,
        MatchVerdict.GRANTED,
    ]
    made.apply([CancelJobs([1, 3])], NOW)
    assert len(made.match_batch(jobs, NOW, stop_at_first_failure=True).results) == 2


def test_what_did_not_fit_is_tried_again_after_something_was_freed() -> None:
    made = engine(*THREE)
    ask(made, jobspec(slot(12, cpu=1_000)), 1)
    assert ask(made, jobspec(slot(1, cpu=1_000)), 2).verdict is MatchVerdict.BUSY
    assert made.apply([CancelJobs([1, 1])], NOW).done
    assert ask(made, jobspec(slot(1, cpu=1_000)), 2).verdict is MatchVerdict.GRANTED


def test_a_reservation_begins_when_the_blocking_job_ends_and_then_starts() -> None:
    made = engine(*THREE)
    ask(made, jobspec(slot(12, cpu=1_000), duration=100), 1)
    reserved = ask(made, jobspec(slot(1, cpu=1_000), duration=10), 2, reserve=True)
    assert (reserved.verdict, reserved.at, reserved.end) == (MatchVerdict.RESERVED, 1_100, 1_110)
    assert (
        ask(made, jobspec(slot(1, cpu=1_000), duration=10), 2, call=CallContext(now=1_050), reserve=True)
        == reserved
    )
    late = CallContext(now=1_100)
    assert (
        ask(made, jobspec(slot(1, cpu=1_000), duration=10), 2, call=late, reserve=True).verdict
        is MatchVerdict.BUSY
    ), "job 1 overruns"
    assert made.job_info(2, late).mode is JobMode.RESERVED
    made.apply([CancelJobs([1])], late)
    started = ask(
        made, jobspec(slot(1, cpu=1_000), duration=10), 2, call=CallContext(now=1_130), reserve=True
    )
    assert (started.verdict, started.at, started.end, started.shares) == (
        MatchVerdict.GRANTED,
        1_130,
        1_140,
        reserved.shares,
    )
    check_books(made)


def test_a_reservation_is_replaced_only_by_an_earlier_one() -> None:
    made = engine(node("a", cpu=200), node("b", cpu=200))
    half = jobspec(slot(1, cpu=100), duration=100)
    assert [ask(made, half, number).verdict for number in (1, 2, 3, 4)] == [MatchVerdict.GRANTED] * 4
    made.apply([ExtendJob(3, 1_050)], NOW)
    promised = ask(made, jobspec(slot(2, cpu=100)), 5, reserve=True)
    assert (promised.verdict, promised.at) == (MatchVerdict.RESERVED, 1_100)
    assert ask(made, jobspec(slot(2, cpu=100)), 5, reserve=True, improve=True) == promised
    made.apply([CancelJobs([4])], NOW)
    assert ask(made, jobspec(slot(2, cpu=100)), 5, reserve=True) == promised, "asking alone moves nothing"
    bettered = ask(made, jobspec(slot(2, cpu=100)), 5, reserve=True, improve=True)
    assert (bettered.verdict, bettered.at) == (MatchVerdict.RESERVED, 1_050)
    made.apply([CancelJobs([3])], NOW)
    assert ask(made, jobspec(slot(2, cpu=100)), 5, reserve=True, improve=True).verdict is MatchVerdict.GRANTED
    check_books(made)


BOTH = {"slots": slot(8, cpu=100), "nodes": nodes(2, slot(4, cpu=100))}


@pytest.mark.parametrize("kind", BOTH)
def test_a_reservation_can_leave_the_nodes_that_are_free_now_to_others(kind: str) -> None:
    made = engine(*(node(name, cpu=400) for name in "abc"))
    for number, duration in enumerate((10, 100, 100), 1):
        ask(made, jobspec(slot(4, cpu=100), duration=duration), number)
    made.apply([CancelJobs([1])], NOW)
    long = jobspec(slot(4, cpu=100), duration=1_000)
    for latest, reserved, verdict in (
        (False, ["a", "b"], MatchVerdict.BUSY),
        (True, ["b", "c"], MatchVerdict.GRANTED),
    ):
        request = JobMatchRequest(jobspec(BOTH[kind], duration=50), 4, reserve=True, latest_nodes=latest)
        (answer,) = made.match_batch([request], NOW).results
        assert (answer.verdict, answer.at, [share.node for share in answer.shares]) == (
            MatchVerdict.RESERVED,
            1_100,
            reserved,
        )
        assert ask(made, long, 5).verdict is verdict
        made.apply([CancelJobs([4, 5])], NOW)
    check_books(made)


def test_of_nodes_that_are_partly_free_a_reservation_takes_those_with_the_least_idle_time() -> None:
    made = engine(*(node(name, cpu=400) for name in "abc"))
    for number, (count, duration) in enumerate(((3, 100), (1, 10), (4, 60), (4, 100)), 1):
        ask(made, jobspec(slot(count, cpu=100), duration=duration), number)
    made.apply([CancelJobs([2])], NOW)
    request = JobMatchRequest(jobspec(slot(6, cpu=100)), 5, reserve=True, latest_nodes=True)
    (answer,) = made.match_batch([request], NOW).results
    shares = [(share.node, share.slots["w"]) for share in answer.shares]
    assert (answer.at, shares) == (1_100, [("a", 4), ("c", 2)]), (
        "a idles for 25 s in each slot, b for 40 s, c not at all"
    )
    check_books(made)


def test_short_jobs_backfill_before_a_reservation_and_long_ones_do_not() -> None:
    made = engine(node("a", cpu=400))
    ask(made, jobspec(slot(2, cpu=100), duration=100), 1)
    assert ask(made, jobspec(slot(4, cpu=100), duration=50), 2, reserve=True).at == 1_100
    assert ask(made, jobspec(slot(2, cpu=100), duration=100), 3).verdict is MatchVerdict.GRANTED
    made.apply([CancelJobs([3])], NOW)
    assert ask(made, jobspec(slot(2, cpu=100), duration=101), 3).verdict is MatchVerdict.BUSY


def test_an_allocation_past_its_end_is_held_until_it_is_cancelled() -> None:
    made = engine(node("a", cpu=400))
    ask(made, jobspec(slot(4, cpu=100), duration=100), 1)
    assert ask(made, jobspec(slot(1, cpu=100)), 2, call=CallContext(now=5_000)).verdict is MatchVerdict.BUSY


def test_reserve_at_names_its_nodes() -> None:
    made = engine(*THREE)
    result = made.reserve_at(5, jobspec(slot(1, cpu=1_000)), 2_000, ["c"], NOW)
    assert (result.verdict, result.at, result.shares[0].node) == (MatchVerdict.RESERVED, 2_000, "c")
    assert (
        made.reserve_at(6, jobspec(slot(5, cpu=1_000)), 2_000, ["c"], NOW).verdict
        is MatchVerdict.UNSATISFIABLE
    )
    assert made.job_info(5, NOW).mode is JobMode.RESERVED


def test_satisfy_books_nothing() -> None:
    made = engine(*THREE)
    assert made.satisfy(jobspec(slot(12, cpu=1_000)), NOW).verdict is MatchVerdict.GRANTED
    assert made.satisfy(jobspec(slot(13, cpu=1_000)), NOW).verdict is MatchVerdict.UNSATISFIABLE
    assert made.list_jobs(NOW) == ()


def test_a_step_back_of_the_clock_is_clamped() -> None:
    made = engine(*THREE)
    ask(made, jobspec(slot(1, cpu=100)), 1, call=CallContext(now=2_000))
    assert ask(made, jobspec(slot(1, cpu=100)), 2, call=CallContext(now=1_500)).at == 2_000


def test_calls_that_cannot_be_served_are_refused() -> None:
    made = Engine()
    with pytest.raises(NotInitialised):
        made.stat()
    with pytest.raises(InitError, match="no-such"):
        made.init("no-such", nodes=())
    instance = made.init("lonode", nodes=THREE, call=CallContext(now=1_000, epoch=3))
    with pytest.raises(StaleEpoch):
        made.stat(CallContext(epoch=2))
    with pytest.raises(WrongInstance):
        made.stat(CallContext(instance="another"))
    assert made.stat(CallContext(now=1_000, epoch=4, instance=instance)).epoch == 4
    with pytest.raises(ClockMixed):
        made.match_batch([], CallContext())
    with pytest.raises(UnknownJob):
        made.job_info(1)
    assert made.init("lonode", nodes=THREE) != instance
    made.match_batch([JobMatchRequest(jobspec(slot(1, cpu=100)))], CallContext())
    with pytest.raises(ClockMixed):
        made.match_batch([], CallContext(now=5))


def test_slots_of_several_sizes_are_matched_together_the_largest_first() -> None:
    made = engine(*THREE)
    launcher, workers = slot(1, "pod.0", cpu=1_000, pods=1), slot(2, "pod.1", cpu=3_500, pods=1)
    result = ask(made, jobspec(launcher, workers), 7)
    assert result.verdict is MatchVerdict.GRANTED
    assert [(share.node, dict(share.slots)) for share in result.shares] == [
        ("a", {"pod.1": 1}),
        ("b", {"pod.1": 1}),
        ("c", {"pod.0": 1}),
    ]
    check_books(made)
    assert ask(made, jobspec(launcher, workers), 8).verdict is MatchVerdict.BUSY
    assert ask(made, jobspec(launcher, workers), 8, reserve=True).at == result.end
    assert ask(made, jobspec(launcher, slot(4, "pod.1", cpu=3_500)), 9).verdict is MatchVerdict.UNSATISFIABLE
    assert made.apply([CancelPart(7, [NodeShare("a", {"pod.1": 1})])], call=NOW).done
    assert ask(made, jobspec(slot(1, cpu=4_000)), 10).shares[0].node == "a"
    check_books(made)


def test_a_slot_beside_slots_on_nodes_of_their_own_may_share_a_node_with_one_of_them() -> None:
    made = engine(*THREE)
    workers, beside = slot(1, "pod", cpu=3_000, pods=1), slot(1, "services", cpu=1_000, pods=1)
    result = ask(made, jobspec(nodes(3, workers), beside), 7)
    assert result.verdict is MatchVerdict.GRANTED
    assert [dict(share.slots) for share in result.shares] == [
        {"pod": 1, "services": 1},
        {"pod": 1},
        {"pod": 1},
    ]
    check_books(made)
    small = slot(1, "pod", cpu=500, pods=1)
    # the first node is full
    assert ask(made, jobspec(nodes(3, small), beside), 8).verdict is MatchVerdict.BUSY
    assert ask(made, jobspec(nodes(3, small), beside), 8, reserve=True).at == result.end
    assert ask(made, jobspec(nodes(4, small), beside), 9).verdict is MatchVerdict.UNSATISFIABLE


def test_slots_that_all_ask_for_nodes_of_their_own_share_none() -> None:
    made = engine(*THREE)
    workers, beside = slot(1, "pod", cpu=500, pods=1), slot(1, "services", cpu=1_000, pods=1)
    result = ask(made, jobspec(nodes(2, workers), nodes(1, beside)), 7)
    assert [dict(share.slots) for share in result.shares] == [{"services": 1}, {"pod": 1}, {"pod": 1}]
    check_books(made)
    assert ask(made, jobspec(nodes(3, workers), nodes(1, beside)), 8).verdict is MatchVerdict.UNSATISFIABLE


def test_two_slots_of_one_name_are_no_request() -> None:
    assert (
        ask(engine(*THREE), jobspec(slot(1, cpu=1_000), slot(1, cpu=1_000))).verdict
        is MatchVerdict.UNSATISFIABLE
    )


@pytest.mark.parametrize("policy", ["lonode", "hinode"])
def test_slots_of_several_sizes_follow_the_policy_of_their_request(policy: str) -> None:
    made = engine(*(node(name, cpu=8_000, pods=10) for name in "abc"))
    text = jobspec(slot(1, "pod.0", cpu=1_000, pods=1), slot(2, "pod.1", cpu=2_000, pods=1))
    (result,) = made.match_batch([JobMatchRequest(text, 1, policy=policy)], NOW).results
    assert {share.node for share in result.shares} == {"a" if policy == "lonode" else "c"}


@pytest.mark.parametrize("policy", ["lonode", "hinode", "low"])
@pytest.mark.parametrize("pods", [1, 3, 7])
def test_slots_of_several_sizes_are_placed_as_by_the_traverser(
    policy: str, pods: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = jobspec(
        slot(pods, "pod.0", cpu=1_050, pods=1),
        slot(2, "pod.1", cpu=2_000, memory=300, pods=1),
        slot(1, "pod.2", cpu=50),
    )
    quick, walked = (engine(*THREE, policy=policy) for _ in range(2))
    for made in (quick, walked):
        ask(made, jobspec(slot(2, cpu=700, pods=1)), 1)
    first = ask(quick, text, 2)
    monkeypatch.setattr(Shortcut, "covers", lambda _shortcut, _plan: False)
    assert ask(walked, text, 2) == first
    check_books(quick)
