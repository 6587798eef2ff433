"""Partial cancel, restore, foreign pods, extension, nodes that change."""

from __future__ import annotations

import pytest
from unit.fluxion.builders import NOW, ask, check_books, engine, holdings, jobspec, node, nodes, slot

from fluxqueue.fluxion.changes import AddNodes, CancelPart, Change, ExtendJob, RemoveNodes, ResizeSystem, RestoreJobs, SetNodeStatus
from fluxqueue.fluxion.messages import Mode, NodeShare, RestoredJob, Verdict

TWO = (node("a", cpu=4_000, pods=10), node("b", cpu=4_000, pods=10))


def share(name: str, slots: int = 0, **amounts: int) -> NodeShare:
    return NodeShare(name, {"w": slots} if slots else {}, amounts)


def test_slots_come_back_one_by_one_and_the_job_ends_with_the_last() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(6, cpu=1_000, pods=1)), 1)
    assert made.partial_cancel(1, [share("a", 1)], (), NOW).done
    assert made.job_info(1).shares == (share("a", 3, cpu=3_000, pods=3), share("b", 2, cpu=2_000, pods=2))
    check_books(made)
    assert made.partial_cancel(1, [share("a", 3), share("b", 1)], (), NOW).done
    assert made.partial_cancel(1, [share("b", 1)], (), NOW).done
    assert made.job_info(1).mode is Mode.CANCELED
    assert made.stat(NOW).free == {"cpu": 8_000, "pods": 20}


def test_more_than_a_job_has_cannot_be_given_back() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(2, cpu=1_000)), 1)
    before = holdings(made)
    assert "has 2 slots 'w' on node 'a', not 3" in made.partial_cancel(1, [share("a", 3)], (), NOW).reason
    assert not made.partial_cancel(1, [share("a", 1), share("b", 1)], (), NOW).done
    assert holdings(made) == before


def test_amounts_and_paths_can_be_given_back() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(1, cpu=1_000)), 1)
    assert made.partial_cancel(1, [share("a", cpu=300)], (), NOW).done
    assert made.partial_cancel(1, [], ["/cluster0/a/cpu0"], NOW).done
    assert made.job_info(1).shares[0].amounts == {"cpu": 600}


def test_a_known_allocation_is_put_back_and_repeating_it_changes_nothing() -> None:
    made = engine(*TWO)
    job = RestoredJob(5, (share("a", 2, cpu=2_000, pods=2), share("b", 1, cpu=1_000, pods=1)), at=900, end=1_500)
    assert made.restore([job], NOW).done
    before = holdings(made)
    assert made.restore([job], NOW).done
    assert holdings(made) == before
    assert made.job_info(5).shares == job.shares
    assert made.partial_cancel(5, [share("a", 1)], (), NOW).done
    assert made.job_info(5).shares == (share("a", 1, cpu=1_000, pods=1), share("b", 1, cpu=1_000, pods=1))
    assert not made.restore([job], NOW).done, "the same id with other shares"


def test_a_restored_job_that_no_longer_fits_its_node_closes_it_until_room_is_made() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(3, cpu=1_000)), 1)
    applied = made.restore([RestoredJob(5, (share("a", 2, cpu=2_000),))], NOW)
    assert applied.done
    assert applied.excess == (share("a", cpu=1_000),)
    assert ask(made, jobspec(slot(1, pods=1)), 6).shares[0].node == "b"
    made.cancel_many([1], NOW)
    assert made.stat(NOW, per_node=True).node_use[0].used == {"cpu": 2_000, "pods": 0}
    assert ask(made, jobspec(slot(1, pods=1)), 7).shares[0].node == "a"


def test_a_restored_share_waits_for_its_node() -> None:
    made = engine(*TWO)
    made.restore([RestoredJob(5, (share("z", 1, cpu=1_000),))], NOW)
    assert made.job_info(5).shares == (share("z", 1, cpu=1_000),)
    made.add_nodes([node("z", cpu=2_000)], NOW)
    assert made.stat(NOW, per_node=True).node_use[-1].used == {"cpu": 1_000}


def test_foreign_pods_take_what_is_free_and_close_the_node_for_the_rest() -> None:
    made = engine(*TWO)
    assert made.resize([share("a", cpu=1_050, pods=3)], NOW).excess == ()
    assert ask(made, jobspec(slot(3, cpu=1_000)), 1).shares == (share("a", 2, cpu=2_000), share("b", 1, cpu=1_000))
    assert made.resize([share("a", cpu=3_000)], NOW).excess == (share("a", cpu=1_000),)
    assert made.stat(NOW, per_node=True).node_use[0].closed
    made.partial_cancel(1, [share("a", 1)], (), NOW)
    assert not made.stat(NOW, per_node=True).node_use[0].closed
    assert [job.mode for job in made.list_jobs(NOW)] == [Mode.SYSTEM, Mode.ALLOCATED]
    assert made.resize([share("a")], NOW).done
    assert made.stat(NOW).free["cpu"] == 6_000
    check_books(made)


