"""Nodes come, go and fall silent; pods do not come, or do not bind: work goes on, and nothing is booked twice or for ever.

On a plane of its own that is impatient (a start may take 5 s, a node be silent for 2) and behaves as Kubernetes before 1.36 does: templates
of Jobs that have run may not change while they have a startTime. Six nodes of 8 cpu. Numbers in names are those of the failure modes in
`docs/reliability.md`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import JobBuilder, Json, make_job, make_minicluster, make_pod, make_queue
from end_to_end import Stage, managed_namespace
from invariants import unfinished, violations
from replicas import leader
from walk import Walk

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.objects import Pod
from fluxqueue.fluxion.client import FluxionClient
from fluxqueue.local.controlplane import Component
from fluxqueue.local.fake_nodes import NodeShape, node_object
from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions

RUN_SECONDS = "fluxqueue.local/run-seconds"
STUCK = "fluxqueue.local/stuck"
THEIRS = "example.com/wait"
LARGER: Json = {"name": "larger", "allocatable": {"cpu": "64", "memory": "64Gi"}, "labels": {"pool": "larger"}, "maxNodes": 2}
OLDER = {"MutableSchedulingDirectivesForSuspendedJobs": False, "MutablePodResourcesForSuspendedJobs": False}


@pytest.fixture(scope="module")
def impatient_plane(service_folder: Path) -> Iterator[InProcessPlane]:
    impatient = {"queue": {"config": {"startTimeoutSeconds": 5, "nodeLostSeconds": 2, "nodeShapes": [LARGER]}}}
    plane = InProcessPlane(service_folder / "changes", PlaneOptions(nodes=6, durable=False, feature_gates=OLDER, values=impatient))
    plane.start()
    yield plane
    plane.destroy()


@pytest.fixture
def stage(impatient_plane: InProcessPlane) -> Iterator[Stage]:
    with managed_namespace(impatient_plane) as stage:
        yield stage


def job(name: str, nodes: int = 1, seconds: str = "1") -> JobBuilder:
    """Whole nodes, one pod on each."""
    return make_job(name).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, seconds)


def larger_node(name: str) -> Json:
    """A node of the shape the cluster may grow by."""
    node = node_object(1, NodeShape("64", "64Gi"), labels={"pool": "larger", names.HOSTNAME_LABEL: name})
    node["metadata"]["name"] = name
    return node


def succeed(stage: Stage, pod: str) -> None:
    """The pod's containers have ended well."""
    stage.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Succeeded"}}')


@contextmanager
def node_down(stage: Stage, node: str) -> Iterator[None]:
    plane = stage.plane.control_plane
    plane.set_node_down(node)
    try:
        yield
    finally:
        plane.set_node_down(node, False)


@contextmanager
def scheduler_paused(stage: Stage) -> Iterator[None]:
    """The scheduler stands still, and begins anew then: one that woke up could bind a pod before it hears what changed meanwhile."""
    stage.plane.control_plane.processes[Component.SCHEDULER].send(signal.SIGSTOP)
    try:
        yield
    finally:
        stage.plane.control_plane.restart_component(Component.SCHEDULER, graceful=False)


