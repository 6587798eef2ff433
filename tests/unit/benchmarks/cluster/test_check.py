from __future__ import annotations

import json
from pathlib import Path

import cluster.check
import pytest
from cluster.check import Limits, breaches, measured_limits
from support.cluster_results import outcome

LIMITS_FILE = Path(cluster.check.__file__).with_name("limits.json")
ALL, OURS = "CPU of a Job, all programs", "CPU of a Job, fluxqueue's programs beside the API server"
LIMITS = Limits({"POST jobs": 1.0, "Events": 2.0}, {"check-burst": {ALL: 2.0, OURS: 1.0}})


def found(writes: dict[str, float], ratios: dict[str, float] | None = None) -> list[str]:
    return list(breaches(Limits(writes, {"check-burst": ratios or {}}), LIMITS))


def test_what_costs_no_more_than_its_limit_passes() -> None:
    assert found({"POST jobs": 1.0, "Events": 2.2}, {ALL: 2.5, OURS: 1.4}) == []


def test_a_write_more_for_every_job_is_a_breach() -> None:
    (sentence,) = found({"POST jobs": 2.0})
    assert sentence == "2.00 writes per Job are POST jobs: at most 1 and 0.25 are expected"


def test_a_new_kind_of_write_is_a_breach() -> None:
    (sentence,) = found({"PATCH pods": 1.0})
    assert "PATCH pods: at most 0" in sentence


def test_a_ratio_beyond_its_margin_is_a_breach() -> None:
    (sentence,) = found({}, {ALL: 2.7, OURS: 1.0})
    assert (
        sentence
        == f"check-burst: {ALL}, is 2.70 times that of plain Kubernetes: at most 2 times 1.3 is expected"
    )


def test_ratios_are_of_the_least_of_the_rounds() -> None:
    runs = [
        outcome(load, contender, {"kube-apiserver": used, **added})
        for load in ("check-singles", "check-burst")
        for contender, used, added in (
            ("plain", 12.0, {}),
            ("fluxqueue", 30.0, {"queue": 6.0}),
            ("fluxqueue", 20.0, {"queue": 5.0}),
            ("plain", 10.0, {}),
        )
    ]
    measured = measured_limits(runs)
    assert measured.ratios["check-burst"]["CPU of a Job, API server"] == 2.0
    assert measured.ratios["check-burst"][ALL] == 2.0
    assert measured.ratios["check-singles"][OURS] == pytest.approx(0.5)
    assert measured.writes == {"POST jobs": 1.0, "POST pods": 1.0, "PUT jobs/status": 2.0, "Events": 2.0}


def test_the_limits_of_this_repository_cover_what_is_compared() -> None:
    runs = [
        outcome(load, contender)
        for load in ("check-singles", "check-burst")
        for contender in ("plain", "fluxqueue")
    ]
    recorded = Limits(**json.loads(LIMITS_FILE.read_text()))
    compared = measured_limits(runs)
    assert {load: set(ratios) for load, ratios in recorded.ratios.items()} == {
        load: set(each) for load, each in compared.ratios.items()
    }
    assert list(breaches(recorded, recorded)) == []
