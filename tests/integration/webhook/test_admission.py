"""The webhook called by a real API server: created objects are held,
and a Job released by one patch runs on exactly its nodes.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.builders import Builder, JobBuilder, Json, make_job, make_pod
from support.loop_blocks import assert_short_logged_blocks

from fluxqueue.certs.authority import AUTHORITY_LIFETIME, Pair, ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair
from fluxqueue.certs.webhook_secret import SETTLE_TIME, SPREAD_TIME, plan
from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

NAMESPACE = "admission"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/admission-test"
NAMES = ServingNames(addresses=("127.0.0.1",))
WAIT_S = 60.0


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass
class Admission:
    """A control plane that calls a webhook process for one namespace."""

    cluster: ControlPlane
    certificates: Path
    log: Path
    port: int
    secret: dict[str, bytes]
    bundle: bytes

    def path(self, kind: str, name: str = "") -> str:
        group = {"pods": "/api/v1", "jobs": "/apis/batch/v1"}.get(kind, "/apis/apps/v1")
        return f"{group}/namespaces/{NAMESPACE}/{kind}" + (f"/{name}" if name else "")

    def create(self, thing: Builder | Json, **query: str) -> Json:
        document = thing.namespace(NAMESPACE).build() if isinstance(thing, Builder) else thing
        created: Json = self.cluster.client.request(
            "POST", self.path(f"{document['kind'].lower()}s"), document, query=query
        )
        return created

    def patch(self, kind: str, name: str, change: Json) -> None:
        self.cluster.client.request("PATCH", self.path(kind, name), change)

    def release(self, job: str, nodes: str | None, generation: int = 7) -> None:
        """The queue's release patch: pinned to these nodes, or without nodes gated pod by pod."""
        given = {
            "fluxqueue/allocation": str(generation),
            "fluxqueue/fluxion-nodes": nodes,
            "fluxqueue/pin-until": "2100-01-01T00:00:00Z",
        }
        metadata = {} if nodes is None else {"annotations": given}
        template = {"metadata": metadata, "spec": {"schedulingGates": [{"name": "fluxqueue"}]}}
        self.patch("jobs", job, {"spec": {"suspend": False, "template": template}})

    def pods(self, selector: str, count: int) -> list[Json]:
        """Return the pods with a label once there are this many."""
        found: list[Json] = []

        def enough() -> bool:
            found[:] = self.cluster.client.get(self.path("pods"), labelSelector=selector)["items"]
            return len(found) == count

        wait_until(enough, f"{count} pods of {selector}", WAIT_S)
        return found

    def bound(self, job: str, count: int) -> dict[int, str]:
        """Return the node of each completion index once all pods have one."""
        wait_until(
            lambda: all(pod["spec"].get("nodeName") for pod in self.pods(f"job-name={job}", count)),
            "all pods bound",
            WAIT_S,
        )
        key = "batch.kubernetes.io/job-completion-index"
        return {
            int(pod["metadata"]["annotations"].get(key, 0)): pod["spec"]["nodeName"]
            for pod in self.pods(f"job-name={job}", count)
        }

    def keep_certificate(self, at: dt.datetime) -> tuple[str, ...]:
        """Do what the queue's leader does: carry out the next step of the plan, the bundle first."""
        step = plan(self.secret, self.bundle, NAMES, at)
        if step.ca_bundle is not None:
            self.bundle = step.ca_bundle
            encoded = base64.b64encode(self.bundle).decode()
            change = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": encoded}]
            self.cluster.kubectl(
                "patch",
                "mutatingwebhookconfiguration",
                "admission-test",
                "--type=json",
                f"--patch={json.dumps(change)}",
            )
        if step.secret is not None:
            self.secret = step.secret
            write_pair(self.certificates, Pair(step.secret["tls.crt"], step.secret["tls.key"]), at)
        return step.reasons

    def logged(self, event: str) -> int:
        return sum(event in line for line in self.log.read_text().splitlines())


def gates(pod: Json) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]


