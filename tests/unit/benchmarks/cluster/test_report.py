from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cluster.goals import GOALS, verdicts
from cluster.report import answers, markdown, speed_table
from cluster.summary import Figure, Summary, figures_of
from support.cluster_results import comparison, outcome


def burst(
    contender: str, rate: float, wait_s: float = 1.0, cpu_s: Mapping[str, float] | None = None
) -> dict[str, Any]:
    return outcome("burst-600", contender, cpu_s, figures={"jobs_per_s": rate}, wait_s=wait_s)


def test_costs_are_per_job_without_the_stand_in_of_the_kubelets() -> None:
    figures = figures_of(burst("fluxqueue", 40, cpu_s={"queue": 5.0, "kube-apiserver": 20.0}))
    assert figures["cpu_ms"] == 30.0
    assert (figures["cpu_ms kube-apiserver"], figures["cpu_ms queue"], figures["cpu_ms added"]) == (
        20.0,
        5.0,
        5.0,
    )
    assert (figures["writes"], figures["events"]) == (4.0, 2.0)
    assert (figures["wait_p50_s"], figures["wait_p99_s"], figures["others_percent"]) == (1.0, 1.98, 1.0)


def test_large_gangs_are_also_counted_by_pod() -> None:
    figures = {"jobs_per_s": 0.5, "pods_per_s": 50.0, "pods_of_job": 100.0}
    run = outcome("gangs-20x100", "fluxqueue", {"queue": 5.0}, figures=figures, jobs=20)
    found = figures_of(run)
    assert (found["cpu_ms"], found["pod_cpu_ms"], found["pod_server_cpu_ms"]) == (1_000.0, 10.0, 5.0)
    assert "pods_of_job" not in found
    plain = outcome("gangs-20x100", "plain", figures={**figures, "pods_per_s": 100.0}, jobs=20)
    text = markdown(comparison(plain, run))
    assert "| 20 gangs of 100, pods/s against plain | >= 0.7 x | >= 0.9 x | 0.50 x | missed |" in text
    assert "| CPU per pod, ms | 7.5 | 10; 1.33 x plain |" in text


def test_without_jobs_costs_are_a_part_of_a_core() -> None:
    figures = figures_of(outcome("idle", "fluxqueue", {"queue": 1.0}, jobs=0))
    assert (figures["cpu_percent"], figures["cpu_percent added"]) == (32.0, 2.0)
    assert "cpu_ms" not in figures


def test_a_figure_is_the_median_of_the_rounds_with_its_spread() -> None:
    summary = Summary(comparison(*(burst("plain", rate) for rate in (80, 100, 70))))
    assert summary.figure("burst-600", "plain", "jobs_per_s") == Figure(80, 70, 100)
    assert summary.figure("burst-600", "plain", "makespan_s") is None
    assert summary.figure("idle", "plain", "jobs_per_s") is None


def test_a_goal_beside_kueue_takes_its_better_setting() -> None:
    summary = Summary(comparison(burst("fluxqueue", 70), burst("Kueue", 20), burst("Kueue, tuned", 24)))
    assert summary.better_kueue("burst-600", "jobs_per_s", higher=True) == 24
    assert summary.better_kueue("burst-600", "jobs_per_s", higher=False) == 20
    (verdict,) = (each for each in verdicts(summary) if "Kueue" in each.goal.claim)
    assert (verdict.figure, verdict.text) == (70 / 24, "must")


@pytest.mark.parametrize(("rate", "text"), [(80, "aim"), (65, "must"), (64, "missed")])
def test_a_goal_says_which_limit_is_reached(rate: float, text: str) -> None:
    summary = Summary(comparison(burst("fluxqueue", rate), burst("plain", 100)))
    assert next(verdicts(summary)).text == text


@pytest.mark.parametrize(("wait_s", "text"), [(1.3, "aim"), (1.9, "must"), (2.0, "missed")])
def test_a_goal_of_a_wait_is_an_upper_limit(wait_s: float, text: str) -> None:
    summary = Summary(comparison(burst("fluxqueue", 50, wait_s), burst("plain", 100)))
    (verdict,) = (each for each in verdicts(summary) if "p50 wait against plain" in each.goal.claim)
    assert (round(verdict.figure, 9), verdict.text) == (wait_s, text)


