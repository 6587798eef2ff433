"""Partial cancel, restore, system allocations, extend, and nodes that change."""

from __future__ import annotations

from typing import Any

import pytest
from support.fluxion_builders import NOW, ask, check_books, engine, holdings, jobspec, node, nodes, slot

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetNodeStatus,
    SetProperties,
)
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import (
    GraphNodeSpec,
    JobMatchRequest,
    JobMode,
    MatchBatch,
    MatchVerdict,
    NodeShare,
    RestoredJob,
)

TWO = (node("a", cpu=4_000, pods=10), node("b", cpu=4_000, pods=10))


def share(name: str, slots: int = 0, **amounts: int) -> NodeShare:
    return NodeShare(name, {"w": slots} if slots else {}, amounts)


def test_slots_are_given_back_one_by_one_until_the_job_ends() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(6, cpu=1_000, pods=1)), 1)
    assert made.apply([CancelPart(1, [share("a", 1)])], NOW).done
    assert made.job_info(1).shares == (share("a", 3, cpu=3_000, pods=3), share("b", 2, cpu=2_000, pods=2))
    check_books(made)
    assert made.apply([CancelPart(1, [share("a", 3), share("b", 1)])], NOW).done
    assert made.apply([CancelPart(1, [share("b", 1)])], NOW).done
    assert made.job_info(1).mode is JobMode.CANCELED
    assert made.stat(NOW).free == {"cpu": 8_000, "pods": 20}


def test_more_than_a_job_has_cannot_be_given_back() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(2, cpu=1_000)), 1)
    before = holdings(made)
    assert "has 2 slots 'w' on node 'a', not 3" in made.apply([CancelPart(1, [share("a", 3)])], NOW).reason
    assert not made.apply([CancelPart(1, [share("a", 1), share("b", 1)])], NOW).done
    assert holdings(made) == before


def test_amounts_and_paths_can_be_given_back() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(1, cpu=1_000)), 1)
    assert made.apply([CancelPart(1, [share("a", cpu=300)])], NOW).done
    assert made.apply([CancelPart(1, [], ["/cluster0/a/cpu0"])], NOW).done
    assert made.job_info(1).shares[0].amounts == {"cpu": 600}


def test_a_restore_is_idempotent() -> None:
    made = engine(*TWO)
    job = RestoredJob(
        5, (share("a", 2, cpu=2_000, pods=2), share("b", 1, cpu=1_000, pods=1)), at=900, end=1_500
    )
    assert made.apply([RestoreJobs([job])], NOW).done
    before = holdings(made)
    assert made.apply([RestoreJobs([job])], NOW).done
    assert holdings(made) == before
    assert made.job_info(5).shares == job.shares
    assert made.apply([CancelPart(5, [share("a", 1)])], NOW).done
    assert made.job_info(5).shares == (share("a", 1, cpu=1_000, pods=1), share("b", 1, cpu=1_000, pods=1))
    assert not made.apply([RestoreJobs([job])], NOW).done, "the same id with other shares"


def test_a_restored_job_that_exceeds_its_node_closes_it_until_enough_is_free() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(3, cpu=1_000)), 1)
    applied = made.apply([RestoreJobs([RestoredJob(5, (share("a", 2, cpu=2_000),))])], NOW)
    assert applied.done
    assert applied.excess == (share("a", cpu=1_000),)
    assert ask(made, jobspec(slot(1, pods=1)), 6).shares[0].node == "b"
    made.apply([CancelJobs([1])], NOW)
    assert made.stat(NOW, per_node=True).node_use[0].used == {"cpu": 2_000, "pods": 0}
    assert ask(made, jobspec(slot(1, pods=1)), 7).shares[0].node == "a"


def test_a_restored_share_waits_for_its_node() -> None:
    made = engine(*TWO)
    made.apply([RestoreJobs([RestoredJob(5, (share("z", 1, cpu=1_000),))])], NOW)
    assert made.job_info(5).shares == (share("z", 1, cpu=1_000),)
    made.apply([AddNodes([node("z", cpu=2_000)])], NOW)
    assert made.stat(NOW, per_node=True).node_use[-1].used == {"cpu": 1_000}


