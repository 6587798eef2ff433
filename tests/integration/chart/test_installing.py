"""Installing, upgrading and uninstalling with helm, and whether the API server accepts all rendered
objects.
"""

import base64
import json
from typing import Any

import pytest
import yaml
from support.chart_installation import QUEUE, UNMANAGED, Installation, Person
from support.chart_rendering import NAMESPACE, SHARED, Chart

from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/fluxqueue-webhook"


@pytest.fixture(scope="session")
def chart(cluster: ControlPlane) -> Chart:
    return Chart(cluster.binaries[Tool.HELM])


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="as it comes"),
        pytest.param(
            {
                "namespaces": "allButSystem",
                "exemptNamespaces": ["cni"],
                "webhook": {"replicas": 3},
                "commonLabels": {"team": "hpc"},
            },
            id="for all namespaces",
        ),
        pytest.param(
            {"postgres": {"enabled": False}, "database": {"existingSecret": {"name": "x"}}},
            id="with a database of one's own",
        ),
        pytest.param(
            {"fullnameOverride": "a" * 40, "webhook": {"clientUrl": "https://127.0.0.1:1"}},
            id="with the longest names",
        ),
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
        pytest.param(
            {
                "postgres": {"backup": {"enabled": True}},
                "networkPolicy": {
                    "apiServerCIDRs": ["10.0.0.0/28", "fd00::/64"],
                    "metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
                },
                "scheduler": {"enabled": True, "extender": {"enabled": True, "clientCASecret": "clients"}},
            },
            id="with backups, and addresses for its network policies",
        ),
        pytest.param(
            {
                "scheduler": {
                    "enabled": True,
                    "default": "fluxion",
                    "extender": {"enabled": True, "tlsSecret": "a", "clientCASecret": "b"},
                }
            },
            id="with our scheduler and its extender",
        ),
    ],
)
def test_the_api_server_accepts_all_of_it_without_a_warning(
    installation: Installation, chart: Chart, values: dict[str, Any]
) -> None:
    # needs its ServiceAccount
    objects = [found for found in chart.render(values, release="other").objects if found["kind"] != "Pod"]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = installation.cluster.kubectl(
        "apply",
        "--dry-run=server",
        "--validate=strict",
        f"--namespace={NAMESPACE}",
        "-f",
        "-",
        stdin=listed,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line]
    assert (done.returncode, complaints) == (0, [])
    assert len(done.stdout.splitlines()) == len(objects)


def test_every_pod_is_admitted_where_the_restricted_standard_is_enforced(
    installation: Installation, chart: Chart
) -> None:
    name = "restricted"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster = installation.cluster
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    rendered = chart.render({"postgres": {"backup": {"enabled": True}}}, namespace=name)
    cluster.apply(
        *(
            {**account, "metadata": {"name": account["metadata"]["name"], "namespace": name}}
            for account in rendered.all("ServiceAccount")
        )
    )
    jobs = [
        (job["metadata"]["name"], job["spec"]["jobTemplate"]["spec"]["template"]["spec"])
        for job in rendered.all("CronJob")
    ]
    tests = [(pod["metadata"]["name"], pod["spec"]) for pod in rendered.all("Pod")]
    for workload, spec in (*rendered.pod_specs(), *jobs, *tests):
        mounted = (
            [{"name": "data", "emptyDir": {}}]
            if any(m["name"] == "data" for c in spec["containers"] for m in c["volumeMounts"])
            else []
        )
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": workload, "namespace": name},
            "spec": {**spec, "volumes": [*spec["volumes"], *mounted]},
        }
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def test_the_values_of_a_shared_cluster_are_accepted_and_name_what_only_the_site_knows(
    installation: Installation,
) -> None:
    shared = yaml.safe_load(SHARED.read_text())
    accepted = installation.tried(
        **{**shared, "webhook": {"replicas": 0, "failurePolicy": "Fail"}}, crds={"install": False}
    )
    assert accepted.ok, accepted.output
    assert "- networkPolicy.apiServerCIDRs is empty" in accepted.output


def test_a_namespace_that_the_queue_needs_to_start_is_named_until_it_is_exempt(
    installation: Installation,
) -> None:
    everything = {"namespaces": "allButSystem", "crds": {"install": False}}
    installation.cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cert-manager"}},
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "rook-ceph", "labels": {"fluxqueue/managed": "false"}},
        },
    )
    refused = installation.tried(**everything, exemptNamespaces=["cni"])
    assert refused.refused_with("pods of cert-manager would wait for fluxqueue, which may wait for them")
    assert "rook-ceph" not in refused.output
    for said in (
        {"exemptNamespaces": ["cert-manager"]},
        {"exemptNamespaces": ["cni"], "exemptionsAcknowledged": True},
    ):
        accepted = installation.tried(**everything, **said)
        assert accepted.ok, accepted.output
    assert (
        "WARNING: not exempt: cert-manager"
        in installation.tried(**everything, exemptionsAcknowledged=True).output
    )


def test_no_policy_has_a_type_error(installation: Installation) -> None:
    def policies() -> list[dict[str, Any]]:
        found = installation.cluster.client.get(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        )
        return [policy for policy in found["items"] if policy["metadata"]["name"].startswith("fluxqueue-")]

    wait_until(
        lambda: all("typeChecking" in policy.get("status", {}) for policy in policies()),
        "the controller to check every policy",
        30,
    )
    kinds = ("jobs", "pods", "bindings", "miniclusters", "fluxjobs", "queue", "nodes", "owners")
    found = {policy["metadata"]["name"]: policy["status"]["typeChecking"] for policy in policies()}
    assert found == {f"fluxqueue-{kind}": {} for kind in kinds}


