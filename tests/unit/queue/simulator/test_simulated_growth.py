"""Jobs of a trace that start with fewer nodes and grow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.main import main
from fluxqueue.queue.simulator.metrics import summarise
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

NODES = 4
EASY = Discipline(Policy.EASY)


def a_trace(*jobs: tuple[int, int, int], percent: int = 25) -> Trace:
    """A trace of jobs as (submit, nodes, runtime), which may start with a part of their nodes."""
    return Trace(
        "test", NODES, numbered([TraceJob(0, submit, nodes, run, run) for submit, nodes, run in jobs])
    ).moldable(percent)


def simulated(trace: Trace, discipline: Discipline = EASY) -> Sequence[SimulatedJob]:
    return asyncio.run(Simulation(trace, discipline).run())


def times(ran: Sequence[SimulatedJob]) -> list[tuple[int, int]]:
    return [(each.start_s, each.end_s) for each in ran]


BLOCKED = ((0, 3, 1_000), (1, 4, 100))


def test_a_job_starts_with_fewer_nodes_where_that_ends_it_sooner() -> None:
    ran = simulated(a_trace(*BLOCKED))
    assert times(ran) == [(0, 1_000), (1, 401)]
    assert [each.molded for each in ran] == [False, True]
    assert ran[1].stated_s == 400


def test_a_job_waits_where_its_least_number_of_nodes_is_not_free() -> None:
    assert times(simulated(a_trace(*BLOCKED, percent=50))) == [(0, 1_000), (1_000, 1_100)]


EARLY = (TraceJob(1, 0, 3, 110, 1_000), TraceJob(2, 1, 4, 100, 100, least_nodes=1))
"""A job that ends long before it said, beside one that starts with one node."""


def test_a_job_grows_by_the_nodes_that_become_free() -> None:
    ran = simulated(Trace("test", NODES, EARLY))
    assert times(ran) == [(0, 110), (1, 183)], "109 of 400 node-seconds with one node, the others with four"
    assert sorted(ran[1].hosts) == [0, 1, 2, 3]
    assert (ran[1].molded, ran[1].started_nodes) == (True, 1)


def test_what_waits_comes_before_growth() -> None:
    ran = simulated(Trace("test", NODES, (*EARLY, TraceJob(3, 2, 3, 500, 500))))
    assert times(ran) == [(0, 110), (1, 401), (110, 610)]


def test_nothing_grows_past_the_first_that_waits_in_strict_order() -> None:
    trace = Trace(
        "test",
        NODES,
        (TraceJob(1, 0, 2, 310, 310), TraceJob(2, 1, 4, 200, 200, least_nodes=1), TraceJob(3, 2, 3, 50, 50)),
    )
    assert times(simulated(trace, Discipline(Policy.FCFS))) == [(0, 310), (1, 401), (401, 451)]


def test_figures_count_the_nodes_that_a_job_had() -> None:
    ran = simulated(a_trace(*BLOCKED, (1_500, 1, 1)))
    summary = summarise(ran, NODES, cycles=1, seconds=0.0)
    assert summary.molded == 1
    assert summary.utilisation == pytest.approx((3 * 1_000 + 4 * 100) / (NODES * 1_500))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, NODES), st.integers(1, 20)), min_size=1, max_size=20
    ),
    st.sampled_from([EASY, Discipline(Policy.FCFS), Discipline(Policy.CONSERVATIVE, 100)]),
)
def test_every_job_does_its_work_and_no_node_has_two_jobs(
    jobs: list[tuple[int, int, int]], discipline: Discipline
) -> None:
    ran = simulated(a_trace(*jobs), discipline)
    for each in ran:
        assert each.job.submit_s <= each.start_s < each.end_s
        assert len(set(each.hosts)) == len(each.hosts) <= each.job.nodes
        work, length = each.job.nodes * each.job.runtime_s, each.end_s - each.start_s
        assert each.started_nodes * length - len(each.hosts) < work <= len(each.hosts) * length
    for node in range(NODES):
        starts = sorted(
            (each.start_s, each.end_s) for each in ran if node in each.hosts[: each.started_nodes]
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(starts))


def test_the_command_lets_jobs_start_smaller(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["--jobs", "60", "--nodes", "16", "--load", "0.9", "--policy", "easy", "--min-pods", "25"]) == 0
    )
    assert "jobs started with fewer nodes" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["0", "101", "x"])
def test_a_wrong_percentage_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--min-pods", text])
    assert f"{text!r} is not a whole number from 1 to 100" in capsys.readouterr().err


PREEMPTING = Discipline(Policy.EASY, preemption=Preemption.LOWER_PRIORITY)
SHRINKS = (
    TraceJob(1, 0, 4, 100, 100, least_nodes=1),
    TraceJob(2, 40, 2, 30, 30, priority=10),
)


def test_an_elastic_job_gives_nodes_back_before_it_is_preempted() -> None:
    ran = simulated(Trace("test", NODES, SHRINKS), PREEMPTING)
    first, urgent = ran
    assert (urgent.start_s, urgent.end_s) == (40, 70)
    assert (first.preempted, first.gave_back, first.lost_node_s) == (0, 2, 80)
    # 400 node-seconds: 160 done and 80 of them lost, 60 on two nodes, then four again
    assert first.end_s == 70 + (400 - 160 + 80 - 60) // 4


def test_a_job_keeps_its_least_and_is_preempted_where_that_is_not_enough() -> None:
    urgent = replace(SHRINKS[1], nodes=4)
    ran = simulated(Trace("test", NODES, (SHRINKS[0], urgent)), PREEMPTING)
    assert (ran[0].preempted, ran[0].gave_back, ran[0].lost_node_s) == (1, 0, 160)
    assert ran[1].start_s == 40


def test_what_was_saved_is_not_lost() -> None:
    saves = replace(SHRINKS[0], checkpoint_s=25)
    given = simulated(Trace("test", NODES, (saves, SHRINKS[1])), PREEMPTING)[0]
    assert given.lost_node_s == 2 * 15
    whole = simulated(Trace("test", NODES, (saves, replace(SHRINKS[1], nodes=4))), PREEMPTING)[0]
    assert (whole.lost_node_s, whole.saved_s, whole.end_s) == (4 * 15, 25, 70 + 75)


def test_nodes_are_given_back_at_the_end_of_the_grace() -> None:
    rules = PreemptionRules(grace_seconds=20)
    ran = simulated(Trace("test", NODES, SHRINKS), replace(PREEMPTING, preemption_rules=rules))
    assert (ran[1].start_s, ran[0].gave_back, ran[0].lost_node_s) == (60, 2, 120)