def doctor(stage: Stage, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``kubectl fluxqueue doctor``."""
    name = leader(stage.plane)
    assert name is not None
    program = Path(sys.executable).with_name("kubectl-fluxqueue")
    url = f"http://127.0.0.1:{stage.plane.programs[name].port}"
    command = [str(program), "doctor", "--queue-url", url, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ)


def test_fm26_fm37_a_job_whose_node_falls_silent_runs_what_is_left_of_it_elsewhere(stage: Stage) -> None:
    """One index is done, one stands on the silent node: two are placed anew, and the silent one's place stays booked until it is gone."""
    stage.apply(job("spans", 3, "forever").pod_annotation(STUCK, "true").build())
    row = stage.until_state("spans", State.RUNNING)
    pods = {pod.completion_index: pod for pod in row.pods}
    former = row.jobid
    for index in (0, 2):
        stage.kubectl("annotate", "pod", pods[index].metadata.name, f"{STUCK}-")
    succeed(stage, pods[0].metadata.name)
    stage.until("index 0 is done", lambda: stage.job("spans").status.completed_indexes == "0")
    lost = row.hosts[1]
    with node_down(stage, lost):
        again = stage.until("it runs again", lambda: (now := stage.row("spans")).requeues == 1 and now.state == State.RUNNING and now, 40)
        assert again
        assert again.hosts[0] == names.NO_NODE
        assert lost not in again.hosts
        assert len(set(again.hosts)) == 3
        held = {(info.jobid, share.node) for info in stage.fluxion_jobs() for share in info.shares}
        assert held == {(former, lost), *((again.jobid, node) for node in again.hosts[1:])}
        stage.until_consistent()
    assert (former, lost) in {(info.jobid, share.node) for info in stage.fluxion_jobs() for share in info.shares}
    stage.kubectl("annotate", "pod", pods[1].metadata.name, f"{STUCK}-")
    stage.until("the silent place is given back", lambda: {info.jobid for info in stage.fluxion_jobs()} == {again.jobid})
    for pod in stage.row("spans").pods:
        if not pod.terminal:
            stage.kubectl("annotate", "pod", pod.metadata.name, f"{STUCK}-")
    stage.until_consistent()


def test_fm37_a_job_whose_node_is_deleted_runs_elsewhere(stage: Stage) -> None:
    stage.apply(job("moves", 2, "forever").build())
    row = stage.until_state("moves", State.RUNNING)
    plane = stage.plane.control_plane
    plane.remove_node(row.hosts[0])
    try:
        again = stage.until("it runs again", lambda: (now := stage.row("moves")).requeues == 1 and now.state == State.RUNNING and now, 60)
        assert again
        assert row.hosts[0] not in again.hosts
        stage.until_consistent()
    finally:
        plane.return_node(int(row.hosts[0].rpartition("-")[2]))
    stage.until_consistent()


def pod_of(stage: Stage, job: str, index: int) -> Pod | None:
    """The pod of an index that is there to stay, on a node."""
    pods = [pod for pod in stage.items("pods", Pod) if pod.completion_index == index and pod.metadata.name.startswith(f"{job}-")]
    return next((pod for pod in pods if pod.spec.node_name and pod.staying), None)


def test_fm37_a_pod_let_go_on_its_own_gets_a_new_place_when_its_node_falls_silent_and_the_others_stay(stage: Stage) -> None:
    stage.apply(job("spread", 3, "forever").annotation(names.REPLACE_ANNOTATION, "pod").pod_annotation(STUCK, "true").build())
    row = stage.until_state("spread", State.RUNNING)
    pods = {pod.completion_index: pod for pod in row.pods}
    lost = row.hosts[1]
    with node_down(stage, lost):
        anew = stage.until("index 1 runs elsewhere", lambda: (pod := pod_of(stage, "spread", 1)) and pod.spec.node_name != lost and pod, 60)
        assert anew
        assert anew.spec.node_name not in row.hosts
        assert [(now := pod_of(stage, "spread", index)) and now.metadata.uid for index in (0, 2)] == [
            pods[0].metadata.uid,
            pods[2].metadata.uid,
        ]
        assert (stage.row("spread").requeues, stage.row("spread").state) == (0, State.RUNNING)
        stage.until_consistent()
        booked = {share.node for info in stage.fluxion_jobs() for share in info.shares}
        assert booked == {*row.hosts, anew.spec.node_name}, "the silent one's place stays booked until it is gone"
    stage.kubectl("annotate", "pod", pods[1].metadata.name, f"{STUCK}-")
    left = {row.hosts[0], row.hosts[2], anew.spec.node_name}
    stage.until("the silent place is given back", lambda: {share.node for info in stage.fluxion_jobs() for share in info.shares} == left)
    stage.until_consistent()
    for pod in stage.items("pods", Pod):
        stage.kubectl("annotate", "pod", pod.metadata.name, f"{STUCK}-")


def test_fm37_a_pod_let_go_on_its_own_gets_a_new_place_when_its_node_is_deleted_and_the_others_stay(stage: Stage) -> None:
    stage.apply(job("spread", 3, "forever").annotation(names.REPLACE_ANNOTATION, "pod").build())
    row = stage.until_state("spread", State.RUNNING)
    kept = {pod.metadata.uid for pod in row.pods if pod.completion_index != 1}
    lost, plane = row.hosts[1], stage.plane.control_plane
    plane.remove_node(lost)
    try:
        anew = stage.until("index 1 runs elsewhere", lambda: (pod := pod_of(stage, "spread", 1)) and pod.spec.node_name != lost and pod, 60)
        assert anew
        assert {pod.metadata.uid for index in (0, 2) if (pod := pod_of(stage, "spread", index))} == kept
        assert (stage.row("spread").requeues, stage.row("spread").state) == (0, State.RUNNING)
        stage.until_consistent()
    finally:
        plane.return_node(int(lost.rpartition("-")[2]))
    stage.until_consistent()


def test_fm37_a_gang_with_services_whose_node_is_lost_starts_again_with_others(stage: Stage) -> None:
    """The lost node is that of the services pod, which cannot go as long as nobody hears from the node: the next has another name."""
    asked = {"resources": {"requests": {"cpu": "8"}}}  # a node each
    forever = {"annotations": {RUN_SECONDS: "forever"}}
    cluster = make_minicluster("flux", 2, services=[{"name": "registry", "image": "registry", **asked}], pod=forever)
    cluster["spec"]["containers"][0] |= asked
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(cluster))

    def beside() -> list[Pod]:
        return [pod for pod in stage.items("pods", Pod) if pod.metadata.label(names.SERVICES_OF_LABEL) and pod.spec.node_name]

    first = stage.until("the services run", lambda: next(iter(beside()), None))
    assert first
    stage.kubectl("annotate", "pod", first.metadata.name, f"{STUCK}=true")
    try:
        with node_down(stage, str(first.spec.node_name)):
            again = stage.until("others run", lambda: next((pod for pod in beside() if pod.metadata.uid != first.metadata.uid), None), 90)
            assert again
            assert again.metadata.name == "flux-services-2"
            assert again.spec.node_name != first.spec.node_name
            stage.until_consistent()
    finally:
        stage.kubectl("annotate", "pod", first.metadata.name, f"{STUCK}-")
        stage.kubectl("delete", "minicluster", "flux", "--wait=true", "--timeout=60s")
    stage.until_consistent()


