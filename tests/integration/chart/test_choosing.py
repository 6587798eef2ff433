"""The choice of a pod's scheduler by the real webhook, called by a real API server,
with the chart's rights.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.builders import Builder, Json, PodBuilder, make_job, make_pod, make_queue
from support.chart_installation import MANAGED, QUEUE, Installation, Person
from support.chart_rendering import NAMESPACE

from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import wait_until

WAIT_S = 60


@pytest.fixture(scope="module", autouse=True)
def webhook(
    installation: Installation, cluster: ControlPlane, root: Person, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The webhook as the chart runs it if our scheduler is installed and kube-scheduler is the default."""
    folder, port, now = tmp_path_factory.mktemp("choosing"), free_port(), dt.datetime.now(dt.UTC)
    authority = make_authority("choosing", now)
    write_pair(folder / "tls", issue_leaf(authority, ServingNames(addresses=("127.0.0.1",)), now), now)
    url = {"clientUrl": f"https://127.0.0.1:{port}", "failurePolicy": "Fail", "replicas": 0}
    installation.upgrade(scheduler={"enabled": True, "replicas": 0}, webhook=url)
    bundle = [
        {
            "op": "add",
            "path": "/webhooks/0/clientConfig/caBundle",
            "value": base64.b64encode(authority.certificate).decode(),
        }
    ]
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        assert root.run("patch", kind, "fluxqueue-webhook", "--type=json", f"--patch={json.dumps(bundle)}").ok
    command = [
        sys.executable,
        "-m",
        "fluxqueue.webhook.main",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--cert-dir",
        str(folder / "tls"),
    ]
    command += [
        "--default-scheduler",
        "stock",
        "--kubeconfig",
        str(cluster.service_account_kubeconfig(NAMESPACE, "fluxqueue-webhook")),
    ]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen([*command, "--drain-seconds", "0"], stderr=log) as process,
    ):
        try:
            wait_until(
                lambda: root.create(make_pod("probe"), "--dry-run=server").ok, "the webhook answering", WAIT_S
            )
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
    installation.upgrade()
    wait_until(
        lambda: root.create(make_pod("probe"), "--dry-run=server").ok,
        "the webhook not being asked any more",
        WAIT_S,
    )


@pytest.fixture(scope="module")
def gold(root: Person) -> Iterator[None]:
    """A queue whose pods our scheduler binds."""
    assert root.create(make_queue("gold", scheduler="fluxion")).ok
    wait_until(
        lambda: scheduler_of(root, make_pod().label("fluxqueue/queue", "gold")) == "FluxionScheduler",
        "the queue being known",
        WAIT_S,
    )
    yield
    root.run("delete", "fluxqueue", "gold")


def admitted(person: Person, thing: Builder) -> Json:
    answer = person.create(thing, "--dry-run=server", "--output=json")
    assert answer.ok, answer.output
    found: Json = json.loads(answer.output)
    return found


def scheduler_of(person: Person, pod: PodBuilder) -> str:
    return str(admitted(person, pod)["spec"]["schedulerName"])


def say(root: Person, scheduler: str | None) -> None:
    assert root.patch("fluxqueue", "gold", {"spec": {"scheduler": scheduler}}).ok


def pods_of(root: Person, job: str, count: int) -> list[Json]:
    found: list[Json] = []

    def enough() -> bool:
        answer = root.run("get", "pods", f"--selector=job-name={job}", "--output=json")
        found[:] = [
            pod for pod in json.loads(answer.output)["items"] if not pod["metadata"].get("deletionTimestamp")
        ]
        return len(found) == count

    wait_until(enough, f"{count} pods of {job}", WAIT_S)
    return found


def release(cluster: ControlPlane, job: str, scheduler: str, nodes: list[str]) -> None:
    """Release a Job as the queue does with a pin."""
    keys: dict[str, Any] = {
        "fluxqueue/allocation": "7",
        "fluxqueue/fluxion-nodes": ",".join(nodes),
        "fluxqueue/gang-size": str(len(nodes)),
        "fluxqueue/pin-until": "2100-01-01T00:00:00Z",
        "fluxqueue/scheduler": scheduler,
    }
    template = {"metadata": {"annotations": keys}, "spec": {"schedulingGates": [{"name": "fluxqueue"}]}}
    answer = Person(cluster, QUEUE).patch(
        "job", job, {"spec": {"suspend": False, "template": template}}, "--type=strategic"
    )
    assert answer.ok, answer.output


