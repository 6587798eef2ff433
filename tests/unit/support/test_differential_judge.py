"""The judge of random worlds tells a refusal from the wait for a claim that another pod is getting."""

from __future__ import annotations

from typing import Any

import pytest
from support.differential_cluster import Copy
from support.differential_judge import STARTED, Trial, _ended
from support.differential_worlds import ROLE, World

Json = dict[str, Any]
WAITS = "0/2 nodes are available: resource claim n/devices is in the process of being allocated."


def work(pods: int) -> list[Json]:
    metadata = {"name": "work", "namespace": "n", "labels": {ROLE: "true"}}
    return [{"kind": "Deployment", "metadata": metadata, "spec": {"replicas": pods, "template": {}}}]


def pod(number: int, said: str = "") -> Json:
    said_so = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    return {
        "metadata": {
            "name": f"work-{number}",
            "uid": f"{number}",
            "namespace": "n",
            "labels": {ROLE: "true"},
        },
        "spec": {} if said else {"nodeName": "a"},
        "status": {"conditions": [said_so]} if said else {},
    }


@pytest.mark.parametrize(
    ("pods", "said", "refusals", "waits"),
    [
        pytest.param(2, WAITS, 0, 1, id="another pod was getting the claim"),
        pytest.param(1, WAITS, 1, 0, id="there was no other pod"),
        pytest.param(2, "0/2 nodes are available: 2 Insufficient cpu.", 1, 0, id="for another reason"),
    ],
)
def test_a_wait_for_a_shared_claim_is_no_refusal(pods: int, said: str, refusals: int, waits: int) -> None:
    documents = work(pods)
    trial = Trial(World(1, tuple(documents)), Copy(documents, "q"), Copy(documents, "p"))
    for seen in (said, ""):
        trial.queued.see([*map(pod, range(1, pods)), pod(0, seen)], 1.0)
        ended = _ended(trial, [], 1.0, 1.0)
    assert ended
    assert (trial.verdict, trial.fault) == (STARTED, "")
    assert (len(trial.refusals), len(trial.waits)) == (refusals, waits)
