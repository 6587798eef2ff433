"""Whose successor a pod is, and what becomes of the place of one that is gone."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import PodBuilder, make_pod
from support.queue_builders import a_pod, a_workload

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.replacement_rules import (
    ReplicaOwner,
    SlotDecision,
    WaitingReplacements,
    plan_replacement,
    replica_owner_of,
    wants_more_pods,
)


def owned(kind: str, name: str, **labels: str) -> Pod:
    builder: PodBuilder = make_pod().owned_by(kind, name)
    for key, value in labels.items():
        builder = builder.label(key.replace("_", "-"), value)
    return a_pod(builder)


def owner(replicas: int | None = 2, **metadata: str) -> ScaledWorkload:
    return msgspec.convert(
        {"metadata": metadata, "spec": {} if replicas is None else {"replicas": replicas}}, ScaledWorkload
    )


@pytest.mark.parametrize(
    ("pod", "line"),
    [
        pytest.param(
            owned("ReplicaSet", "web-5d4f", pod_template_hash="5d4f"),
            ReplicaOwner("default", "Deployment", "web"),
            id="Deployment",
        ),
        pytest.param(
            owned("ReplicaSet", "web-5d4f"),
            ReplicaOwner("default", "ReplicaSet", "web-5d4f"),
            id="ReplicaSet of its own",
        ),
        pytest.param(
            owned("ReplicaSet", "web", pod_template_hash="9"),
            ReplicaOwner("default", "ReplicaSet", "web"),
            id="another hash",
        ),
        pytest.param(
            owned("StatefulSet", "db"), ReplicaOwner("default", "StatefulSet", "db"), id="StatefulSet"
        ),
        pytest.param(owned("Job", "j"), None, id="Job"),
        pytest.param(a_pod(make_pod()), None, id="nobody's"),
    ],
)
def test_a_line_is_the_topmost_owner_that_the_pod_tells(pod: Pod, line: ReplicaOwner | None) -> None:
    assert replica_owner_of(pod) == line


def test_an_owner_that_is_short_of_pods_will_make_another() -> None:
    leaving = a_pod(make_pod().with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"))
    assert wants_more_pods(owner(), [a_pod(make_pod()), leaving])
    assert wants_more_pods(owner(), [a_pod(make_pod()), a_pod(make_pod().phase("Failed"))])
    assert wants_more_pods(owner(None), [])
    assert not wants_more_pods(owner(), [a_pod(make_pod()), a_pod(make_pod())])


def test_an_owner_that_is_gone_or_going_will_make_none() -> None:
    assert not wants_more_pods(None, [])
    assert not wants_more_pods(owner(deletionTimestamp="2026-01-01T00:00:00Z"), [])


def test_the_oldest_successor_of_the_same_request_inherits_the_place() -> None:
    gone, first, second = (a_workload(name, shape="s") for name in ("gone", "first", "second"))
    assert plan_replacement(
        gone, WaitingReplacements([second, first]), wanted=True, expired=False
    ) == SlotDecision(replacement=first)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"shape": "larger"}, id="another size"),
        pytest.param({"queue": "other"}, id="another queue"),
    ],
)
def test_a_successor_that_asks_for_something_else_frees_the_place(change: dict[str, str]) -> None:
    gone, heir = a_workload("gone", shape="s"), a_workload("heir", **({"shape": "s"} | change))
    assert plan_replacement(gone, WaitingReplacements([heir]), wanted=True, expired=False) == SlotDecision()


def test_a_successor_that_is_held_inherits_nothing() -> None:
    gone, heir = a_workload("gone", shape="s"), a_workload("heir", shape="s", reason=Reason.HELD)
    assert plan_replacement(gone, WaitingReplacements([heir]), wanted=False, expired=False) == SlotDecision()


def test_a_place_is_kept_only_for_a_while_and_only_if_somebody_is_to_come() -> None:
    gone = a_workload("gone")
    assert plan_replacement(gone, WaitingReplacements([]), wanted=True, expired=False).keep
    assert not plan_replacement(gone, WaitingReplacements([]), wanted=True, expired=True).keep
    assert not plan_replacement(gone, WaitingReplacements([]), wanted=False, expired=False).keep
