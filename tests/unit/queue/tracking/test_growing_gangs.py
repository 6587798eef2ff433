"""The plan of a large gang costs in proportion to its pods, whatever they wait for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.queue_builders import a_job, a_pod, an_allocation
from support.work_counts import assert_linear

from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import SlotState
from fluxqueue.queue.tasks import batches
from fluxqueue.queue.tracking import tracker
from fluxqueue.queue.tracking.group_plan import SeenPods, plan_group_slots
from fluxqueue.queue.tracking.job_plan import ClosedNodes, plan_job_slots
from fluxqueue.queue.tracking.slot_changes import empty_ranks, unplaced_pods


def hosts(count: int) -> list[str]:
    return [f"n{number // 4}" for number in range(count)]


def gated(name: str) -> PodBuilder:
    return make_pod(name).gate("fluxqueue")


def bound(name: str, node: str) -> PodBuilder:
    return make_pod(name).on_node(node).phase("Running")


def waiting(count: int) -> list[Pod]:
    return [a_pod(gated(f"p{number}"), uid=f"p{number}") for number in range(count)]


def running(count: int) -> list[Pod]:
    return [
        a_pod(bound(f"p{number}", node), uid=f"p{number}")
        for number, node in enumerate(reversed(hosts(count)))
    ]


@pytest.mark.parametrize("pods", [waiting, running])
def test_pods_of_a_job_get_their_slots(pods: Callable[[int], list[Pod]]) -> None:
    def plan(count: int) -> Callable[[], object]:
        job, own = (
            a_job(make_job().pods(count, count).suspended(False).label("fluxqueue/jobid", "7")),
            pods(count),
        )
        return lambda: plan_job_slots(job, own, an_allocation(hosts(count)))

    assert_linear(plan)


def test_pods_of_a_job_find_the_nodes_that_take_them() -> None:
    def plan(count: int) -> Callable[[], object]:
        job, own = (
            a_job(make_job().pods(count, count).suspended(False).label("fluxqueue/jobid", "7")),
            waiting(count),
        )
        last = hosts(count)[-1]
        return lambda: plan_job_slots(
            job, own, an_allocation(hosts(count)), closed=ClosedNodes(to_job=lambda node: node != last)
        )

    assert_linear(plan)


@pytest.mark.parametrize("pods", [waiting, running])
def test_pods_of_a_group_get_their_slots(pods: Callable[[int], list[Pod]]) -> None:
    def plan(count: int) -> Callable[[], object]:
        own, allocation = pods(count), an_allocation(hosts(count))
        return lambda: plan_group_slots(
            own, allocation, lambda _pod: "pod", SeenPods(), closed=lambda _pod, node: node != "n0"
        )

    assert_linear(plan)


def test_pods_of_a_group_that_differ_in_their_rules_get_their_slots() -> None:
    def plan(count: int) -> Callable[[], object]:
        own = [
            a_pod(gated(f"p{each}").with_("spec.nodeSelector", {"tier": str(each)}), uid=f"p{each}")
            for each in range(count)
        ]
        return lambda: plan_group_slots(own, an_allocation(hosts(count)), lambda _pod: "pod", SeenPods())

    assert_linear(plan)


def planned_slots(pods: int) -> int:
    """Return how many slots are planned in all while the pods of a gang come one by one, 500 a second."""
    plans, at = 0, 0.0
    while at < pods / 500:
        plans += 1
        at += max(batches._PACE_S, pods * tracker._REST_OF_SLOT_S)
    return plans * pods


def test_gangs_whose_pods_come_one_by_one_are_planned_as_often_whatever_their_size() -> None:
    assert planned_slots(20_000) < 1.5 * 20 * planned_slots(1_000)


def test_slots_of_a_group_that_end_are_found() -> None:
    def plan(count: int) -> Callable[[], object]:
        allocation = an_allocation(
            hosts(count), states=[SlotState.TAKEN] * count, pods=[f"gone{number}" for number in range(count)]
        )

        def run() -> None:
            changes = plan_group_slots(
                [], allocation, lambda _pod: "pod", SeenPods(), expired=list(range(0, count, 2))
            )
            empty_ranks(allocation, changes)
            unplaced_pods([], allocation, changes)

        return run

    assert_linear(plan)
