"""LeaderWorkerSet as its project ships it (kubernetes-sigs/lws, Apache-2.0):
its own examples, each group a gang.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from support.ecosystem_controllers import LEADER_WORKER_SET
from support.ecosystem_stage import GangStage
from support.end_to_end import Stage

from fluxqueue.api.fluxjobs import State

CONTROLLER = LEADER_WORKER_SET
RESOURCES = "leaderworkersets"
RESOURCE, SAMPLE = "leaderworkerset", "leaderworkerset-sample"


@pytest.fixture
def gangs(stage: Stage) -> GangStage:
    return GangStage(stage, "LeaderWorkerSet")


@pytest.fixture
def examples(programs: Path) -> Path:
    return programs / CONTROLLER.examples


def of_group(gangs: GangStage, group: str) -> dict[str, str | None]:
    """Return where the pods of a group are."""
    key = "leaderworkerset.sigs.k8s.io/group-index"
    return {pod.metadata.name: pod.spec.node_name for pod in gangs.pods() if pod.metadata.label(key) == group}


def restart_container(gangs: GangStage, pod: str) -> None:
    """Report what a kubelet reports of a container that ended and was started again."""
    path, client = (
        f"/api/v1/namespaces/{gangs.stage.namespace}/pods/{pod}",
        gangs.stage.cluster.control_plane.client,
    )
    containers = client.get(path)["status"]["containerStatuses"]
    client.request(
        "PATCH",
        f"{path}/status",
        {"status": {"containerStatuses": [each | {"restartCount": 1} for each in containers]}},
    )


@pytest.mark.parametrize(
    ("file", "name", "groups"),
    [
        ("lws.yaml", SAMPLE, 3),
        ("lws-multi-template.yaml", "leaderworkerset-multi-template", 3),
        ("lws-restart-policy.yaml", SAMPLE, 3),
        ("lws-rollout-strategy.yaml", "leaderworkerset-rollout", 4),
    ],
)
def test_each_group_of_an_example_starts_as_a_gang(
    file: str, name: str, groups: int, gangs: GangStage, examples: Path
) -> None:
    """One node has room for two of the four pods of a group."""
    gangs.fill(spare_millicores=100)
    gangs.apply(examples / file)
    waiting = gangs.until_waiting(gangs=groups, pods=4 * groups)
    assert {one.spec.pods for one in waiting} == {4}
    gangs.free()
    gangs.until_running(gangs=groups, pods=4 * groups)
    assert {one.metadata.uid for one in gangs.fluxjobs()} == {one.metadata.uid for one in waiting}
    gangs.delete(RESOURCE, name)


def test_a_group_for_which_there_is_no_room_starts_with_none_of_its_pods(
    gangs: GangStage, examples: Path
) -> None:
    """Two pods fit on each of four nodes: two groups of four."""
    gangs.fill(spare_millicores=100, nodes=4)
    gangs.apply(examples / "lws.yaml")
    states = [State.PENDING, State.RUNNING, State.RUNNING]
    gangs.stage.until(
        "two groups run",
        lambda: sorted(one.status.state for one in gangs.fluxjobs()) == states,
        120,
        gangs.fluxjobs,
    )
    gangs.stage.until(
        "eight pods run",
        lambda: sum(node is not None for node in gangs.nodes().values()) == 8,
        120,
        gangs.nodes,
    )
    gangs.stage.until_consistent()
    started = Counter(group for group in ("0", "1", "2") for node in of_group(gangs, group).values() if node)
    assert sorted(started.values()) == [4, 4]
    gangs.free()
    gangs.until_running(gangs=3, pods=12)
    gangs.delete(RESOURCE, SAMPLE)


def test_workers_that_wait_for_their_leader_have_their_slots_with_it(
    gangs: GangStage, examples: Path
) -> None:
    """One node has room for a leader, and the workers are created when it is ready."""
    made = yaml.safe_load((examples / "lws.yaml").read_text())
    made["spec"]["startupPolicy"] = "LeaderReady"
    gangs.fill(spare_millicores=100)
    gangs.apply(made)
    waiting = gangs.until_waiting(gangs=3, pods=3)
    assert {one.spec.pods for one in waiting} == {4}
    gangs.free()
    gangs.until_running(gangs=3, pods=12)
    gangs.delete(RESOURCE, SAMPLE)


def test_a_group_with_an_exclusive_topology_starts_in_a_domain_of_its_own(
    gangs: GangStage, examples: Path
) -> None:
    """Each node is a node pool, and has room for two of the four pods of a group at first."""
    for number in range(1, 5):
        gangs.stage.kubectl(
            "label", "node", f"node-{number}", f"cloud.google.com/gke-nodepool=pool-{number}", "--overwrite"
        )
    gangs.fill(spare_millicores=100, nodes=4)
    gangs.apply(examples / "lws-exclusive-placement.yaml")
    waiting = gangs.until_waiting(gangs=3, pods=3)
    assert {one.spec.pods for one in waiting} == {4}
    gangs.free()
    gangs.until_running(gangs=3, pods=12)
    assert [len(set(of_group(gangs, group).values())) for group in ("0", "1", "2")] == [1, 1, 1]
    assert len(set(gangs.nodes().values())) == 3
    gangs.delete(RESOURCE, SAMPLE)


def test_a_group_that_is_recreated_keeps_its_slots(gangs: GangStage, examples: Path) -> None:
    """With its restart policy, one container that restarts takes the whole group with it."""
    gangs.fill(spare_millicores=150, nodes=4)
    gangs.apply(examples / "lws-restart-policy.yaml")
    before = gangs.until_running(gangs=3, pods=12)
    group, uids = of_group(gangs, "1"), gangs.uids()
    restart_container(gangs, f"{SAMPLE}-1-2")
    gangs.stage.until(
        "the whole group is another one",
        lambda: len(gangs.uids() - uids) == 4 == len(of_group(gangs, "1")),
        120,
        gangs.nodes,
    )
    after = gangs.until_running(gangs=3, pods=12)
    assert Counter(of_group(gangs, "1").values()) == Counter(group.values())
    assert {name: node for name, node in after.items() if name not in group} == {
        name: node for name, node in before.items() if name not in group
    }
    gangs.delete(RESOURCE, SAMPLE)


def test_a_rolling_update_replaces_one_gang_after_another(gangs: GangStage, examples: Path) -> None:
    gangs.apply(examples / "lws.yaml")
    gangs.until_running(gangs=3, pods=12)
    uids = gangs.uids()
    change = {
        "op": "replace",
        "path": "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image",
        "value": "nginx",
    }
    gangs.stage.kubectl("patch", RESOURCE, SAMPLE, "--type=json", "-p", json.dumps([change]))
    gangs.stage.until(
        "all pods are new", lambda: not uids & gangs.uids() and len(gangs.uids()) == 12, 180, gangs.nodes
    )
    gangs.until_running(gangs=3, pods=12)
    gangs.delete(RESOURCE, SAMPLE)


def test_groups_come_and_go_with_the_scale(gangs: GangStage, examples: Path) -> None:
    gangs.apply(examples / "lws.yaml")
    gangs.until_running(gangs=3, pods=12)
    gangs.stage.kubectl("scale", RESOURCE, SAMPLE, "--replicas=1")
    gangs.stage.until("one group is left", lambda: len(gangs.pods()) == 4, 120, gangs.nodes)
    gangs.stage.until(
        "the others hold nothing", lambda: len(gangs.stage.fluxion_jobs()) == 1, 120, gangs.stage.fluxion_jobs
    )
    gangs.stage.kubectl("scale", RESOURCE, SAMPLE, "--replicas=2")
    gangs.until_running(gangs=2, pods=8)
    gangs.delete(RESOURCE, SAMPLE)
