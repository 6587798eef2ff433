"""Accounts with shares on a trace: use follows the shares, whoever submits how much, and nobody starves."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from fluxqueue.api.fluxqueues import Policy, Preemption, PriorityWeights
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.main import main
from fluxqueue.queue.simulator.simulated_shares import (
    FAIR_SHARE_ONLY,
    SimulatedShares,
    parse_accounts,
    with_accounts,
)
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

NODES = 8
HOUR_S = 3_600
HALF_LIFE_S = 24 * HOUR_S
SHARES = {"small": 1, "large": 3}
_MEAN_S = 900
_NEEDED = NODES * HALF_LIFE_S // _MEAN_S
"""Jobs that keep all nodes busy for a half-life."""


def jobs_of(account: str, number: int, seed: int) -> list[TraceJob]:
    """Jobs of one node that are submitted in the first hour, and a few that want half of the machine."""
    chance = np.random.default_rng(seed)
    submits = np.sort(chance.integers(0, HOUR_S, number))
    runtimes = chance.integers(_MEAN_S // 2, _MEAN_S * 3 // 2, number)
    return [
        TraceJob(
            0, int(submit), NODES // 2 if at % 50 == 49 else 1, int(runtime), int(runtime), account=account
        )
        for at, (submit, runtime) in enumerate(zip(submits, runtimes, strict=True))
    ]


@cache
def simulated(
    small: int, large: int, policy: Policy = Policy.EASY, weights: PriorityWeights = FAIR_SHARE_ONLY
) -> Sequence[SimulatedJob]:
    """A half-life of a machine that either account could fill."""
    jobs = numbered([*jobs_of("small", small, 1), *jobs_of("large", large, 2)])
    simulation = Simulation(
        Trace("shares", NODES, jobs), Discipline(policy), shares=SimulatedShares(SHARES, HALF_LIFE_S, weights)
    )
    return asyncio.run(simulation.run(until_s=HALF_LIFE_S))


def node_seconds(ran: Sequence[SimulatedJob], account: str, begin: int, end: int) -> int:
    spans = [
        (min(each.end_s, end) - max(each.start_s, begin), each)
        for each in ran
        if each.job.account == account and each.start_s >= 0
    ]
    return sum(span * each.job.nodes for span, each in spans if span > 0)


def share_of_small(ran: Sequence[SimulatedJob], begin: int, end: int) -> float:
    small, large = (node_seconds(ran, account, begin, end) for account in SHARES)
    return small / (small + large)


LOADS = pytest.mark.parametrize(
    ("small", "large"), [(_NEEDED, _NEEDED), (10 * _NEEDED, _NEEDED), (_NEEDED, 10 * _NEEDED)]
)


@LOADS
def test_use_follows_the_shares_within_two_percent(small: int, large: int) -> None:
    ran = simulated(small, large)
    assert share_of_small(ran, 0, HALF_LIFE_S) == pytest.approx(0.25, rel=0.02)


def test_the_other_policies_follow_the_shares_too() -> None:
    for policy in (Policy.FCFS, Policy.CONSERVATIVE):
        assert share_of_small(simulated(_NEEDED, _NEEDED, policy), 0, HALF_LIFE_S) == pytest.approx(
            0.25, rel=0.02
        )


@LOADS
def test_nobody_starves(small: int, large: int) -> None:
    ran = simulated(small, large)
    for account in SHARES:
        starts = sorted(each.start_s for each in ran if each.job.account == account and each.start_s >= 0)
        gaps = [later - former for former, later in pairwise([0, *starts, HALF_LIFE_S])]
        assert max(gaps) < 2 * HOUR_S, (
            "half of the machine for a quarter of an hour is what a quarter of it gives in half an hour"
        )
        wide = [each for each in ran if each.job.account == account and each.job.nodes > 1]
        order = [each for each in wide if each.start_s >= 0]
        assert len(order) > 2
        assert [each.job.number for each in wide[: len(order)]] == [each.job.number for each in order]


def test_without_weights_use_follows_what_is_submitted() -> None:
    ran = simulated(10 * _NEEDED, _NEEDED, Policy.EASY, PriorityWeights())
    assert share_of_small(ran, 0, HALF_LIFE_S) == pytest.approx(10 / 11, abs=0.05)


def test_what_an_idle_account_leaves_goes_to_the_other() -> None:
    ran = simulated(2 * _NEEDED, 0)
    assert node_seconds(ran, "small", HOUR_S, HALF_LIFE_S) > 0.97 * NODES * (HALF_LIFE_S - HOUR_S)


@pytest.mark.parametrize(("among_users", "least", "most"), [(False, 0.0, 0.2), (True, 0.45, 0.55)])
def test_users_of_an_account_get_as_much_whoever_submits_more(
    *, among_users: bool, least: float, most: float
) -> None:
    first = [replace(each, user="many") for each in jobs_of("large", _NEEDED, 1)]
    later = [replace(each, user="few") for each in jobs_of("large", _NEEDED // 8, 2)]
    jobs = numbered([*first, *(replace(each, submit_s=each.submit_s + HOUR_S) for each in later)])
    shares = SimulatedShares({"large": 1}, HALF_LIFE_S, among_users=among_users)
    simulation = Simulation(Trace("users", NODES, jobs), Discipline(Policy.EASY), shares=shares)
    ran = asyncio.run(simulation.run(until_s=4 * HOUR_S))
    used = {
        user: sum(
            min(each.end_s, 4 * HOUR_S) - each.start_s
            for each in ran
            if each.job.user == user and each.start_s >= 0
        )
        for user in ("few", "many")
    }
    assert least <= used["few"] / (used["few"] + used["many"]) <= most


def test_use_is_exact_at_each_event() -> None:
    shares = SimulatedShares(SHARES, HALF_LIFE_S)
    shares.started(of_small := TraceJob(0, 0, 4, 1, 1, account="small"), 4)
    for now in (0, 10, 10, 500, HALF_LIFE_S):
        shares.advance(now)
    shares.ended(of_small, 4)
    full = 4 * HALF_LIFE_S / math.log(2)
    assert shares.uses["small"] == pytest.approx(full / 2)
    shares.advance(2 * HALF_LIFE_S)
    assert shares.uses == pytest.approx({"small": full / 4, "large": 0})


def preempted(*jobs: TraceJob) -> tuple[Sequence[SimulatedJob], SimulatedShares]:
    """The jobs on four nodes, with preemption and with shares whose use hardly fades."""
    shares = SimulatedShares(SHARES, 10**9)
    discipline = Discipline(Policy.EASY, preemption=Preemption.LOWER_PRIORITY)
    ran = asyncio.run(Simulation(Trace("preempted", 4, numbered(jobs)), discipline, shares=shares).run())
    return ran, shares


def test_an_account_is_charged_for_a_preempted_job_only_while_it_ran() -> None:
    ran, shares = preempted(
        TraceJob(0, 0, 4, 200, 200, account="small"), TraceJob(0, 20, 4, 50, 50, priority=10, account="large")
    )
    assert [(each.start_s, each.preempted) for each in ran] == [(70, 1), (20, 0)]
    assert shares.uses == pytest.approx({"small": 4 * (20 + 200), "large": 4 * 50}, rel=1e-3)


def test_a_job_that_comes_first_by_its_share_is_not_preempted() -> None:
    ran, _ = preempted(
        TraceJob(0, 0, 4, 100, 100, account="large"),
        TraceJob(0, 1, 4, 200, 200, account="small"),
        TraceJob(0, 120, 4, 50, 50, priority=10, account="large"),
    )
    assert [(each.start_s, each.preempted) for each in ran] == [(0, 0), (100, 0), (300, 0)]


def test_jobs_of_a_trace_are_given_to_accounts_by_their_parts() -> None:
    accounts = parse_accounts(["small=1:10", "large=3"])
    assert accounts == {"small": (1, 10.0), "large": (3, 1.0)}
    trace = with_accounts(
        Trace("t", 4, numbered([TraceJob(0, at, 1, 10, 10) for at in range(2_000)])), accounts, seed=1
    )
    small = sum(job.account == "small" for job in trace.jobs)
    assert small == pytest.approx(2_000 * 10 / 11, rel=0.05)
    assert with_accounts(trace, accounts, seed=1) == trace


@pytest.mark.parametrize(
    "text", ["physics", "=1", "a=-1", "a=x", "a=1:0", "a=1:x", "a=1:inf", "a=1:nan", "a=1000001"]
)
def test_an_account_that_cannot_be_read_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(ValueError, match="--account"):
        parse_accounts([text])


def test_an_account_is_named_once() -> None:
    with pytest.raises(ValueError, match="named twice"):
        parse_accounts(["a=1", "a=2"])


def test_the_command_prints_the_use_of_each_account(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--jobs",
        "300",
        "--nodes",
        "64",
        "--load",
        "3",
        "--policy",
        "easy",
        "--account",
        "small=1:10",
        "--account",
        "large=3",
    ]
    assert main([*options, "--half-life", "24"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^small +1 +25\.0% +[0-9.]+% +[0-9.]+%", shown, re.MULTILINE)
    assert main(["--account", "small=1", "--from-cluster"]) == 2
    assert main(["--half-life", "24", "--jobs", "10"]) == 2
    assert "--half-life belongs to --account" in capsys.readouterr().err
