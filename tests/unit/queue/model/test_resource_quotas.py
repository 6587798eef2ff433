"""What a ResourceQuota counts of a pod, and how much it leaves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fluxqueue.api.clusterobjects import ResourceQuota
from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.model.resource_quotas import (
    amount_in_words,
    amounts_left,
    counts,
    hard_amounts,
    pod_amounts,
)


def quota(
    hard: dict[str, Any] | None = None, used: dict[str, Any] | None = None, **spec: Any
) -> ResourceQuota:
    return msgspec.convert(
        {"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}}, ResourceQuota
    )


def pod(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **spec: Any) -> PodSpec:
    container = {"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}}
    return msgspec.convert({"containers": [container], **spec}, PodSpec)


def test_a_pod_uses_its_requests_its_limits_and_its_number() -> None:
    spec = pod({"cpu": "100m", "memory": "1Gi", "nvidia.com/gpu": "2"}, {"cpu": "2", "nvidia.com/gpu": "2"})
    assert pod_amounts(spec) == {
        "pods": 1,
        "count/pods": 1,
        "requests.cpu": 100,
        "requests.memory": 1 << 30,
        "requests.nvidia.com/gpu": 2,
        "limits.cpu": 2000,
        "limits.memory": 1 << 30,
    }


def test_each_bound_has_one_spelling_and_the_smaller_of_two_counts() -> None:
    assert hard_amounts(
        quota({"cpu": "4", "requests.cpu": "3500m", "memory": "1Ki", "pods": 2, "services": "1"})
    ) == {
        "requests.cpu": 3500,
        "requests.memory": 1024,
        "pods": 2,
    }


def test_what_is_left_is_never_less_than_nothing() -> None:
    assert amounts_left(quota({"pods": "2", "limits.cpu": "4"}, {"pods": "3", "limits.cpu": "500m"})) == {
        "pods": 0,
        "limits.cpu": 3500,
    }
    assert amounts_left(quota({"pods": "2"})) == {"pods": 2}
    assert amounts_left(quota()) == {}


PRIORITY = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}


@pytest.mark.parametrize(
    ("spec", "pod_spec", "counted"),
    [
        pytest.param({}, pod(), True, id="no scopes"),
        pytest.param({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=5), True, id="terminating"),
        pytest.param({"scopes": ["Terminating"]}, pod(), False, id="without a deadline"),
        pytest.param({"scopes": ["NotTerminating"]}, pod(), True, id="not terminating"),
        pytest.param({"scopes": ["BestEffort"]}, pod(), True, id="best effort"),
        pytest.param({"scopes": ["BestEffort"]}, pod({"cpu": "1"}), False, id="with a request"),
        pytest.param({"scopes": ["NotBestEffort"]}, pod({}, {"memory": "1Gi"}), True, id="with a limit"),
        pytest.param(
            {"scopes": ["NotBestEffort", "Terminating"]}, pod({"cpu": "1"}), False, id="one of two scopes"
        ),
        pytest.param(
            {"scopeSelector": {"matchExpressions": [PRIORITY]}},
            pod(priorityClassName="high"),
            True,
            id="class",
        ),
        pytest.param(
            {"scopeSelector": {"matchExpressions": [PRIORITY]}},
            pod(priorityClassName="low"),
            False,
            id="other class",
        ),
        pytest.param(
            {"scopeSelector": {"matchExpressions": [PRIORITY]}}, pod(), False, id="the default class"
        ),
        pytest.param(
            {"scopeSelector": {"matchExpressions": [{**PRIORITY, "operator": "NotIn"}]}},
            pod(),
            True,
            id="not the default class",
        ),
        pytest.param({"scopes": ["PriorityClass"]}, pod(), True, id="any class"),
        pytest.param(
            {"scopes": ["CrossNamespacePodAffinity"]}, pod(), False, id="a scope that is not known here"
        ),
    ],
)
def test_a_quota_counts_the_pods_of_its_scopes(
    spec: dict[str, Any], pod_spec: PodSpec, counted: bool
) -> None:
    assert counts(quota(**spec), pod_spec, "normal") is counted


@pytest.mark.parametrize(
    ("name", "amount", "words"),
    [
        ("requests.cpu", 1500, "1.5 requests.cpu"),
        ("limits.memory", 2 << 30, "2 GiB limits.memory"),
        ("pods", 3, "3 pods"),
    ],
)
def test_amounts_are_written_for_people(name: str, amount: int, words: str) -> None:
    assert amount_in_words(name, amount) == words
