"""`fluxqueue uninstall` while work of all kinds waits and runs, killed on the way, and what a new
installation makes of the rest.

The programs of a local cluster are processes of this machine and have no Deployments, so a thread ends them,
as kubelets do, once the admission policies are gone. The command sees that by the Leases.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.builders import Json, make_job, make_minicluster, make_pod
from support.end_to_end import Stage, managed_namespace

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
FOREVER = (RUN_SECONDS, "forever")
SHORT = (RUN_SECONDS, "1")
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/fluxqueue-jobs"


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """Four nodes of 8 cpu; pods without a scheduler are given to our own one."""
    cluster = InProcessCluster(service_folder / "uninstall", ClusterOptions(nodes=4, scheduler="fluxion"))
    cluster.start()
    yield cluster
    cluster.destroy()


@contextmanager
def kubelet(cluster: InProcessCluster) -> Iterator[None]:
    """End the programs when the policies are gone."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.1):
            if cluster.control_plane.client.find(POLICY) is None:
                for program in cluster.programs.values():
                    program.stop()
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def start_command(cluster: InProcessCluster, *words: str) -> subprocess.Popen[str]:
    program = str(Path(sys.executable).with_name("kubectl-fluxqueue"))
    command = [program, "uninstall", "--yes", *words, "--kubeconfig", str(cluster.kubeconfig)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def uninstall(cluster: InProcessCluster, *words: str) -> str:
    process = start_command(cluster, *words)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, out + error
    return out


def uninstall_killed(cluster: InProcessCluster, *words: str) -> None:
    """Run the command again and again, and kill it later each time, until it has ended by itself."""
    delay_s = 1.0
    while True:
        process = start_command(cluster, *words)
        try:
            out, error = process.communicate(timeout=delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            delay_s *= 2
            assert delay_s < 100
        else:
            assert process.returncode == 0, out + error
            return


def minicluster(name: str, cpu: str) -> Json:
    made = make_minicluster(name, 2, pod={"annotations": dict([FOREVER])})
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return made


def deployment(name: str, replicas: int, cpu: str) -> Json:
    pod = make_pod().cpu(cpu).annotation(*FOREVER).build()
    template = {
        "metadata": {"labels": {"app": name}, "annotations": dict([FOREVER])},
        "spec": {**pod["spec"], "restartPolicy": "Always"},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def apply_work(stage: Stage) -> None:
    """Fill the four nodes, then let one of each kind wait."""
    stage.apply(
        make_job("gang").indexed(3).cpu("8").pod_annotation(*FOREVER).build(),
        make_job("many").pods(1, 3).cpu("4").pod_annotation(*FOREVER).build(),
        deployment("web", 2, "2"),
    )
    for name in ("gang", "many", "web"):
        stage.until_state(name, State.RUNNING)
    stage.apply(
        make_job("waits").indexed(2).cpu("6").pod_annotation(*SHORT).build(),
        make_job("user-suspended").suspended().cpu("1").build(),
        make_pod("pod-waits").cpu("7").label(names.SCHEDULER_LABEL, "stock").annotation(*SHORT).build(),
        make_pod("pod-of-ours").cpu("7").annotation(*SHORT).build(),
        *(
            make_pod(f"member-{number}")
            .cpu("7")
            .label(names.SCHEDULER_LABEL, "stock")
            .label(names.POD_GROUP_LABEL, "pair")
            .annotation(names.POD_GROUP_SIZE_ANNOTATION, "2")
            .annotation(*SHORT)
            .build()
            for number in range(2)
        ),
        deployment("web-waits", 1, "7"),
    )
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(minicluster("flux-waits", "7")))
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(_cron_job()))
    stage.kubectl("create", "job", "cron-waits", "--from=cronjob/cron")
    stage.until(
        "everything waits",
        lambda: len(stage.fluxjobs()) >= 12,
        30,
        lambda: [job.spec.object_ref for job in stage.fluxjobs()],
    )


def _cron_job() -> Json:
    job = make_job("cron").indexed(2).cpu("7").pod_annotation(*SHORT).build()
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"}, "spec": spec}


def running(stage: Stage) -> dict[str, str]:
    """Return the node of each pod that runs and never ends, by uid."""
    return {
        pod.metadata.uid: pod.spec.node_name or ""
        for pod in stage.items("pods", Pod)
        if pod.status.phase == "Running" and pod.metadata.name.startswith(("gang-", "web-"))
    }


def held(stage: Stage) -> list[str]:
    """Return what nothing would start: suspended Jobs, gated pods, and pods of our scheduler."""
    jobs = stage.cluster.control_plane.client.get(f"/apis/batch/v1/namespaces/{stage.namespace}/jobs")[
        "items"
    ]
    return [
        *(job["metadata"]["name"] for job in jobs if job["spec"].get("suspend")),
        *(
            pod.metadata.name
            for pod in stage.items("pods", Pod)
            if pod.active and not pod.spec.node_name and (pod.spec.gated_by(names.GATE) or pod.fluxion_binds)
        ),
    ]


def follow_later_pods(stage: Stage) -> None:
    """End one pod of ``many`` after the other; the command ungates each next one, and ends with the Job."""

    def end_pods() -> bool:
        for pod in stage.items("pods", Pod):
            if pod.metadata.name.startswith("many-") and pod.status.phase == "Running":
                stage.end_pod(pod.metadata.name)
        return stage.job("many").status.has_condition("Complete")

    process = start_command(stage.cluster, "--release-held", "--wait", "5m")
    stage.until("all pods of many have run", end_pods, 120)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, out + error
    assert "cannot change" not in out


def test_released_work_runs_without_us_and_a_new_installation_leaves_it_alone(
    cluster: InProcessCluster,
) -> None:
    with managed_namespace(cluster) as stage:
        apply_work(stage)
        before = running(stage)
        with kubelet(cluster):
            uninstall_killed(cluster, "--release-held")
            said = uninstall(cluster, "--release-held")
        assert (
            f"(Job {stage.namespace}/gang, Job {stage.namespace}/many): "
            "a running Job's pod template cannot change"
        ) in said, said
        assert "pod-of-ours asks for FluxionScheduler, which cannot be changed" in said, said
        assert sorted(held(stage)) == ["pod-of-ours", "user-suspended"]
        assert running(stage).items() >= before.items()
        assert [fluxjob.spec.object_ref.name for fluxjob in stage.fluxjobs()] == ["pod-of-ours"]
        stage.kubectl("delete", "job", "gang")
        follow_later_pods(stage)
        for name in ("waits", "many", "cron-waits"):
            stage.kubectl("wait", "--for=condition=Complete", f"job/{name}", "--timeout=90s")
        stage.kubectl(
            "wait",
            "--for=jsonpath={.status.phase}=Succeeded",
            "pod/pod-waits",
            "pod/member-0",
            "pod/member-1",
            "--timeout=90s",
        )
        stage.kubectl("rollout", "status", "deployment/web-waits", "--timeout=60s")
        stage.kubectl("delete", "pod", "pod-of-ours")
        cluster.stop()
        cluster.start()
        stage.apply(make_job("new").indexed(1).cpu("1").pod_annotation(*SHORT).build())
        stage.until_state("new", State.COMPLETED)
        stage.until_consistent()
        stage.kubectl("delete", "minicluster", "--all", "--wait=true", "--timeout=60s")
        stage.kubectl("delete", "cronjob", "cron")


def test_kept_work_waits_for_a_new_installation_which_queues_it_again(cluster: InProcessCluster) -> None:
    with managed_namespace(cluster) as stage:
        stage.apply(make_job("gang").indexed(4).cpu("8").pod_annotation(*FOREVER).build())
        stage.until_state("gang", State.RUNNING)
        stage.apply(
            make_job("waits").indexed(2).cpu("6").pod_annotation(*SHORT).build(),
            make_pod("pod-waits").cpu("6").annotation(*SHORT).build(),
        )
        stage.until("both wait", lambda: len(stage.fluxjobs()) == 3)
        assert stage.plugin("prioritize", "waits", "5").returncode == 0
        with kubelet(cluster):
            said = uninstall(cluster, "--keep-held")
        assert (
            f"Kept 1 Job (Job {stage.namespace}/waits) and 1 other pod (Pod {stage.namespace}/pod-waits)"
            in said
        )
        assert sorted(held(stage)) == ["pod-waits", "waits"]
        cluster.stop()
        cluster.start()
        stage.until("what was kept waits again", lambda: len(stage.fluxjobs()) == 3)
        stage.until_state("gang", State.RUNNING)
        waits = stage.until_state("waits", State.PENDING).fluxjob
        assert waits is not None
        assert waits.spec.priority == 5
        stage.succeed("gang")
        for name in ("waits", "pod-waits"):
            stage.until_state(name, State.COMPLETED, 60)
        stage.until_consistent()
