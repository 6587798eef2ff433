"""In enforcing mode only exempt users bypass the queue, whether or not the webhook responds.
Here it never does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.admission import admit
from support.builders import (
    DAEMONSET_CONTROLLER,
    JOB_CONTROLLER,
    REPLICASET_CONTROLLER,
    Builder,
    Json,
    make_job,
    make_pod,
)
from support.chart_installation import MANAGED, UNMANAGED, Installation, Person

from fluxqueue.api import names
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until
from fluxqueue.webhook.decisions import AdmissionOutcome

OPT_OUT = {"fluxqueue/managed": "false"}
KUEUE = {"kueue.x-k8s.io/queue-name": "theirs"}
EXEMPT = {names.EXEMPT_ANNOTATION: "true"}
RULE = "may not take work out of the queue"
PODS = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}]


@pytest.fixture(scope="module", autouse=True)
def enforced(installation: Installation, alice: Person) -> Iterator[None]:
    def settled(refused: bool) -> None:
        wait_until(
            lambda: alice.create(opted_out_pod(), "--dry-run=server").refused_with(RULE) == refused,
            "the API server to know",
            30,
        )

    exempt = {"users": ["ops"], "serviceAccounts": [f"{MANAGED}:builder"], "groups": ["wheel"]}
    installation.upgrade(enforcement={"mode": "deny", "exempt": exempt})
    settled(True)
    yield
    installation.upgrade()
    settled(False)


@pytest.fixture(scope="module")
def ops(cluster: ControlPlane, root: Person) -> Person:
    """An exempt person, with the same rights as the others."""
    for user in ("ops", "one-of-wheel"):
        root.run("create", "rolebinding", user, "--clusterrole=edit", f"--user={user}")
    return Person(cluster, "ops")


def opted_out_pod() -> Builder:
    return make_pod("out").with_("metadata.labels", OPT_OUT)


def template(labels: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"labels": {"app": "out", **(labels or {})}, "annotations": annotations or {}},
        "spec": {"containers": PODS, **spec},
    }


def workload(kind: str, of: Json) -> Json:
    """An object of this kind whose pods are made from a template."""
    selector: Json = {"selector": {"matchLabels": {"app": "out"}}}
    job = {"spec": {"template": {**of, "spec": {**of["spec"], "restartPolicy": "Never"}}}}
    versions = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
    specs: dict[str, Json] = {
        "Job": job["spec"],
        "CronJob": {"schedule": "0 0 1 1 *", "jobTemplate": job},
        "ReplicationController": {"selector": {"app": "out"}, "template": of},
        "StatefulSet": {**selector, "serviceName": "out", "template": of},
    }
    spec = specs.get(kind, {**selector, "template": of})
    return {
        "apiVersion": versions.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": "out", "namespace": MANAGED},
        "spec": spec,
    }


KINDS = ["Job", "CronJob", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"]


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        pytest.param(
            make_pod("out").on_node("node-1"), "spec.nodeName: leave it out", id="by naming its node"
        ),
        pytest.param(opted_out_pod(), 'label fluxqueue/managed is "false": remove it', id="by opting out"),
        pytest.param(
            make_pod("out").with_("metadata.labels", KUEUE),
            "label kueue.x-k8s.io/queue-name",
            id="by another queue's label",
        ),
        pytest.param(
            make_pod("out").on_node("node-1").owned_by("DaemonSet"),
            "spec.nodeName",
            id="by claiming to be a DaemonSet's",
        ),
        pytest.param(
            make_pod("out").on_node("node-1").annotation("kubernetes.io/config.mirror", "x"),
            "spec.nodeName",
            id="by claiming to be static",
        ),
        pytest.param(
            make_pod("out").with_("metadata.labels", OPT_OUT).annotation("fluxqueue/exempt", "true"),
            "annotation fluxqueue/exempt is for who is exempt",
            id="by claiming to be exempt",
        ),
    ],
)
def test_a_pod_does_not_leave_the_queue(
    alice: Person, root: Person, ops: Person, pod: Builder, field: str
) -> None:
    for person in (alice, root):
        answer = person.create(pod, "--dry-run=server")
        assert answer.refused_with(f"Pod {MANAGED}/out: "), answer.output
        assert answer.refused_with(field), answer.output
        assert answer.refused_with(f"{RULE}; {person.user} is not exempt"), answer.output
    if "mirror" not in str(pod.build()):  # of which the API server has an opinion of its own
        assert ops.create(pod, "--dry-run=server").ok


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("out"), id="of no scheduler in particular"),
        pytest.param(make_pod("out").with_("spec.schedulerName", "another"), id="of another scheduler"),
        pytest.param(make_pod("out").owned_by("DaemonSet"), id="that says it is a DaemonSet's"),
    ],
)
def test_a_pod_that_the_webhook_did_not_see_is_refused_while_that_is_away(
    alice: Person, pod: Builder
) -> None:
    answer = alice.create(pod, "--dry-run=server")
    assert answer.refused_with(
        f"Pod {MANAGED}/out: it lacks the scheduling gate fluxqueue, because the admission webhook"
    ), answer.output
    assert alice.create(pod.with_("spec.schedulingGates", [{"name": "fluxqueue"}]), "--dry-run=server").ok
    assert alice.within(UNMANAGED).create(pod, "--dry-run=server").ok


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("taken_out", "field"),
    [
        pytest.param(
            template(nodeName="node-1"), "template.spec.nodeName: leave it out", id="by naming a node"
        ),
        pytest.param(template(OPT_OUT), 'label fluxqueue/managed is "false"', id="by opting out"),
        pytest.param(template(KUEUE), "label kueue.x-k8s.io/queue-name", id="by another queue's label"),
        pytest.param(template(OPT_OUT, EXEMPT), "annotation fluxqueue/exempt", id="by claiming to be exempt"),
    ],
)
def test_a_template_is_refused_where_its_writer_sees_it(
    alice: Person, ops: Person, kind: str, taken_out: Json, field: str
) -> None:
    answer = alice.create(workload(kind, taken_out), "--dry-run=server")
    assert answer.refused_with(f"{kind} {MANAGED}/out: "), answer.output
    assert answer.refused_with(field), answer.output
    assert answer.refused_with(RULE), answer.output
    assert ops.create(workload(kind, taken_out), "--dry-run=server").ok


@pytest.mark.parametrize("kind", KINDS)
def test_objects_in_the_queue_are_created_and_changed_as_usual(alice: Person, kind: str) -> None:
    document = workload(kind, template())
    document["metadata"]["name"] = f"in-{kind.lower()}"
    assert alice.create(document).ok
    metadata = {"metadata": {"labels": {"team": "x"}}}
    assert alice.patch(kind, document["metadata"]["name"], metadata).ok
    assert alice.run("delete", kind, document["metadata"]["name"], "--wait=false").ok


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
@pytest.mark.parametrize("labels", [OPT_OUT, KUEUE], ids=["opting out", "another queue's"])
def test_a_job_does_not_leave_the_queue_by_a_label_of_its_own(alice: Person, kind: str, labels: Json) -> None:
    document = workload(kind, template())
    (document if kind == "Job" else document["spec"]["jobTemplate"]).setdefault("metadata", {})["labels"] = (
        labels
    )
    assert alice.create(document, "--dry-run=server").refused_with(RULE)


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_job_does_not_leave_the_queue_by_another_controller(alice: Person, ops: Person, kind: str) -> None:
    document = workload(kind, template())
    spec = document["spec"] if kind == "Job" else document["spec"]["jobTemplate"]["spec"]
    spec["managedBy"] = "example.com/theirs"
    answer = alice.create(document, "--dry-run=server")
    assert answer.refused_with("managedBy hands it to another controller: leave it out"), answer.output
    assert ops.create(document, "--dry-run=server").ok
    spec["managedBy"] = "kubernetes.io/job-controller"
    assert alice.create(document, "--dry-run=server").ok


def test_only_exempt_users_run_daemonsets_outside_the_queue(alice: Person, ops: Person) -> None:
    daemons = workload("DaemonSet", template())
    assert alice.create(daemons, "--dry-run=server").refused_with(
        "a DaemonSet runs on every node beside the queue"
    )
    assert ops.create(daemons).ok
    wait_until(
        lambda: alice.get("daemonset", "out")["status"].get("currentNumberScheduled") == 2,
        "its pods on both nodes",
        30,
    )
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "theirs"}]}}}}
    assert alice.patch("daemonset", "out", image, "--type=strategic").refused_with(RULE)
    assert alice.patch("daemonset", "out", {"metadata": {"annotations": {"note": "x"}}}).ok
    assert alice.run("delete", "daemonset", "out", "--wait=false").ok


def test_a_queued_job_is_not_taken_out_by_an_edit(alice: Person) -> None:
    assert alice.create(make_job("edited").suspended()).ok
    for change in (
        {"metadata": {"labels": OPT_OUT}},
        {"spec": {"template": {"metadata": {"labels": OPT_OUT}}}},
    ):
        answer = alice.patch("job", "edited", change)
        assert answer.refused_with(f"Job {MANAGED}/edited: label fluxqueue/managed"), answer.output
    assert alice.patch("job", "edited", {"spec": {"parallelism": 2}}).ok


def test_objects_of_exempt_users_may_be_deleted_but_not_changed_by_others(alice: Person, ops: Person) -> None:
    document = workload("Deployment", template(OPT_OUT)) | {
        "metadata": {"name": "kept", "namespace": MANAGED}
    }
    document["spec"]["replicas"] = 0
    assert ops.create(document).ok
    assert alice.patch("deployment", "kept", {"spec": {"replicas": 9}}).refused_with(RULE)
    assert alice.patch("deployment", "kept", {"metadata": {"annotations": {"note": "x"}}}).ok
    mended = {"spec": {"template": {"metadata": {"labels": {"fluxqueue/managed": None}}}}}
    assert alice.patch("deployment", "kept", mended).ok
    assert alice.run("delete", "deployment", "kept", "--wait=false").ok


def test_controllers_create_pods_outside_the_queue_only_from_exempt_templates(
    root: Person, ops: Person
) -> None:
    def made(name: str, annotations: Json) -> Json:
        document = workload("Deployment", template(OPT_OUT, annotations)) | {
            "metadata": {"name": name, "namespace": MANAGED}
        }
        document["spec"]["replicas"] = 1
        assert ops.create(document).ok
        return document

    made("of-ops", EXEMPT)
    made("unsaid", {})
    wait_until(
        lambda: root.get("deployment", "of-ops")["status"].get("readyReplicas") == 1, "its pod running", 30
    )

    def told() -> bool:
        conditions = root.get("deployment", "unsaid")["status"].get("conditions", [])
        return any(RULE in condition["message"] for condition in conditions)

    wait_until(told, "the Deployment saying why it has no pods", 30)
    for name in ("of-ops", "unsaid"):
        assert ops.run("delete", "deployment", name, "--wait=false").ok


def test_pods_of_stock_controllers_are_checked_like_others(cluster: ControlPlane) -> None:
    for identity in (REPLICASET_CONTROLLER, JOB_CONTROLLER):
        controller = Person(cluster, identity)
        assert controller.create(opted_out_pod(), "--dry-run=server").refused_with(RULE)
        assert controller.create(make_pod("out"), "--dry-run=server").refused_with(
            "lacks the scheduling gate"
        )
        assert controller.create(
            opted_out_pod().annotation("fluxqueue/exempt", "true"), "--dry-run=server"
        ).ok
    allocated = make_pod("placed").allocation("node-1").owned_by("Job")
    assert Person(cluster, JOB_CONTROLLER).create(allocated, "--dry-run=server").ok
    assert (
        Person(cluster, JOB_CONTROLLER)
        .create(allocated.on_node("node-1"), "--dry-run=server")
        .refused_with("spec.nodeName")
    )
    assert (
        Person(cluster, DAEMONSET_CONTROLLER)
        .create(make_pod("d").owned_by("DaemonSet"), "--dry-run=server")
        .ok
    )
    assert (
        Person(cluster, DAEMONSET_CONTROLLER)
        .create(make_pod("d"), "--dry-run=server")
        .refused_with("lacks the scheduling gate")
    )


def test_the_queue_updates_objects_and_creates_none_outside_the_queue(queue: Person, ops: Person) -> None:
    """The queue creates the Job of a MiniCluster with labels that a user wrote."""
    document = make_job("found").suspended().pod_label("fluxqueue/managed", "false")
    owners = [
        {
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "name": "m",
            "uid": "u-1",
            "controller": True,
        }
    ]
    for made in (document, opted_out_pod().annotation("fluxqueue/exempt", "true")):
        assert queue.create(made.with_("metadata.ownerReferences", owners), "--dry-run=server").refused_with(
            RULE
        )
    assert ops.create(document).ok
    assert queue.patch("job", "found", {"spec": {"suspend": False}}).ok


def test_groups_and_service_accounts_are_exempt_too(cluster: ControlPlane, root: Person, ops: Person) -> None:
    document = json.dumps(opted_out_pod().namespace(MANAGED).build())
    create = ("create", "--dry-run=server", "-f", "-")
    assert cluster.kubectl("--as=one-of-wheel", *create, stdin=document, check=False).returncode != 0
    assert (
        cluster.kubectl(
            "--as=one-of-wheel", "--as-group=wheel", *create, stdin=document, check=False
        ).returncode
        == 0
    )
    for name, may in (("builder", True), ("other", False)):
        root.run("create", "rolebinding", name, "--clusterrole=edit", f"--serviceaccount={MANAGED}:{name}")
        answer = Person(cluster, f"system:serviceaccount:{MANAGED}:{name}").create(
            opted_out_pod(), "--dry-run=server"
        )
        assert answer.ok == may, answer.output


def test_a_pod_does_not_outgrow_its_slot_by_a_resize(root: Person, ops: Person, queue: Person) -> None:
    """`edit` may not resize. If an administrator grants it, a pod keeps the requests of its slot."""
    for name in ("queued", "placed"):
        unbound = (
            make_pod(name).cpu("100m").memory("64Mi").gate("fluxqueue").with_("spec.schedulerName", "nobody")
        )
        assert ops.create(unbound).ok
    ungate = {"spec": {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]}}
    assert queue.patch("pod", "placed", ungate, "--type=strategic").ok

    def resized(person: Person, name: str, cpu: str) -> Any:
        change = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
        return person.patch("pod", name, change, "--type=strategic", "--subresource=resize")

    answer = resized(root, "placed", "200m")
    assert answer.refused_with(f"Pod {MANAGED}/placed: resources.requests of main cannot grow"), answer.output
    assert resized(root, "placed", "50m").ok
    assert resized(root, "queued", "200m").ok, "what still waits may ask for more"


def test_warnings_replace_refusals_in_the_warn_mode(installation: Installation, alice: Person) -> None:
    installation.upgrade(enforcement={"mode": "warn"})
    try:

        def warned() -> bool:
            answer = alice.create(opted_out_pod(), "--dry-run=server")
            return answer.ok and RULE in answer.output

        wait_until(warned, "the pod let through with a warning", 30)
    finally:
        exempt = {"users": ["ops"], "serviceAccounts": [f"{MANAGED}:builder"], "groups": ["wheel"]}
        installation.upgrade(enforcement={"mode": "deny", "exempt": exempt})
        wait_until(
            lambda: alice.create(opted_out_pod(), "--dry-run=server").refused_with(RULE),
            "the API server to know",
            30,
        )


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(make_pod("out").on_node("node-1"), id="a pod that names its node"),
        pytest.param(make_pod("out").label("fluxqueue/managed", "false"), id="a pod that opts out"),
        pytest.param(make_pod("out").label("kueue.x-k8s.io/queue-name", "q"), id="a pod of another queue"),
        pytest.param(make_job("out").label("fluxqueue/managed", "false"), id="a Job that opts out"),
        pytest.param(
            make_job("out").pod_label("fluxqueue/managed", "false"), id="a Job whose template opts out"
        ),
        pytest.param(make_job("out").label("kueue.x-k8s.io/queue-name", "q"), id="a Job of another queue"),
        pytest.param(
            make_job("out").pod_label("kueue.x-k8s.io/queue-name", "q"),
            id="a Job of another queue by its template",
        ),
        pytest.param(
            make_job("out").with_("spec.template.spec.nodeName", "n1"), id="a Job that names a node"
        ),
        pytest.param(
            make_job("out").with_("spec.managedBy", "example.com/theirs"), id="a Job of another controller"
        ),
    ],
)
def test_objects_that_opt_out_by_themselves_are_refused(alice: Person, thing: Builder) -> None:
    assert admit(thing).decision.outcome is AdmissionOutcome.EXEMPT
    assert alice.create(thing, "--dry-run=server").refused_with(RULE)


def test_no_policy_of_it_has_a_type_error(root: Person) -> None:
    def policies() -> list[Json]:
        answer = root.run("get", "validatingadmissionpolicies", "--output=json")
        return [
            item for item in json.loads(answer.output)["items"] if "-enforce-" in item["metadata"]["name"]
        ]

    wait_until(
        lambda: all("typeChecking" in policy.get("status", {}) for policy in policies()),
        "every policy checked",
        60,
    )
    assert [policy["status"]["typeChecking"] for policy in policies()] == [{}] * 4
