"""PodGroups with the controller that their project ships (kubernetes-sigs/scheduler-plugins, Apache-2.0),
and our example: it has none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.ecosystem_controllers import SCHEDULER_PLUGINS
from support.ecosystem_stage import GangStage
from support.end_to_end import Stage

CONTROLLER = SCHEDULER_PLUGINS
RESOURCES = "pods,podgroups.scheduling.x-k8s.io"
EXAMPLE = Path(__file__).parents[2] / "examples" / "ecosystem" / "podgroup-scheduler-plugins.yaml"


@pytest.fixture
def gangs(stage: Stage) -> GangStage:
    return GangStage(stage, "PodGroup")


def test_the_pods_of_a_group_start_as_one_gang_and_its_controller_sees_them_run(gangs: GangStage) -> None:
    """One node has room for one of the pods."""
    gangs.fill(spare_millicores=1_000)
    gangs.apply(EXAMPLE)
    pods = len(gangs.pods())
    (waiting,) = gangs.until_waiting(gangs=1, pods=pods)
    assert waiting.spec.pods == pods
    gangs.keep_running()
    gangs.free()
    gangs.until_running(gangs=1, pods=pods)
    words = ("get", "podgroups.scheduling.x-k8s.io", "-o", "jsonpath={.items[0].status.phase}")
    gangs.stage.until("its controller says so", lambda: gangs.stage.kubectl(*words).stdout == "Running", 120)
    gangs.stage.kubectl("delete", "pods", "--all", "--wait=true")
    gangs.stage.until(
        "nothing is held", lambda: not gangs.stage.fluxion_jobs(), 120, gangs.stage.fluxion_jobs
    )
    gangs.stage.until_consistent()
