"""The simulator, and properties of the policies that hold on any trace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.api.fluxqueues import BackfillDurations, Planning, Policy, Preemption, PreemptionRules
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.lublin import lublin_trace
from fluxqueue.queue.simulator.main import main
from fluxqueue.queue.simulator.metrics import summarise
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.swf import InvalidTrace, parse_swf
from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

NODES = 4
POLICIES = [
    Discipline(Policy.FCFS),
    Discipline(Policy.EASY),
    Discipline(Policy.CONSERVATIVE, 3),
    Discipline(Policy.HYBRID, 2),
    Discipline(Policy.CONSERVATIVE, 100),
]

exact_jobs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, NODES), st.integers(1, 20)), min_size=1, max_size=25
)
any_jobs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, NODES), st.integers(1, 20), st.floats(0.3, 4.0)),
    min_size=1,
    max_size=25,
)


def a_trace(*jobs: tuple[int, int, int] | tuple[int, int, int, float]) -> Trace:
    """A trace of jobs as (submit, nodes, runtime, factor of the stated duration)."""
    made = [
        TraceJob(0, job[0], job[1], job[2], max(1, round(job[2] * (job[3] if len(job) == 4 else 1))))
        for job in jobs
    ]
    return Trace("test", NODES, numbered(made))


def simulated(trace: Trace, discipline: Discipline) -> Sequence[SimulatedJob]:
    return asyncio.run(Simulation(trace, discipline).run())


def starts(trace: Trace, policy: Policy) -> list[int]:
    return [each.start_s for each in simulated(trace, Discipline(policy))]


# ---- what a policy does, seen on a few jobs ----------------------------------------------------------------

BLOCKED_HEAD = a_trace((0, 3, 100), (1, 4, 50), (2, 1, 99), (3, 1, 90), (4, 1, 98))
"""A wide job that must wait until 100.
For one free node: a job that would end after that, and two that would end before."""


def test_fcfs_lets_no_job_overtake_a_blocked_head() -> None:
    assert starts(BLOCKED_HEAD, Policy.FCFS) == [0, 100, 150, 150, 150]


def test_easy_backfills_jobs_that_end_before_the_head_needs_their_nodes() -> None:
    assert starts(BLOCKED_HEAD, Policy.EASY) == [0, 100, 150, 3, 150]


def test_a_queue_that_enforces_durations_ends_jobs_there() -> None:
    trace = a_trace((0, 4, 100, 0.5), (1, 4, 10))
    assert [each.end_s for each in simulated(trace, Discipline(Policy.EASY, enforces_duration=True))] == [
        50,
        60,
    ]
    assert [each.limited for each in simulated(trace, Discipline(Policy.EASY, enforces_duration=True))] == [
        True,
        False,
    ]
    assert [each.end_s for each in simulated(trace, Discipline(Policy.EASY))] == [100, 110]


def urgent_last(*jobs: tuple[int, int, int]) -> Trace:
    trace = a_trace(*jobs)
    return replace(trace, jobs=(*trace.jobs[:-1], replace(trace.jobs[-1], priority=10)))


def preempting(**rules: int) -> Discipline:
    return Discipline(
        Policy.EASY, preemption=Preemption.LOWER_PRIORITY, preemption_rules=PreemptionRules(**rules)
    )


def test_the_job_that_loses_least_is_preempted_and_begins_again() -> None:
    ran = simulated(urgent_last((0, 2, 100), (10, 2, 100), (20, 2, 50)), preempting())
    assert [(each.start_s, each.end_s, each.preempted) for each in ran] == [
        (0, 100, 0),
        (70, 170, 1),
        (20, 70, 0),
    ]


def test_a_victim_goes_on_for_its_grace_and_may_end_in_it() -> None:
    trace = urgent_last((0, 4, 200), (20, 4, 50))
    assert [each.start_s for each in simulated(trace, preempting(grace_seconds=30))] == [100, 50]
    ended = simulated(urgent_last((0, 4, 40), (20, 4, 50)), preempting(grace_seconds=60))
    assert [(each.end_s, each.preempted) for each in ended] == [(40, 0), (90, 0)]


def test_a_job_runs_for_its_least_time_before_it_is_preempted() -> None:
    ran = simulated(urgent_last((0, 4, 200), (20, 4, 50)), preempting(min_run_seconds=60))
    assert [(each.start_s, each.preempted) for each in ran] == [(110, 1), (60, 0)]


def test_easy_may_delay_the_second_in_the_queue_and_conservative_does_not() -> None:
    trace = a_trace((0, 2, 100), (1, 4, 10), (2, 3, 100), (3, 1, 60), (4, 2, 99))
    easy, conservative = starts(trace, Policy.EASY), starts(trace, Policy.CONSERVATIVE)
    assert easy[1] == conservative[1] == 100
    assert conservative[2] == 110


def test_hybrid_protects_as_many_as_its_depth() -> None:
    trace = a_trace((0, 2, 100), (1, 4, 10), (2, 3, 100), (3, 1, 60), (4, 2, 99))
    protected = [
        [each.start_s for each in simulated(trace, Discipline(Policy.HYBRID, depth))] for depth in (1, 2)
    ]
    assert protected[0] == starts(trace, Policy.EASY)
    assert protected[1][:3] == [0, 100, 110]


def of_one_user(*jobs: tuple[int, int, int, int]) -> Trace:
    """Return a trace on four nodes; each job: submit, nodes, runtime, stated duration."""
    return Trace("test", 4, tuple(TraceJob(number, *job, user="ann") for number, job in enumerate(jobs, 1)))


PREDICTING = Discipline(Policy.EASY, planning=Planning(backfill_durations=BackfillDurations.PREDICTED))


def test_work_that_is_predicted_to_end_in_time_backfills_and_delays_nobody() -> None:
    trace = of_one_user(
        (0, 1, 100, 100), (0, 1, 100, 100), (200, 2, 900, 1_000), (210, 4, 100, 100), (220, 2, 100, 5_000)
    )
    stated = [each.start_s for each in simulated(trace, Discipline(Policy.EASY))]
    predicted = [each.start_s for each in simulated(trace, PREDICTING)]
    assert stated == [0, 0, 200, 1_100, 1_200]
    assert predicted == [0, 0, 200, 1_100, 220]


def test_work_beyond_its_prediction_goes_on_and_the_reservation_moves() -> None:
    trace = of_one_user(
        (0, 1, 100, 100), (0, 1, 100, 100), (200, 2, 900, 1_000), (210, 4, 100, 100), (220, 2, 3_000, 5_000)
    )
    ran = simulated(trace, PREDICTING)
    assert [each.start_s for each in ran] == [0, 0, 200, 3_220, 220]
    assert ran[3].first_reserved_start_s == 1_200


def test_a_job_that_ends_early_brings_reservations_forward() -> None:
    trace = a_trace((0, 4, 10, 4.0), (1, 4, 5), (2, 4, 5))
    for policy in Policy:
        assert starts(trace, policy) == [0, 10, 15]


def test_an_overrun_delays_reservations_and_no_jobs_overlap() -> None:
    ran = simulated(a_trace((0, 4, 100, 0.5), (1, 4, 5)), Discipline(Policy.EASY))
    assert ran[1].first_reserved_start_s == 50
    assert ran[1].start_s == 100


# ---- what holds on any trace -------------------------------------------------------------------------------


def no_node_is_used_twice(ran: Sequence[SimulatedJob]) -> None:
    for node in range(NODES):
        spans = sorted((each.start_s, each.end_s) for each in ran if node in each.hosts)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


@settings(deadline=None, max_examples=60)
@given(any_jobs, st.sampled_from(POLICIES))
def test_every_job_runs_once_on_nodes_of_its_own(
    jobs: list[tuple[int, int, int, float]], discipline: Discipline
) -> None:
    ran = simulated(a_trace(*jobs), discipline)
    assert all(each.start_s >= each.job.submit_s and len(set(each.hosts)) == each.job.nodes for each in ran)
    no_node_is_used_twice(ran)


@settings(deadline=None, max_examples=60)
@given(exact_jobs, st.sampled_from(POLICIES))
def test_with_true_durations_no_job_starts_after_its_first_reservation(
    jobs: list[tuple[int, int, int]], discipline: Discipline
) -> None:
    for each in simulated(a_trace(*jobs), discipline):
        assert each.first_reserved_start_s is None or each.start_s <= each.first_reserved_start_s


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, NODES), st.integers(1, 20), st.floats(1.0, 4.0)),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from(POLICIES),
)
def test_if_jobs_end_early_no_job_starts_after_its_first_reservation(
    jobs: list[tuple[int, int, int, float]], discipline: Discipline
) -> None:
    for each in simulated(a_trace(*jobs), discipline):
        assert each.first_reserved_start_s is None or each.start_s <= each.first_reserved_start_s


@settings(deadline=None, max_examples=60)
@given(any_jobs)
def test_fcfs_never_overtakes(jobs: list[tuple[int, int, int, float]]) -> None:
    ran = simulated(a_trace(*jobs), Discipline(Policy.FCFS))
    assert all(before.start_s <= after.start_s for before, after in pairwise(ran))


@settings(deadline=None, max_examples=40)
@given(exact_jobs)
def test_conservative_never_delays_a_job_for_those_behind(jobs: list[tuple[int, int, int]]) -> None:
    trace = a_trace(*jobs)
    whole = [each.start_s for each in simulated(trace, Discipline(Policy.CONSERVATIVE, 100))]
    for cut in range(1, len(trace.jobs)):
        part = simulated(Trace("part", NODES, trace.jobs[:cut]), Discipline(Policy.CONSERVATIVE, 100))
        assert [each.start_s for each in part] == whole[:cut]


# ---- traces ------------------------------------------------------------------------------------------------

LINE = "{number} {submit} -1 {runtime} {size} -1 -1 {wanted} {said} -1 1 1 1 1 1 -1 -1 -1"


def line(
    number: int = 1, submit: int = 0, runtime: int = 60, size: int = 4, wanted: int = 4, said: int = 120
) -> str:
    return LINE.format(number=number, submit=submit, runtime=runtime, size=size, wanted=wanted, said=said)


def test_a_trace_is_read_with_its_header() -> None:
    trace = parse_swf(["; MaxProcs: 64", "", line(submit=30), line(2, submit=5)], "t", processors_per_node=8)
    assert trace.nodes == 8
    assert [(job.number, job.submit_s, job.nodes, job.runtime_s, job.requested_s) for job in trace.jobs] == [
        (1, 5, 1, 60, 120),
        (2, 30, 1, 60, 120),
    ]


def test_gaps_in_a_trace_have_rules_and_are_counted() -> None:
    lines = [
        line(runtime=-1),
        line(size=-1, wanted=-1),
        line(submit=-1),
        line(size=-1, wanted=2),
        line(said=-1),
        line(size=900),
    ]
    trace = parse_swf(["; MaxNodes: 16", *lines], "t")
    assert [(job.nodes, job.requested_s) for job in trace.jobs] == [(2, 120), (4, 60)]
    assert dict(trace.left_out) == {
        "never ran, or for an unknown time": 1,
        "size unknown": 1,
        "submit time unknown": 1,
        "asks for more than 16 nodes": 1,
    }


def test_the_error_names_a_line_that_is_no_job() -> None:
    with pytest.raises(InvalidTrace, match="line 2: 'hello'"):
        parse_swf([line(), "hello"], "t")


def test_the_error_of_a_trace_without_jobs_says_why() -> None:
    with pytest.raises(InvalidTrace, match="never ran, or for an unknown time: 1"):
        parse_swf([line(runtime=0)], "t")


def test_the_model_repeats_itself_by_seed_and_keeps_the_papers_proportions() -> None:
    trace = lublin_trace(5000, 256, seed=3)
    assert trace == lublin_trace(5000, 256, seed=3)
    assert trace != lublin_trace(5000, 256, seed=4)
    sizes = [job.nodes for job in trace.jobs]
    serial = sizes.count(1) / len(sizes)
    assert 0.22 < serial < 0.30
    assert sum(size > 1 and size & (size - 1) == 0 for size in sizes) / len(sizes) > 0.576 - 0.03
    assert max(sizes) <= 256
    assert max(job.runtime_s for job in trace.jobs) <= 162_755


def test_a_scaled_trace_has_the_offered_load() -> None:
    trace = lublin_trace(2000, 64, seed=1).scaled(0.7)
    assert trace.load == pytest.approx(0.7, rel=1e-3)
    with pytest.raises(ValueError, match="must be above 0"):
        trace.scaled(0)


# ---- figures and the command -------------------------------------------------------------------------------


def test_figures_of_a_machine_that_is_full_for_half_the_time() -> None:
    ran = simulated(a_trace((0, 4, 50), (100, 4, 50)), Discipline(Policy.EASY))
    summary = summarise(ran, NODES, cycles=1, seconds=0.0)
    assert (summary.utilisation, summary.mean_wait_s, summary.mean_bounded_slowdown, summary.makespan_s) == (
        0.5,
        0.0,
        1.0,
        150,
    )
    assert summary.eta_error is None


def test_the_command_writes_a_table_json_csv_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--jobs",
        "60",
        "--nodes",
        "16",
        "--load",
        "0.9",
        "--policy",
        "fcfs",
        "--policy",
        "conservative:8",
    ]
    outputs = [
        "--json",
        str(tmp_path / "o.json"),
        "--csv",
        str(tmp_path / "o.csv"),
        "--pictures",
        str(tmp_path / "p"),
    ]
    assert main([*options, *outputs]) == 0
    table = capsys.readouterr().out
    assert "offered load 90.0%" in table
    found = json.loads((tmp_path / "o.json").read_bytes())
    assert set(found["policies"]) == {"fcfs", "conservative:8"}
    assert {"utilisation", "mean_wait_s", "median_wait_s", "promised", "reserved_late", "eta_error"} <= set(
        found["policies"]["fcfs"]["summary"]
    )
    assert all(job["submit"] <= job["start"] < job["end"] for job in found["policies"]["fcfs"]["jobs"])
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 3
    assert {path.name for path in (tmp_path / "p").iterdir()} == {
        "utilisation.svg",
        "waits.svg",
        "occupancy-fcfs.svg",
        "occupancy-conservative-8.svg",
    }


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--policy", "fair"], "there is no policy 'fair'"),
        (["--policy", "easy:3"], "for hybrid and conservative only"),
        (["--load", "-1"], "must be above 0"),
        (["--load", "nan"], "write one from 0.001 to 1000"),
        (["--load", "1e-300"], "write one from 0.001 to 1000"),
        (["--overestimate", "1e300"], "which is at most 10,000"),
        (["--match-policy", "best"], "policy 'best': 'best' is not understood"),
        (["--json", "/"], "/ cannot be written: it is a directory"),
        (["--pictures", __file__], "it is a file: name a directory"),
        (["--overestimate", "5:2"], "two factors such as 2:5"),
        (["--trace", "/nowhere.swf"], "cannot be read"),
        (["--json", "/nowhere/o.json"], "there is no directory /nowhere"),
    ],
)
def test_an_invalid_command_line_is_reported_in_a_sentence(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--jobs", "10", "--nodes", "4", *argv]) == 2
    assert words in capsys.readouterr().err


def test_consolidation_is_compared_beside_each_policy_that_reserves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--jobs", "80", "--nodes", "8", "--load", "1", "--policy", "easy", "--policy", "fcfs"]
    words += ["--scatter", "4", "--checkpoint", "300", "--consolidate", "1800:600"]
    assert main([*words, "--json", str(tmp_path / "out.json")]) == 0
    policies = json.loads((tmp_path / "out.json").read_text())["policies"]
    assert set(policies) == {"easy", "easy+moves", "fcfs"}
    assert policies["easy"]["summary"]["moves"] == 0
    assert {"moves", "wide_median_wait_s"} <= set(policies["easy+moves"]["summary"])
    assert main(["--consolidate", "soon"]) == 2
    assert "--consolidate soon: seconds such as 1800:3600" in capsys.readouterr().err


def test_time_limits_and_preemption_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--jobs",
        "60",
        "--nodes",
        "8",
        "--load",
        "2",
        "--policy",
        "easy",
        "--enforce-duration",
        "--preempt",
        "10:5",
        "--priority",
        "2=10",
    ]
    assert main([*words, "--json", str(tmp_path / "out.json")]) == 0
    summary = json.loads((tmp_path / "out.json").read_text())["policies"]["easy"]["summary"]
    assert {"limited", "preemptions"} <= set(summary)
    assert main(["--preempt", "soon"]) == 2
    assert main(["--priority", "few"]) == 2
    assert "--preempt soon: seconds such as 600:120" in capsys.readouterr().err