def test_a_system_allocation_takes_what_is_free_and_closes_the_node_for_the_rest() -> None:
    made = engine(*TWO)
    assert made.apply([ResizeSystem([share("a", cpu=1_050, pods=3)])], NOW).excess == ()
    assert ask(made, jobspec(slot(3, cpu=1_000)), 1).shares == (
        share("a", 2, cpu=2_000),
        share("b", 1, cpu=1_000),
    )
    assert made.apply([ResizeSystem([share("a", cpu=3_000)])], NOW).excess == (share("a", cpu=1_000),)
    assert made.stat(NOW, per_node=True).node_use[0].closed
    made.apply([CancelPart(1, [share("a", 1)])], NOW)
    assert not made.stat(NOW, per_node=True).node_use[0].closed
    assert [job.mode for job in made.list_jobs(NOW)] == [JobMode.SYSTEM, JobMode.ALLOCATED]
    assert made.apply([ResizeSystem([share("a")])], NOW).done
    assert made.stat(NOW).free["cpu"] == 6_000
    check_books(made)


def test_a_system_allocation_drops_reservations() -> None:
    made = engine(node("a", cpu=400))
    ask(made, jobspec(slot(4, cpu=100), duration=10), 1)
    ask(made, jobspec(slot(4, cpu=100), duration=10), 2, reserve=True)
    made.apply([CancelJobs([1])], NOW)
    assert made.apply([ResizeSystem([share("a", cpu=100)])], NOW).displaced == (2,)


def test_extending_a_job_drops_the_reservations_behind_it() -> None:
    made = engine(node("a", cpu=400))
    ask(made, jobspec(slot(4, cpu=100), duration=10), 1)
    ask(made, jobspec(slot(1, cpu=100), duration=10), 2, reserve=True)
    assert made.apply([ExtendJob(1, 1_010)], NOW).displaced == ()
    assert made.apply([ExtendJob(1, 1_011)], NOW).displaced == (2,)
    assert made.job_info(1).end == 1_011
    assert made.job_info(2).mode is JobMode.CANCELED
    assert not made.apply([ExtendJob(1, 999)], NOW).done


def test_a_removed_node_keeps_its_jobs_and_has_them_when_it_is_added_again() -> None:
    made = engine(*TWO)
    ask(made, jobspec(nodes(2, slot(1, cpu=4_000))), 1)
    assert made.apply([RemoveNodes(["a"])], NOW).done
    assert made.stat(NOW).nodes == 1
    assert made.job_info(1).shares[0].node == "a"
    made.apply([AddNodes([node("a", cpu=6_000, pods=10)])], NOW)
    assert ask(made, jobspec(slot(2, cpu=1_000)), 2).shares == (share("a", 2, cpu=2_000),)
    made.apply([CancelJobs([1])], NOW)
    assert made.stat(NOW).free["cpu"] == 8_000
    check_books(made)


def test_a_node_that_shrinks_below_its_jobs_is_closed() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(3, cpu=1_000)), 1)
    made.apply([AddNodes([node("a", cpu=2_000, pods=10)])], NOW)
    assert made.stat(NOW, per_node=True).node_use[0].closed
    assert ask(made, jobspec(slot(1, pods=1)), 2).shares[0].node == "b"
    made.apply([CancelJobs([1])], NOW)
    assert ask(made, jobspec(slot(1, pods=1)), 3).shares[0].node == "a"


def test_a_new_node_and_a_new_label_make_a_request_fit() -> None:
    made = engine(*TWO)
    wanted = jobspec(slot(1, gpu=1), constraints={"properties": ["fast"]})
    assert ask(made, wanted, 1).verdict is MatchVerdict.UNSATISFIABLE
    made.apply([AddNodes([node("g", zone="z1", gpu=2)])], NOW)
    assert ask(made, wanted, 1).verdict is MatchVerdict.UNSATISFIABLE
    assert made.apply([SetProperties({"g": {"fast": "yes"}})], NOW).done
    assert ask(made, wanted, 1).verdict is MatchVerdict.GRANTED
    assert not made.apply([SetProperties({"nobody": {}})], NOW).done


