"""Gangs whose owner can be suspended are preempted through that, and their owner is resumed, also if the
queue is killed in between.

STAND-INS: no controller of these projects runs here. The tests do what it does when its object is suspended
and resumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builders import make_job
from support.crash_suite import crash_environment
from support.end_to_end import Stage, managed_namespace
from support.gang_discovery import until_followed
from support.gang_standins import RUN_SECONDS, create, jobset_jobs, serve, training

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import NAMESPACE, InProcessCluster
from fluxqueue.queue.crashpoints import VARIABLE, CrashPoint

QUEUE = f"system:serviceaccount:{NAMESPACE}:fluxqueue-queue"
KINDS = {"jobsets.jobset.x-k8s.io": ("v1alpha2", "JobSet"), "pytorchjobs.kubeflow.org": ("v1", "PyTorchJob")}


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    values = {
        "queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 10}},
        "gangs": {"resources": sorted(KINDS)},
    }
    options = ClusterOptions(nodes=4, node_cpu="4", durable=False, values=values)
    cluster = InProcessCluster(
        service_folder / "owners", options, extra_environment=crash_environment(service_folder)
    )
    cluster.start()
    for name, (version, kind) in KINDS.items():
        serve(cluster, name, version, kind)
    until_followed(cluster, ["pytorchjobs.kubeflow.org"])
    cluster.kubectl(
        "patch", "fluxqueue", "default", "--type=merge", "-p", '{"spec":{"preemption":"lowerPriority"}}'
    )
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage
        stage.kubectl("delete", "jobsets,pytorchjobs,jobs,pods", "--all", "--timeout=60s", check=False)


def until_running(stage: Stage, kind: str) -> FluxJob:
    def running() -> FluxJob | None:
        found = next((each for each in stage.fluxjobs() if each.spec.object_ref.kind == kind), None)
        return found if found is not None and found.status.state == State.RUNNING else None

    found = stage.until(f"the {kind} runs", running, said=lambda: [each.status for each in stage.fluxjobs()])
    assert found is not None
    return found


def until_suspended(stage: Stage, owner: str, *policy: str, suspended: bool) -> None:
    def is_so() -> bool:
        found: Any = json.loads(stage.kubectl("get", owner, "-o", "json").stdout)
        marked = names.SUSPENDED_BY_QUEUE_LABEL in found["metadata"].get("labels", {})
        spec = found["spec"]
        for name in policy:
            spec = spec.get(name, {})
        return bool(spec.get("suspend", False) is suspended and marked is suspended)

    stage.until(f"{owner} is {'suspended' if suspended else 'resumed'}", is_so)


def urgent(stage: Stage) -> None:
    """Ask for all nodes with a higher priority."""
    job = (
        make_job("urgent")
        .indexed(4)
        .cpu("4")
        .annotation(names.PRIORITY_ANNOTATION, "50")
        .pod_annotation(RUN_SECONDS, "3")
    )
    stage.apply(job.build())


@pytest.mark.parametrize("point", [None, CrashPoint.OWNER_SUSPENDED, CrashPoint.OWNER_RESUMED])
def test_a_jobset_is_suspended_and_resumed_and_comes_back_as_one(
    stage: Stage, service_folder: Path, point: CrashPoint | None
) -> None:
    jobs = jobset_jobs(stage)
    create(stage, *jobs)
    first = until_running(stage, "JobSet")
    armed = Path(crash_environment(service_folder)[VARIABLE])
    if point is not None:
        armed.write_text(f"{point} 1")
    urgent(stage)
    for suspended in (True, False):
        until_suspended(stage, "jobset/pair", suspended=suspended)
        for job in jobs:
            stage.kubectl(
                "patch", "job", job["metadata"]["name"], "-p", json.dumps({"spec": {"suspend": suspended}})
            )
    stage.until_state("urgent", State.COMPLETED)
    again = until_running(stage, "JobSet")
    assert (again.status.submitted_at, again.status.requeues) == (first.status.submitted_at, 1)
    failures = [
        json.loads(stage.kubectl("get", "job", job["metadata"]["name"], "-o", "json").stdout)["status"].get(
            "failed", 0
        )
        for job in jobs
    ]
    assert failures == [0, 0], "nothing that was preempted counts as a failure"
    assert not armed.exists(), "the queue was killed at the point"
    stage.until_consistent()


def test_a_pytorchjob_is_suspended_and_resumed_and_comes_back_as_one(stage: Stage) -> None:
    pods = training(stage)
    create(stage, *pods)
    first = until_running(stage, "PyTorchJob")
    urgent(stage)
    until_suspended(stage, "pytorchjob/mnist", "runPolicy", suspended=True)
    assert len(stage.items("pods", Pod)) >= 3, "its controller ends its pods, and not the queue"
    stage.kubectl("delete", "pods", *(pod["metadata"]["name"] for pod in pods))
    until_suspended(stage, "pytorchjob/mnist", "runPolicy", suspended=False)
    create(stage, *pods)
    stage.until_state("urgent", State.COMPLETED)
    again = until_running(stage, "PyTorchJob")
    assert (again.status.submitted_at, again.status.requeues) == (first.status.submitted_at, 1)
    stage.until_consistent()


def test_an_owner_that_a_former_queue_left_suspended_is_resumed(stage: Stage) -> None:
    create(stage, *jobset_jobs(stage))
    mark = {"metadata": {"labels": {names.SUSPENDED_BY_QUEUE_LABEL: "999999"}}, "spec": {"suspend": True}}
    stage.kubectl("patch", "jobset", "pair", "--type=merge", "-p", json.dumps(mark))
    stage.kill("queue")
    stage.until_ready("queue")
    until_suspended(stage, "jobset/pair", suspended=False)


MARK = {"metadata": {"labels": {names.SUSPENDED_BY_QUEUE_LABEL: "7"}}}
FIELDS = "suspends and resumes the owners of groups of pods, and changes nothing else of them"
METADATA = (
    "writes the label fluxqueue/suspended-by-queue of owners, and changes nothing else of their metadata"
)
SCOPE = "which is not managed"
OWNER_CHANGES = {
    "suspends a JobSet": ("jobset", {**MARK, "spec": {"suspend": True}}, ""),
    "resumes it": (
        "jobset",
        {"metadata": {"labels": {names.SUSPENDED_BY_QUEUE_LABEL: None}}, "spec": {"suspend": False}},
        "",
    ),
    "suspends a PyTorchJob": ("pytorchjob", {**MARK, "spec": {"runPolicy": {"suspend": True}}}, ""),
    "another field": ("jobset", {"spec": {"network": {"enableDNSHostnames": False}}}, FIELDS),
    "without a field": ("jobset", {"spec": {"replicatedJobs": None}}, FIELDS),
    "another field with it": (
        "pytorchjob",
        {"spec": {"runPolicy": {"suspend": True, "cleanPodPolicy": "All"}}},
        FIELDS,
    ),
    "its pods": ("pytorchjob", {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 9}}}}, FIELDS),
    "another label": ("jobset", {"metadata": {"labels": {"app": "evil"}}}, METADATA),
    "an annotation": ("jobset", {"metadata": {"annotations": {"fluxqueue/evil": ""}}}, METADATA),
    "a finalizer": ("jobset", {"metadata": {"finalizers": ["example.com/stay"]}}, METADATA),
}


@pytest.fixture
def owners(stage: Stage) -> Stage:
    """Have a JobSet and a PyTorchJob without pods."""
    for kind, version, spec in (
        ("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [], "suspend": False}),
        ("PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": {"Master": {"replicas": 1}}}),
    ):
        thing = {"apiVersion": version, "kind": kind, "metadata": {"name": "guarded"}, "spec": spec}
        stage.kubectl("create", "-f", "-", stdin=json.dumps(thing))
    return stage


def as_queue(stage: Stage, kind: str, change: Any) -> Any:
    how = ("--type=merge", "--dry-run=server", "-p", json.dumps(change))
    return stage.kubectl(f"--as={QUEUE}", "patch", kind, "guarded", *how, check=False)


@pytest.mark.parametrize(("kind", "change", "refusal"), OWNER_CHANGES.values(), ids=OWNER_CHANGES)
def test_the_queue_suspends_and_resumes_owners_and_changes_nothing_else(
    owners: Stage, kind: str, change: Any, refusal: str
) -> None:
    answer = as_queue(owners, kind, change)
    assert (answer.returncode != 0) is bool(refusal), answer.stderr
    assert refusal in answer.stderr
    admitted = owners.kubectl(
        "patch", kind, "guarded", "--type=merge", "--dry-run=server", "-p", json.dumps(change), check=False
    )
    assert admitted.returncode == 0, "the policy concerns nobody else"


def test_in_a_namespace_that_is_not_managed_the_queue_resumes_only_what_it_suspended(owners: Stage) -> None:
    owners.kubectl("label", "namespace", owners.namespace, f"{names.MANAGED_LABEL}=false", "--overwrite")
    owners.until(
        "the label counts", lambda: SCOPE in as_queue(owners, "jobset", {"spec": {"suspend": True}}).stderr
    )
    owners.kubectl(
        "patch", "jobset", "guarded", "--type=merge", "-p", json.dumps({**MARK, "spec": {"suspend": True}})
    )
    change = {"metadata": {"labels": {names.SUSPENDED_BY_QUEUE_LABEL: None}}, "spec": {"suspend": False}}
    assert as_queue(owners, "jobset", change).returncode == 0
