"""Gangs as other projects write them: all of their pods start, or none.

STAND-INS: no controller of these projects runs here (`tests/ecosystem` has real ones). The tests apply the
manifests of ``examples/ecosystem`` to CRDs that accept anything, and then create the pods themselves, with
the labels, annotations and owners that the project's controller gives them. Only Kubernetes' own PodGroup is
real: the API server has its alpha API on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builders import Json, make_job
from support.end_to_end import Stage, managed_namespace
from support.gang_discovery import until_followed
from support.gang_standins import (
    ENGINES,
    RUN_SECONDS,
    create,
    endless,
    engine_pods,
    example,
    jobset_jobs,
    leader_and_workers,
    mpi_pods,
    pod_groups,
    ray_nodes,
    serve,
    spark_pods,
    trainer_jobs,
    training,
    wrapped,
)
from support.hostile_gangs import GANG_KINDS, NATIVE_KIND
from support.kubernetes_gates import NATIVE_FLAGS, NATIVE_GATES, NATIVE_VERSION

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

JOBSET_CRD = "jobsets.jobset.x-k8s.io"
SERVED = {name: form for name, form in GANG_KINDS.items() if name != JOBSET_CRD}
UNREAD = {
    JOBSET_CRD: GANG_KINDS[JOBSET_CRD],
    "trainjobs.trainer.kubeflow.org": ("v1alpha1", "TrainJob"),
    "workflows.argoproj.io": ("v1alpha1", "Workflow"),
    "taskruns.tekton.dev": ("v1", "TaskRun"),
    "daskclusters.kubernetes.dask.org": ("v1", "DaskCluster"),
}
"""A JobSet is read without being named in values.
The others are not read: a TrainJob makes a JobSet, and pods of engines are no gang."""
NATIVE = [NATIVE_KIND] if NATIVE_VERSION is not None else []


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """Four nodes of 4 cpu.
    The queue runs before any CRD of another project exists, with the rights to read them.
    """
    read = [*sorted(SERVED), *NATIVE]
    values = {
        "queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 10}},
        "gangs": {"resources": read},
    }
    options = ClusterOptions(
        nodes=4,
        node_cpu="4",
        durable=False,
        values=values,
        feature_gates=NATIVE_GATES,
        api_server_flags=NATIVE_FLAGS,
    )
    cluster = InProcessCluster(service_folder / "ecosystem", options)
    cluster.start()
    for name, (version, kind) in (SERVED | UNREAD).items():
        serve(cluster, name, version, kind)
    until_followed(cluster, read)
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage
        stage.kubectl("delete", "jobsets,jobs,pods", "--all", "--timeout=60s", check=False)


# ---- what the tests look at --------------------------------------------------------------------------------


def gang_of(stage: Stage, kind: str) -> FluxJob | None:
    return next((found for found in stage.fluxjobs() if found.spec.object_ref.kind == kind), None)


def until_gang(stage: Stage, kind: str, *, state: str = "", reason: str = "") -> FluxJob:
    def reached() -> FluxJob | None:
        found = gang_of(stage, kind)
        fits = (
            found is not None
            and (not state or found.status.state == state)
            and (not reason or found.status.reason == reason)
        )
        return found if fits else None

    fluxjob = stage.until(
        f"the {kind} is {state}{reason}", reached, 90, lambda: [one.status for one in stage.fluxjobs()]
    )
    assert fluxjob is not None
    return fluxjob


def nodes_of(stage: Stage) -> dict[str, str | None]:
    return {pod.metadata.name: pod.spec.node_name for pod in stage.items("pods", Pod) if pod.active}


GANGS = [
    pytest.param(
        "PodGroup", pod_groups("podgroup-scheduler-plugins"), id="PodGroup of the scheduler plugins"
    ),
    pytest.param("PodGroup", pod_groups("podgroup-kueue"), id="pod group of Kueue"),
    pytest.param("LeaderWorkerSet", leader_and_workers, id="LeaderWorkerSet"),
    pytest.param("MPIJob", mpi_pods, id="MPIJob"),
    pytest.param("PyTorchJob", training, id="PyTorchJob"),
    pytest.param("RayCluster", ray_nodes, id="RayCluster"),
    pytest.param("PodGroup", pod_groups("podgroup-volcano"), id="PodGroup of Volcano"),
    pytest.param(
        "PodGroup",
        pod_groups("podgroup-kubernetes"),
        id="PodGroup of Kubernetes",
        marks=pytest.mark.skipif(not NATIVE, reason="this version of Kubernetes has no PodGroups"),
    ),
    pytest.param("AppWrapper", wrapped, id="AppWrapper"),
]
JOBSETS = [pytest.param(jobset_jobs, id="JobSet"), pytest.param(trainer_jobs, id="TrainJob")]


@pytest.mark.parametrize(("kind", "make"), GANGS)
def test_a_gang_waits_for_its_last_pod_and_starts_as_one(
    kind: str, make: Callable[[Stage], list[Json]], stage: Stage
) -> None:
    *first, last = make(stage)
    create(stage, *first)
    waiting = until_gang(stage, kind, reason="WaitingForGroup")
    stage.until(
        "it says how many are missing",
        lambda: (found := gang_of(stage, kind)) and f"has {len(first)} of" in found.status.message,
    )
    assert set(nodes_of(stage).values()) == {None}
    assert stage.fluxion_jobs() == []
    create(stage, last)
    running = until_gang(stage, kind, state=State.RUNNING)
    assert running.metadata.uid == waiting.metadata.uid
    assert len(stage.fluxjobs()) == 1, "all its pods are one workload"
    assert len(nodes_of(stage)) == len(first) + 1
    assert None not in nodes_of(stage).values()
    stage.until_consistent()


@pytest.mark.parametrize(("kind", "make"), GANGS)
def test_a_gang_that_does_not_fit_starts_with_none_of_its_pods(
    kind: str, make: Callable[[Stage], list[Json]], stage: Stage
) -> None:
    """Three nodes are full, and one has a single cpu left:
    each pod but the largest would fit, and the gang does not.
    """
    fill_all_but_one_cpu(stage)
    create(stage, *make(stage))
    until_gang(stage, kind, reason="WaitingForNodes")
    assert {node for name, node in nodes_of(stage).items() if not name.startswith(("full", "rest"))} == {None}
    stage.kubectl("delete", "job", "full")
    until_gang(stage, kind, state=State.RUNNING)
    stage.until_consistent()


def fill_all_but_one_cpu(stage: Stage) -> None:
    stage.apply(make_job("full").indexed(3).cpu("4").pod_annotation(RUN_SECONDS, "forever").build())
    stage.apply(make_job("rest").indexed(1).cpu("3").pod_annotation(RUN_SECONDS, "forever").build())
    for name in ("full", "rest"):
        stage.until_state(name, State.RUNNING)


@pytest.mark.parametrize("make", JOBSETS)
def test_the_jobs_of_a_jobset_wait_for_each_other_and_start_as_one(
    make: Callable[[Stage], list[Json]], stage: Stage
) -> None:
    fill_all_but_one_cpu(stage)
    jobs = make(stage)
    create(stage, *jobs)
    pods = sum(job["spec"]["parallelism"] for job in jobs)
    waiting = until_gang(stage, "JobSet", reason="WaitingForNodes")
    assert waiting.spec.pods == pods
    assert {node for name, node in nodes_of(stage).items() if not name.startswith(("full", "rest"))} <= {None}
    stage.kubectl("delete", "job", "full")
    until_gang(stage, "JobSet", state=State.RUNNING)
    started = {name: node for name, node in nodes_of(stage).items() if not name.startswith("rest")}
    assert len(started) == pods
    assert None not in started.values()
    stage.until_consistent()


def test_a_spark_driver_starts_once_its_executors_fit_and_their_room_is_kept(stage: Stage) -> None:
    fill_all_but_one_cpu(stage)
    driver, *executors = spark_pods(stage)
    create(stage, driver)
    waiting = until_gang(stage, "SparkApplication", reason="WaitingForNodes")
    assert waiting.spec.pods == 3
    stage.kubectl("delete", "job", "full")
    until_gang(stage, "SparkApplication", state=State.RUNNING)
    stage.apply(make_job("greedy").indexed(3).cpu("4").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("greedy", "WaitingForNodes")
    create(stage, *executors)
    stage.until(
        "the executors run",
        lambda: all(nodes_of(stage).get(pod["metadata"]["name"]) for pod in executors),
        60,
    )
    assert [one.spec.object_ref.kind for one in stage.fluxjobs()].count("Pod") == 0
    stage.until_consistent()


def test_a_worker_that_the_autoscaler_adds_is_matched_alone(stage: Stage) -> None:
    nodes = ray_nodes(stage)
    create(stage, *nodes)
    until_gang(stage, "RayCluster", state=State.RUNNING)
    added: Any = {**nodes[-1], "metadata": {**nodes[-1]["metadata"], "name": "ray-worker-9"}}
    create(stage, added)
    stage.until(
        "it runs",
        lambda: nodes_of(stage).get("ray-worker-9"),
        60,
        lambda: [one.status for one in stage.fluxjobs()],
    )
    kinds = ["Pod", "RayCluster"]
    stage.until(
        "it has a FluxJob of its own",
        lambda: sorted(one.spec.object_ref.kind for one in stage.fluxjobs()) == kinds,
    )
    stage.until_consistent()


@pytest.mark.parametrize("name", ENGINES)
def test_the_pods_of_a_workflow_engine_are_matched_one_by_one(name: str, stage: Stage) -> None:
    """One cpu is left on one node."""
    fill_all_but_one_cpu(stage)
    pods = engine_pods(stage, name)
    create(stage, *pods)
    own = {pod["metadata"]["name"] for pod in pods}
    stage.until("one of them runs", lambda: sum(nodes_of(stage).get(pod) is not None for pod in own) == 1)
    stage.kubectl("delete", "job", "full")
    stage.until("all of them run", lambda: all(nodes_of(stage).get(pod) for pod in own))
    stage.until(
        "each has its FluxJob",
        lambda: {one.spec.object_ref.name for one in stage.fluxjobs()} == own | {"rest"},
    )
    stage.until_consistent()


def test_the_successor_of_a_failed_replica_gets_its_slot(stage: Stage) -> None:
    replicas = training(stage)
    create(stage, *replicas)
    until_gang(stage, "PyTorchJob", state=State.RUNNING)
    before = nodes_of(stage)
    stage.kubectl("delete", "pod", "mnist-worker-1", "--grace-period=0", "--force")
    stage.until("it is gone", lambda: "mnist-worker-1" not in nodes_of(stage))
    create(stage, replicas[-1])
    stage.until("it is back where it was", lambda: nodes_of(stage) == before, 60, lambda: nodes_of(stage))
    assert len(stage.fluxjobs()) == 1
    stage.until_consistent()


def test_a_pod_group_that_does_not_exist_is_named_and_awaited(stage: Stage) -> None:
    group, *pods = example("podgroup-scheduler-plugins")
    create(stage, *(endless(pod) for pod in pods))
    waiting = until_gang(stage, "PodGroup", reason="WaitingForGroup")
    stage.until(
        "its name is in the message",
        lambda: (found := gang_of(stage, "PodGroup")) and "does not exist" in found.status.message,
    )
    assert waiting.status.state == State.PENDING
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(group))
    until_gang(stage, "PodGroup", state=State.RUNNING)


def test_a_gang_leaves_nothing_behind_when_its_object_is_deleted(stage: Stage) -> None:
    create(stage, *ray_nodes(stage))
    until_gang(stage, "RayCluster", state=State.RUNNING)
    stage.kubectl("delete", "raycluster", "ray", "--wait=true")
    stage.until(
        "all its pods and nodes are free",
        lambda: not nodes_of(stage) and not stage.fluxion_jobs(),
        90,
        stage.fluxion_jobs,
    )
    stage.until_consistent()
