"""Kubernetes' own groups, with the gang step and the topology step of the real scheduler: what is released is
what it accepts.

Eight nodes of four cpu: node-1 to node-4 are in zone-a and rack-1, node-5 to node-8 in zone-b and rack-2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.builders import Json, make_job, make_pod
from support.device_objects import a_class, a_slice, a_template, request, resource_claims
from support.end_to_end import Stage, managed_namespace

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.fake_nodes import ZONE_LABEL
from fluxqueue.local.inprocess import ClusterOptions, InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
API = "/apis/scheduling.k8s.io/v1alpha2"
ISLAND = "example.com/island"
"""A node label that is no level: node-3 to node-6 have it."""
GATES = dict.fromkeys(
    (
        "GenericWorkload",
        "GangScheduling",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
        "WorkloadWithJob",
        "DRAWorkloadResourceClaims",
    ),
    True,
)
FIRST, SECOND = {f"node-{number}" for number in range(1, 5)}, {f"node-{number}" for number in range(5, 9)}


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    config = {"pinWindowSeconds": 2, "successorGraceSeconds": 1}
    values = {"queue": {"config": config}, "gangs": {"resources": ["podgroups.scheduling.k8s.io"]}}
    flags = ["--runtime-config=scheduling.k8s.io/v1alpha2=true"]
    options = ClusterOptions(
        nodes=8, node_cpu="4", durable=False, values=values, feature_gates=GATES, api_server_flags=flags
    )
    cluster = InProcessCluster(service_folder / "native", options)
    cluster.start(600)
    for number in range(3, 7):
        body = {"metadata": {"labels": {ISLAND: "one"}}}
        cluster.control_plane.client.request("PATCH", f"/api/v1/nodes/node-{number}", body)
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage
        stage.kubectl(
            "delete", "jobs,pods,podgroups.scheduling.k8s.io", "--all", "--timeout=60s", check=False
        )


def create_group(stage: Stage, name: str, *, least: int = 0, key: str = "", **spec: Any) -> None:
    policy: Json = {"gang": {"minCount": least}} if least else {"basic": {}}
    constraints: Json = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **constraints, **spec},
    }
    stage.cluster.control_plane.client.request("POST", f"{API}/namespaces/{stage.namespace}/podgroups", body)


def create_pods(
    stage: Stage, group: str, count: int, first: int = 0, cpu: str = "4", claims: Sequence[Json] = ()
) -> None:
    for number in range(first, first + count):
        pod = (
            make_pod(f"{group}-{number}")
            .namespace(stage.namespace)
            .cpu(cpu)
            .annotation(RUN_SECONDS, "forever")
        )
        pod = pod.with_("spec.resourceClaims", [*claims]) if claims else pod
        body = (
            pod.with_("spec.schedulingGroup", {"podGroupName": group})
            .with_("spec.restartPolicy", "Never")
            .build()
        )
        stage.cluster.control_plane.client.request("POST", f"/api/v1/namespaces/{stage.namespace}/pods", body)


def hosts(stage: Stage, *, but: str = "first") -> set[str]:
    pods = [
        pod
        for pod in stage.items("pods", Pod)
        if pod.active and pod.metadata.label(names.JOB_NAME_LABEL) != but
    ]
    return {pod.spec.node_name or "" for pod in pods}


def fill_first_node(stage: Stage) -> None:
    """Fill node-1: a group of four is then matched on nodes of both zones, if nothing keeps it together."""
    stage.apply(make_job("first").cpu("4").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("first", State.RUNNING)


def test_a_group_of_a_zone_starts_in_one_zone(stage: Stage) -> None:
    fill_first_node(stage)
    create_group(stage, "zoned", least=4, key=ZONE_LABEL)
    create_pods(stage, "zoned", 4)
    stage.until("all its pods run in the other zone", lambda: hosts(stage) == SECOND)
    of_groups = stage.until(
        "its FluxJob is there",
        lambda: [job for job in stage.fluxjobs() if job.spec.object_ref.kind == "PodGroup"],
    )
    assert [job.status.requeues for job in of_groups] == [0], "nothing was refused"
    stage.until_consistent()


def test_a_group_that_no_zone_holds_is_never_released(stage: Stage) -> None:
    create_group(stage, "large", least=5, key=ZONE_LABEL)
    create_pods(stage, "large", 5)

    def unsatisfiable() -> bool:
        return any(each.status.reason == Reason.UNSATISFIABLE for each in stage.fluxjobs())

    stage.until("it is said that no zone can hold it", unsatisfiable)
    assert hosts(stage) == {""}


def test_a_label_that_is_no_level_keeps_a_group_together(stage: Stage) -> None:
    fill_first_node(stage)
    create_group(stage, "island", least=4, key=ISLAND)
    create_pods(stage, "island", 4)
    stage.until(
        "all its pods run on the island", lambda: hosts(stage) == {f"node-{number}" for number in range(3, 7)}
    )


def test_pods_beyond_the_minimum_follow_into_the_domain(stage: Stage) -> None:
    fill_first_node(stage)
    create_group(stage, "grows", least=4, key=ZONE_LABEL)
    create_pods(stage, "grows", 4, cpu="2")
    stage.until(
        "it runs in one zone",
        lambda: len(hosts(stage)) >= 2 and (hosts(stage) <= FIRST or hosts(stage) <= SECOND),
    )
    create_pods(stage, "grows", 2, first=4, cpu="2")
    stage.until("six pods run", lambda: "" not in hosts(stage) and len(stage.items("pods", Pod)) == 7)
    assert hosts(stage) <= FIRST or hosts(stage) <= SECOND


def test_the_first_pod_of_a_basic_group_decides_about_the_domain(stage: Stage) -> None:
    fill_first_node(stage)
    create_group(stage, "basic", key=ZONE_LABEL)
    create_pods(stage, "basic", 3)
    stage.until("all its pods run", lambda: len(hosts(stage)) == 3 and "" not in hosts(stage))
    assert hosts(stage) <= FIRST or hosts(stage) <= SECOND


def test_a_job_whose_template_names_a_group_runs_in_its_domain(stage: Stage) -> None:
    fill_first_node(stage)
    job = make_job("member").indexed(4).cpu("4").pod_annotation(RUN_SECONDS, "forever")
    stage.apply(job.with_("spec.template.spec.schedulingGroup", {"podGroupName": "late"}).build())
    message = stage.until_reason("member", Reason.INVALID_REQUEST).status.message
    assert f"PodGroup {stage.namespace}/late does not exist" in message
    create_group(stage, "late", least=4, key=ZONE_LABEL)
    stage.until_state("member", State.RUNNING)
    assert hosts(stage) == SECOND


def test_a_job_for_which_its_controller_makes_a_group_starts(stage: Stage) -> None:
    stage.apply(make_job("own").indexed(4).cpu("4").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("own", State.RUNNING)
    assert all(pod.spec.scheduling_group is not None for pod in stage.items("pods", Pod)), (
        "the controller made one"
    )
    stage.until_consistent()


def test_a_gang_that_is_disrupted_as_one_starts_as_one(stage: Stage) -> None:
    create_group(stage, "whole", least=2, disruptionMode="PodGroup")
    create_pods(stage, "whole", 2)
    stage.until("both pods run", lambda: len(hosts(stage)) == 2 and "" not in hosts(stage))


def test_a_claim_of_a_group_is_one_for_all_its_pods(stage: Stage) -> None:
    client, api = stage.cluster.control_plane.client, "/apis/resource.k8s.io/v1"
    namespace = f"{api}/namespaces/{stage.namespace}"
    client.request("POST", f"{api}/deviceclasses", bare(a_class()))
    for node in ("node-2", "node-6"):
        client.request("POST", f"{api}/resourceslices", bare(a_slice(node, ["large", "large"])))
    client.request("POST", f"{namespace}/resourceclaimtemplates", bare(a_template("both", request(2))))
    create_group(stage, "mesh", least=3, resourceClaims=resource_claims("both"))
    create_pods(stage, "mesh", 3, cpu="1", claims=resource_claims("both"))
    stage.until("all three run on one node", lambda: len(hosts(stage)) == 1 and "" not in hosts(stage))
    create_pods(stage, "mesh", 1, first=3, cpu="1", claims=resource_claims("both"))
    stage.until(
        "the fourth is there too",
        lambda: len(stage.items("pods", Pod)) == 4 and len(hosts(stage)) == 1 and "" not in hosts(stage),
    )
    claims = client.get(f"{namespace}/resourceclaims")["items"]
    assert [len(each["status"]["allocation"]["devices"]["results"]) for each in claims] == [2]
    create_group(stage, "next", least=2, resourceClaims=resource_claims("both"))
    create_pods(stage, "next", 2, cpu="1", claims=resource_claims("both"))
    stage.until("the next group runs on the other node", lambda: hosts(stage) == {"node-2", "node-6"})


def bare(body: Json) -> Json:
    """Return an object as one creates it."""
    return {**body, "metadata": {"name": body["metadata"]["name"]}}