def test_foreign_pods_push_reservations_aside() -> None:
    made = engine(node("a", cpu=400))
    ask(made, jobspec(slot(4, cpu=100), duration=10), 1)
    ask(made, jobspec(slot(4, cpu=100), duration=10), 2, reserve=True)
    made.cancel_many([1], NOW)
    assert made.resize([share("a", cpu=100)], NOW).displaced == (2,)


def test_extending_a_job_drops_the_reservations_behind_it() -> None:
    made = engine(node("a", cpu=400))
    ask(made, jobspec(slot(4, cpu=100), duration=10), 1)
    ask(made, jobspec(slot(1, cpu=100), duration=10), 2, reserve=True)
    assert made.extend(1, 1_010, NOW).displaced == ()
    assert made.extend(1, 1_011, NOW).displaced == (2,)
    assert made.job_info(1).end == 1_011
    assert made.job_info(2).mode is Mode.CANCELED
    assert not made.extend(1, 999, NOW).done


def test_a_removed_node_keeps_its_jobs_and_takes_them_back_when_it_returns() -> None:
    made = engine(*TWO)
    ask(made, jobspec(nodes(2, slot(1, cpu=4_000))), 1)
    assert made.remove_nodes(["a"], NOW).done
    assert made.stat(NOW).nodes == 1
    assert made.job_info(1).shares[0].node == "a"
    made.add_nodes([node("a", cpu=6_000, pods=10)], NOW)
    assert ask(made, jobspec(slot(2, cpu=1_000)), 2).shares == (share("a", 2, cpu=2_000),)
    made.cancel_many([1], NOW)
    assert made.stat(NOW).free["cpu"] == 8_000
    check_books(made)


def test_a_node_that_shrinks_below_its_jobs_is_closed() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(3, cpu=1_000)), 1)
    made.add_nodes([node("a", cpu=2_000, pods=10)], NOW)
    assert made.stat(NOW, per_node=True).node_use[0].closed
    assert ask(made, jobspec(slot(1, pods=1)), 2).shares[0].node == "b"
    made.cancel_many([1], NOW)
    assert ask(made, jobspec(slot(1, pods=1)), 3).shares[0].node == "a"


def test_a_new_node_and_a_new_label_end_a_wait() -> None:
    made = engine(*TWO)
    wanted = jobspec(slot(1, gpu=1), constraints={"properties": ["fast"]})
    assert ask(made, wanted, 1).verdict is Verdict.UNSATISFIABLE
    made.add_nodes([node("g", zone="z1", gpu=2)], NOW)
    assert ask(made, wanted, 1).verdict is Verdict.UNSATISFIABLE
    assert made.set_properties({"g": {"fast": "yes"}}, NOW).done
    assert ask(made, wanted, 1).verdict is Verdict.GRANTED
    assert not made.set_properties({"nobody": {}}, NOW).done


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


def test_a_bound_foreign_pod_becomes_ours_in_one_step() -> None:
    made = engine(node("a", cpu=400))
    made.resize([share("a", cpu=400)], NOW)
    swap: list[Change] = [RestoreJobs((RestoredJob(4, (share("a", 1, cpu=200),)),)), ResizeSystem((share("a", cpu=200),))]
    applied = made.apply(swap, NOW)
    assert (applied.done, applied.excess) == (True, ())
    assert made.stat(NOW).free["cpu"] == 0
    check_books(made)


def test_plans_stay_right_when_nodes_come_back_at_another_row() -> None:
    made = engine(node("a", cpu=400), node("b", cpu=400))
    ask(made, jobspec(nodes(2, slot(1, cpu=400)), duration=100), 1)
    assert ask(made, jobspec(slot(1, cpu=400), duration=10), 2, reserve=True).at == 1_100
    made.cancel_many([2], NOW)
    made.remove_nodes(["a"], NOW)
    made.add_nodes([node("c", cpu=400)], NOW)
    ask(made, jobspec(slot(1, cpu=400), duration=50), 3)
    made.add_nodes([node("a", zone="z", cpu=400)], NOW)
    reserved = ask(made, jobspec(slot(1, cpu=400), duration=10), 4, reserve=True)
    assert (reserved.at, reserved.shares[0].node) == (1_050, "c")
    check_books(made)