@pytest.fixture(scope="module")
def admission(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admission]:
    """The webhook process, and a configuration for one namespace. Its authority is due for renewal."""
    folder = tmp_path_factory.mktemp("admission")
    log = folder / "log"
    command = [sys.executable, "-m", "fluxqueue.webhook.main", "--host", "127.0.0.1", "--port", "0"]
    command += ["--cert-dir", str(folder / "tls"), "--look-seconds", "0.05", "--drain-seconds", "0"]
    with (
        log.open("w") as stream,
        subprocess.Popen(command, stderr=stream) as process,
    ):
        try:
            wait_until(
                lambda: '"event": "webhook.listening"' in log.read_text(), "the webhook listening", WAIT_S
            )
            entries = map(json.loads, log.read_text().splitlines())
            port = next(entry["port"] for entry in entries if entry["event"] == "webhook.listening")
            made = now() - AUTHORITY_LIFETIME * 2 / 3 - dt.timedelta(days=1)
            authority = make_authority("old", made)
            leaf = issue_leaf(authority, NAMES, now())
            secret = {
                "ca.crt": authority.certificate,
                "ca.key": authority.key,
                "tls.crt": leaf.certificate,
                "tls.key": leaf.key,
            }
            write_pair(folder / "tls", leaf, now())
            wait_until(
                lambda: '"event": "certificate.loaded"' in log.read_text(), "the certificate served", WAIT_S
            )
            control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
            wait_until(
                lambda: control_plane.client.find(account) is not None, "the default service account", WAIT_S
            )
            control_plane.apply(configuration(port, authority.certificate))
            admission = Admission(control_plane, folder / "tls", log, port, secret, authority.certificate)
            wait_until(
                lambda: gates(admission.create(make_pod("probe"), dryRun="All")) == ["fluxqueue"],
                "the webhook being asked",
                WAIT_S,
            )
            yield admission
        finally:
            control_plane.client.request("DELETE", CONFIGURATION)
            control_plane.client.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
    assert_short_logged_blocks([log])


def configuration(port: int, authority: bytes) -> Json:
    rules = [(["batch"], "jobs"), ([""], "pods")]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "admission-test"},
        "webhooks": [
            {
                "name": "mutate.test.fluxqueue.jobs.converged-computing.org",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",
                "timeoutSeconds": 5,
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/mutate",
                    "caBundle": base64.b64encode(authority).decode(),
                },
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "rules": [
                    {
                        "apiGroups": groups,
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": [kind],
                    }
                    for groups, kind in rules
                ],
            }
        ],
    }


def nodes_of(cluster: ControlPlane) -> list[str]:
    return [node["metadata"]["name"] for node in cluster.client.get("/api/v1/nodes")["items"]]


def test_an_indexed_job_released_by_one_patch_runs_on_exactly_its_nodes(admission: Admission) -> None:
    created = admission.create(make_job("four").indexed(4).cpu("1").label("fluxqueue/queue", "long"))
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["annotations"]["fluxqueue/suspended-by"] == "webhook"
    assert created["spec"]["template"]["metadata"]["labels"]["fluxqueue/queue"] == "long"
    one, two, three, *_ = nodes_of(admission.cluster)
    admission.release("four", f"{one},{three},{three},{two}")
    assert admission.bound("four", 4) == {0: one, 1: three, 2: three, 3: two}
    for pod in admission.pods("job-name=four", 4):
        assert pod["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == pod["spec"]["nodeName"]
        assert gates(pod) == []


def test_a_grown_indexed_job_gets_its_new_pods_gated_and_without_an_allocation(admission: Admission) -> None:
    one, two, *_ = nodes_of(admission.cluster)
    admission.create(make_job("elastic").indexed(2))
    admission.release("elastic", f"{one},{two}")
    admission.bound("elastic", 2)
    admission.patch("jobs", "elastic", {"spec": {"parallelism": 4, "completions": 4}})
    new = [
        pod
        for pod in admission.pods("job-name=elastic", 4)
        if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] in "23"
    ]
    assert [gates(pod) for pod in new] == [["fluxqueue"], ["fluxqueue"]]
    assert not any("fluxqueue/fluxion-nodes" in pod["metadata"].get("annotations", {}) for pod in new)