def test_the_queue_publishes_its_authority_and_an_upgrade_leaves_it(
    installation: Installation, queue: Person
) -> None:
    authority = base64.b64encode(b"an authority").decode()
    change = {
        "webhooks": [
            {"name": "mutate.fluxqueue.jobs.converged-computing.org", "clientConfig": {"caBundle": authority}}
        ]
    }
    assert queue.patch(
        "mutatingwebhookconfiguration", "fluxqueue-webhook", change, "--type=strategic", "--dry-run=server"
    ).ok
    client = installation.cluster.client
    bundle = installation.cluster.authority.read_bytes()  # one the API server can read
    change["webhooks"][0]["clientConfig"] = {"caBundle": base64.b64encode(bundle).decode()}
    assert queue.patch("mutatingwebhookconfiguration", "fluxqueue-webhook", change, "--type=strategic").ok
    installation.upgrade(webhook={"timeoutSeconds": 3})
    webhook = next(
        each
        for each in client.get(CONFIGURATION)["webhooks"]
        if each["name"] == change["webhooks"][0]["name"]
    )
    assert webhook["timeoutSeconds"] == 3
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == bundle


FOR_MINICLUSTERS = [("create", "pods"), ("create", "jobs"), ("delete", "jobs"), ("create", "secrets")]
"""Rights for MiniClusters only: the queue creates their objects where MiniClusters are served."""


def test_the_queue_has_its_rights_and_no_more(installation: Installation, queue: Person) -> None:
    inside = queue.within(NAMESPACE)
    assert all(queue.may(*right) for right in FOR_MINICLUSTERS)
    assert not queue.may("list", "secrets")
    assert not queue.may("get", "secrets")
    assert not queue.may("create", "pods", "--subresource=binding")
    assert not queue.may("patch", "mutatingwebhookconfigurations/somebody-else-s")
    assert not queue.may("create", "leases")
    installation.upgrade(miniclusters={"enabled": True, "namespaces": [UNMANAGED]})
    wait_until(
        lambda: not any(queue.may(*right) for right in FOR_MINICLUSTERS),
        "the rights to be taken back elsewhere",
        30,
    )
    assert all(queue.within(UNMANAGED).may(*right) for right in FOR_MINICLUSTERS)
    installation.upgrade(miniclusters={"enabled": False, "namespaces": []})
    wait_until(
        lambda: not any(queue.may(*right) for right in FOR_MINICLUSTERS), "the rights to be taken back", 30
    )
    assert inside.may("create", "leases")
    assert inside.may("get", "secrets/fluxqueue-webhook-tls")
    assert not inside.may("get", "secrets/dsn")
    installation.upgrade()
    wait_until(
        lambda: all(queue.may(*right) for right in FOR_MINICLUSTERS), "the rights to be given again", 30
    )


def test_the_webhook_has_no_rights(installation: Installation) -> None:
    webhook = Person(installation.cluster, QUEUE.replace("-queue", "-webhook"))
    for verb, resource in (("get", "pods"), ("get", "secrets"), ("get", "fluxjobs"), ("list", "namespaces")):
        assert not webhook.may(verb, resource)


@pytest.mark.parametrize(("audience", "known"), [("fluxqueue", False), ("", True)])
def test_a_token_that_people_request_for_the_queue_opens_nothing_else(
    installation: Installation, root: Person, audience: str, known: bool
) -> None:
    asked = [f"--audience={audience}"] if audience else []
    token = root.within(NAMESPACE).run("create", "token", "fluxqueue-doctor", *asked).output.strip()
    cluster = installation.cluster
    where = [
        "--kubeconfig=/dev/null",
        f"--server={cluster.server}",
        f"--certificate-authority={cluster.authority}",
        f"--token={token}",
    ]
    done = cluster.kubectl(*where, "auth", "whoami", check=False)
    assert ("fluxqueue-doctor" in done.stdout) is known
    assert ("Unauthorized" in done.stderr) is not known


def test_an_edited_default_queue_survives_an_upgrade(installation: Installation, root: Person) -> None:
    assert root.patch("fluxqueue", "default", {"spec": {"policy": "fcfs"}}).ok
    installation.upgrade()
    assert root.get("fluxqueue", "default")["spec"]["policy"] == "fcfs"
    assert root.patch("fluxqueue", "default", {"spec": {"policy": "easy"}}).ok


def test_a_new_installation_adopts_the_crds_and_objects_of_an_uninstalled_one(
    installation: Installation, root: Person, queue: Person
) -> None:
    before = root.get("crd", "fluxjobs.jobs.converged-computing.org")["metadata"]["uid"]
    assert root.patch("fluxqueue", "default", {"spec": {"policy": "conservative", "maxPriority": 7}}).ok
    edited = root.get("fluxqueue", "default")
    installation.uninstall()
    assert not root.run("get", "clusterrole", "fluxqueue-queue").ok
    assert not root.run("get", "validatingadmissionpolicy", "fluxqueue-jobs").ok
    assert root.run("get", "fluxqueue", "default").ok
    installation.install()
    assert root.get("crd", "fluxjobs.jobs.converged-computing.org")["metadata"]["uid"] == before
    kept = root.get("fluxqueue", "default")
    assert (kept["metadata"]["uid"], kept["spec"]) == (edited["metadata"]["uid"], edited["spec"])
    assert queue.may("patch", "jobs")
