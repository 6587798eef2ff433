"""Deployments with a floor give pods above it back before anything is evicted,
with the matcher in process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from support.elastic_jobs import ShownPods, held, moldable, replicas, started
from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.given_back import given_ranks
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.victim_views import BudgetShare, Floor, Return, VictimView


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Shown(ShownPods):
    """Pods of Deployments, whose budget allows a number of disruptions."""

    allowed = 9

    def view(self, workload: Workload, allocation: Allocation) -> VictimView:
        known = workload.kind != "Pod" or workload.uid in self.floor_of_pod
        return super().view(workload, allocation) if known else VictimView(returns=Return.REPLACED)

    def budgets(self, workload: Workload, _allocation: Allocation) -> Sequence[BudgetShare]:
        return [BudgetShare("default", "web", 1, self.allowed)] if workload.uid in self.floor_of_pod else []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
async def bench(clock: Clock, shown: Shown) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        made.shown = shown
        yield made


async def deployed(
    bench: Bench, shown: Shown, clock: Clock, pods: int, least: int, name: str = "web"
) -> None:
    """Start the pods of a Deployment, one a minute: the last one loses least."""
    for each in replicas(shown, name, pods, least):
        await started(bench, shown, each)
        clock.now += timedelta(minutes=1)


def ending(bench: Bench, *prefixes: str) -> list[str]:
    rows = (row for row in bench.ledger.all() if row.state is State.DRAINING)
    return sorted(row.name for row in rows if row.name.startswith(prefixes or ("",)))


async def urgent(bench: Bench, pods: int, name: str = "urgent", priority: int = 10) -> None:
    await bench.submit(job(name, pods, "8", "1h", priority=priority))
    await bench.cycle()


async def test_pods_above_the_floor_end_before_a_younger_job_is_evicted(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    await deployed(bench, shown, clock, 3, 1)
    await started(bench, shown, job("rigid", 1, "8", "1h"))
    await urgent(bench, 2)
    assert ending(bench) == ["web-1", "web-2"]
    said = (
        f"Deployment default/web (priority 0) gave 2 of its 3 pods back at {time_text(clock.now)}, "
        "3 node-minutes lost, so that Job default/urgent (priority 10) starts: it went on with 1"
    )
    assert {bench.row(name).message for name in ending(bench)} == {said}
    assert {bench.row(name).reason for name in ending(bench)} == {Reason.PREEMPTED}
    await bench.cycle()
    assert "; it waits for 2 pods of Deployment default/web to end, since " in bench.row("urgent").message


async def test_the_floor_holds_while_anything_else_of_its_priority_helps(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    await started(bench, shown, job("rigid", 1, "8", "1h"))
    clock.now += timedelta(hours=1)
    await deployed(bench, shown, clock, 3, 3)
    await urgent(bench, 1)
    assert ending(bench) == ["rigid"]


async def test_below_the_floor_pods_end_where_nothing_else_helps_and_are_not_called_given_back(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    await started(bench, shown, job("rigid", 1, "8", "1h", priority=10))
    await deployed(bench, shown, clock, 3, 2)
    await urgent(bench, 2)
    assert ending(bench) == ["web-1", "web-2"]
    assert all(" was preempted by Job default/urgent" in bench.row(name).message for name in ending(bench))


async def test_what_can_be_spared_counts_beside_what_is_evicted(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    await started(bench, shown, job("rigid", 1, "8", "1h"))
    await deployed(bench, shown, clock, 3, 2)
    await urgent(bench, 2)
    assert ending(bench) == ["rigid", "web-2"]


async def test_two_others_are_evicted_before_one_pod_that_is_needed(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    bench.nodes.replace([a_node("n0"), a_node("n1")])
    await started(bench, shown, job("one", 1, "4", "1h"), job("two", 1, "4", "1h"))
    await deployed(bench, shown, clock, 1, 1)
    await urgent(bench, 1)
    assert ending(bench) == ["one", "two"]


async def test_a_pod_that_ends_anyway_is_not_given_back(bench: Bench, shown: Shown, clock: Clock) -> None:
    await deployed(bench, shown, clock, 4, 2)
    shown.pods["web-3"] = {}
    await urgent(bench, 1)
    assert ending(bench) == ["web-2"]
    assert " gave 1 of its 3 pods back " in bench.row("web-2").message


@pytest.mark.parametrize(("least", "evicted"), [(2, "web-2"), (3, "rigid")])
async def test_a_pod_that_only_starts_is_needed_only_while_too_few_run(
    bench: Bench, shown: Shown, clock: Clock, least: int, evicted: str
) -> None:
    await started(bench, shown, job("rigid", 1, "8", "1h"))
    clock.now += timedelta(hours=1)
    *run_already, starts = replicas(shown, "web", 3, least)
    await started(bench, shown, *run_already)
    await bench.submit(starts)
    await bench.cycle()
    await bench.ledger.mark_released([held(bench, "web-2").jobid])
    await urgent(bench, 1)
    assert ending(bench) == [evicted]
    assert " was preempted by Job default/urgent" in bench.row(evicted).message


async def test_jobs_and_deployments_give_pods_back_for_the_same_work(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 2, 1))
    clock.now += timedelta(minutes=1)
    await deployed(bench, shown, clock, 2, 1)
    await urgent(bench, 2)
    assert (ending(bench), len(given_ranks(bench.row("wide")))) == (["web-1"], 1)
    await bench.cycle()
    assert "1 pod of Job default/wide" in bench.row("urgent").message
    assert "1 pod of Deployment default/web" in bench.row("urgent").message


async def test_no_more_end_than_their_budget_allows(bench: Bench, shown: Shown, clock: Clock) -> None:
    shown.allowed = 1
    await deployed(bench, shown, clock, 3, 1)
    await started(bench, shown, job("rigid", 1, "8", "1h"))
    await urgent(bench, 2)
    assert ending(bench) == ["rigid", "web-2"]


async def test_pods_that_are_to_stop_do_not_count_as_running(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=60)
    await deployed(bench, shown, clock, 3, 1)
    await started(bench, shown, job("rigid", 1, "8", "1h"))
    await urgent(bench, 1)
    assert ending(bench) == ["web-2"]
    clock.now += timedelta(minutes=7)  # nothing waits any more for what does not end
    await urgent(bench, 2, "again", 20)
    assert ending(bench) == ["rigid", "web-1", "web-2"]


async def test_pods_go_on_together_if_nobody_needs_their_nodes_any_more(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=60)
    await deployed(bench, shown, clock, 4, 1)
    await urgent(bench, 2)
    assert ending(bench) == ["web-2", "web-3"]
    row = bench.row("urgent")
    await bench.ledger.finish([Ending(row.id, State.CANCELLED, Outcome.CANCELLED, "")])
    await bench.cycle()
    assert ending(bench) == []
    await urgent(bench, 3, "again")
    assert ending(bench) == ["web-1", "web-2", "web-3"]


async def test_without_a_floor_what_loses_least_is_evicted_as_before(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    plain = replicas(shown, "web", 3, 1)
    shown.floor_of_pod.clear()
    await started(bench, shown, *plain)
    clock.now += timedelta(minutes=1)
    await started(bench, shown, job("rigid", 1, "8", "1h"))
    await urgent(bench, 1)
    assert ending(bench) == ["rigid"]
    assert " was preempted by Job default/urgent" in bench.row("rigid").message


async def gang(bench: Bench, shown: Shown, workers: int, least: int) -> None:
    """Start a RayCluster: a head, and workers with a floor."""
    floor = Floor(ReplicaOwner("default", "RayCluster", "ray"), least, "worker/small")
    shown.floors_of_gang["ray"] = {f"ray-{rank}": floor for rank in range(1, workers + 1)}
    described = job("ray", workers + 1, "8", "1h")
    await started(bench, shown, replace(described, kind="RayCluster", release_mode=ReleaseMode.GROUP))


async def test_a_gang_gives_workers_above_their_floor_back_and_never_its_head(
    bench: Bench, shown: Shown, clock: Clock
) -> None:
    await gang(bench, shown, 3, 1)
    clock.now += timedelta(minutes=1)
    await urgent(bench, 2)
    row = bench.row("ray")
    assert (row.state, len(given_ranks(row)), 0 in given_ranks(row)) == (State.RUNNING, 2, False)
    assert row.requeue_state.given_back is not None
    assert row.requeue_state.given_back.message == (
        f"RayCluster default/ray (priority 0) gave 2 of its 3 pods back at {time_text(clock.now)}, "
        "2 node-minutes lost, so that Job default/urgent (priority 10) starts: it went on with 1"
    )
    await bench.cycle()
    assert "; it waits for 2 pods of RayCluster default/ray to end, since " in bench.row("urgent").message


async def test_a_gang_that_has_no_more_workers_to_spare_is_evicted_as_a_whole(
    bench: Bench, shown: Shown
) -> None:
    await gang(bench, shown, 3, 1)
    await urgent(bench, 3)
    assert ending(bench) == ["ray"]


async def test_workers_that_leave_do_not_count_again(bench: Bench, shown: Shown, clock: Clock) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=60)
    await gang(bench, shown, 3, 2)
    await urgent(bench, 1)
    assert len(given_ranks(bench.row("ray"))) == 1
    clock.now += timedelta(minutes=7)  # nothing waits any more for what does not end
    await urgent(bench, 2, "again", 20)
    assert ending(bench) == ["ray"]


async def elastic_gang(bench: Bench, shown: Shown, in_slots: int, alone: int, least: int) -> None:
    """Start a PyTorchJob: workers in slots, of which the first stays, and workers that were matched alone."""
    floor = Floor(ReplicaOwner("default", "PyTorchJob", "train"), least, "worker", as_whole=True)
    uids = [f"train-{rank}" for rank in range(in_slots)]
    further = [job(f"worker-{number}", 1, "8", "1h") for number in range(alone)]
    shown.floors_of_gang["train"] = dict.fromkeys((*uids, *(each.uid for each in further)), floor)
    shown.floors_of_gang["train"]["train-0"] = replace(floor, stays=True)
    shown.floor_of_pod |= {each.uid: floor for each in further}
    described = job("train", in_slots, "8", "1h")
    await started(bench, shown, replace(described, kind="PyTorchJob", release_mode=ReleaseMode.GROUP))
    await started(
        bench, shown, *(replace(each, kind="Pod", release_mode=ReleaseMode.POD) for each in further)
    )


async def test_workers_that_were_matched_alone_count_with_those_in_slots(bench: Bench, shown: Shown) -> None:
    await elastic_gang(bench, shown, 1, 3, 1)
    await urgent(bench, 3)
    assert (ending(bench), given_ranks(bench.row("train"))) == (["worker-0", "worker-1", "worker-2"], set())


async def test_an_owner_at_its_least_is_suspended_and_no_needed_worker_ends_alone(
    bench: Bench, shown: Shown
) -> None:
    await elastic_gang(bench, shown, 2, 2, 4)
    await urgent(bench, 2)
    assert ending(bench) == ["train"]


async def test_the_first_worker_never_ends_alone(bench: Bench, shown: Shown) -> None:
    await elastic_gang(bench, shown, 4, 0, 1)
    await urgent(bench, 3)
    assert (ending(bench), sorted(given_ranks(bench.row("train")))) == ([], [1, 2, 3])


async def test_one_slot_of_a_gang_stays_by_which_it_is_known(bench: Bench, shown: Shown) -> None:
    await elastic_gang(bench, shown, 2, 2, 1)
    shown.floors_of_gang["train"]["train-0"] = shown.floors_of_gang["train"]["train-1"]
    await urgent(bench, 3)
    assert len(given_ranks(bench.row("train"))) == 1
    assert ending(bench) == ["worker-0", "worker-1"]