def test_fm37_a_job_that_finds_no_new_place_for_a_lost_pod_waits_again_as_a_whole(stage: Stage) -> None:
    stage.apply(job("fills", 6, "forever").annotation(names.REPLACE_ANNOTATION, "pod").build())
    row = stage.until_state("fills", State.RUNNING)
    with node_down(stage, row.hosts[5]):
        assert stage.until("it waits again", lambda: stage.row("fills").requeues == 1, 90)
    assert stage.until_state("fills", State.RUNNING, 60).requeues == 1
    stage.until_consistent()


def test_fm37_a_node_cordoned_between_match_and_bind_is_left_for_another(stage: Stage) -> None:
    """The scheduler stands still from before the release until the node is cordoned, so the pod is released and not bound."""
    with scheduler_paused(stage):
        stage.apply(job("late").build())
        row = stage.until_state("late", State.ALLOCATED)
        stage.until("its pod is released", lambda: any(not pod.spec.gated_by(names.GATE) for pod in stage.row("late").pods))
        assert row.ran_on == []
        node = f"/api/v1/nodes/{row.hosts[0]}"  # not by kubectl, which takes a good part of the time to start on a busy machine
        stage.plane.control_plane.client.request("PATCH", node, {"spec": {"unschedulable": True}})
    try:
        again = stage.until_state("late", State.COMPLETED, 60)
        assert again.requeues >= 1
        assert again.hosts != row.hosts
    finally:
        stage.kubectl("uncordon", row.hosts[0])


