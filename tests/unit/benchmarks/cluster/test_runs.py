from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cluster.baseline import SIZES, inversions
from cluster.loads import sized
from cluster.runs import Results, Run, checked_out_commit, planned
from cluster.scenarios import SCENARIOS, quantiles
from support.cluster_results import outcome


def test_contenders_run_in_turn_and_every_second_round_in_reverse() -> None:
    runs = list(planned(["burst-300", "burst-600"], ["a", "b", "c"], 4))
    assert [run.contender for run in runs if run.scenario == "burst-300"] == list("abccbaabccba")
    assert [run.scenario for run in runs] == ["burst-300"] * 12 + ["burst-600"] * 12


def test_long_scenarios_have_fewer_rounds() -> None:
    assert [run.round for run in planned(["backlog-10000"], ["a", "b"], 4)] == [0, 0, 1, 1]
    assert [run.round for run in planned(["backlog-10000"], ["a"], 1)] == [0]


def test_an_interrupted_comparison_continues_where_it_ended(tmp_path: Path) -> None:
    first, second = Run("idle", "plain", 0), Run("idle", "fluxqueue", 0)
    path = tmp_path / "results" / "cluster.json"
    Results(path, 1.0, "abc", resumed=True).add(first, outcome("idle", "plain"))
    results = Results(path, 1.0, "abc", resumed=True)
    assert (results.has(first), results.has(second)) == (True, False)
    results.add_failure(second, "NotReady: x")
    assert [each["problem"] for each in json.loads(path.read_text())["failures"]] == ["NotReady: x"]
    assert not Results(path, 1.0, "abc", resumed=True).has(second)
    assert not Results(path, 1.0, "abc", resumed=False).has(first)


def test_the_costs_of_requests_are_kept_with_three_digits(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.json", 1.0, "abc", resumed=False)
    results.add_requests({"create a Job": 1.23456})
    assert Results(tmp_path / "r.json", 1.0, "abc", resumed=True).document["request_ms"] == {
        "create a Job": 1.23
    }


def test_results_of_another_size_are_not_continued(tmp_path: Path) -> None:
    Results(tmp_path / "r.json", 0.1, "abc", resumed=False).add(
        Run("idle", "plain", 0), outcome("idle", "plain")
    )
    with pytest.raises(ValueError, match=r"--scale 0\.1 and .*Kueue.*cannot be continued"):
        Results(tmp_path / "r.json", 1.0, "abc", resumed=True)


def test_a_complete_scenario_keeps_its_commit_and_an_incomplete_one_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    earlier = Results(path, 1.0, "abc", resumed=False)
    runs = list(planned(["burst-300", "burst-600"], ["plain", "fluxqueue"], 1))
    for run in runs[:3]:
        earlier.add(run, outcome(run.scenario, run.contender))
    results = Results(path, 1.0, "def", resumed=True)
    results.restart_stale(runs)
    assert [results.has(run) for run in runs] == [True, True, False, False]
    results.add(runs[2], outcome("burst-600", "plain"))
    assert [(each["scenario"], each["commit"]) for each in results.document["outcomes"]] == [
        ("burst-300", "abc"),
        ("burst-300", "abc"),
        ("burst-600", "def"),
    ]
    again = Results(path, 1.0, "def", resumed=True)
    again.restart_stale(runs)
    assert again.has(runs[2])


def test_a_scenario_leaves_out_the_contenders_that_its_claim_does_not_need() -> None:
    assert [
        run.contender for run in planned(["backlog-10000"], ["plain", "fluxqueue", "kueue", "kueue-tuned"], 1)
    ] == [
        "fluxqueue",
        "kueue-tuned",
    ]


def test_the_measured_code_is_named_by_its_commit() -> None:
    assert re.fullmatch(r"[0-9a-f]{10,40}(-dirty)?|unknown", checked_out_commit())


def test_quantiles_are_waits_that_occurred() -> None:
    found = quantiles([3.0, 1.0, 2.0, 4.0])
    assert (len(found), found[0], found[50], found[99], found[100]) == (101, 1.0, 3.0, 4.0, 4.0)
    assert quantiles([]) == []


def test_the_baseline_is_that_of_kueue() -> None:
    queues = len(SCENARIOS["baseline-3000"].site.queues)
    assert sum(queues * size.count for size in SIZES) == 15_000
    assert sum(queues * sized(size.count, 0.2) for size in SIZES) == 3_000
    assert [(size.count, size.interval_s, size.run_s, size.priority, size.cpu) for size in SIZES] == [
        (350, 0.1, 0.2, 50, 1),
        (100, 0.5, 0.5, 100, 5),
        (50, 1.2, 1.0, 200, 20),
    ]


def test_an_inversion_is_a_size_that_waits_longer_than_one_of_lower_priority() -> None:
    assert inversions({"large": [1.0], "medium": [2.0], "small": [3.0]}) == 0
    assert inversions({"large": [2.0], "medium": [1.0], "small": [3.0]}) == 1
    assert inversions({"large": [3.0], "medium": [2.0], "small": [1.0]}) == 3
