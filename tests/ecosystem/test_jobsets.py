"""JobSet as its project ships it (kubernetes-sigs/jobset, Apache-2.0).
Its module has no example manifests: these are ours.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.builders import Json, make_job
from support.ecosystem_controllers import JOBSET
from support.ecosystem_stage import RUN_SECONDS, GangStage
from support.end_to_end import Stage

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job

CONTROLLER = JOBSET
RESOURCES = "jobsets"
EXAMPLE = Path(__file__).parents[2] / "examples" / "ecosystem" / "jobset.yaml"


@pytest.fixture
def gangs(stage: Stage) -> GangStage:
    return GangStage(stage, "JobSet")


def jobset(*, seconds: str = "forever", **spec: Any) -> Json:
    """Return the example with other fields of its spec;
    its pods run for so many seconds, its Jobs fail with one of their pods.
    """
    made: Json = yaml.safe_load(EXAMPLE.read_text())
    for replicated in made["spec"]["replicatedJobs"]:
        replicated["template"]["spec"]["backoffLimit"] = 0
        replicated["template"]["spec"]["template"]["metadata"] = {"annotations": {RUN_SECONDS: seconds}}
    made["spec"] |= spec
    return made


def condition(gangs: GangStage, kind: str) -> bool:
    words = ("get", "jobset", "pair", "-o", f"jsonpath={{.status.conditions[?(@.type=='{kind}')].status}}")
    return bool(gangs.stage.kubectl(*words).stdout == "True")


def test_the_example_starts_as_one_gang_and_completes(gangs: GangStage) -> None:
    """One node has room for the driver, and not for a worker."""
    gangs.fill(spare_millicores=1_000)
    gangs.apply(EXAMPLE)
    (waiting,) = gangs.until_waiting(gangs=1, pods=3)
    assert waiting.spec.pods == 3
    gangs.keep_running()
    gangs.free()
    gangs.until_running(gangs=1, pods=3)
    assert [one.metadata.uid for one in gangs.fluxjobs()] == [waiting.metadata.uid]
    for pod in gangs.pods():
        gangs.stage.end_pod(pod.metadata.name)
    gangs.stage.until("the JobSet is complete", lambda: condition(gangs, "Completed"), 120)
    gangs.stage.until(
        "so is its FluxJob",
        lambda: [one.status.state for one in gangs.fluxjobs()] == [State.COMPLETED],
        120,
        gangs.fluxjobs,
    )
    gangs.delete("jobset", "pair")


def test_jobs_that_start_one_after_another_have_their_slots_from_the_beginning(gangs: GangStage) -> None:
    made = jobset(seconds="4", startupPolicy={"startupPolicyOrder": "InOrder"})
    gangs.fill(spare_millicores=1_000)
    gangs.apply(made)
    (waiting,) = gangs.until_waiting(gangs=1, pods=1)
    assert waiting.spec.pods == 3
    gangs.free()
    gangs.stage.until(
        "the JobSet is complete",
        lambda: condition(gangs, "Completed"),
        120,
        lambda: gangs.stage.items("jobs", Job),
    )
    assert [one.spec.object_ref.kind for one in gangs.others()] == ["JobSet"]
    gangs.delete("jobset", "pair")


def test_jobs_that_depend_on_others_have_their_slots_from_the_beginning(gangs: GangStage) -> None:
    """The workers come when the driver has completed. Work that would take their nodes meanwhile waits."""
    made = jobset(seconds="4")
    made["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Complete"}]
    gangs.apply(made)
    gangs.stage.until("the driver runs", lambda: any(gangs.nodes().values()), 120, gangs.fluxjobs)
    gangs.stage.apply(make_job("greedy").indexed(4).cpu("3").pod_annotation(RUN_SECONDS, "1").build())
    gangs.stage.until_reason("greedy", Reason.WAITING_FOR_NODES)
    gangs.stage.until(
        "the JobSet is complete",
        lambda: condition(gangs, "Completed"),
        120,
        lambda: gangs.stage.items("jobs", Job),
    )
    gangs.stage.until_state("greedy", State.COMPLETED)
    gangs.stage.kubectl("delete", "jobset", "pair", "--wait=true")


def test_a_jobset_that_restarts_comes_back_to_its_nodes(gangs: GangStage) -> None:
    """Its failure policy deletes all its Jobs and creates them again."""
    gangs.fill(spare_millicores=2_000, nodes=4)
    gangs.apply(jobset(failurePolicy={"maxRestarts": 2}))
    before = gangs.until_running(gangs=1, pods=3)
    uids = gangs.uids()
    (worker,) = [name for name in before if name.startswith("pair-workers-0-0")]
    fail(gangs, worker)
    gangs.stage.until(
        "all pods are others", lambda: len(gangs.uids()) == 3 and not gangs.uids() & uids, 180, gangs.nodes
    )
    after = gangs.until_running(gangs=1, pods=3)
    assert Counter(after.values()) == Counter(before.values())
    gangs.delete("jobset", "pair")


def fail(gangs: GangStage, pod: str) -> None:
    """End the containers of a pod with a failure."""
    path = f"/api/v1/namespaces/{gangs.stage.namespace}/pods/{pod}/status"
    gangs.stage.cluster.control_plane.client.request("PATCH", path, {"status": {"phase": "Failed"}})


def test_a_suspended_jobset_gives_its_nodes_back_and_starts_again_as_a_gang(gangs: GangStage) -> None:
    gangs.apply(jobset())
    gangs.until_running(gangs=1, pods=3)
    gangs.stage.kubectl("patch", "jobset", "pair", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    gangs.stage.until(
        "its nodes are free", lambda: not gangs.nodes() and not gangs.stage.fluxion_jobs(), 120, gangs.nodes
    )
    gangs.fill(spare_millicores=1_000)
    gangs.stage.kubectl("patch", "jobset", "pair", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    gangs.until_waiting(gangs=1, pods=3)
    gangs.free()
    gangs.until_running(gangs=1, pods=3)
    gangs.delete("jobset", "pair")
