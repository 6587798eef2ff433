"""KubeRay as its project ships it (ray-project/kuberay, Apache-2.0):
its own examples, head and first workers as one gang.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from support.ecosystem_controllers import KUBERAY
from support.ecosystem_stage import GangStage
from support.end_to_end import Stage

CONTROLLER = KUBERAY
RESOURCES = "rayjobs,rayclusters"


@pytest.fixture
def gangs(stage: Stage) -> GangStage:
    return GangStage(stage, "RayCluster")


@pytest.fixture
def examples(programs: Path) -> Path:
    return programs / CONTROLLER.examples


@pytest.mark.parametrize(
    ("file", "name", "spare_millicores"),
    [
        ("ray-cluster.sample.yaml", "raycluster-kuberay", 1_000),
        ("ray-cluster.complete.yaml", "raycluster-complete", 500),
    ],
)
def test_head_and_worker_of_an_example_start_as_one_gang(
    file: str, name: str, spare_millicores: int, gangs: GangStage, examples: Path
) -> None:
    """One node has room for one of the two pods."""
    gangs.fill(spare_millicores=spare_millicores)
    gangs.apply(examples / file)
    (waiting,) = gangs.until_waiting(gangs=1, pods=2)
    assert waiting.spec.pods == 2
    gangs.free()
    gangs.until_running(gangs=1, pods=2)
    assert [one.metadata.uid for one in gangs.fluxjobs()] == [waiting.metadata.uid]
    gangs.delete("raycluster", name)


def test_the_cluster_of_a_rayjob_starts_as_one_gang_and_then_the_job_that_submits_its_work(
    gangs: GangStage, examples: Path
) -> None:
    """One node has room for the worker, and not for the head."""
    gangs.fill(spare_millicores=300)
    gangs.apply(examples / "ray-job.sample.yaml")
    (waiting,) = gangs.until_waiting(gangs=1, pods=2)
    assert waiting.spec.pods == 2
    gangs.free()
    kinds = ["Job", "RayCluster"]
    gangs.stage.until(
        "both have FluxJobs",
        lambda: sorted(one.spec.object_ref.kind for one in gangs.others()) == kinds,
        120,
        gangs.others,
    )
    assert [one.metadata.uid for one in gangs.fluxjobs()] == [waiting.metadata.uid]
    gangs.stage.until_consistent()
    gangs.delete("rayjob", "rayjob-sample")


def test_a_worker_that_is_created_again_gets_its_slot(gangs: GangStage, examples: Path) -> None:
    gangs.fill(spare_millicores=2_000)
    gangs.apply(examples / "ray-cluster.sample.yaml")
    before, uids = gangs.until_running(gangs=1, pods=2), gangs.uids()
    (worker,) = [name for name in before if "-worker-" in name]
    gangs.stage.kubectl("delete", "pod", worker, "--wait=true")
    gangs.stage.until(
        "another worker has come",
        lambda: len(gangs.uids()) == 2 and len(gangs.uids() - uids) == 1,
        120,
        gangs.nodes,
    )
    assert Counter(gangs.until_running(gangs=1, pods=2).values()) == Counter(before.values())
    gangs.delete("raycluster", "raycluster-kuberay")


def test_workers_that_the_autoscaler_asks_for_are_matched_one_by_one(
    gangs: GangStage, examples: Path
) -> None:
    """The test sets the replicas as the autoscaler in the head's pod does."""
    gangs.apply(examples / "ray-cluster.autoscaler.yaml")
    gangs.until_running(gangs=1, pods=1)
    change = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}]
    gangs.stage.kubectl(
        "patch", "raycluster", "raycluster-autoscaler", "--type=json", "-p", json.dumps(change)
    )
    gangs.stage.until(
        "the workers run",
        lambda: len(gangs.nodes()) == 3 and None not in gangs.nodes().values(),
        120,
        gangs.nodes,
    )
    kinds = ["Pod", "Pod", "RayCluster"]
    gangs.stage.until(
        "each has its FluxJob", lambda: sorted(one.spec.object_ref.kind for one in gangs.others()) == kinds
    )
    gangs.delete("raycluster", "raycluster-autoscaler")
