"""Priority across queues: work ignores reservations of lower priority,
and no two queues drop their reservations in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.queue_builders import a_workload

from fluxqueue.api.fluxqueues import Policy
from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, MatchResult, Pool
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import UNUSED_LAST, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backfill_pass import BackfillPass
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import (
    CycleContext,
    HeldReservation,
    Pass,
    PendingQueue,
    RefusalCache,
    Step,
)
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.round_driver import RoundDriver
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

NOW = 1_800_000_000
POLICIES = [Discipline(Policy.FCFS), Discipline(Policy.EASY), Discipline(Policy.CONSERVATIVE, 3)]
URGENT, USUAL = "urgent", "usual"


def work(name: str, pods: int, minutes: int = 60, queue: str = USUAL, priority: int = 0) -> Workload:
    """Work on whole nodes."""
    requests = {"cpu": Decimal(8), "pods": Decimal(1)}
    jobspec = jobspec_of(f"default/{name}", [SizedPods(requests, pods)], duration_s=60 * minutes)
    return a_workload(
        name,
        jobspec=jobspec,
        shape=jobspec,
        duration_s=60 * minutes,
        pods=pods,
        queue=queue,
        priority=priority,
    )


def urgent(name: str, pods: int, minutes: int = 60, priority: int = 1000) -> Workload:
    return work(name, pods, minutes, URGENT, priority)


class Machine:
    """Four nodes, the queues, and rounds one after the other at the same time."""

    def __init__(self, disciplines: Mapping[str, Discipline], kind: type[Round] = Round) -> None:
        self._kind = kind
        self.ended: set[str] = set()
        self.granted: dict[str, int] = {}
        self.reservations: dict[WorkloadId, HeldReservation] = {}
        self.waiting: list[Workload] = []
        self._disciplines = disciplines
        self._refusal_caches = {name: RefusalCache() for name in disciplines}
        self._fluxion = LocalFluxion()
        self._driver = RoundDriver(self._fluxion, self._identify, self._take)
        self._began = False
        self._jobids: dict[str, FluxionJobId] = {}

    async def _identify(self, workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(int(workload.id)) for workload in workloads]

    async def _take(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            self.granted[workload.name] = answer.at - NOW
            self._jobids[workload.name] = FluxionJobId(answer.jobid)
            self.waiting.remove(workload)

    async def round(self, *arriving: Workload, capacity_changed: bool = False) -> dict[str, str]:
        """Add workloads and run a round; return the causes of dropped reservations, by name."""
        call = CallContext(now=NOW)
        if not self._began:
            await self._fluxion.init(
                "lonode",
                nodes=[
                    GraphNodeSpec(f"n{n}", (Pool("cpu", 8_000, 100), Pool("pods", 110))) for n in range(4)
                ],
                call=call,
            )
            self._began = True
        self.waiting += arriving
        if capacity_changed:
            for cache in self._refusal_caches.values():
                cache.clear()
        queues = [
            PendingQueue(
                name,
                Backlog(each for each in self.waiting if each.queue == name),
                {
                    each.id: self.reservations[each.id]
                    for each in self.waiting
                    if each.queue == name and each.id in self.reservations
                },
                self._refusal_caches[name],
            )
            for name in self._disciplines
        ]
        names = {each.id: each.name for each in self.waiting}
        found = await self._driver.run(
            self._kind(queues, self._disciplines, CycleContext(NOW, capacity_changed)),
            self.reservations,
            call,
        )
        return {names[workload]: cause for each in found for workload, cause in each.dropped.items()}

    async def steps(self, round_: Coroutine[Any, Any, object]) -> int:
        """Return how many calls of the matcher a round makes."""
        before = self._driver.steps
        await round_
        return self._driver.steps - before

    async def end(self, name: str) -> None:
        """End work that runs."""
        self.ended.add(name)
        await self._fluxion.apply([CancelJobs([self._jobids[name]])], call=CallContext(now=NOW))

    def reserved(self) -> dict[str, int]:
        """Return the minutes until each reservation begins."""
        return {
            each.name: (self.reservations[each.id].start - NOW) // 60
            for each in self.waiting
            if each.id in self.reservations
        }


def a_machine(policy: Policy = Policy.EASY) -> Machine:
    return Machine({URGENT: Discipline(policy), USUAL: Discipline(policy)})


# ---- what happens, seen on a few workloads -----------------------------------------------------------------


async def test_work_of_higher_priority_starts_on_idle_nodes_reserved_by_another_queue() -> None:
    machine = a_machine()
    await machine.round(work("running", 2, 11 * 60), work("all", 4))
    assert machine.reserved() == {"all": 11 * 60}
    causes = await machine.round(urgent("now", 2, 24 * 60))
    assert machine.granted == {"running": 0, "now": 0}
    assert causes == {
        "all": "its nodes went to Job default/now of priority 1000 in the queue 'urgent': its own is 0",
    }
    assert machine.reserved() == {"all": 24 * 60}, "it is planned again in the same round"


async def test_what_was_idle_is_told_that_it_waits_last_and_no_number_of_the_order() -> None:
    machine = a_machine()
    was_idle = replace(work("all", 4, priority=10), added_priority=UNUSED_LAST)
    await machine.round(work("running", 2, 11 * 60), was_idle)
    assert machine.reserved() == {"all": 11 * 60}
    causes = await machine.round(urgent("now", 2, 24 * 60))
    assert causes == {
        "all": "its nodes went to Job default/now: what was idle when it was preempted waits last",
    }


async def test_a_reservation_of_higher_priority_displaces_an_older_one_of_another_queue() -> None:
    machine = a_machine()
    await machine.round(work("running", 2, 60), work("all", 4, 300))
    await machine.round(urgent("wide", 3, 30))
    assert machine.reserved() == {"wide": 60, "all": 90}


async def test_a_reservation_stays_if_work_of_higher_priority_does_not_need_its_nodes() -> None:
    machine = a_machine()
    await machine.round(work("running", 2, 60), work("all", 4))
    assert await machine.round(urgent("short", 2, 60)) == {}
    assert (machine.granted, machine.reserved()) == ({"running": 0, "short": 0}, {"all": 60})


async def test_a_reservation_is_kept_against_work_of_equal_priority_in_another_queue() -> None:
    machine = a_machine()
    await machine.round(work("running", 2, 60), work("all", 4))
    assert await machine.round(urgent("long", 2, 120, priority=0)) == {}
    assert machine.granted == {"running": 0}
    assert machine.reserved() == {"all": 60, "long": 120}


@pytest.mark.parametrize("policy", list(Policy))
async def test_all_work_of_a_queue_ignores_reservations_of_lower_priority(policy: Policy) -> None:
    machine = Machine({URGENT: Discipline(policy), USUAL: Discipline(Policy.EASY)})
    await machine.round(work("running", 2, 60), work("all", 4))
    causes = await machine.round(urgent("one", 1, 120), urgent("two", 1, 120))
    assert machine.granted == {"running": 0, "one": 0, "two": 0}
    assert list(causes) == ["all"]


async def test_a_refusal_at_a_lower_priority_does_not_hold_for_a_higher_one() -> None:
    machine = a_machine()
    await machine.round(work("running", 2, 60), work("all", 4), urgent("low", 2, 120, priority=0))
    assert "low" not in machine.granted
    await machine.round(urgent("high", 2, 120, priority=1))
    assert "high" in machine.granted


async def test_work_behind_a_reservation_may_start_when_that_is_displaced() -> None:
    machine = a_machine()
    await machine.round(work("running", 1, 60), work("wide", 4, 60), work("long", 2, 300))
    assert machine.reserved() == {"wide": 60}
    await machine.round(urgent("first", 1, 600))
    assert machine.reserved() == {"wide": 600}
    assert machine.granted == {"running": 0, "first": 0, "long": 0}


async def test_each_priority_of_a_queue_ignores_the_lower_reservations_of_other_queues() -> None:
    machine = Machine({"a": Discipline(), "b": Discipline(), "c": Discipline()})
    await machine.round(work("running", 2, 60, "c"))
    await machine.round(work("middle", 4, 60, "b", priority=500))
    causes = await machine.round(
        work("low", 2, 120, "a", priority=0), work("high", 1, 120, "a", priority=1000)
    )
    assert machine.granted == {"running": 0, "high": 0}
    assert list(causes) == ["middle"]
    assert machine.reserved() == {"middle": 120, "low": 60 * 3}


async def test_queues_for_the_same_nodes_are_asked_once_about_equal_work() -> None:
    names = [f"q{number}" for number in range(6)]
    machine = Machine({name: Discipline() for name in names})
    await machine.round(work("running", 4, 60, "q0"))
    arrived = [
        work(f"{kind}-{name}", pods, 600, name) for kind, pods in (("wide", 4), ("one", 1)) for name in names
    ]
    assert await machine.steps(machine.round(*arrived)) == len(names) + 1, (
        "a reservation for each queue, and one refusal for all"
    )
    assert await machine.steps(machine.round(capacity_changed=True)) == 2, (
        "all reservations in one call, and the refusal"
    )
    assert machine.reserved() == {f"wide-{name}": 60 + 600 * number for number, name in enumerate(names)}


async def test_a_reservation_that_moves_opens_what_was_refused_to_other_queues() -> None:
    machine = Machine({"a": Discipline(), "b": Discipline(), "c": Discipline()})
    await machine.round(work("running", 4, 60, "a"))
    await machine.round(work("wide", 2, 600, "b"), work("behind", 3, 60, "c", priority=-1))
    assert machine.reserved() == {"wide": 60, "behind": 660}
    await machine.end("running")
    await machine.round(work("now", 2, 30, "a", priority=-2), capacity_changed=True)
    assert machine.granted == {"running": 0, "wide": 0, "now": 0}


# ---- what holds always -------------------------------------------------------------------------------------

somebody = st.tuples(
    st.sampled_from([URGENT, USUAL]), st.sampled_from([0, 5, 1000]), st.integers(1, 4), st.integers(1, 30)
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(somebody, max_size=6), min_size=1, max_size=4),
    st.sampled_from(POLICIES),
    st.sampled_from(POLICIES),
)
def test_queues_do_not_drop_the_reservations_of_each_other_in_turn(
    arrivals: list[list[tuple[str, int, int, int]]], one: Discipline, other: Discipline
) -> None:
    async def settle() -> None:
        machine = Machine({URGENT: one, USUAL: other})
        for wave in arrivals:
            await machine.round(
                *(
                    work(f"w{n}", pods, minutes, queue, priority)
                    for n, (queue, priority, pods, minutes) in enumerate(wave)
                )
            )
            # one that moves forward may displace lower ones, which are planned again
            for _ in range(4 * len(machine.waiting) + 4):
                await machine.round(capacity_changed=True)
            settled = machine.reserved()
            for _ in range(4):
                assert await machine.round(capacity_changed=True) == {}
                assert machine.reserved() == settled

    asyncio.run(settle())


class AloneRound(Round):
    """Asks for each queue alone, and shares nothing."""

    def next_call(self, limit: int) -> list[tuple[Pass, Step]]:
        for each in self.passes:
            if isinstance(each, BackfillPass):
                each._context.shared.clear()
        return super().next_call(limit)[:1]


three_queues = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0, 5]), st.integers(1, 4), st.integers(1, 5)),
        max_size=8,
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=150)
@given(three_queues, st.lists(st.integers(0, 30), max_size=6), st.sampled_from(POLICIES[1:]))
def test_what_is_shared_changes_nothing(
    waves: list[list[tuple[str, int, int, int]]], ending: list[int], discipline: Discipline
) -> None:
    async def outcome(kind: type[Round]) -> tuple[list[dict[str, int]], dict[str, int]]:
        machine = Machine(dict.fromkeys("abc", discipline), kind)
        ends, seen = list(ending), list[dict[str, int]]()
        for wave, arriving in enumerate(waves):
            works = [
                work(f"w{wave}-{n}", pods, minutes, queue, priority)
                for n, (queue, priority, pods, minutes) in enumerate(arriving)
            ]
            await machine.round(*works)
            running = sorted(machine.granted)
            if ends and running and (name := running[ends.pop() % len(running)]) not in machine.ended:
                await machine.end(name)
            await machine.round(capacity_changed=True)
            seen.append(machine.reserved())
        return seen, machine.granted

    assert asyncio.run(outcome(Round)) == asyncio.run(outcome(AloneRound))


two_queues = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(0, 40),
        st.integers(1, 4),
        st.integers(1, 20),
        st.sampled_from([0.5, 1.0, 1.0, 2.0]),
    ),
    min_size=1,
    max_size=30,
)


def a_trace(jobs: Sequence[tuple[bool, int, int, int, float]]) -> Trace:
    """A trace of jobs as (urgent, submit, nodes, runtime, factor of the stated duration)."""
    made = [
        TraceJob(
            0,
            submit,
            nodes,
            runtime,
            max(1, round(runtime * factor)),
            URGENT if high else USUAL,
            1000 if high else 0,
        )
        for high, submit, nodes, runtime, factor in jobs
    ]
    return Trace("two queues", 4, numbered(made))


def simulated(
    trace: Trace, disciplines: Mapping[str, Discipline], fixed: Sequence[SimulatedJob] = ()
) -> Simulation:
    simulation = Simulation(trace, disciplines, fixed=fixed)
    asyncio.run(simulation.run())
    return simulation


@settings(deadline=None, max_examples=150)
@given(two_queues, st.sampled_from(POLICIES), st.sampled_from(POLICIES))
def test_pending_work_of_lower_priority_delays_nothing(
    jobs: list[tuple[bool, int, int, int, float]], high: Discipline, low: Discipline
) -> None:
    trace, disciplines = a_trace(jobs), {URGENT: high, USUAL: low}
    both = simulated(trace, disciplines)
    lower = [each for each in both.ran if each.job.queue == USUAL]
    alone = simulated(
        Trace("alone", 4, tuple(job for job in trace.jobs if job.queue == URGENT)), disciplines, fixed=lower
    )
    assert [each.start_s for each in both.ran if each.job.queue == URGENT] == [
        each.start_s for each in alone.ran
    ]


@settings(deadline=None, max_examples=100)
@given(two_queues, st.sampled_from(POLICIES), st.sampled_from(POLICIES))
def test_with_true_durations_only_higher_priority_delays_a_first_reservation(
    jobs: list[tuple[bool, int, int, int, float]], high: Discipline, low: Discipline
) -> None:
    simulation = simulated(a_trace([(*job[:4], 1.0) for job in jobs]), {URGENT: high, USUAL: low})
    displaced = any("of priority 1000 in the queue 'urgent'" in cause for _, _, cause in simulation.dropped)
    for each in simulation.ran:
        late = each.first_reserved_start_s is not None and each.start_s > each.first_reserved_start_s
        assert not late or (each.job.queue == USUAL and displaced)