def test_a_goal_without_its_runs_is_left_out() -> None:
    assert list(verdicts(Summary(comparison(burst("plain", 100))))) == []
    assert all(goal.met(goal.must, goal.must) and goal.met(goal.aim, goal.must) for goal in GOALS)


def test_the_report_has_the_goals_and_a_table_of_each_scenario() -> None:
    idle = outcome("idle", "fluxqueue", {"queue": 0.1}, jobs=0)
    text = markdown(
        comparison(
            burst("plain", 80), burst("plain", 120), burst("fluxqueue", 60, cpu_s={"queue": 5.0}), idle
        )
    )
    assert (
        "Measured on 2026-11-22: 2 x Some CPU, Linux 6.1, Python 3.11.7, Kubernetes v1.36.3, Kueue v0.19.2."
        in text
    )
    assert (
        "During a run other programs used at most 1% of a core, "
        "and the host of this virtual machine took at most 2%."
    ) in text
    assert "| burst of 600, Jobs/s against plain | >= 0.65 x | >= 0.8 x | 0.60 x | missed |" in text
    assert (
        "**A burst of 600 Jobs** (`burst-600`, 1-2 rounds, fluxqueue abc: median, and least-greatest)" in text
    )
    assert "| Jobs/s, create to bound | 100 (80-120) | 60; 0.60 x plain |" in text
    assert "| CPU per Job, ms | 15 | 20; 1.33 x plain |" in text
    assert "| - queue |  | 5 |" in text
    assert "| CPU, % of a core | 30.2 |" in text


def test_the_report_names_what_failed_and_that_it_is_a_short_form() -> None:
    failure = {
        "scenario": "burst-600",
        "key": "kueue",
        "round": 1,
        "problem": "NotReady: kueue\nis not ready",
    }
    text = markdown(comparison(burst("plain", 80), scale=0.1, failures=[failure]))
    assert "every number of Jobs is multiplied by 0.1" in text
    assert "Failed: `burst-600`, kueue, round 2: NotReady: kueue is not ready" in text


def test_the_profile_of_the_server_is_a_table_of_shares() -> None:
    profiled = {**outcome("profile-600", "plain"), "profile": {"seconds": 13.8, "webhooks": 0.05}}
    text = markdown(comparison(profiled))
    assert "| CPU time in all, s | 13.8 |" in text
    assert "| webhooks | 5.0% |" in text
    assert "writes" not in text.partition("profile-600")[2]


def test_the_costs_of_requests_are_a_table() -> None:
    text = markdown(comparison(burst("plain", 80), request_ms={"create a Job, not managed": 1.61}))
    assert "| request | ms |\n|---|---|\n| create a Job, not managed | 1.61 |" in text


def test_the_first_table_has_what_a_reader_wants_to_know_beside_plain_kubernetes() -> None:
    idle = outcome("idle", "fluxqueue", {"queue": 0.1}, jobs=0)
    text = answers(comparison(burst("plain", 100), burst("fluxqueue", 60), idle))
    assert "Measured on 2026-11-22" in text
    assert "| burst of 600 Jobs: Jobs/s, create to bound | 100 | 60 | 0.60 x |" in text
    assert "| - of that, what is added to Kubernetes | - | 0.20 | - |" in text
    assert "| cycle at 100,000 pending, EASY: full, s | - | 0.33-0.35 | - |" in text


def test_the_speed_table_has_a_row_for_each_scenario_that_ran() -> None:
    table = speed_table(comparison(burst("plain", 87.1), burst("fluxqueue", 33.5)))
    assert table.splitlines()[:3] == [
        "| | plain | fluxqueue |",
        "|---|---|---|",
        "| burst of 600 Jobs: Jobs/s, create to bound | 87.1 | 33.5 |",
    ]
    assert "steady" not in table
    assert "clogging" not in table