@pytest.mark.usefixtures("gold")
def test_a_queue_is_switched_over_by_one_edit_and_its_label_goes_first(root: Person) -> None:
    pod = make_pod().label("fluxqueue/queue", "gold")
    assert scheduler_of(root, make_pod()) == "default-scheduler"
    assert scheduler_of(root, pod.label("fluxqueue/scheduler", "stock")) == "default-scheduler"
    assert scheduler_of(root, make_pod().label("fluxqueue/scheduler", "fluxion")) == "FluxionScheduler"
    say(root, None)
    wait_until(lambda: scheduler_of(root, pod) == "default-scheduler", "the edit being known", WAIT_S)
    say(root, "fluxion")
    wait_until(lambda: scheduler_of(root, pod) == "FluxionScheduler", "the second edit being known", WAIT_S)


@pytest.mark.usefixtures("gold")
def test_a_queue_that_does_not_exist_is_told_at_apply(root: Person) -> None:
    answer = root.create(make_job("typo").label("fluxqueue/queue", "glod"), "--dry-run=server")
    assert answer.ok
    assert "there is no queue 'glod', so it waits until there is: did you mean gold?" in answer.output
    assert (
        "there is no queue"
        not in root.create(make_job("right").label("fluxqueue/queue", "gold"), "--dry-run=server").output
    )


@pytest.mark.usefixtures("gold")
def test_a_namespace_names_the_queue_of_its_pods(root: Person) -> None:
    assert root.run("label", "namespace", MANAGED, "fluxqueue/queue=gold").ok
    wait_until(lambda: scheduler_of(root, make_pod()) == "FluxionScheduler", "the label being known", WAIT_S)
    assert root.run("label", "namespace", MANAGED, "fluxqueue/queue-").ok
    wait_until(lambda: scheduler_of(root, make_pod()) == "default-scheduler", "the label being gone", WAIT_S)


@pytest.mark.usefixtures("gold")
def test_released_work_keeps_its_scheduler_while_its_queue_is_switched_over(
    cluster: ControlPlane, root: Person
) -> None:
    nodes = [node["metadata"]["name"] for node in cluster.client.get("/api/v1/nodes")["items"]][:2]
    job = make_job("lammps").indexed(2).label("fluxqueue/queue", "gold").with_("spec.backoffLimit", 6)
    assert root.create(job).ok
    release(cluster, "lammps", "fluxion", nodes)
    say(root, "stock")
    wait_until(
        lambda: scheduler_of(root, make_pod().label("fluxqueue/queue", "gold")) == "default-scheduler",
        "the queue switched over",
        WAIT_S,
    )
    first = pods_of(root, "lammps", 2)
    assert root.run(
        "delete", "pod", first[0]["metadata"]["name"], "--wait=false", "--grace-period=0", "--force"
    ).ok
    wait_until(
        lambda: (
            {pod["metadata"]["uid"] for pod in pods_of(root, "lammps", 2)}
            != {pod["metadata"]["uid"] for pod in first}
        ),
        "a replacement",
        WAIT_S,
    )
    for pod in pods_of(root, "lammps", 2):
        index = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
        assert pod["spec"]["schedulerName"] == "FluxionScheduler"
        assert pod["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == nodes[index]
        assert pod["metadata"]["annotations"]["fluxqueue/gang-size"] == "2"
        assert "affinity" not in pod["spec"]
        assert "schedulingGates" not in pod["spec"]
        assert "nodeName" not in pod["spec"], "the stock scheduler leaves it alone"
    assert root.create(make_job("after").label("fluxqueue/queue", "gold")).ok
    release(cluster, "after", "stock", nodes[:1])
    wait_until(
        lambda: pods_of(root, "after", 1)[0]["spec"].get("nodeName") == nodes[0],
        "the next Job bound by the stock scheduler",
        WAIT_S,
    )
    say(root, "fluxion")
    assert root.run("delete", "jobs", "lammps", "after").ok


def test_an_unknown_scheduler_is_refused_in_one_sentence(root: Person) -> None:
    answer = root.create(make_pod("bad").label("fluxqueue/scheduler", "ours"))
    assert answer.refused_with(
        "Pod managed/bad: label fluxqueue/scheduler: 'ours' is no scheduler: write stock or fluxion"
    )
    assert root.create(make_queue("bad", scheduler="ours")).refused_with('Unsupported value: "ours"')


def test_a_policy_keeps_people_from_setting_the_gang_size(alice: Person) -> None:
    assert alice.create(make_pod("forged").annotation("fluxqueue/gang-size", "2")).refused_with(
        "written by fluxqueue only"
    )
