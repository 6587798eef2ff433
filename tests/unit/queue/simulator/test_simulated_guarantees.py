"""Guarantees on a trace: an account that comes late gets its nodes from one that borrows,
and what is not readable is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.simulated_guarantees import SimulatedGuarantees, parse_guarantees
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.traces import Trace, TraceJob


def jobs(*described: tuple[str, int, int, int]) -> Trace:
    """Jobs of an account, with submit time, nodes and runtime, on four nodes."""
    return Trace(
        "test",
        4,
        tuple(
            TraceJob(
                number,
                submit_s=submit_s,
                nodes=nodes,
                runtime_s=runtime_s,
                requested_s=runtime_s,
                account=account,
            )
            for number, (account, submit_s, nodes, runtime_s) in enumerate(described, start=1)
        ),
    )


async def starts(trace: Trace, guaranteed: Mapping[str, int], preemption: Preemption) -> list[int]:
    ran = await Simulation(trace, Discipline(Policy.EASY, preemption=preemption), guaranteed=guaranteed).run()
    return [each.start_s for each in ran]


TRACE = jobs(("bio", 0, 2, 1000), ("bio", 0, 2, 1000), ("bio", 10, 4, 500), ("physics", 20, 2, 100))


async def test_without_a_guarantee_the_order_is_that_of_submission() -> None:
    assert await starts(TRACE, {}, Preemption.NEVER) == [0, 0, 1000, 1500]


async def test_covered_work_comes_first_where_nothing_is_preempted() -> None:
    assert await starts(TRACE, {"physics": 2}, Preemption.NEVER) == [0, 0, 1100, 1000]


async def test_covered_work_takes_its_nodes_back_and_the_borrower_begins_again() -> None:
    assert (await starts(TRACE, {"physics": 2}, Preemption.LOWER_PRIORITY))[3] == 20
    assert (await starts(TRACE, {"physics": 1}, Preemption.LOWER_PRIORITY))[3] == 1500


def test_what_comes_first_follows_what_runs() -> None:
    waits = a_workload(account="physics")
    some, backlog = SimulatedGuarantees({"physics": 1}), Backlog([waits])
    assert some.update([backlog], []) == {waits.id} == some.first
    assert some.update([backlog], []) == frozenset()
    assert some.update([backlog], [(a_workload(account="physics"), ["n1"])]) == {waits.id}
    assert SimulatedGuarantees({}).update([backlog], []) == frozenset()


@pytest.mark.parametrize("text", ["physics", "physics=", "physics=-1", "physics=1.5", "chem=2", "=2"])
def test_a_guarantee_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write NAME=NODES"):
        parse_guarantees([text], ["physics", "bio"])


def test_guarantees_are_read() -> None:
    assert parse_guarantees(["physics=16", "bio=0"], ["physics", "bio"]) == {"physics": 16, "bio": 0}
