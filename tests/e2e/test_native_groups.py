"""Kubernetes' own groups, with the gang step and the topology step of the real scheduler: what is released is
what it accepts.

Eight nodes of four cpu: node-1 to node-4 are in zone-a and rack-1, node-5 to node-8 in zone-b and rack-2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.builders import JobBuilder, Json, make_job, make_pod
from support.device_objects import CLASS, a_class, a_slice, a_template, request, resource_claims
from support.end_to_end import Stage, managed_namespace
from support.kubernetes_gates import (
    JOBS_STATE_SCHEDULING,
    NATIVE_VERSION,
    WORKLOAD_FLAGS,
    WORKLOAD_GATES,
)

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.fake_nodes import ZONE_LABEL
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
API = f"/apis/scheduling.k8s.io/{NATIVE_VERSION}"
DEVICES = "/apis/resource.k8s.io/v1"
ISLAND = "example.com/island"
"""A node label that is no level: node-3 to node-6 have it."""
COMPOSITES = ",compositepodgroups.scheduling.k8s.io" if JOBS_STATE_SCHEDULING else ""
AS_ONE: Any = {"all": {}} if JOBS_STATE_SCHEDULING else "PodGroup"
FIRST, SECOND = {f"node-{number}" for number in range(1, 5)}, {f"node-{number}" for number in range(5, 9)}


pytestmark = pytest.mark.skipif(NATIVE_VERSION is None, reason="this Kubernetes has no PodGroups")
of_1_37 = pytest.mark.skipif(not JOBS_STATE_SCHEDULING, reason="Jobs have spec.scheduling from 1.37 on")


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    config = {"pinWindowSeconds": 2, "successorGraceSeconds": 1}
    resources = ["podgroups.scheduling.k8s.io", "compositepodgroups.scheduling.k8s.io"]
    values = {"queue": {"config": config}, "gangs": {"resources": resources}}
    options = ClusterOptions(
        nodes=8,
        node_cpu="4",
        durable=False,
        values=values,
        feature_gates=WORKLOAD_GATES,
        api_server_flags=WORKLOAD_FLAGS,
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
            "delete",
            f"jobs,pods,podgroups.scheduling.k8s.io{COMPOSITES}",
            "--all",
            "--timeout=60s",
            check=False,
        )


def create_group(stage: Stage, name: str, *, least: int = 0, key: str = "", **spec: Any) -> None:
    policy: Json = {"gang": {"minCount": least}} if least else {"basic": {}}
    constraints: Json = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    body = {
        "apiVersion": f"scheduling.k8s.io/{NATIVE_VERSION}",
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
    create_group(stage, "whole", least=2, disruptionMode=AS_ONE)
    create_pods(stage, "whole", 2)
    stage.until("both pods run", lambda: len(hosts(stage)) == 2 and "" not in hosts(stage))


def test_a_claim_of_a_group_is_one_for_all_its_pods(stage: Stage) -> None:
    give_devices(stage)
    create_group(stage, "mesh", least=3, resourceClaims=resource_claims("both"))
    create_pods(stage, "mesh", 3, cpu="1", claims=resource_claims("both"))
    stage.until("all three run on one node", lambda: len(hosts(stage)) == 1 and "" not in hosts(stage))
    create_pods(stage, "mesh", 1, first=3, cpu="1", claims=resource_claims("both"))
    stage.until(
        "the fourth is there too",
        lambda: len(stage.items("pods", Pod)) == 4 and len(hosts(stage)) == 1 and "" not in hosts(stage),
    )
    assert devices_of_claims(stage) == [2]
    create_group(stage, "next", least=2, resourceClaims=resource_claims("both"))
    create_pods(stage, "next", 2, cpu="1", claims=resource_claims("both"))
    stage.until("the next group runs on the other node", lambda: hosts(stage) == {"node-2", "node-6"})


def give_devices(stage: Stage) -> None:
    """Give node-2 and node-6 two devices each, and the namespace a template that claims two."""
    client, api = stage.cluster.control_plane.client, DEVICES
    if client.find(f"{api}/deviceclasses/{CLASS}") is None:
        client.request("POST", f"{api}/deviceclasses", bare(a_class()))
        for node in ("node-2", "node-6"):
            client.request("POST", f"{api}/resourceslices", bare(a_slice(node, ["large", "large"])))
    path = f"{api}/namespaces/{stage.namespace}/resourceclaimtemplates"
    client.request("POST", path, bare(a_template("both", request(2))))


def devices_of_claims(stage: Stage) -> list[int]:
    """Return how many devices each claim of the namespace has."""
    path = f"{DEVICES}/namespaces/{stage.namespace}/resourceclaims"
    claims = stage.cluster.control_plane.client.get(path)["items"]
    return [len(each["status"]["allocation"]["devices"]["results"]) for each in claims]


def stating(name: str, pods: int, *, key: str = "", cpu: str = "4", **scheduling: Any) -> JobBuilder:
    """A Job with ``spec.scheduling``."""
    constraints: Json = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    job = make_job(name).indexed(pods).cpu(cpu).pod_annotation(RUN_SECONDS, "forever")
    return job.with_("spec.scheduling", {**constraints, **scheduling})


def groups(stage: Stage, namespace: str = "") -> list[Any]:
    path = f"{API}/namespaces/{namespace or stage.namespace}/podgroups"
    return list(stage.cluster.control_plane.client.get(path)["items"])


def suspend(stage: Stage, job: str) -> None:
    stage.kubectl("patch", "job", job, "-p", '{"spec":{"suspend":true}}')
    stage.until("its pods are gone", lambda: not hosts(stage))


def resume(stage: Stage, job: str) -> None:
    """Resume a Job, which is refused until the queue has removed its allocation."""
    words = ("patch", "job", job, "-p", '{"spec":{"suspend":false}}')
    stage.until("it may be resumed", lambda: stage.kubectl(*words, check=False).returncode == 0)


@of_1_37
def test_a_gang_job_starts_in_its_zone_as_an_unqueued_one_does(stage: Stage) -> None:
    gang: Json = {"schedulingPolicy": {"gang": {}}}
    fill_first_node(stage)
    stage.apply(stating("zoned", 4, key=ZONE_LABEL, **gang).build())
    zoned = stage.until_state("zoned", State.RUNNING)
    assert hosts(stage) == SECOND
    assert zoned.fluxjob is not None
    assert zoned.fluxjob.status.requeues == 0, "the scheduler refused no pin"
    spec = next(each["spec"] for each in groups(stage) if "schedulingConstraints" in each["spec"])
    assert spec["schedulingPolicy"] == {"gang": {"minCount": 4}}
    assert spec["schedulingConstraints"] == {"topology": [{"key": ZONE_LABEL}]}
    stage.until_consistent()
    stage.kubectl("delete", "job", "zoned", "--timeout=60s")
    stage.until("its nodes are free", lambda: not hosts(stage))
    assert hosts_of_unqueued(stage, stating("control", 4, key=ZONE_LABEL, **gang)) == SECOND


def hosts_of_unqueued(stage: Stage, job: JobBuilder) -> set[str]:
    """Return the nodes on which the scheduler starts a Job that the queue leaves alone."""
    client, name = stage.cluster.control_plane.client, f"{stage.namespace}-alone"
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        client.request("POST", f"/apis/batch/v1/namespaces/{name}/jobs", job.namespace(name).build())

        def bound() -> list[str]:
            pods = client.get(f"/api/v1/namespaces/{name}/pods")["items"]
            return [node for pod in pods if (node := pod["spec"].get("nodeName"))]

        stage.until("the control is bound", lambda: len(bound()) == job.build()["spec"]["parallelism"])
        return set(bound())
    finally:
        stage.cluster.kubectl("-n", name, "delete", "jobs", "--all", "--cascade=foreground", "--timeout=60s")
        client.request("DELETE", f"/api/v1/namespaces/{name}")


@of_1_37
def test_a_gang_job_starts_again_in_another_zone(stage: Stage) -> None:
    fill_first_node(stage)
    stage.apply(stating("zoned", 4, key=ZONE_LABEL, schedulingPolicy={"gang": {}}).build())
    stage.until("it runs in the second zone", lambda: hosts(stage) == SECOND)
    suspend(stage, "zoned")
    stage.kubectl("delete", "job", "first", "--timeout=60s")
    other = make_job("other").cpu("4").pod_annotation(RUN_SECONDS, "forever")
    stage.apply(other.with_("spec.template.spec.nodeSelector", {names.HOSTNAME_LABEL: "node-5"}).build())
    stage.until_state("other", State.RUNNING)
    resume(stage, "zoned")
    stage.until("it runs in the first zone", lambda: hosts(stage, but="other") == FIRST)


@of_1_37
def test_a_gang_job_that_no_zone_holds_gets_no_pod(stage: Stage) -> None:
    stage.apply(stating("large", 5, key=ZONE_LABEL, schedulingPolicy={"gang": {}}).build())
    stage.until_reason("large", Reason.UNSATISFIABLE)
    assert hosts(stage) == set()


@of_1_37
def test_a_gang_job_starts_with_as_few_pods_as_it_says(stage: Stage) -> None:
    fills = make_job("first").indexed(6).cpu("4").pod_annotation(RUN_SECONDS, "forever")
    stage.apply(fills.annotation(names.DURATION_ANNOTATION, "10h").build())
    stage.until_state("first", State.RUNNING)
    some = stating("some", 4, schedulingPolicy={"gang": {"minCount": 2}})
    stage.apply(some.annotation(names.DURATION_ANNOTATION, "10m").build())
    stage.until_state("some", State.RUNNING)
    assert len(hosts(stage)) == stage.job("some").spec.parallelism == 2
    stage.kubectl("delete", "job", "first", "--timeout=60s")
    stage.until("it has grown", lambda: len(hosts(stage)) == 4 and "" not in hosts(stage))


@of_1_37
def test_a_job_shares_its_claims_and_keeps_them_while_it_is_suspended(stage: Stage) -> None:
    give_devices(stage)
    mesh = stating("mesh", 3, cpu="1", resourceClaims=resource_claims("both"))
    stage.apply(mesh.with_("spec.template.spec.resourceClaims", resource_claims("both")).build())
    stage.until_state("mesh", State.RUNNING)
    before = hosts(stage)
    assert (len(before), devices_of_claims(stage)) == (1, [2])
    made = [group["metadata"]["uid"] for group in groups(stage)]
    suspend(stage, "mesh")
    resume(stage, "mesh")
    stage.until("it runs again", lambda: len(stage.items("pods", Pod)) == 3 and hosts(stage) == before)
    assert [group["metadata"]["uid"] for group in groups(stage)] == made

    def requeues() -> int:
        """How often by the FluxJob, which shows that it runs again somewhat later than its pods."""
        again = stage.until_state("mesh", State.RUNNING).fluxjob
        return again.status.requeues if again is not None else 0

    stage.until("the FluxJob shows that its user requeued it", lambda: requeues() > 0)
    stage.until_consistent()
    assert requeues() == 1, "the scheduler refused no pin"


def create_composite(stage: Stage, name: str, *, least: int, key: str = "") -> None:
    constraints: Json = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": least}},
            "workloadRef": {"workloadName": "tree", "templateName": name},
            **constraints,
        },
    }
    path = f"/apis/scheduling.k8s.io/v1alpha3/namespaces/{stage.namespace}/compositepodgroups"
    stage.cluster.control_plane.client.request("POST", path, body)


def create_part(stage: Stage, name: str, pods: int) -> None:
    """Create a PodGroup of a tree, and its pods."""
    template = {"workloadName": "tree", "templateName": name}
    create_group(stage, name, least=pods, parentCompositePodGroupName="tree", workloadRef=template)
    create_pods(stage, name, pods)


@of_1_37
def test_a_tree_of_groups_starts_as_one_gang(stage: Stage) -> None:
    stage.apply(make_job("first").indexed(3).cpu("4").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("first", State.RUNNING)
    create_part(stage, "small", 2)

    def tree(text: str) -> bool:
        jobs = [job for job in stage.fluxjobs() if job.spec.object_ref.kind == "CompositePodGroup"]
        return bool(jobs) and text in jobs[0].status.message

    stage.until("it waits for its parent", lambda: tree("waits for CompositePodGroup"))
    create_composite(stage, "tree", least=2)
    stage.until("it waits for the other group", lambda: tree("has 1 of 2 groups"))
    create_part(stage, "large", 4)
    stage.until("it waits for room for all", lambda: not tree("groups") and not tree("has 2 of 6 pods"))
    stage.until_consistent()
    assert hosts(stage) == {""}, "two of six pods would fit"
    stage.kubectl("delete", "job", "first", "--timeout=60s")
    stage.until("all its pods run", lambda: len(hosts(stage)) == 6 and "" not in hosts(stage))
    (job,) = [job for job in stage.fluxjobs() if job.spec.object_ref.kind == "CompositePodGroup"]
    assert job.status.requeues == 0, "the scheduler refused nothing"
    stage.until_consistent()


@of_1_37
def test_a_tree_starts_in_one_zone_and_later_groups_follow_it_there(stage: Stage) -> None:
    stage.apply(make_job("first").indexed(2).cpu("4").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("first", State.RUNNING)
    create_composite(stage, "tree", least=2, key=ZONE_LABEL)
    create_part(stage, "a", 1)
    create_part(stage, "b", 2)
    create_part(stage, "c", 1)
    stage.until(
        "all run in one zone",
        lambda: "" not in hosts(stage) and len(hosts(stage)) == 4,
        said=lambda: [(job.spec.object_ref.name, job.status.message) for job in stage.fluxjobs()],
    )
    assert hosts(stage) == SECOND
    assert all(job.status.requeues == 0 for job in stage.fluxjobs()), "the scheduler refused nothing"
    stage.until_consistent()


def bare(body: Json) -> Json:
    """Return an object as one creates it."""
    return {**body, "metadata": {"name": body["metadata"]["name"]}}