@pytest.mark.parametrize(
    "last",
    [
        ExtendJob(99, 5_000),
        CancelPart(1, (share("b", 1),)),
        ResizeSystem((share("nobody", cpu=1),)),
        SetNodeStatus({"/nowhere": False}),
        RestoreJobs((RestoredJob(0, ()),)),
    ],
)
def test_several_changes_are_made_together_or_not_at_all(last: Change) -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(3, cpu=1_000)), 1)
    ask(made, jobspec(nodes(1, exclusive=True), duration=10), 3)
    ask(made, jobspec(nodes(2, exclusive=True), duration=10), 2, reserve=True)
    before, jobs = holdings(made), made.list_jobs(NOW, with_shares=True)
    changes: list[Change] = [
        CancelPart(1, (share("a", 1),)),
        ResizeSystem((share("a", cpu=1_500),)),
        RestoreJobs((RestoredJob(7, (share("b", 1, cpu=500),)),)),
        AddNodes((node("b", zone="elsewhere", labels=("moved",), cpu=8_000, pods=1), node("n", cpu=100))),
        SetNodeStatus({"a": False}),
        RemoveNodes(("a",)),
        last,
    ]
    applied = made.apply(changes, NOW)
    assert (applied.done, applied.failed_index) == (False, len(changes) - 1)
    assert applied.reason
    after = holdings(made)
    assert {key: value for key, value in after.items() if key in before} == before
    assert made.list_jobs(NOW, with_shares=True) == jobs
    assert made.apply(changes[:-1], NOW).done
    check_books(made)


def test_a_pod_of_the_system_allocation_becomes_a_job_in_one_step() -> None:
    made = engine(node("a", cpu=400))
    made.apply([ResizeSystem([share("a", cpu=400)])], NOW)
    swap: list[Change] = [
        RestoreJobs((RestoredJob(4, (share("a", 1, cpu=200),)),)),
        ResizeSystem((share("a", cpu=200),)),
    ]
    applied = made.apply(swap, NOW)
    assert (applied.done, applied.excess) == (True, ())
    assert made.stat(NOW).free["cpu"] == 0
    check_books(made)


def test_plans_stay_right_when_nodes_return_at_another_row() -> None:
    made = engine(node("a", cpu=400), node("b", cpu=400))
    ask(made, jobspec(nodes(2, slot(1, cpu=400)), duration=100), 1)
    assert ask(made, jobspec(slot(1, cpu=400), duration=10), 2, reserve=True).at == 1_100
    made.apply([CancelJobs([2])], NOW)
    made.apply([RemoveNodes(["a"])], NOW)
    made.apply([AddNodes([node("c", cpu=400)])], NOW)
    ask(made, jobspec(slot(1, cpu=400), duration=50), 3)
    made.apply([AddNodes([node("a", zone="z", cpu=400)])], NOW)
    reserved = ask(made, jobspec(slot(1, cpu=400), duration=10), 4, reserve=True)
    assert (reserved.at, reserved.shares[0].node) == (1_050, "c")
    check_books(made)


# ---- reservations on nodes that change ---------------------------------------------------------------------


def reserved_on(*specs: GraphNodeSpec, constraint: dict[str, object]) -> Engine:
    """A machine that is full for a minute, with job 2 reserved after job 1."""
    made = engine(*specs)
    ask(made, jobspec(slot(2, cpu=4_000)), 1)
    assert ask(made, jobspec(slot(1, cpu=4_000), constraints=constraint), 2, reserve=True).at == 1_060
    return made


def test_a_reservation_is_dropped_when_its_node_loses_a_label_it_needs() -> None:
    ssd = reserved_on(
        node("a", cpu=4_000, labels=("ssd",)), node("b", cpu=4_000), constraint={"properties": ["ssd"]}
    )
    assert ssd.apply([AddNodes([node("a", cpu=4_000)])], NOW).displaced == (2,)
    check_books(ssd)
    assert (
        ask(ssd, jobspec(slot(1, cpu=4_000), constraints={"properties": ["ssd"]}), 2, reserve=True).verdict
        is MatchVerdict.UNSATISFIABLE
    )
    ssd.apply([AddNodes([node("a", cpu=4_000, labels=("ssd",))])], NOW)
    assert (
        ask(ssd, jobspec(slot(1, cpu=4_000), constraints={"properties": ["ssd"]}), 2, reserve=True).at
        == 1_060
    )


