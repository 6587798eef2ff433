"""Every right of the chart's roles has a caller, and no program misses one.

One cluster does all that needs a right: kinds of work, MiniClusters, JobSets, requests to an autoscaler,
claims, a damaged certificate. The programs run under their own ServiceAccounts, and the API server's audit
log shows what each of them has sent. A right that nobody used fails the test: remove it from the role. So
does a request that was refused: add its right, with its reason, or remove the call.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builders import (
    Json,
    make_account,
    make_job,
    make_minicluster,
    make_owner,
    make_pod,
    make_queue,
    make_reservation,
)
from support.end_to_end import Stage, managed_namespace
from support.kubernetes_gates import OLDER_GATES
from support.rights import Right, granted, refused, used

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import NAMESPACE, InProcessCluster
from fluxqueue.local.operator_requests import OperatorRefused

RUN_SECONDS = "fluxqueue.local/run-seconds"
LARGER: Json = {
    "name": "larger",
    "allocatable": {"cpu": "64", "memory": "64Gi"},
    "labels": {"pool": "larger"},
    "maxNodes": 2,
}
QUEUE = "fluxqueue-queue"

ASKED = {Right("fluxqueue-history", "list", "jobs.converged-computing.org", "fluxjobs")}
"""Rights of accounts that no program uses: the queue asks whether their tokens have them."""
RARE = {
    Right(
        QUEUE, "get", "jobs.converged-computing.org", "fluxjobs"
    ): "a FluxJob was created by the former leader in the last moment",
    Right(
        QUEUE, "patch", "jobs.converged-computing.org", "fluxjobs/status"
    ): "the CRD is older than the queue",
    Right(
        QUEUE, "update", "batch", "jobs/finalizers"
    ): "OwnerReferencesPermissionEnforcement asks for it, and no request is made",
    Right(
        QUEUE, "update", "flux-framework.org", "miniclusters/finalizers"
    ): "the same, where a MiniCluster owns the object",
    Right(
        QUEUE, "watch", "coordination.k8s.io", "leases"
    ): "another replica holds the Lease: one that is free is acquired before",
    Right(
        QUEUE, "watch", "resource.k8s.io", "devicetaintrules"
    ): "the cluster serves them, in 1.36 behind a feature gate",
    Right(
        "fluxqueue-scheduler", "patch", "", "events"
    ): "the same refusal of the same pod repeats, and its Event is counted",
}
"""Rights that this test does not bring about, with what uses them; unit tests do."""


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    soon = {"pinWindowSeconds": 1, "successorGraceSeconds": 10, "nodeShapes": [LARGER]}
    values = {"queue": {"config": soon, "host": "0.0.0.0"}, "reservations": {"enabled": True}}
    options = ClusterOptions(
        nodes=6, durable=False, audit=True, scheduler="fluxion", feature_gates=OLDER_GATES, values=values
    )
    cluster = InProcessCluster(service_folder / "rights", options)
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage
        stage.kubectl(
            "delete",
            "minicluster,jobs,deployments,statefulsets,pods,pvc",
            "--all",
            "--timeout=60s",
            check=False,
        )


def test_every_right_is_used_and_none_is_missed(stage: Stage) -> None:
    cluster = stage.cluster
    for group, kind, plural in (
        ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
        ("autoscaling.x-k8s.io/v1", "ProvisioningRequest", "provisioningrequests"),
    ):
        serve(stage, group, kind, plural)
    preempted(stage)
    jobs_and_pods(stage)
    owners(stage)
    miniclusters(stage)
    requests_for_nodes(stage)
    claims(stage)
    a_node_taken_before_the_bind(stage)
    maintenance(stage)
    certificates(stage)

    def unused() -> list[str]:
        return sorted(map(str, granted(cluster.control_plane.client) - used(cluster) - RARE.keys() - ASKED))

    try:
        stage.until("every right is used", lambda: not unused(), 90, unused)
    finally:
        assert sorted(map(str, refused(cluster))) == []
    assert RARE.keys() <= granted(cluster.control_plane.client)


def job(name: str, cpu: str = "1", seconds: str = "forever") -> Any:
    return make_job(name).indexed(1).cpu(cpu).pod_annotation(RUN_SECONDS, seconds)


def serve(stage: Stage, api_version: str, kind: str, plural: str) -> None:
    """Serve a kind of another project, without its controller."""
    group, _, version = api_version.partition("/")
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    stage.kubectl("wait", f"crd/{plural}.{group}", "--for=condition=Established", "--timeout=60s")


def jobs_and_pods(stage: Stage) -> None:
    """Cancel a running Job and a gated pod, suspend a running Job, resume both Jobs,
    and leave a FluxJob without an owner.
    """
    stage.apply(
        job("cancelled").build(),
        job("paused").build(),
        job("orphaning").build(),
        make_pod("waits").cpu("60").build(),
    )
    for name in ("cancelled", "paused", "orphaning"):
        stage.until_state(name, State.RUNNING)
    stage.kubectl("patch", "job", "paused", "-p", '{"spec":{"suspend":true}}')
    stage.until_reason("paused", "UserSuspended")
    stage.kubectl("patch", "job", "paused", "-p", '{"spec":{"suspend":false}}')
    stage.until_reason("waits", "WaitingForNodes")
    for name in ("job/cancelled", "pod/waits"):
        done = stage.plugin("cancel", name)
        assert done.returncode == 0, done.stderr
    stage.until_state("cancelled", State.CANCELLED)
    # the queue reads it, and withdraws the cancellation
    stage.kubectl("patch", "job", "cancelled", "-p", '{"spec":{"suspend":false}}')
    stage.kubectl("delete", "job", "orphaning", "--cascade=orphan")
    stage.apply(make_pod("runs").cpu("1").annotation(RUN_SECONDS, "forever").build())
    stage.until_state("runs", State.RUNNING)
    for _ in range(2):  # a refusal sets spec.cancel back, and the second one raises the count of its Event
        cancel_what_runs(stage)
    stage.until_state("paused", State.RUNNING)
    stage.kubectl("delete", "pods", "-l", f"{names.JOB_NAME_LABEL}=orphaning", "--force", "--grace-period=0")


def preempted(stage: Stage) -> None:
    """Have a Job take the node of a bare pod, which is evicted."""
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue("preempts", preemption="lowerPriority")))
    pods = [
        make_pod(f"lost-{number}")
        .cpu("8")
        .label(names.QUEUE_LABEL, "preempts")
        .annotation(RUN_SECONDS, "forever")
        for number in range(6)
    ]
    stage.apply_all(*(pod.build() for pod in pods))
    for number in range(6):
        stage.until_state(f"lost-{number}", State.RUNNING)
    urgent = (
        job("urgent", "8", "0")
        .label(names.QUEUE_LABEL, "preempts")
        .annotation(names.PRIORITY_ANNOTATION, "50")
    )
    stage.apply(urgent.build())
    stage.until_state("urgent", State.COMPLETED)
    stage.kubectl(
        "delete", "pods", *(f"lost-{number}" for number in range(6)), "--ignore-not-found", "--wait=false"
    )


def cancel_what_runs(stage: Stage) -> None:
    """Cancel a running pod, which the queue refuses, and wait until it has set the field back."""
    fluxjob = stage.row("runs").fluxjob
    assert fluxjob is not None
    stage.kubectl("patch", "fluxjob", fluxjob.metadata.name, "--type=merge", "-p", '{"spec":{"cancel":true}}')

    def refused_by_queue() -> bool:
        fluxjob = stage.row("runs").fluxjob
        return fluxjob is not None and not fluxjob.spec.cancel

    stage.until("spec.cancel is set back", refused_by_queue)


def owners(stage: Stage) -> None:
    """Delete a pod of a Deployment, of a StatefulSet and of a ReplicaSet; queue a Job of a JobSet."""
    for kind in ("Deployment", "StatefulSet", "ReplicaSet"):
        stage.apply(make_owner(kind, kind.lower(), 1, "1"))

    stage.until("a pod of each runs", lambda: len(pods_run(stage, "app")) == 3, 60)
    stage.kubectl("delete", "pod", *pods_run(stage, "app"), "--wait=false")
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {},
    }
    uid = json.loads(stage.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(made)).stdout)[
        "metadata"
    ]["uid"]
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "train",
        "uid": uid,
        "controller": True,
    }
    of_set = (
        job("train-driver-0", seconds="1")
        .label(names.JOBSET_TOTAL_KEY, "1")
        .label(names.JOBSET_ROLE_LABEL, "driver")
    )
    of_set = of_set.pod_label(names.JOBSET_NAME_LABEL, "train").with_("metadata.ownerReferences", [owner])
    stage.kubectl("create", "-f", "-", stdin=json.dumps(of_set.namespace(stage.namespace).build()))
    stage.kubectl("patch", "job", "train-driver-0", "-p", '{"spec":{"suspend":false}}')


def miniclusters(stage: Stage) -> None:
    """Run one with all that it can have until it removes itself, edit one that waits,
    and take the name of a services pod.
    """
    services = [
        {"name": "db", "image": "db:1", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
    ]
    annotations = {RUN_SECONDS: "1"}
    full: Json = {
        "services": services,
        "flux": {},
        "restful": {"enabled": True},
        "pod": {"annotations": annotations},
    }
    stage.apply(make_pod("taken-services").cpu("1").annotation(RUN_SECONDS, "forever").build())
    for name, cpu in (("whole", "1"), ("waiting", "60"), ("taken", "1"), ("again", "1")):
        made = make_minicluster(name, 1, **full, cleanup=name == "whole")
        if name == "again":
            made["spec"]["pod"]["annotations"] = {RUN_SECONDS: "forever"}
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
        stage.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    stage.until(
        "the Job of the one that waits",
        lambda: stage.kubectl("get", "job", "waiting", "--ignore-not-found", "-o", "name").stdout,
    )
    change = [{"op": "replace", "path": "/spec/containers/0/image", "value": "app:2"}]
    stage.kubectl("patch", "minicluster", "waiting", "--type=json", "-p", json.dumps(change))
    brokers = f"{names.JOB_NAME_LABEL}=again"
    stage.until("one runs", lambda: pods_run(stage, brokers), 60)
    stage.kubectl("patch", "job", "again", "-p", '{"spec":{"suspend":true}}')
    stage.until("it stopped", lambda: not pods_run(stage, brokers), 60)

    def known() -> bool:
        return any(
            "again" in one.metadata.name and one.status.reason == "UserSuspended" for one in stage.fluxjobs()
        )

    stage.until("the queue knows that it was suspended, so it writes the configuration again", known, 60)
    resume = ("patch", "job", "again", "-p", '{"spec":{"suspend":false}}')
    stage.until(
        "its allocation is taken off, so it may be resumed",
        lambda: stage.kubectl(*resume, check=False).returncode == 0,
        60,
    )


def pods_run(stage: Stage, selector: str) -> list[str]:
    """Return the names of the pods that are bound."""
    pods = json.loads(stage.kubectl("get", "pods", "-l", selector, "-o", "json").stdout)["items"]
    return [each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")]


def requests_for_nodes(stage: Stage) -> None:
    """Queue a Job that fits only nodes that the cluster may grow by, and delete it once they are requested;
    in both ways.
    """
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue("growing", provision="gate")))
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_account("physics", namespaces=[stage.namespace])))
    grows = (
        job("grows", "40")
        .host_ports(8080)
        .annotation(names.PODS_PER_NODE_ANNOTATION, "1")
        .with_("spec.template.spec.nodeSelector", {"pool": "larger"})
        .label(names.QUEUE_LABEL, "growing")
    )
    stage.apply(grows.build())

    def asked() -> bool:
        return bool(
            json.loads(
                stage.kubectl("get", "provisioningrequests.autoscaling.x-k8s.io", "-o", "json").stdout
            )["items"]
        )

    stage.until("nodes are asked for", asked)
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue("growing", provision="pods")))

    def room_pods() -> list[Json]:
        listed: list[Json] = json.loads(
            stage.kubectl("get", "pods", "-n", NAMESPACE, "-l", names.ROOM_LABEL, "-o", "json").stdout
        )["items"]
        return listed

    def unscheduled() -> bool:
        return any(
            each.get("reason") == "Unschedulable"
            for pod in room_pods()
            for each in pod["status"].get("conditions", ())
        )

    stage.until("a room pod asks for a node, and no request", lambda: unscheduled() and not asked())
    (room,) = room_pods()
    assert len(room["spec"]["topologySpreadConstraints"]) == 1
    assert room["spec"]["affinity"]["podAntiAffinity"]
    stage.kubectl("delete", "job", "grows", "--timeout=60s")
    stage.until("the room pod is gone", lambda: not room_pods())


def maintenance(stage: Stage) -> None:
    """Begin a maintenance that cordons a node, and end it."""
    made = make_reservation(
        "power",
        start="2026-01-01T00:00:00Z",
        duration="3650d",
        nodes=["node-6"],
        maintenance=True,
        atStart="drain",
    )
    made["metadata"] = {"name": "power"}
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(made))

    def cordoned() -> bool:
        return bool(stage.kubectl("get", "node", "node-6", "-o", "jsonpath={.spec.unschedulable}").stdout)

    def shown() -> str:
        return str(stage.kubectl("get", "fluxreservation", "power", "-o", "jsonpath={.status.state}").stdout)

    stage.until("the node is cordoned", cordoned)
    stage.until("its status is written", shown)
    stage.kubectl("delete", "fluxreservation", "power")
    stage.until("it is uncordoned", lambda: not cordoned())


def claims(stage: Stage) -> None:
    """Start a pod whose volume is made on its node, and one that takes a free volume there."""
    client = stage.cluster.control_plane.client
    late = stage.storage_class(volumeBindingMode="WaitForFirstConsumer")
    free = f"free-{stage.namespace}"
    kept = {
        "metadata": {"name": free},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    client.request("POST", "/apis/storage.k8s.io/v1/storageclasses", kept)
    volume: Json = {
        "metadata": {"name": free},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": free,
            "csi": {"driver": "example.com", "volumeHandle": free},
        },
    }
    client.request("POST", "/api/v1/persistentvolumes", volume)
    client.request("PATCH", f"/api/v1/persistentvolumes/{free}/status", {"status": {"phase": "Available"}})
    for name, kind in (("made", late), ("taken-volume", free)):
        stage.claim(name, kind)
        mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        stage.apply(make_pod(f"with-{name}").cpu("1").with_("spec.volumes", mounted).build())


def a_node_taken_before_the_bind(stage: Stage) -> None:
    """Fill the node of a released pod while the scheduler is away:
    the doctor asks for its Lease, and it reports on the pod later.
    """
    program = stage.cluster.programs["scheduler"]
    program.stop(graceful=False)
    client = stage.cluster.control_plane.client
    path = f"/api/v1/namespaces/{stage.namespace}/pods/late"
    stage.apply(make_pod("late").cpu("5").annotation(RUN_SECONDS, "forever").build())
    note = "fluxqueue/fluxion-nodes"
    node = stage.until(
        "the pod is released", lambda: client.get(path)["metadata"].get("annotations", {}).get(note), 60
    )
    port = stage.cluster.programs["queue"].metrics_port
    assert port is not None
    try:
        stage.cluster.operators.get(port, "/doctor?looks=1")
        stage.cluster.operators.post(port, "/doctor/repair?looks=1")
    except OperatorRefused as error:
        pytest.fail(str(error))
    foreign = make_pod("foreign").cpu("5").annotation(RUN_SECONDS, "forever").on_node(str(node)).build()
    client.request("POST", "/api/v1/namespaces/default/pods", foreign)
    held = json.dumps({"spec": {"holderIdentity": "another-replica"}})  # the one that comes watches meanwhile
    stage.kubectl("patch", "lease", "fluxqueue-scheduler", "-n", NAMESPACE, "--type=merge", "-p", held)
    program.revive()
    stage.until_ready("scheduler")
    scheduler_port = program.metrics_port
    assert scheduler_port is not None
    assert stage.cluster.operators.metrics(scheduler_port)
    client_path = "/api/v1/namespaces/default/pods/foreign"
    stage.until("the pod was refused and went on", lambda: client.get(path)["spec"].get("nodeName"), 60)
    client.request("DELETE", f"{client_path}?gracePeriodSeconds=0")


def certificates(stage: Stage) -> None:
    """Damage the webhook's certificate in its Secret."""
    change = {"data": {"tls.crt": "bm90aGluZw=="}}
    stage.kubectl("patch", "secret", "fluxqueue-webhook-tls", "-n", NAMESPACE, "-p", json.dumps(change))