def test_fm28_pods_that_a_quota_refuses_are_told_and_their_job_is_held_in_the_end(stage: Stage) -> None:
    quota: Json = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(quota))
    stage.until("the quota counts", lambda: "pods" in stage.kubectl("get", "resourcequota", "few", "-o", "jsonpath={.status.hard}").stdout)
    stage.apply(job("pair", 2, "forever").build())
    fluxjob = stage.until_reason("pair", "Held", 60)
    assert "did not start 3 times in a row and is held: 1 of 2 pods were not made" in fluxjob.status.message
    assert stage.fluxion_jobs() == []
    stage.kubectl("delete", "resourcequota", "few")
    stage.kubectl("patch", "fluxjob", fluxjob.metadata.name, "--type=merge", "-p", '{"spec":{"hold":false}}')
    again = stage.until_state("pair", State.RUNNING)
    assert again.ran_on == again.hosts


def test_fm03_a_bare_pod_that_waits_for_somebody_elses_gate_keeps_its_place_and_says_so(stage: Stage) -> None:
    stage.apply(make_pod("held").cpu("8").gate(THEIRS).with_("spec.restartPolicy", "Never").build())
    row = stage.until_state("held", State.ALLOCATED)
    fluxjob = stage.until_reason("held", "StartTimeout")
    assert "keeps its place and does not start" in fluxjob.status.message
    assert THEIRS in fluxjob.status.message
    assert stage.row("held").hosts == row.hosts
    stage.kubectl("patch", "pod", "held", "--type=merge", "-p", '{"spec":{"schedulingGates":[]}}')
    stage.until_state("held", State.RUNNING)
    stage.until("nothing is the matter any more", lambda: (now := stage.row("held").fluxjob) and not now.status.reason)


def test_on_kubernetes_before_1_36_a_suspended_job_is_matched_again_when_it_is_resumed(stage: Stage) -> None:
    stage.apply(job("paused", 2, "forever").build())
    stage.until_state("paused", State.RUNNING)
    stage.kubectl("patch", "job", "paused", "-p", '{"spec":{"suspend":true}}')
    stage.until_reason("paused", "UserSuspended")
    stage.kubectl("patch", "job", "paused", "-p", '{"spec":{"suspend":false}}')
    row = stage.until_state("paused", State.RUNNING)
    assert row.ran_on == row.hosts
    assert row.requeues == 1


def test_fm36_the_doctor_names_what_differs_and_repairs_it(stage: Stage) -> None:
    stage.apply(job("runs", 2, "forever").build())
    row = stage.until_state("runs", State.RUNNING)
    stage.until_consistent()
    assert doctor(stage).returncode == 0
    with FluxionClient(f"127.0.0.1:{stage.plane.programs['fluxion'].port}") as client:
        client.cancel(row.jobid)  # as a fault of the matcher would
    found = doctor(stage)
    assert found.returncode == 1
    assert f"job {row.jobid} holds 0 places on {row.hosts[0]} in Fluxion, 1 are stored" in found.stdout
    repaired = doctor(stage, "--repair", "--json")
    assert repaired.returncode == 0
    assert {finding["what"] for finding in json.loads(repaired.stdout)["repaired"]} == {"graph-jobs"}
    assert violations(stage.plane) == []
    assert stage.row("runs").state == State.RUNNING


@contextmanager
def provisioning_requests(plane: InProcessPlane) -> Iterator[str]:
    """Served as where an autoscaler is installed, and called so."""
    group, plural = "autoscaling.x-k8s.io", "provisioningrequests"
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": kept}}
    definition: Json = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "ProvisioningRequest", "plural": plural, "singular": "provisioningrequest"},
            "versions": [version],
        },
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    plane.kubectl("wait", f"crd/{plural}.{group}", "--for=condition=Established", "--timeout=60s")
    try:
        yield f"{plural}.{group}"
    finally:
        plane.kubectl("delete", "crd", f"{plural}.{group}", "--timeout=60s")


def until_told(stage: Stage, name: str, words: str) -> None:
    """An Event of an object says that nodes will not come."""
    of = f"reason=ProvisioningFailed,involvedObject.name={name}"
    stage.until(f"{name} is told", lambda: words in stage.kubectl("get", "events", "--field-selector", of, "-o", "json").stdout, 60)