def test_a_reservation_is_dropped_when_its_node_gets_a_taint() -> None:
    clean = reserved_on(node("a", cpu=4_000), node("b", cpu=4_000), constraint={"properties": ["^dirty"]})
    assert clean.apply([SetProperties({"a": {"dirty": ""}})], NOW).displaced == (2,)


def test_a_reservation_stays_when_another_label_changes() -> None:
    made = reserved_on(
        node("a", cpu=4_000, labels=("ssd",)), node("b", cpu=4_000), constraint={"properties": ["ssd"]}
    )
    before = made.job_info(2)
    assert (
        made.apply(
            [AddNodes([node("a", cpu=4_000, labels=("ssd", "new")), node("b", cpu=4_000, labels=("new",))])],
            NOW,
        ).displaced
        == ()
    )
    assert made.job_info(2) == before
    check_books(made)


def test_a_reservation_in_one_zone_is_dropped_when_a_node_changes_zone() -> None:
    made = engine(node("a", zone="z", cpu=4_000), node("b", zone="z", cpu=4_000))
    ask(made, jobspec(slot(2, cpu=4_000)), 1)
    together = jobspec({"type": "zone", "count": 1, "with": [nodes(2, slot(1, cpu=4_000))]})
    assert ask(made, together, 2, reserve=True).at == 1_060
    assert made.apply([AddNodes([node("b", zone="y", cpu=4_000)])], NOW).displaced == (2,)


def test_a_reservation_made_at_a_given_time_is_held_to_its_request_too() -> None:
    made = engine(node("a", cpu=4_000, labels=("ssd",)))
    assert (
        made.reserve_at(
            2, jobspec(slot(1, cpu=4_000), constraints={"properties": ["ssd"]}), 1_060, call=NOW
        ).verdict
        is MatchVerdict.RESERVED
    )
    assert made.apply([SetProperties({"a": {}})], NOW).displaced == (2,)


# ---- reservations that yield -------------------------------------------------------------------------------


def yields(made: Engine, text: str, jobid: int, *lower: int, **options: Any) -> MatchBatch:
    return made.match_batch([JobMatchRequest(text, jobid, explain=True, **options)], NOW, yielding=lower)


def promised(duration: float = 60) -> Engine:
    """Node a is busy for a minute; job 2 is reserved on both nodes after that."""
    made = engine(*TWO)
    ask(made, jobspec(slot(1, cpu=4_000)), 1)
    assert ask(made, jobspec(slot(2, cpu=4_000), duration=duration), 2, reserve=True).at == 1_060
    return made


def test_a_yielding_reservation_blocks_nothing_and_is_reported_as_displaced() -> None:
    made = promised()
    long = jobspec(slot(1, cpu=4_000), duration=600)
    assert ask(made, long, 3).verdict is MatchVerdict.BUSY
    batch = yields(made, long, 3, 2)
    assert (batch.results[0].verdict, batch.results[0].shares[0].node, batch.displaced) == (
        MatchVerdict.GRANTED,
        "b",
        (2,),
    )
    assert [job.jobid for job in made.list_jobs()] == [1, 3]
    check_books(made)


def test_a_yielding_reservation_stays_if_its_resources_are_not_taken() -> None:
    made = promised()
    before = made.job_info(2)
    batch = yields(made, jobspec(slot(1, cpu=4_000), duration=60), 3, 2)
    assert (batch.results[0].verdict, batch.displaced) == (MatchVerdict.GRANTED, ())
    assert made.job_info(2) == before
    assert yields(made, jobspec(slot(9, cpu=4_000)), 4, 2, 77, 1).displaced == (77,), (
        "what is no reservation never yields"
    )
    check_books(made)


