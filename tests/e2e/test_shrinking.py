"""Each kind that goes on with fewer pods gives some back so that more important work starts, and grows again,
on a real control plane.

STAND-IN: no controllers of KubeRay and of the Training Operator run here. A test creates the pods as they do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.builders import JobBuilder, Json, make_owner, make_pod
from support.crash_suite import crash_environment
from support.end_to_end import Stage, managed_namespace
from support.gang_discovery import until_followed
from support.gang_standins import create, serve
from support.minicluster_stage import apply, delete_all, gone, minicluster, nodes_of, seen, until_state
from support.preempting_queue import FOREVER, RUN_SECONDS, PreemptingQueue

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.queue.crashpoints import VARIABLE, CrashPoint

RAY_CLUSTERS, PYTORCH_JOBS = "rayclusters.ray.io", "pytorchjobs.kubeflow.org"


class Queue(PreemptingQueue):
    """The queue, whose work says that it runs for an hour."""

    def job(self, name: str, nodes: int, priority: int = 0, seconds: str = FOREVER) -> JobBuilder:
        return super().job(name, nodes, priority, seconds).annotation(names.DURATION_ANNOTATION, "1h")

    def moldable(self, least: int = 4) -> JobBuilder:
        return self.job("moldable", 8).annotation(names.MIN_PODS_ANNOTATION, str(least))

    def replicated(self, name: str, replicas: int, least: str, kind: str = "Deployment", **spec: Any) -> Json:
        owner = make_owner(kind, name, replicas, **spec)
        template = owner["spec"]["template"]["metadata"]
        template["labels"][names.QUEUE_LABEL] = self.name
        template["annotations"] = {RUN_SECONDS: FOREVER, names.MIN_PODS_ANNOTATION: least}
        return owner


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """A cluster in which the queue can be killed between two effects."""
    values = {
        "queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 10}},
        "gangs": {"resources": [RAY_CLUSTERS, PYTORCH_JOBS]},
    }
    options = ClusterOptions(durable=False, values=values)
    made = InProcessCluster(
        service_folder / "shrinking", options, extra_environment=crash_environment(service_folder)
    )
    made.start()
    serve(made, RAY_CLUSTERS, "v1", "RayCluster")
    serve(made, PYTORCH_JOBS, "v1", "PyTorchJob")
    until_followed(made, [RAY_CLUSTERS, PYTORCH_JOBS])
    yield made
    made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as made:
        yield made


@pytest.fixture
def queue(stage: Stage) -> Iterator[Queue]:
    made = Queue(stage)
    made.grants()
    yield made
    delete_all(stage)
    stage.kubectl(
        "delete", "rayclusters,pytorchjobs,statefulsets,pods", "--all", "--timeout=60s", check=False
    )
    stage.kubectl("delete", "fluxqueue", made.name)


def pods_of(stage: Stage, name: str = "moldable") -> dict[str, Pod]:
    """The pods of a Job that have not ended, by uid."""
    uid = stage.job(name).metadata.uid
    owned = [
        pod for pod in stage.items("pods", Pod) if (owner := pod.metadata.controller) and owner.uid == uid
    ]
    return {pod.metadata.uid: pod for pod in owned if pod.active}


def running(stage: Stage, name: str = "moldable") -> dict[str, Pod]:
    return {uid: pod for uid, pod in pods_of(stage, name).items() if pod.status.phase == "Running"}


def until_running(stage: Stage, pods: int) -> dict[str, Pod]:
    return stage.until(
        f"{pods} pods run",
        lambda: found if len(found := running(stage)) == len(pods_of(stage)) == pods else {},
    )


def told(stage: Stage) -> set[str]:
    """The pods that are to end after their grace (uid)."""
    return {
        uid for uid, pod in running(stage).items() if pod.metadata.annotation(names.PREEMPT_AT_ANNOTATION)
    }


def all_run(stage: Stage, queue: Queue) -> dict[str, Pod]:
    """Start the moldable Job on all eight nodes."""
    stage.apply(queue.moldable().build())
    stage.until_state("moldable", State.RUNNING)
    return until_running(stage, 8)


def goes_on_with_five(stage: Stage, before: dict[str, Pod]) -> None:
    """Judge that three pods were given back, and that the others did not notice."""
    stage.until("pods that find no node are given up", lambda: stage.job("moldable").spec.parallelism == 5)
    left = until_running(stage, 5)
    assert left.keys() < before.keys(), "no pod was restarted"
    moldable = stage.job("moldable")
    assert (moldable.spec.completions, moldable.status.failed) == (8, 0)
    assert stage.row("moldable").state == State.RUNNING
    stage.until_consistent()


def test_a_job_gives_pods_back_goes_on_and_grows_again(stage: Stage, queue: Queue) -> None:
    before = all_run(stage, queue)
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    goes_on_with_five(stage, before)
    events = json.loads(stage.kubectl("get", "events", "-o", "json").stdout)["items"]
    said = {
        each["message"]
        for each in events
        if each["reason"] == "Shrunk" and each["involvedObject"]["name"] == "moldable"
    }
    form = (
        rf"Job {stage.namespace}/moldable \(priority 0\) gave 3 of its 8 pods back at \S+Z, "
        r"\d+ node-(seconds|minutes) lost, "
        rf"so that Job {stage.namespace}/urgent \(priority 10\) starts: it went on with 5"
    )
    assert any(re.fullmatch(form, each) for each in said), said
    stage.succeed("urgent")
    until_running(stage, 8)
    stage.until_consistent()
    for pod in pods_of(stage).values():
        stage.end_pod(pod.metadata.name)
    ended = stage.until_state("moldable", State.COMPLETED).fluxjob
    assert ended is not None
    assert ended.status.outcome == Outcome.SUCCEEDED
    assert stage.job("moldable").status.failed == 0


def test_a_leader_that_is_killed_in_the_grace_ends_the_same_pods(stage: Stage, queue: Queue) -> None:
    queue.grants(graceSeconds=8)
    before = all_run(stage, queue)
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until("the pods are chosen", lambda: "Shrunk" in stage.kubectl("get", "events").stdout)
    assert len(running(stage)) == 8, "the grace is not over"
    stage.kill("queue")
    stage.until_ready("queue")
    stage.until_state("urgent", State.RUNNING)
    goes_on_with_five(stage, before)


@pytest.mark.parametrize("point", [CrashPoint.GIVEN_BACK, CrashPoint.POD_ENDED])
def test_a_queue_that_is_killed_between_two_effects_ends_the_same_pods(
    stage: Stage, queue: Queue, service_folder: Path, point: CrashPoint
) -> None:
    before = all_run(stage, queue)
    armed = Path(crash_environment(service_folder)[VARIABLE])
    armed.write_text(f"{point} 1")
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    assert not armed.exists(), "the queue was killed at the point"
    goes_on_with_five(stage, before)


@pytest.mark.parametrize("crash", [False, True])
def test_all_pods_go_on_if_the_other_is_deleted_in_the_grace(
    stage: Stage, queue: Queue, service_folder: Path, *, crash: bool
) -> None:
    queue.grants(graceSeconds=600)
    before = all_run(stage, queue)
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until("the pods are told", lambda: len(told(stage)) == 3)
    armed = Path(crash_environment(service_folder)[VARIABLE])
    if crash:
        armed.write_text(f"{CrashPoint.PREEMPTION_WITHDRAWN} 1")
    stage.kubectl("delete", "job", "urgent")
    stage.until("no pod is told any more", lambda: not told(stage), 60)
    assert not armed.exists(), "the queue was killed at the point"
    assert running(stage).keys() == before.keys()
    stage.until(
        "an Event says so",
        lambda: "PreemptionWithdrawn" in stage.kubectl("get", "events").stdout,
    )
    assert "Gave back" not in stage.plugin("explain", "job/moldable").stdout
    stage.until_consistent()


def test_a_job_at_its_least_is_evicted_as_a_whole(stage: Stage, queue: Queue) -> None:
    all_run(stage, queue)
    stage.apply(queue.job("urgent", 5, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    stage.until_consistent()
    stage.until(
        "it waits again",
        lambda: (found := stage.row("moldable").fluxjob) is not None and found.status.requeues == 1,
    )


def replicas(stage: Stage, app: str = "web") -> dict[str, Pod]:
    """The pods of a Deployment that run, by uid."""
    pods = [pod for pod in stage.items("pods", Pod) if pod.metadata.label("app") == app and pod.active]
    return {pod.metadata.uid: pod for pod in pods if pod.status.phase == "Running"}


def until_replicas(stage: Stage, count: int) -> dict[str, Pod]:
    return stage.until(
        f"{count} replicas run", lambda: found if len(found := replicas(stage)) == count else {}
    )


def test_a_deployment_gives_pods_above_its_floor_back_and_grows_again(stage: Stage, queue: Queue) -> None:
    queue.grants(graceSeconds=6)
    stage.apply(queue.replicated("web", 5, "3"))
    before = until_replicas(stage, 5)
    stage.apply(queue.job("rigid", 3).build())
    stage.until_state("rigid", State.RUNNING)
    rigid = running(stage, "rigid").keys()
    stage.apply(queue.job("urgent", 2, priority=10).build())
    form = (
        rf"Deployment {stage.namespace}/web \(priority 0\) gave 2 of its 5 pods back at \S+Z, "
        r"with a grace until \S+Z, \d+ node-(seconds|minutes) lost, "
        rf"so that Job {stage.namespace}/urgent \(priority 10\) starts: it went on with 3"
    )
    told = stage.until(
        "two pods are told",
        lambda: [
            pod for pod in replicas(stage).values() if pod.metadata.annotation(names.PREEMPT_AT_ANNOTATION)
        ],
    )
    waits = f"it waits for 2 pods of Deployment {stage.namespace}/web to end, since "
    stage.until("the Job says for what it waits", lambda: waits in explained(stage, "job/urgent"))
    stage.until(
        "a pod says for what it ends",
        lambda: (
            "web (priority 0) gave 2 of its 5 pods back" in explained(stage, f"pod/{told[0].metadata.name}")
        ),
    )
    stage.until_state("urgent", State.RUNNING)
    left = until_replicas(stage, 3)
    assert left.keys() < before.keys(), "no pod was restarted"
    assert running(stage, "rigid").keys() == rigid, "the younger rigid Job goes on"
    ended = stage.until("both pods have ended", lambda: found if len(found := ended_pods(stage)) == 2 else [])
    assert all(re.fullmatch(form, each) for each in ended), ended
    stage.until_consistent()
    stage.succeed("urgent")
    assert left.keys() < until_replicas(stage, 5).keys()
    stage.until_consistent()


def ended_pods(stage: Stage) -> list[str]:
    """What history says of pods that have ended."""
    of_pods = "WHERE kind = 'Pod' AND namespace = %(namespace)s AND finished_at IS NOT NULL"
    query = (
        f"SELECT message FROM fluxqueue.workload {of_pods} "
        f"UNION ALL SELECT message FROM fluxqueue.history {of_pods}"
    )
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        found = connection.execute(query.encode(), {"namespace": stage.namespace}).fetchall()
    return [str(message) for (message,) in found]


def explained(stage: Stage, name: str) -> str:
    return " ".join(stage.plugin("explain", name).stdout.split())


def test_a_floor_that_is_no_number_keeps_pods_waiting_with_one_sentence(stage: Stage, queue: Queue) -> None:
    stage.apply(queue.replicated("web", 1, "half"))
    sentence = (
        "annotation fluxqueue/min-pods: 'half' is not a number of its pods: write a whole number from 1"
    )
    stage.until(
        "its pod says why it waits",
        lambda: any(sentence in each.status.message for each in stage.fluxjobs()),
    )


def test_a_statefulset_gives_its_highest_ordinals_back_and_grows_again(stage: Stage, queue: Queue) -> None:
    stage.apply(queue.replicated("db", 4, "2", "StatefulSet", podManagementPolicy="Parallel"))
    stage.until("four replicas run", lambda: len(replicas(stage, "db")) == 4)
    stage.apply(queue.job("rigid", 4, priority=10).build())
    stage.until_state("rigid", State.RUNNING)
    stage.apply(queue.job("urgent", 2, priority=10).build())
    stage.until_state("urgent", State.RUNNING)

    def running_names() -> list[str]:
        return sorted(pod.metadata.name for pod in replicas(stage, "db").values())

    stage.until("the lowest ordinals go on", lambda: running_names() == ["db-0", "db-1"])
    said = f"StatefulSet {stage.namespace}/db (priority 0) gave 2 of its 4 pods back at "
    assert len([each for each in ended_pods(stage) if each.startswith(said)]) == 2
    stage.until_consistent()
    stage.succeed("urgent")
    stage.until("all run again", lambda: running_names() == ["db-0", "db-1", "db-2", "db-3"])
    stage.until_consistent()


@pytest.mark.parametrize("point", [None, CrashPoint.GIVEN_BACK, CrashPoint.POD_ENDED])
def test_a_minicluster_gives_its_highest_ranks_back_and_grows_again(
    stage: Stage, queue: Queue, service_folder: Path, point: CrashPoint | None
) -> None:
    made = minicluster("flux", 4, cpu="7", queue=queue.name, minSize=2, duration="1h")
    apply(stage, made)
    until_state(stage, "flux", "Running")
    stage.until("all brokers are online", lambda: seen(stage, "flux").status.brokers == "4/4")
    before = nodes_of(stage, "flux")
    stage.apply(queue.job("rigid", 4, priority=10).build())
    stage.until_state("rigid", State.RUNNING)
    armed = Path(crash_environment(service_folder)[VARIABLE])
    if point is not None:
        armed.write_text(f"{point} 1")
    stage.apply(queue.job("urgent", 2, priority=10).build())
    urgent = stage.until_state("urgent", State.RUNNING)
    assert not armed.exists(), "the queue was killed at the point"
    assert sorted(urgent.hosts) == sorted(before[2:])
    stage.until("two go on", lambda: seen(stage, "flux").status.brokers == "2/4")
    assert nodes_of(stage, "flux")[:2] == before[:2]
    assert seen(stage, "flux").spec.size == 4, "nothing is written to it"
    stage.until_consistent()
    stage.succeed("urgent")
    stage.until("all are online again", lambda: seen(stage, "flux").status.brokers == "4/4")
    assert nodes_of(stage, "flux")[:2] == before[:2]
    assert not stage.job("flux").status.failed
    stage.until_consistent()
    gone(stage, "flux")


def owner_of(stage: Stage, thing: Json) -> Json:
    """Apply the object of another project; return the reference of its pods to it."""
    stored = json.loads(stage.kubectl("apply", "-f", "-", "-o", "json", stdin=json.dumps(thing)).stdout)
    meta = {key: stored["metadata"][key] for key in ("name", "uid")}
    return {key: stored[key] for key in ("apiVersion", "kind")} | meta | {"controller": True}


def ray_cluster(stage: Stage, queue: Queue, workers: int, least: int) -> tuple[list[Json], Json]:
    """Apply a RayCluster without autoscaler; return its pods, and a worker that its controller adds."""
    group = {"groupName": "big", "replicas": workers, "minReplicas": least, "maxReplicas": 9}
    thing = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray"},
        "spec": {"headGroupSpec": {}, "workerGroupSpecs": [group]},
    }
    owner = owner_of(stage, thing)

    def node(name: str, kind: str, group: str) -> Json:
        made = make_pod(name).cpu("8").label("ray.io/node-type", kind).label("ray.io/group", group)
        made = made.label(names.QUEUE_LABEL, queue.name).annotation(RUN_SECONDS, FOREVER)
        made = made.with_("spec.terminationGracePeriodSeconds", 1)
        return made.with_("metadata.ownerReferences", [owner]).build()

    pods = [node(f"ray-{number}", "worker", "big") for number in range(workers)]
    return [node("ray-head", "head", "headgroup"), *pods], node("ray-new", "worker", "big")


def test_a_raycluster_gives_workers_back_and_grows_again(stage: Stage, queue: Queue) -> None:
    pods, added = ray_cluster(stage, queue, 3, 1)
    create(stage, *pods)

    def ray_pods(phase: str = "Running") -> set[str]:
        found = [pod for pod in stage.items("pods", Pod) if pod.metadata.label("ray.io/node-type")]
        return {pod.metadata.name for pod in found if pod.active and pod.status.phase == phase}

    stage.until("all of it runs", lambda: len(ray_pods()) == 4)
    stage.apply(queue.job("rigid", 4, priority=10).build())
    stage.until_state("rigid", State.RUNNING)
    stage.apply(queue.job("urgent", 1, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    stage.until("three pods go on", lambda: len(ray_pods()) == 3)
    assert "ray-head" in ray_pods()
    said = f"RayCluster {stage.namespace}/ray (priority 0) gave 1 of its 3 pods back at "
    assert said in stage.kubectl("get", "events").stdout
    stage.until_consistent()
    create(stage, added)

    def waits() -> bool:
        found = (each for each in stage.fluxjobs() if each.spec.object_ref.kind == "Pod")
        return any(each.status.reason == Reason.WAITING_FOR_NODES for each in found)

    stage.until("what is created instead waits", waits)
    assert ray_pods("Pending") == {"ray-new"}
    stage.succeed("urgent")
    stage.until("it grew again", lambda: len(ray_pods()) == 4)
    stage.until_consistent()


def elastic_workers(stage: Stage, queue: Queue, workers: int, least: int) -> list[Json]:
    """Apply an elastic PyTorchJob; return its workers as its controller creates them."""
    thing = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {
            "elasticPolicy": {"minReplicas": least, "maxReplicas": workers},
            "pytorchReplicaSpecs": {"Worker": {"replicas": workers, "restartPolicy": "OnFailure"}},
        },
    }
    owner = owner_of(stage, thing)

    def worker(index: int) -> Json:
        made = make_pod(f"train-worker-{index}").cpu("8")
        for name, value in (("name", "train"), ("type", "worker"), ("index", str(index))):
            made = made.label(f"training.kubeflow.org/{'job' if name == 'name' else 'replica'}-{name}", value)
        made = made.label(names.QUEUE_LABEL, queue.name).annotation(RUN_SECONDS, FOREVER)
        made = made.with_("spec.terminationGracePeriodSeconds", 1)
        return made.with_("metadata.ownerReferences", [owner]).build()

    return [worker(index) for index in range(workers)]


def test_an_elastic_pytorchjob_gives_workers_back_and_grows_again(stage: Stage, queue: Queue) -> None:
    workers = elastic_workers(stage, queue, 4, 2)
    create(stage, *workers)

    def indexes(phase: str = "Running") -> set[int]:
        found = [pod for pod in stage.items("pods", Pod) if pod.active and pod.status.phase == phase]
        ours = [pod.metadata.label("training.kubeflow.org/replica-index") for pod in found]
        return {int(index) for index in ours if index is not None}

    stage.until("all of it runs", lambda: len(indexes()) == 4)
    stage.apply(queue.job("rigid", 4, priority=10).build())
    stage.until_state("rigid", State.RUNNING)
    stage.apply(queue.job("urgent", 2, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    left = stage.until("two workers go on", lambda: found if len(found := indexes()) == 2 else set())
    assert 0 in left, "the others meet at the first worker"
    said = f"PyTorchJob {stage.namespace}/train (priority 0) gave 2 of its 4 pods back at "
    stage.until("an Event says so", lambda: said in stage.kubectl("get", "events").stdout)
    owner = json.loads(stage.kubectl("get", "pytorchjob", "train", "-o", "json").stdout)
    assert "runPolicy" not in owner["spec"], "it is not suspended"
    assert owner["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4
    stage.until_consistent()
    create(stage, *(workers[index] for index in {0, 1, 2, 3} - left))
    stage.until("what is created instead waits", lambda: len(indexes("Pending")) == 2)
    stage.succeed("urgent")
    stage.until("it grew again", lambda: len(indexes()) == 4)
    stage.until_consistent()