def test_what_only_nodes_that_may_be_added_could_hold_asks_for_them_and_is_pinned_when_they_come(stage: Stage) -> None:
    """The test plays the autoscaler. Work of a queue that asks for nothing waits beside it, and is not called unsatisfiable either."""
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue("growing", provision="gate")))
    gang = job("grows", 2, "forever").cpu("40").with_("spec.template.spec.nodeSelector", {"pool": "larger"})
    gang = gang.label(names.QUEUE_LABEL, "growing")
    added = ("larger-a", "larger-b")
    stage.apply(gang.with_("metadata.name", "early").build())
    until_told(stage, "early", "this cluster serves no ProvisioningRequests")
    stage.kubectl("delete", "job", "early", "--timeout=60s")

    with provisioning_requests(stage.plane) as requests:

        def asked(kind: str = requests) -> list[Json]:
            found: list[Json] = json.loads(stage.kubectl("get", kind, "-o", "json").stdout)["items"]
            return found

        try:
            stage.apply(gang.build(), job("waits").cpu("20").build(), job("never").cpu("65").build())
            assert "they are asked of the autoscaler" in stage.until_reason("grows", "Provisioning").status.message
            assert "spec.provision" in stage.until_reason("waits", "WaitingForNodes").status.message
            stage.until_reason("never", "Unsatisfiable")
            (request,) = stage.until("nodes are asked for", asked)
            (pods,) = request["spec"]["podSets"]
            (template,) = asked("podtemplates")
            spec = template["template"]["spec"]
            assert pods == {"podTemplateRef": {"name": template["metadata"]["name"]}, "count": 2}
            assert spec["containers"][0]["resources"]["requests"] == {"cpu": "40"}
            assert spec["nodeSelector"] == {"pool": "larger"}

            refused: Json = {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "out of quota"}]}}
            path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{stage.namespace}/provisioningrequests/{request['metadata']['name']}/status"
            stage.plane.control_plane.client.request("PATCH", path, refused)
            doctor(stage, "--repair")  # sweeps at once
            until_told(stage, "grows", "the autoscaler adds no nodes: out of quota")
            stage.until("the request is withdrawn", lambda: not asked() and not asked("podtemplates"))

            stage.kill("queue")  # the next leader asks anew, without the pause
            stage.until_ready("queue")
            stage.until("nodes are asked for again", asked, 60)
            for name in added:
                stage.plane.control_plane.client.request("POST", "/api/v1/nodes", larger_node(name))
            row = stage.until_state("grows", State.RUNNING, 60)
            assert set(row.ran_on) == set(row.hosts) == set(added)
            stage.until("nothing is asked for any more", lambda: not asked() and not asked("podtemplates"), 60)
            stage.until_state("waits", State.COMPLETED)
            stage.until_consistent()
        finally:
            stage.kubectl("delete", "jobs", "--all", "--timeout=60s")
            stage.kubectl("delete", "node", *added, "--ignore-not-found", "--timeout=60s")
            stage.kubectl("delete", "fluxqueue", "growing", "--timeout=60s")


def test_a_random_walk_ends_with_everything_done_and_all_agreeing(stage: Stage) -> None:
    """Half a minute of it here; `make test-walk` goes on for ten. `WALK_SEED` walks one again."""
    seed = int(os.environ.get("WALK_SEED") or random.SystemRandom().randrange(10**6))
    walk = Walk(stage, seed, nodes=6)
    print(f"random walk: WALK_SEED={seed}")  # noqa: T201  # to walk it again
    seconds = float(os.environ.get("WALK_SECONDS", "30"))

    def done() -> bool:
        walk.let_go_on()
        return not unfinished(stage.plane, stage.namespace)

    def said() -> object:
        return {
            "seed": seed,
            "steps": walk.steps,
            "unfinished": unfinished(stage.plane, stage.namespace),
            "doctor": violations(stage.plane),
        }

    try:
        walk.go(seconds)
        stage.until_ready("queue", "fluxion")
        stage.until("all work is done", done, 120 + seconds / 5, said)
        stage.until("cluster, queue and matcher agree", lambda: not violations(stage.plane), 30, said)
        found = doctor(stage)
        assert found.returncode == 0, (found.stdout, said())
    finally:
        # Hundreds of objects after ten minutes: more than kubectl waits for in a minute.
        stage.kubectl("delete", "miniclusters,jobs,deployments,pods", "--all", "--wait=false")
        stage.until_nothing_left(60 + seconds / 2)
