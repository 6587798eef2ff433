"""Karpenter with its provider for kwok, as the project ships it (kubernetes-sigs/karpenter, Apache-2.0)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import JobBuilder, Json, make_job, make_queue
from support.ecosystem_controllers import KARPENTER
from support.ecosystem_stage import RUN_SECONDS, GangStage
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.local.inprocess import NAMESPACE

CONTROLLER = KARPENTER
RESOURCES = "jobs"
NODE_POOL = Path(__file__).with_name("karpenter") / "node-pool.yaml"


@pytest.fixture
def gangs(stage: Stage) -> Iterator[GangStage]:
    """A stage with a queue that asks Karpenter for nodes; in the end all that it added are gone."""
    gangs = GangStage(stage, "Job")
    gangs.apply(NODE_POOL)
    gangs.apply(make_queue("growing", provision="pods"))
    yield gangs
    stage.kubectl("delete", "jobs", "--all", "--wait=true")
    stage.until("Karpenter took its nodes away again", lambda: not added(stage) and not claims(stage), 180, lambda: claims(stage))


def gang(name: str, pods: int = 3) -> JobBuilder:
    """A gang that needs a large node for each of its pods."""
    made = make_job(name).indexed(pods).cpu("10").pod_annotation(RUN_SECONDS, "forever")
    return made.with_("spec.template.spec.nodeSelector", {"pool": "large"}).label(names.QUEUE_LABEL, "growing")


def rooms(stage: Stage) -> list[Json]:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    items: list[Json] = stage.cluster.control_plane.client.get(path, labelSelector=names.ROOM_LABEL)["items"]
    return items


def added(stage: Stage) -> list[str]:
    """The nodes that Karpenter added."""
    return [node.metadata.name for node in stage.items("nodes", Node) if node.metadata.label("pool") == "large"]


def claims(stage: Stage) -> list[Json]:
    items: list[Json] = stage.cluster.control_plane.client.get("/apis/karpenter.sh/v1/nodeclaims")["items"]
    return items


def bound(stage: Stage) -> list[str]:
    return [pod.spec.node_name for pod in stage.items("pods", Pod) if pod.spec.node_name]


def test_a_gang_brings_its_nodes_and_starts_on_them_at_once(gangs: GangStage) -> None:
    stage = gangs.stage
    stage.apply(gang("grows").build())
    stage.until_reason("grows", Reason.PROVISIONING)
    stage.until("room pods ask for nodes", lambda: len(rooms(stage)) == 3)
    while len(here := bound(stage)) < 3:
        assert len(added(stage)) == 3 or not here, "no pod of the gang has a node before there are all"
    stage.until_state("grows", State.RUNNING)
    assert sorted(here) == sorted(added(stage)), "one pod on each of the nodes that came for it"
    stage.until("the room pods are gone", lambda: not rooms(stage))
    stage.until_consistent()


def test_a_cancelled_gang_leaves_no_room_pods_and_no_nodes(gangs: GangStage) -> None:
    stage = gangs.stage
    stage.apply(gang("leaves").build())
    stage.until("room pods ask for nodes", lambda: len(rooms(stage)) == 3)
    stage.kubectl("delete", "job", "leaves", "--wait=true")
    stage.until("the room pods are gone", lambda: not rooms(stage))
