"""The judge of random worlds counts pods in domains as kube-scheduler does."""

from __future__ import annotations

from typing import Any

import pytest
from support.differential_worlds import ROLE
from support.spread_counts import overfull

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"


def node(name: str, **labels: str) -> Json:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, **labels}},
        "spec": {},
        "status": {},
    }


def deployment(*spreads: Json) -> Json:
    spec = {"containers": [], "topologySpreadConstraints": list(spreads)}
    template = {"metadata": {"labels": {"app": "a", ROLE: "true"}}, "spec": spec}
    metadata = {"name": "work", "namespace": "n", "labels": {ROLE: "true"}}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2, "template": template}}


def pod_on(name: str, work: Json) -> Json:
    template = work["spec"]["template"]
    return {
        "kind": "Pod",
        "metadata": {"name": "work-x", "namespace": "n", **template["metadata"]},
        "spec": {**template["spec"], "nodeName": name},
    }


def spread(key: str, when: str = "DoNotSchedule") -> Json:
    selector = {"matchLabels": {"app": "a"}}
    return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": when, "labelSelector": selector}


@pytest.mark.parametrize(
    ("spreads", "violated"),
    [
        pytest.param([spread(HOST)], True, id="one host has two more"),
        pytest.param(
            [spread(HOST), spread("zone")], False, id="a node without the label of another counts not"
        ),
        pytest.param(
            [spread(HOST), spread("zone", "ScheduleAnyway")],
            True,
            id="one that is preferred asks for no label",
        ),
        pytest.param([spread(HOST, "ScheduleAnyway")], False, id="a preference cannot be violated"),
    ],
)
def test_only_nodes_with_the_labels_of_all_required_constraints_count(
    spreads: list[Json], violated: bool
) -> None:
    work = deployment(*spreads)
    world = [node("a", zone="1"), node("b"), work]
    assert bool(overfull(world, [pod_on("a", work), pod_on("a", work)])) is violated