def test_who_may_reaches_the_doctor_through_the_api_server_and_others_read_how(stage: Stage) -> None:
    """The queue runs as a process, so a pod object with this machine's address stands for its pod.
    The proxy and the tokens are real.
    """
    address = address_of_this_machine()
    cluster, client = stage.cluster, stage.cluster.control_plane.client
    port = cluster.programs["queue"].metrics_port
    pod = make_pod("fluxqueue-queue-0").on_node("node-1").annotation(RUN_SECONDS, "forever").build()
    labels = {"app.kubernetes.io/name": "fluxqueue", "app.kubernetes.io/component": "queue"}
    pod["metadata"] = {
        "name": "fluxqueue-queue-0",
        "labels": labels,
        "annotations": {"fluxqueue/doctor": "fluxqueue-doctor"},
    }
    pod["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": port}]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    client.request("POST", path, pod)
    try:
        shown = f"{path}/fluxqueue-queue-0"
        stage.until("the pod runs", lambda: client.get(shown)["status"].get("phase") == "Running")
        client.request(
            "PATCH", f"{shown}/status", {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        )
        cluster.kubectl("create", "serviceaccount", "operator", "-n", NAMESPACE)
        person = cluster.control_plane.service_account_kubeconfig(NAMESPACE, "operator")
        for role, words in (("fluxqueue-doctor", ()), ("fluxqueue-doctor-repair", ("--repair",))):
            refused = doctor(person, *words)
            assert refused.returncode == 1
            assert (
                f"kubectl -n {NAMESPACE} create rolebinding NAME --role={role} --user=YOU" in refused.stderr
            )
            assert refused.stderr.count("\n") == 1
            cluster.kubectl(
                "create",
                "rolebinding",
                role,
                f"--role={role}",
                f"--serviceaccount={NAMESPACE}:operator",
                "-n",
                NAMESPACE,
            )

            def answered(words: tuple[str, ...] = words) -> bool:
                return "agree" in doctor(person, *words).stdout

            stage.until("the doctor answers", answered, 60, lambda: doctor(person).stderr)
    finally:
        client.request("DELETE", f"{path}/fluxqueue-queue-0?gracePeriodSeconds=0")


def doctor(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``kubectl fluxqueue doctor`` as a person, without the address that a local cluster gives."""
    program = Path(sys.executable).with_name("kubectl-fluxqueue")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("FLUXQUEUE_QUEUE_")
    }
    command = [str(program), "doctor", *words, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def address_of_this_machine() -> str:
    """Return an address that is not loopback, to which the API server's proxy refuses to go;
    skip the test if there is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])
