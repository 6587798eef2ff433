"""Installing, upgrading and uninstalling with helm, and what the API server makes of everything rendered."""

import base64
import json
from typing import Any

import pytest
from chart_installation import QUEUE, Installation, Person
from chart_rendering import NAMESPACE, Chart

from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/fluxqueue-webhook"


@pytest.fixture(scope="session")
def chart(plane: ControlPlane) -> Chart:
    return Chart(plane.binaries[Tool.HELM])


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="as it comes"),
        pytest.param({"namespaces": "allButSystem", "webhook": {"replicas": 3}, "commonLabels": {"team": "hpc"}}, id="for all namespaces"),
        pytest.param({"postgres": {"enabled": False}, "database": {"existingSecret": {"name": "x"}}}, id="with a database of one's own"),
        pytest.param({"fullnameOverride": "a" * 40, "webhook": {"clientUrl": "https://127.0.0.1:1"}}, id="with the longest names"),
        pytest.param(
            {
                "webhook": {
                    "nodeSelector": {"a": "b"},
                    "tolerations": [{"operator": "Exists"}],
                    "priorityClassName": "system-node-critical",
                },
                "queue": {"affinity": {"nodeAffinity": {}}, "podAnnotations": {"a": "b"}},
                "imagePullSecrets": [{"name": "pull"}],
            },
            id="with every placement",
        ),
    ],
)
def test_the_api_server_accepts_all_of_it_without_a_warning(installation: Installation, chart: Chart, values: dict[str, Any]) -> None:
    rendered = chart.render(values, release="other")
    done = installation.plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", f"--namespace={NAMESPACE}", "-f", "-", stdin=rendered.text, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line]
    assert (done.returncode, complaints) == (0, [])
    assert len(done.stdout.splitlines()) == len(rendered.objects)


def test_every_pod_is_admitted_where_the_restricted_standard_is_enforced(installation: Installation, chart: Chart) -> None:
    name = "restricted"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane = installation.plane
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    rendered = chart.render(namespace=name)
    plane.apply(
        *({**account, "metadata": {"name": account["metadata"]["name"], "namespace": name}} for account in rendered.all("ServiceAccount"))
    )
    for workload, spec in rendered.pod_specs():
        mounted = (
            [{"name": "data", "emptyDir": {}}] if any(m["name"] == "data" for c in spec["containers"] for m in c["volumeMounts"]) else []
        )
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": workload, "namespace": name},
            "spec": {**spec, "volumes": [*spec["volumes"], *mounted]},
        }
        plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def test_no_policy_has_a_type_error(installation: Installation) -> None:
    def policies() -> list[dict[str, Any]]:
        found = installation.plane.client.get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
        return [policy for policy in found["items"] if policy["metadata"]["name"].startswith("fluxqueue-")]

    wait_until(lambda: all("typeChecking" in policy.get("status", {}) for policy in policies()), "the controller to check every policy", 30)
    assert {policy["metadata"]["name"] for policy in policies()} == {"fluxqueue-jobs", "fluxqueue-pods", "fluxqueue-fluxjobs"}
    assert [policy["status"]["typeChecking"] for policy in policies()] == [{}, {}, {}]


def test_the_queue_publishes_its_authority_and_an_upgrade_leaves_it(installation: Installation, queue: Person) -> None:
    authority = base64.b64encode(b"an authority").decode()
    change = {"webhooks": [{"name": "mutate.fluxqueue.jobs.converged-computing.org", "clientConfig": {"caBundle": authority}}]}
    assert queue.patch("mutatingwebhookconfiguration", "fluxqueue-webhook", change, "--type=strategic", "--dry-run=server").ok
    client = installation.plane.client
    bundle = installation.plane.authority.read_bytes()  # one the API server can read
    change["webhooks"][0]["clientConfig"] = {"caBundle": base64.b64encode(bundle).decode()}
    assert queue.patch("mutatingwebhookconfiguration", "fluxqueue-webhook", change, "--type=strategic").ok
    installation.upgrade(webhook={"timeoutSeconds": 3})
    (webhook,) = client.get(CONFIGURATION)["webhooks"]
    assert webhook["timeoutSeconds"] == 3
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == bundle


FOR_MINICLUSTERS = [("create", "pods"), ("create", "jobs"), ("delete", "jobs"), ("get", "secrets")]
"""What only those who run MiniClusters give to the queue: it makes their objects, in whatever namespace they are."""


def test_the_queue_has_its_rights_and_no_more(installation: Installation, queue: Person) -> None:
    inside = queue.within(NAMESPACE)
    assert all(queue.may(*right) for right in FOR_MINICLUSTERS)
    assert not queue.may("list", "secrets")
    assert not queue.may("create", "pods", "--subresource=binding")
    assert not queue.may("patch", "mutatingwebhookconfigurations/somebody-else-s")
    assert not queue.may("create", "leases")
    installation.upgrade(miniclusters={"enabled": False})
    wait_until(lambda: not any(queue.may(*right) for right in FOR_MINICLUSTERS), "the rights to be taken back", 30)
    assert inside.may("create", "leases")
    assert inside.may("get", "secrets/fluxqueue-webhook-tls")
    assert not inside.may("get", "secrets/dsn")
    installation.upgrade()
    wait_until(lambda: all(queue.may(*right) for right in FOR_MINICLUSTERS), "the rights to be given again", 30)


def test_the_webhook_has_no_rights(installation: Installation) -> None:
    webhook = Person(installation.plane, QUEUE.replace("-queue", "-webhook"))
    for verb, resource in (("get", "pods"), ("get", "secrets"), ("get", "fluxjobs"), ("list", "namespaces")):
        assert not webhook.may(verb, resource)


def test_what_an_administrator_made_of_the_default_queue_survives_an_upgrade(installation: Installation, root: Person) -> None:
    assert root.patch("fluxqueue", "default", {"spec": {"policy": "fcfs"}}).ok
    installation.upgrade()
    assert root.get("fluxqueue", "default")["spec"]["policy"] == "fcfs"
    assert root.patch("fluxqueue", "default", {"spec": {"policy": "easy"}}).ok


def test_uninstalling_leaves_the_kinds_and_what_is_of_them_and_installing_again_takes_them_up(
    installation: Installation, root: Person, queue: Person
) -> None:
    before = root.get("crd", "fluxjobs.jobs.converged-computing.org")["metadata"]["uid"]
    installation.uninstall()
    assert not root.run("get", "clusterrole", "fluxqueue-queue").ok
    assert not root.run("get", "validatingadmissionpolicy", "fluxqueue-jobs").ok
    assert root.run("get", "fluxqueue", "default").ok
    installation.install()
    assert root.get("crd", "fluxjobs.jobs.converged-computing.org")["metadata"]["uid"] == before
    assert queue.may("patch", "jobs")
