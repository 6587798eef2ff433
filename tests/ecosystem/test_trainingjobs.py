"""Training Operator as its project ships it (kubeflow/training-operator, Apache-2.0): its own examples, all
replicas as one gang.

Most of its examples name the namespace kubeflow, and none requests anything: a LimitRange of the namespace
gives each container a cpu.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.ecosystem_controllers import TRAINING_OPERATOR
from support.ecosystem_stage import GangStage
from support.end_to_end import Stage
from support.preempting_queue import FOREVER, RUN_SECONDS, PreemptingQueue

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.local.inprocess import InProcessCluster

CONTROLLER = TRAINING_OPERATOR
RESOURCES = ",".join(CONTROLLER.resources)
ONE_CPU = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "one-cpu"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]},
}


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    namespace = CONTROLLER.account[0]
    cluster.kubectl("label", "namespace", namespace, f"{names.MANAGED_LABEL}=true", "--overwrite")
    stage = Stage(cluster, namespace)
    yield stage
    stage.kubectl("delete", RESOURCES, "--all", "--wait=true", "--timeout=60s", check=False)
    stage.clear()


@pytest.fixture
def examples(programs: Path) -> Path:
    return programs / CONTROLLER.examples


def gangs_of(stage: Stage, kind: str) -> GangStage:
    gangs = GangStage(stage, kind)
    gangs.apply(ONE_CPU)
    return gangs


@pytest.mark.parametrize(
    ("file", "kind", "name", "pods"),
    [
        ("pytorch/simple.yaml", "PyTorchJob", "pytorch-simple", 2),
        ("tensorflow/simple.yaml", "TFJob", "tfjob-simple", 2),
        ("jax/cpu-demo/demo.yaml", "JAXJob", "jaxjob-simple", 2),
        ("xgboost/xgboostjob.yaml", "XGBoostJob", "xgboost-dist-iris-test-train", 3),
        ("paddlepaddle/simple-cpu.yaml", "PaddleJob", "paddle-simple-cpu", 2),
    ],
)
def test_all_replicas_of_an_example_start_as_one_gang(
    file: str, kind: str, name: str, pods: int, stage: Stage, examples: Path
) -> None:
    """One node has room for one pod."""
    gangs = gangs_of(stage, kind)
    gangs.fill(spare_millicores=1_000)
    gangs.apply(examples / file)
    (waiting,) = gangs.until_waiting(gangs=1, pods=pods)
    assert waiting.spec.pods == pods
    gangs.keep_running()
    gangs.free()
    gangs.until_running(gangs=1, pods=pods)
    assert [one.metadata.uid for one in gangs.fluxjobs()] == [waiting.metadata.uid]
    gangs.delete(f"{kind.lower()}.kubeflow.org", name)


def test_an_elastic_job_starts_with_its_smallest_number_of_workers(stage: Stage, examples: Path) -> None:
    """Of two workers one has to start, and there is room for one."""
    gangs = gangs_of(stage, "PyTorchJob")
    gangs.fill(spare_millicores=1_000)
    gangs.apply(examples / "pytorch" / "elastic" / "echo" / "echo.yaml")
    stage.until(
        "one of both runs",
        lambda: sorted(map(bool, gangs.nodes().values())) == [False, True],
        120,
        gangs.nodes,
    )
    gangs.keep_running()
    gangs.free()
    stage.until("both run", lambda: all(gangs.nodes().values()), 120, gangs.nodes)
    kinds = ["Pod", "PyTorchJob"]
    stage.until(
        "each has its FluxJob", lambda: sorted(one.spec.object_ref.kind for one in gangs.others()) == kinds
    )
    gangs.delete("pytorchjob.kubeflow.org", "elastic-example-echo")


def test_an_elastic_job_gives_workers_back_and_its_operator_creates_them_again(
    stage: Stage, examples: Path
) -> None:
    """Of three workers on four nodes, of which a Job has the last, two end for another Job."""
    queue, gangs = PreemptingQueue(stage), gangs_of(stage, "PyTorchJob")
    queue.grants()
    job = yaml.safe_load((examples / "pytorch" / "elastic" / "echo" / "echo.yaml").read_text())
    job["spec"]["elasticPolicy"]["maxReplicas"] = 3
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["replicas"] = 3
    worker["template"]["metadata"] = {
        "labels": {names.QUEUE_LABEL: queue.name},
        "annotations": {RUN_SECONDS: FOREVER},
    }
    worker["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    gangs.apply(job)
    first = "elastic-example-echo-worker-0"

    def workers() -> list[str]:
        return sorted(pod.metadata.name for pod in gangs.pods() if first[:-1] in pod.metadata.name)

    def running() -> list[str]:
        found = [pod.metadata.name for pod in gangs.pods() if pod.status.phase == "Running"]
        return [name for name in workers() if name in found]

    stage.until("all run", lambda: len(running()) == 3, 120, gangs.nodes)
    stage.apply(queue.job("rigid", 1, priority=10).cpu("4").build())
    stage.until_state("rigid", State.RUNNING)
    stage.apply(queue.job("urgent", 2, priority=10).cpu("4").build())
    stage.until_state("urgent", State.RUNNING)
    stage.until(
        "two were created again", lambda: (len(workers()), running()) == (3, [first]), 60, gangs.nodes
    )
    stage.succeed("urgent")
    stage.until("it grew again", lambda: len(running()) == 3, 120, gangs.nodes)
    shown = json.loads(stage.kubectl("get", "pytorchjob", "elastic-example-echo", "-o", "json").stdout)
    holds = {each["type"] for each in shown["status"]["conditions"] if each["status"] == "True"}
    assert holds.isdisjoint({"Failed", "Succeeded", "Suspended"}), "it went on all the time"
    assert shown["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    stage.kubectl("delete", "job", "rigid", "urgent", "--wait=true")
    gangs.delete("pytorchjob.kubeflow.org", "elastic-example-echo")
    stage.kubectl("delete", "fluxqueue", queue.name)


def test_a_replica_that_is_created_again_gets_its_slot(stage: Stage, examples: Path) -> None:
    gangs = gangs_of(stage, "PyTorchJob")
    gangs.fill(spare_millicores=1_000)
    gangs.apply(examples / "pytorch" / "simple.yaml")
    gangs.until_waiting(gangs=1, pods=2)
    gangs.keep_running()
    gangs.free()
    before, uids = gangs.until_running(gangs=1, pods=2), gangs.uids()
    stage.kubectl("delete", "pod", "pytorch-simple-worker-0", "--wait=true")
    stage.until(
        "another worker is where it was",
        lambda: len(gangs.uids() - uids) == 1 and gangs.nodes() == before,
        120,
        gangs.nodes,
    )
    gangs.delete("pytorchjob.kubeflow.org", "pytorch-simple")