def test_a_job_of_one_pod_keeps_what_its_user_required(admission: Admission) -> None:
    nodes = nodes_of(admission.cluster)
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    admission.create(make_job("one").with_("spec.template.spec.affinity", affinity))
    admission.release("one", nodes[4])
    assert admission.bound("one", 1) == {0: nodes[4]}
    (pod,) = admission.pods("job-name=one", 1)
    (kept,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert kept["matchExpressions"] == term["matchExpressions"]


def test_a_job_released_by_gates_gets_gated_pods(admission: Admission) -> None:
    admission.create(make_job("gated").pods(3, 9))
    admission.release("gated", None)
    assert [gates(pod) for pod in admission.pods("job-name=gated", 3)] == [["fluxqueue"]] * 3


def test_a_job_that_another_client_unsuspended_gets_gated_pods(admission: Admission) -> None:
    admission.create(make_job("resumed").pods(2, 2))
    admission.patch("jobs", "resumed", {"spec": {"suspend": False}})
    assert [gates(pod) for pod in admission.pods("job-name=resumed", 2)] == [["fluxqueue"]] * 2


def test_a_job_without_completions_is_complete_at_once(admission: Admission) -> None:
    admission.create(make_job("empty").pods(1, 0))
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/empty"
    wait_until(
        lambda: "completionTime" in admission.cluster.client.get(path)["status"],
        "the Job to be complete",
        WAIT_S,
    )


def test_pods_of_a_deployment_are_gated_and_those_of_a_daemon_set_run(admission: Admission) -> None:
    for kind, extra in (("Deployment", {"replicas": 2}), ("DaemonSet", {})):
        labels = {"app": kind.lower()}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        spec = {**extra, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": kind.lower(), "namespace": NAMESPACE}
        admission.create({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
    assert [gates(pod) for pod in admission.pods("app=deployment", 2)] == [["fluxqueue"]] * 2
    assert not any(gates(pod) for pod in admission.pods("app=daemonset", len(nodes_of(admission.cluster))))


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (
            make_pod("forged").allocation("n1"),
            (
                "Pod admission/forged: fluxqueue/allocation, fluxqueue/fluxion-nodes, "
                "fluxqueue/pin-until are written by fluxqueue only"
            ),
        ),
        (make_pod("owned").owned_by("Job").allocation("n1"), "are written by fluxqueue only, not by"),
        (
            make_job("late").annotation("fluxqueue/duration", "soon"),
            "annotation fluxqueue/duration: 'soon' is not a duration: write 90,",
        ),
        (
            make_job("high").annotation("fluxqueue/priority", "very"),
            "annotation fluxqueue/priority: 'very' is not a priority",
        ),
    ],
)
def test_a_person_reads_why_an_object_is_refused(admission: Admission, thing: Builder, sentence: str) -> None:
    with pytest.raises(ApiServerError, match="denied the request") as refused:
        admission.create(thing)
    assert sentence in str(refused.value)


def test_kubectl_shows_warnings_and_finds_nothing_to_change_afterwards(
    admission: Admission, tmp_path: Path
) -> None:
    job: JobBuilder = (
        make_job("kueued")
        .namespace(NAMESPACE)
        .label("kueue.x-k8s.io/queue-name", "q")
        .label("fluxqueue/queue", "long")
    )
    for name, thing in (
        ("kueued", job),
        ("plain", make_job("plain").namespace(NAMESPACE).without("spec.suspend")),
    ):
        manifest = tmp_path / f"{name}.json"
        manifest.write_text(json.dumps(thing.build()))
        applied = admission.cluster.kubectl("apply", "-f", str(manifest))
        assert ("Warning: Job admission/kueued: label fluxqueue/queue has no effect" in applied.stderr) == (
            name == "kueued"
        )
        assert admission.cluster.kubectl("diff", "-f", str(manifest), check=False).returncode == 0
        assert "unchanged" in admission.cluster.kubectl("apply", "-f", str(manifest)).stdout


def test_an_authority_is_replaced_without_one_failed_admission(admission: Admission) -> None:
    """The three steps of the plan at simulated times, while the API server keeps calling."""
    failures: list[str] = []
    asked, finished = 0, threading.Event()

    def ask() -> None:
        nonlocal asked
        while not finished.is_set():
            try:
                admission.create(make_pod("again"), dryRun="All")
                asked += 1
            except ApiServerError as error:
                failures.append(str(error))

    def asked_again() -> None:
        before = asked
        wait_until(lambda: asked > before + 20 or bool(failures), "twenty admissions more", WAIT_S)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        old = admission.secret["ca.crt"]
        asked_again()
        assert admission.keep_certificate(now())
        assert admission.bundle == old + admission.secret["next.crt"]
        asked_again()
        assert admission.keep_certificate(now() + SPREAD_TIME)
        following = admission.secret["ca.crt"]
        assert admission.bundle == old + following
        wait_until(
            lambda: admission.logged('"event": "certificate.loaded"') >= 2, "the new leaf served", WAIT_S
        )
        asked_again()
        assert admission.keep_certificate(now() + SPREAD_TIME + SETTLE_TIME)
        assert admission.bundle == following
        asked_again()
        assert admission.keep_certificate(now() + SPREAD_TIME + SETTLE_TIME) == ()
    finally:
        finished.set()
        asking.join(WAIT_S)
    assert failures == []
