"""MPI Operator as its project ships it (kubeflow/mpi-operator, Apache-2.0):
its own examples, launcher and workers as one gang.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.ecosystem_controllers import MPI_OPERATOR
from support.ecosystem_stage import GangStage
from support.end_to_end import Stage

CONTROLLER = MPI_OPERATOR
RESOURCES = "mpijobs"


@pytest.fixture
def gangs(stage: Stage) -> GangStage:
    return GangStage(stage, "MPIJob")


@pytest.fixture
def examples(programs: Path) -> Path:
    return programs / CONTROLLER.examples


@pytest.mark.parametrize("file", ["pi.yaml", "pi-intel.yaml", "pi-mpich.yaml"])
def test_the_launcher_and_the_workers_of_an_example_start_as_one_gang(
    file: str, gangs: GangStage, examples: Path
) -> None:
    """One node has room for one of the three pods.
    When the launcher has succeeded, the operator deletes the workers.
    """
    gangs.fill(spare_millicores=1_000)
    gangs.apply(examples / file)
    (waiting,) = gangs.until_waiting(gangs=1, pods=3)
    assert waiting.spec.pods == 3
    gangs.keep_running()
    gangs.free()
    nodes = gangs.until_running(gangs=1, pods=3)
    assert [one.metadata.uid for one in gangs.fluxjobs()] == [waiting.metadata.uid]
    (launcher,) = [name for name in nodes if name.startswith("pi-launcher")]
    gangs.stage.end_pod(launcher)
    gangs.stage.until(
        "nothing runs any more",
        lambda: not gangs.nodes() and not gangs.stage.fluxion_jobs(),
        120,
        gangs.nodes,
    )
    gangs.delete("mpijob", "pi")


def test_a_launcher_that_waits_for_its_workers_has_its_slot_with_them(
    gangs: GangStage, examples: Path
) -> None:
    """The launcher is created when both workers run."""
    made = yaml.safe_load((examples / "pi.yaml").read_text())
    made["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    gangs.fill(spare_millicores=1_000)
    gangs.apply(made)
    (waiting,) = gangs.until_waiting(gangs=1, pods=2)
    assert waiting.spec.pods == 3
    gangs.keep_running()
    gangs.free()
    words = ("get", "mpijob", "pi", "-o", "jsonpath={.status.conditions[?(@.type=='Succeeded')].status}")
    gangs.stage.until(
        "the launcher has succeeded", lambda: gangs.stage.kubectl(*words).stdout == "True", 120, gangs.nodes
    )
    assert [one.metadata.uid for one in gangs.others()] == [waiting.metadata.uid]
    gangs.delete("mpijob", "pi")


def test_a_worker_that_is_created_again_gets_its_slot(gangs: GangStage, examples: Path) -> None:
    gangs.fill(spare_millicores=1_000)
    gangs.apply(examples / "pi.yaml")
    gangs.until_waiting(gangs=1, pods=3)
    gangs.keep_running()
    gangs.free()
    before, uids = gangs.until_running(gangs=1, pods=3), gangs.uids()
    gangs.stage.kubectl("delete", "pod", "pi-worker-1", "--wait=true")
    gangs.stage.until(
        "another worker runs",
        lambda: len(gangs.uids() - uids) == 1 and gangs.nodes() == before,
        120,
        gangs.nodes,
    )
    gangs.until_running(gangs=1, pods=3)
    gangs.delete("mpijob", "pi")