def test_a_reservation_may_take_the_resources_of_a_yielding_one() -> None:
    made = promised()
    batch = yields(made, jobspec(slot(2, cpu=4_000)), 3, 2, reserve=True)
    assert (batch.results[0].verdict, batch.results[0].at, batch.displaced) == (
        MatchVerdict.RESERVED,
        1_060,
        (2,),
    )


def test_repeating_a_batch_with_a_yielding_reservation_repeats_its_answer() -> None:
    made = promised()
    long = jobspec(slot(1, cpu=4_000), duration=600)
    first, again = yields(made, long, 3, 2), yields(made, long, 3, 2)
    assert (first.results, first.displaced) == (again.results, again.displaced)


def test_a_trial_ignores_jobs_and_changes_nothing() -> None:
    made = promised()
    before = holdings(made)
    (answer,) = made.trial(
        [JobMatchRequest(jobspec(slot(2, cpu=4_000), duration=600), 9)], [1, 2], NOW
    ).results
    assert answer.verdict is MatchVerdict.GRANTED
    (answer,) = made.trial([JobMatchRequest(jobspec(slot(2, cpu=4_000), duration=600), 9)], [2], NOW).results
    assert answer.verdict is MatchVerdict.BUSY
    assert holdings(made) == before
    assert [job.jobid for job in made.list_jobs()] == [1, 2]
    check_books(made)


def test_a_trial_ignores_parts_of_jobs_and_changes_nothing() -> None:
    made = engine(node("a", cpu=4_000), node("b", cpu=4_000))
    made.apply(
        [
            RestoreJobs(
                [
                    RestoredJob(
                        1,
                        (
                            NodeShare("a", {"pod": 1}, {"cpu": 4_000}),
                            NodeShare("b", {"pod": 1}, {"cpu": 4_000}),
                        ),
                        1_000,
                        2_000,
                    )
                ]
            )
        ],
        NOW,
    )
    before, asked = holdings(made), [JobMatchRequest(jobspec(slot(1, cpu=4_000), duration=600), 9)]
    (answer,) = made.trial(asked, (), NOW, [CancelPart(1, (NodeShare("b"),))]).results
    assert (answer.verdict, [share.node for share in answer.shares]) == (MatchVerdict.GRANTED, ["b"])
    (answer,) = made.trial(asked, (), NOW, [CancelPart(1, (NodeShare("c"),))]).results
    assert answer.verdict is MatchVerdict.BUSY, "it does not hold that"
    assert holdings(made) == before
    check_books(made)


def test_a_shrunken_node_relocates_its_jobs_and_stays_open_while_they_fit() -> None:
    made = engine(node("a", cpu=4_000, pods=10))
    for jobid in (1, 2):
        ask(made, jobspec(slot(2, cpu=1_000, pods=1)), jobid)
    made.apply([CancelJobs([1])], NOW)
    assert made.apply([AddNodes([node("a", cpu=3_000, pods=10)])], NOW).done
    check_books(made)
    assert not made.stat(NOW, per_node=True).node_use[0].closed
    assert ask(made, jobspec(slot(1, cpu=1_000, pods=1)), 3).verdict is MatchVerdict.GRANTED
    assert ask(made, jobspec(slot(1, cpu=100, pods=1)), 4).verdict is not MatchVerdict.GRANTED
    check_books(made)
    assert made.apply([CancelPart(2, [NodeShare("a", {"w": 1})])], call=NOW).done
    assert ask(made, jobspec(slot(1, cpu=1_000, pods=1)), 5).verdict is MatchVerdict.GRANTED
    check_books(made)


def test_a_shrunken_node_is_closed_until_its_jobs_fit() -> None:
    made = engine(node("a", cpu=4_000, pods=10))
    for jobid in (1, 2):
        ask(made, jobspec(slot(2, cpu=1_000, pods=1)), jobid)
    made.apply([AddNodes([node("a", cpu=3_000, pods=10)])], NOW)
    assert made.stat(NOW, per_node=True).node_use[0].closed
    made.apply([CancelJobs([1])], NOW)
    check_books(made)
    assert not made.stat(NOW, per_node=True).node_use[0].closed
