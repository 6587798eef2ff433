"""Who is preempted in the simulation, and when it looks again; whole traces are in `test_simulator`."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import pytest
from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.fluxion.changes import RestoreJobs
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, NodeShare, Pool, RestoredJob
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.preemption import SimulatedPreemption
from fluxqueue.queue.simulator.simulated_growth import SimulatedGrowth

NOW_S = 100
CALL = CallContext(now=int(EPOCH.timestamp()) + NOW_S)
SLOT = {"type": "slot", "count": 1, "label": "pod", "with": [{"type": "core", "count": 1}]}
JOBSPEC = orjson.dumps(
    {"version": 1, "resources": [SLOT], "tasks": [], "attributes": {"system": {}}}
).decode()
NO_RULES = PreemptionRules()


@dataclass
class Ran:
    start_s: int
    hosts: tuple[int, ...] = ()


def work(name: str, **changes: int) -> Workload:
    return a_workload(name, jobspec=JOBSPEC, duration_s=600, **changes)


async def victims(
    first: Workload, *running: tuple[Workload, Ran], rules: PreemptionRules = NO_RULES
) -> tuple[list[WorkloadId], int | None]:
    """The victims for work on a machine of one node for each that runs, and when to look again."""
    fluxion = LocalFluxion()
    nodes = [GraphNodeSpec(f"n{number}", (Pool("core", 1),)) for number in range(len(running))]
    await fluxion.init("lonode", nodes=nodes, call=CALL)
    end = int(EPOCH.timestamp()) + 1_000
    jobs = [
        RestoredJob(
            int(each.id), (NodeShare(f"n{number}", {"pod": 1}, {"core": 1}),), int(EPOCH.timestamp()), end
        )
        for number, (each, _) in enumerate(running)
    ]
    await fluxion.apply([RestoreJobs(jobs)], call=CALL)
    discipline = Discipline(Policy.EASY, preemption=Preemption.LOWER_PRIORITY, preemption_rules=rules)
    backlog = Backlog()
    backlog.update([first])
    growth = SimulatedGrowth(fluxion, int(EPOCH.timestamp()))
    preemption = SimulatedPreemption(fluxion, {"default": discipline}, EPOCH, growth)
    found = await preemption.choose(
        {"default": backlog}, {}, {each.id: (each, ran) for each, ran in running}, NOW_S
    )
    await fluxion.close()
    return [each.workload for each in found], preemption.retry_s


async def test_the_one_that_ran_shortest_is_preempted() -> None:
    old, young = work("old"), work("young")
    assert await victims(work("first", priority=10), (old, Ran(10)), (young, Ran(90))) == ([young.id], None)


async def test_work_that_comes_first_in_order_is_preempted_for_nobody() -> None:
    ahead = work("ahead", added_priority=100)
    assert await victims(work("first", priority=10), (ahead, Ran(10))) == ([], None)


@pytest.mark.parametrize(("start_s", "preempted"), [(40, True), (41, False)])
async def test_work_is_spared_until_it_ran_for_its_least_time(start_s: int, preempted: bool) -> None:
    spared = work("spared")
    found, retry_s = await victims(
        work("first", priority=10), (spared, Ran(start_s)), rules=PreemptionRules(min_run_seconds=60)
    )
    assert found == ([spared.id] if preempted else [])
    assert retry_s == (None if preempted else start_s + 60)
