"""Kubeflow Trainer as its project ships it (kubeflow/trainer, Apache-2.0), with JobSet:
a TrainJob becomes a JobSet, which is one gang.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.ecosystem_controllers import TRAINER
from support.ecosystem_stage import GangStage
from support.end_to_end import Stage

CONTROLLER = TRAINER
RESOURCES = "trainjobs"
EXAMPLE = Path(__file__).parents[2] / "examples" / "ecosystem" / "trainjob.yaml"


@pytest.fixture
def gangs(stage: Stage) -> GangStage:
    return GangStage(stage, "JobSet")


def test_the_nodes_of_a_trainjob_start_as_one_gang(gangs: GangStage) -> None:
    """One node has room for one of the three pods. The runtime is Trainer's own."""
    gangs.fill(spare_millicores=2_000)
    gangs.apply(EXAMPLE)
    (waiting,) = gangs.until_waiting(gangs=1, pods=3)
    assert waiting.spec.pods == 3
    gangs.keep_running()
    gangs.free()
    for name in gangs.until_running(gangs=1, pods=3):
        gangs.stage.end_pod(name)
    words = ("get", "trainjob", "torch", "-o", "jsonpath={.status.conditions[?(@.type=='Complete')].status}")
    gangs.stage.until("the TrainJob is complete", lambda: gangs.stage.kubectl(*words).stdout == "True", 120)
    gangs.delete("trainjob", "torch")
