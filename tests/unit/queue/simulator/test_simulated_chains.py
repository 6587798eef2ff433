"""Chains of jobs in traces: who waits for whom, and from when on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fluxqueue.api.fluxqueues import Policy
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.main import main
from fluxqueue.queue.simulator.simulated_chains import SimulatedChains
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.swf import parse_swf
from fluxqueue.queue.simulator.traces import Trace, TraceJob


def job(number: int, submit_s: int = 0, after: int = 0, think_s: int = 0) -> TraceJob:
    return TraceJob(number, submit_s, 1, 100, 100, after=after, think_s=think_s)


def test_a_job_waits_for_the_end_of_the_one_before_it_and_for_its_think_time() -> None:
    chains, waits = SimulatedChains(), job(2, after=1, think_s=10)
    assert chains.eligible([job(1), waits], 0) == [job(1)]
    assert chains.times() == []
    chains.ended(1, 100)
    assert chains.times() == [110]
    assert (chains.eligible([], 109), chains.eligible([], 110), chains.times()) == ([], [waits], [])


def test_a_job_behind_one_that_has_ended_waits_for_the_rest_only() -> None:
    chains = SimulatedChains()
    chains.ended(1, 100)
    late, early = job(2, 500, after=1, think_s=10), job(3, 105, after=1, think_s=10)
    assert chains.eligible([early], 105) == []
    assert chains.eligible([late], 500) == [early, late]


def line(number: int, submit: int, after: int = -1, think: int = -1) -> str:
    return f"{number} {submit} -1 100 1 -1 -1 1 100 -1 1 1 1 1 1 -1 {after} {think}"


TRACE = [
    "; MaxNodes: 4",
    line(11, 0),
    line(12, 5, 11, 20),
    line(13, 5, 12),
    line(14, 6, 99),
    line(15, 7, 16),
    line(16, 8),
]


def test_chains_are_read_on_request_and_only_backwards() -> None:
    read = parse_swf(TRACE, "t", chains=True).jobs
    assert [(each.number, each.after, each.think_s) for each in read] == [
        (1, 0, 0),
        (2, 1, 20),
        (3, 2, 0),
        (4, 0, 0),
        (5, 0, 0),
        (6, 0, 0),
    ]
    assert {(each.after, each.think_s) for each in parse_swf(TRACE, "t").jobs} == {(0, 0)}


def test_a_chain_runs_in_its_order_and_waits_only_for_nodes() -> None:
    trace = Trace("t", 4, (job(1), job(2, 5, after=1, think_s=20), job(3, 5, after=2)))
    ran = asyncio.run(Simulation(trace, Discipline(Policy.EASY)).run())
    assert [(each.start_s, each.end_s, each.wait_s) for each in ran] == [
        (0, 100, 0),
        (120, 220, 0),
        (220, 320, 0),
    ]


def test_the_command_reads_chains_of_a_trace_and_of_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.swf"
    trace.write_text("\n".join(TRACE))
    makespans = []
    for words in ([], ["--chains"]):
        csv = tmp_path / "out.csv"
        assert main(["--trace", str(trace), "--policy", "easy", "--csv", str(csv), *words]) == 0
        titles, figures = (each.split(",") for each in csv.read_text().splitlines())
        makespans.append(dict(zip(titles, figures, strict=True))["makespan_s"])
    assert makespans == ["205", "320"]
    capsys.readouterr()
    assert main(["--jobs", "10", "--chains"]) == 2
    assert "--chains belongs to --trace" in capsys.readouterr().err
