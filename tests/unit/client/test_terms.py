from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from fluxqueue.client import Handle, InvalidWork, ended, failed, ok, started
from fluxqueue.client.terms import Terms, duration_text, with_terms

JOB: dict[str, Any] = {"kind": "Job", "metadata": {"name": "j", "namespace": "team"}, "spec": {}}


class Work:
    """What other work can wait for."""

    def __init__(self, kind: str, name: str, namespace: str = "team") -> None:
        self.kind, self.name, self.namespace = kind, name, namespace


def annotated(terms: Terms, manifest: dict[str, Any] = JOB) -> dict[str, str]:
    return dict(with_terms(manifest, terms)["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(minutes=30), "1800s"),
        (timedelta(seconds=0.2), "1s"),
        ("1.5h", "5400s"),
        ("01:30:00", "5400s"),
    ],
)
def test_durations_are_seconds_rounded_up(duration: timedelta | str, text: str) -> None:
    assert duration_text(duration) == text


@pytest.mark.parametrize("duration", [timedelta(0), timedelta(seconds=-1), "soon", 30, None])
def test_what_is_no_duration_is_refused_with_the_field(duration: Any) -> None:
    with pytest.raises(InvalidWork, match="^duration: "):
        duration_text(duration)


def test_terms_are_labels_and_annotations_of_a_job() -> None:
    made = with_terms(
        JOB,
        {
            "queue": "night",
            "priority": 3,
            "duration": "1m",
            "singleton": "train",
            "begin": timedelta(hours=2),
        },
    )
    assert made["metadata"]["labels"] == {"fluxqueue/queue": "night"}
    assert made["metadata"]["annotations"] == {
        "fluxqueue/begin": "+7200s",
        "fluxqueue/singleton": "train",
        "fluxqueue/priority": "3",
        "fluxqueue/duration": "60s",
    }
    assert "labels" not in JOB["metadata"]


def test_terms_of_a_minicluster_are_fields_of_its_spec() -> None:
    made = with_terms(
        {**JOB, "kind": "MiniCluster"},
        {"queue": "night", "priority": 3, "duration": "1m", "after": "ok:job/a"},
    )
    assert made["spec"] == {"queue": "night", "priority": 3, "duration": "60s"}
    assert made["metadata"]["annotations"] == {"fluxqueue/after": "ok:job/a"}


def test_times_have_a_zone_and_become_utc() -> None:
    zone = timezone(timedelta(hours=2))
    assert (
        annotated({"deadline": datetime(2026, 12, 24, 20, tzinfo=zone)})["fluxqueue/deadline"]
        == "2026-12-24T18:00:00Z"
    )
    assert annotated({"begin": "+2h"})["fluxqueue/begin"] == "+2h"
    with pytest.raises(InvalidWork, match="begin: .* has no time zone"):
        annotated({"begin": datetime(2026, 12, 24)})  # noqa: DTZ001
    with pytest.raises(InvalidWork, match="deadline: 'soon' is not a time"):
        annotated({"deadline": "soon"})


def test_work_waits_for_other_work_in_every_way() -> None:
    a, mesh = Work("Job", "a"), Work("PodGroup", "mesh")
    after: Any = [
        a,
        "any:job/b+5m",
        ended(mesh),
        started(Work("MiniCluster", "flux"), timedelta(minutes=10)),
        failed(a),
        ok(a),
    ]
    assert annotated({"after": after})["fluxqueue/after"] == (
        "ok:job/a, any:job/b+300s, any:pod-group/mesh, start:minicluster/flux+600s, fail:job/a"
    )
    assert annotated({"after": a})["fluxqueue/after"] == "ok:job/a"


def test_what_cannot_be_waited_for_is_refused() -> None:
    with pytest.raises(InvalidWork, match="only for a Job, a pod group or a MiniCluster"):
        annotated({"after": Work("Pod", "p")})
    with pytest.raises(InvalidWork, match="in another namespace than the work"):
        annotated({"after": Work("Job", "a", "others")})
    with pytest.raises(InvalidWork, match="job others/a is in another namespace than the work"):
        annotated({"after": [ok(Work("Job", "b")), ended(Work("Job", "a", "others"))]})
    with pytest.raises(InvalidWork, match="after: 3 is neither"):
        annotated({"after": [3]})  # type: ignore[list-item]
    with pytest.raises(InvalidWork, match="'yes' is not a dependency"):
        annotated({"after": "yes"})
    with pytest.raises(InvalidWork, match="negative"):
        ok(Work("Job", "a"), timedelta(seconds=-1))


def test_terms_that_are_unknown_or_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(InvalidWork, match="prio: no such term"):
        with_terms(JOB, {"prio": 3})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(InvalidWork, match="priority: '3' is not a whole number"):
        with_terms(JOB, {"priority": "3"})  # type: ignore[typeddict-item]


def test_handles_have_what_a_dependency_needs() -> None:
    assert Handle("Job", "team", "a", ("u",)).title == "Job team/a"
