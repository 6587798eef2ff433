"""Karpenter with its provider for kwok, as the project ships it (kubernetes-sigs/karpenter, Apache-2.0)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import JobBuilder, Json, make_job, make_queue
from support.ecosystem_controllers import KARPENTER
from support.ecosystem_stage import RUN_SECONDS, GangStage
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.inprocess import NAMESPACE

CONTROLLER = KARPENTER
RESOURCES = "jobs"
CONSOLIDATE_AFTER_S = 15
"""As the NodePool says it."""
NODE_POOL = Path(__file__).with_name("karpenter") / "node-pool.yaml"


@pytest.fixture
def gangs(stage: Stage) -> Iterator[GangStage]:
    """A stage with a queue that asks Karpenter for nodes; in the end all that it added are gone."""
    gangs = GangStage(stage, "Job")
    gangs.apply(NODE_POOL)
    gangs.apply(make_queue("growing", provision="pods"))
    yield gangs
    stage.kubectl("delete", "jobs", "--all", "--wait=true")
    stage.until(
        "Karpenter took its nodes away again",
        lambda: not added(stage) and not claims(stage),
        180,
        lambda: claims(stage),
    )


def gang(name: str, pods: int = 3) -> JobBuilder:
    """A gang that needs a large node for each of its pods."""
    made = make_job(name).indexed(pods).cpu("10").pod_annotation(RUN_SECONDS, "forever")
    return made.with_("spec.template.spec.nodeSelector", {"pool": "large"}).label(
        names.QUEUE_LABEL, "growing"
    )


def rooms(stage: Stage, label: str = names.ROOM_LABEL) -> list[Json]:
    items: list[Json] = stage.cluster.control_plane.client.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=label
    )["items"]
    return items


def kept(stage: Stage) -> list[Json]:
    return rooms(stage, names.KEEPS_LABEL)


def added(stage: Stage) -> list[str]:
    """The nodes that Karpenter added."""
    nodes = stage.cluster.control_plane.client.get("/api/v1/nodes", labelSelector="pool=large")["items"]
    return [node["metadata"]["name"] for node in nodes]


def claims(stage: Stage) -> list[Json]:
    items: list[Json] = stage.cluster.control_plane.client.get("/apis/karpenter.sh/v1/nodeclaims")["items"]
    return items


def bound(stage: Stage) -> list[str]:
    return [pod.spec.node_name for pod in stage.items("pods", Pod) if pod.spec.node_name and pod.active]


def test_a_gang_brings_its_nodes_and_starts_on_them_at_once(gangs: GangStage) -> None:
    stage = gangs.stage
    stage.apply(gang("grows").build())
    stage.until_reason("grows", Reason.PROVISIONING)
    stage.until("room pods ask for nodes", lambda: len(rooms(stage)) == 3)
    stage.until("the first pod has a node", lambda: bound(stage), 120)
    assert len(added(stage)) == 3, "no pod of the gang has a node before there are all"
    stage.until_state("grows", State.RUNNING)
    assert sorted(bound(stage)) == sorted(added(stage)), "one pod on each of the nodes that came for it"
    stage.until("the room pods are gone", lambda: not rooms(stage))
    stage.until_consistent()


def test_a_cancelled_gang_leaves_no_room_pods_and_no_nodes(gangs: GangStage) -> None:
    stage = gangs.stage
    stage.apply(gang("leaves").build())
    stage.until("room pods ask for nodes", lambda: len(rooms(stage)) == 3)
    stage.kubectl("delete", "job", "leaves", "--wait=true")
    stage.until("the room pods are gone", lambda: not rooms(stage))


def test_nodes_that_are_reserved_for_a_gang_are_not_taken_away(gangs: GangStage) -> None:
    """Two of three nodes are empty for longer than Karpenter leaves an empty node,
    until the third is free too.
    """
    stage = gangs.stage
    stage.apply(gang("first").build())
    stage.until_state("first", State.RUNNING, 120)
    nodes = added(stage)
    stage.apply(gang("second").build())
    stage.until_reason("second", Reason.WAITING_FOR_NODES)
    *ended, last = [pod.metadata.name for pod in gangs.pods()]
    for pod in ended:
        stage.end_pod(pod)
    stage.until("two nodes are empty", lambda: len(set(gangs.nodes().values()) - {None}) == 1)
    time.sleep(3 * CONSOLIDATE_AFTER_S)
    assert sorted(added(stage)) == sorted(nodes)
    assert len(kept(stage)) == 3
    stage.end_pod(last)
    stage.until_state("second", State.RUNNING, 120)
    stage.until("the nodes have pods, and need no others", lambda: not kept(stage))
    assert sorted(bound(stage)) == sorted(nodes)
