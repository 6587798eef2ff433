"""Every way to forge what only the queue may write is refused, in every namespace.

The rows of `docs/reference/trusted-writes.md`, with the rights of the cluster's own role ``edit`` and, where
that lacks a right, with an administrator's.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.builders import Builder, Json, make_job, make_pod
from support.chart_installation import (
    CONTROLLER_MANAGER,
    JOB_CONTROLLER,
    MANAGED,
    UNMANAGED,
    Installation,
    Person,
    fluxjob,
)

from fluxqueue.api import names
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

pytestmark = pytest.mark.usefixtures("installation")

EVERYWHERE = pytest.mark.parametrize("namespace", [MANAGED, UNMANAGED])
WRITTEN_BY_US = "written by fluxqueue only, not by "
GATE_REMOVED = "the scheduling gate fluxqueue is removed by fluxqueue only"
UNGATE: Json = {"spec": {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]}}


def annotated(key: str, value: str = "7") -> Json:
    return {"metadata": {"annotations": {key: value}}}


def in_template(key: str, value: str = "7") -> Json:
    return {"spec": {"template": annotated(key, value)}}


def server_side(person: Person, thing: Builder) -> Any:
    document = json.dumps(thing.namespace(person.namespace).build())
    return person.run(
        "apply", "--server-side", "--force-conflicts", "--field-manager=fluxqueue", "-f", "-", stdin=document
    )


@EVERYWHERE
@pytest.mark.parametrize("key", names.ALLOCATION_KEYS)
def test_objects_with_an_allocation_cannot_be_created_or_applied(
    alice: Person, namespace: str, key: str
) -> None:
    person = alice.within(namespace)
    for forged in (
        make_job("forged").annotation(key, "7"),
        make_job("forged").label(key, "7"),
        make_job("forged").pod_annotation(key, "7"),
        make_job("forged").pod_label(key, "7"),
        make_pod("forged").annotation(key, "7"),
        make_pod("forged").label(key, "7"),
    ):
        assert person.create(forged, "--dry-run=server").refused_with(WRITTEN_BY_US + "alice")
    assert server_side(person, make_pod("forged").annotation(key, "7")).refused_with(WRITTEN_BY_US + "alice")


@EVERYWHERE
@pytest.mark.parametrize("powerful", [False, True], ids=["edit", "administrator"])
def test_nobody_keeps_the_webhook_from_a_pod_by_its_label(
    alice: Person, root: Person, namespace: str, powerful: bool
) -> None:
    """The configuration leaves out pods with this very value."""
    person = (root if powerful else alice).within(namespace)
    mark = {"metadata": {"labels": {names.PINNED_LABEL: names.PINNED_VALUE}}}
    refusal = WRITTEN_BY_US + person.user
    for forged in (
        make_pod("forged").label(names.PINNED_LABEL, names.PINNED_VALUE),
        make_job("forged").label(names.PINNED_LABEL, names.PINNED_VALUE),
        make_job("forged").pod_label(names.PINNED_LABEL, names.PINNED_VALUE),
    ):
        assert person.create(forged, "--dry-run=server").refused_with(refusal)
    for thing in (make_job("unmarked").suspended(), make_pod("unmarked").gate("somebody/else")):
        server_side(person, thing)
    for kind in ("job", "pod"):
        assert person.patch(kind, "unmarked", mark).refused_with(refusal)
    assert person.patch("job", "unmarked", {"spec": {"template": mark}}).refused_with(refusal)
    assert person.run("delete", "job,pod", "unmarked", "--wait=false").ok


@EVERYWHERE
@pytest.mark.parametrize("key", names.ALLOCATION_KEYS)
def test_an_allocation_cannot_be_added_to_an_existing_object(
    alice: Person, root: Person, namespace: str, key: str
) -> None:
    person, powerful = alice.within(namespace), root.within(namespace)
    for thing in (make_job("plain").suspended(), make_pod("plain").gate("somebody/else")):
        server_side(person, thing)
    for kind in ("job", "pod"):
        assert person.patch(kind, "plain", annotated(key)).refused_with(WRITTEN_BY_US + "alice")
        assert person.patch(kind, "plain", {"metadata": {"labels": {key: "7"}}}).refused_with(
            WRITTEN_BY_US + "alice"
        )
        assert powerful.patch(kind, "plain", annotated(key), "--subresource=status").refused_with(
            WRITTEN_BY_US + "root"
        )
        assert person.patch(kind, "plain", {"metadata": {"labels": {"team": key.rsplit("/", 1)[1]}}}).ok, (
            "everything else stays theirs"
        )
    assert person.patch("job", "plain", in_template(key)).refused_with(WRITTEN_BY_US + "alice")
    assert server_side(person, make_job("plain").suspended().annotation(key, "7")).refused_with(
        WRITTEN_BY_US + "alice"
    )


@pytest.mark.parametrize("key", names.ALLOCATION_KEYS)
@pytest.mark.parametrize("mark", ["annotations", "labels"])
def test_what_the_queue_has_written_is_neither_changed_nor_removed_not_even_through_the_status(
    alice: Person, root: Person, queue: Person, mark: str, key: str
) -> None:
    name = f"written-{names.ALLOCATION_KEYS.index(key)}-{mark}"
    written: Json = {"metadata": {mark: {key: "7"}}}
    assert alice.create(make_job(name).suspended()).ok
    assert alice.create(make_pod(name).gate("fluxqueue")).ok
    assert queue.patch("job", name, {**written, "spec": {"template": written}}).ok
    assert queue.patch("pod", name, written).ok
    for value in ("8", None):
        change: Json = {"metadata": {mark: {key: value}}}
        for kind in ("job", "pod"):
            assert alice.patch(kind, name, change).refused_with(WRITTEN_BY_US + "alice")
            assert root.patch(kind, name, change, "--subresource=status").refused_with(WRITTEN_BY_US + "root")
        assert alice.patch("job", name, {"spec": {"template": change}}).refused_with(WRITTEN_BY_US + "alice")
    resumed = alice.patch("job", name, {"spec": {"suspend": False}})
    assert resumed.refused_with(
        "this Job still carries an allocation: resume it again once fluxqueue has removed that, "
        "unless fluxqueue suspended it"
    ), "any key in any place counts"
    for kind in ("job", "pod"):
        assert root.patch(kind, name, {"metadata": {mark: {"theirs": "1"}}}, "--subresource=status").ok, (
            "everything else passes"
        )


def test_pods_get_no_allocation_by_their_deployment_s_template(alice: Person) -> None:
    for namespace in (MANAGED, UNMANAGED):
        person = alice.within(namespace)
        template = {
            "metadata": {"labels": {"app": "forged"}, "annotations": {names.ALLOCATION_ANNOTATION: "7"}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "forged"}}, "template": template}
        assert person.create(
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "forged"}, "spec": spec}
        ).ok

        def told(person: Person = person) -> bool:
            conditions = person.get("replicaset", "forged").get("status", {}).get("conditions", [])
            return any(WRITTEN_BY_US in condition["message"] for condition in conditions)

        wait_until(told, "the ReplicaSet saying why it has no pod", 20)
        assert person.run("delete", "replicaset", "forged").ok


@EVERYWHERE
def test_a_controller_manager_of_one_identity_hands_on_allocations_of_jobs_alone(
    cluster: ControlPlane, root: Person, namespace: str
) -> None:
    root.within(namespace).run(
        "create", "rolebinding", "one-identity", "--clusterrole=edit", f"--user={CONTROLLER_MANAGER}"
    )
    for identity in (CONTROLLER_MANAGER, JOB_CONTROLLER):
        controller = Person(cluster, identity, namespace)
        made = make_pod("made").allocation("node-1")
        answer = controller.create(made.owned_by("Job", "j"), "--dry-run=server")
        assert answer.ok, answer.output
        held = made.label(names.PINNED_LABEL, names.PINNED_VALUE)
        assert controller.create(held.owned_by("Job", "j"), "--dry-run=server").ok
        for forged in (
            held,
            held.owned_by("ReplicaSet"),
            make_pod("made").label(names.PINNED_LABEL, names.PINNED_VALUE),
        ):
            answer = controller.create(forged, "--dry-run=server")
            assert answer.refused_with(WRITTEN_BY_US), answer.output
        for forged in (
            made,
            made.owned_by("ReplicaSet"),
            made.owned_by("Job", controller=False),
            made.owned_by("Job", api_version="x/v1"),
        ):
            answer = controller.create(forged, "--dry-run=server")
            assert answer.refused_with(WRITTEN_BY_US), answer.output


def test_not_even_the_queue_creates_an_object_with_an_allocation(queue: Person, root: Person) -> None:
    """Otherwise the author of a MiniCluster could make the queue forge an allocation."""
    for forged in (
        make_job("forged").pod_annotation(names.ALLOCATION_ANNOTATION, "7"),
        make_pod("forged").allocation("node-1"),
    ):
        owned = forged.with_(
            "metadata.ownerReferences",
            [
                {
                    "apiVersion": "flux-framework.org/v1alpha2",
                    "kind": "MiniCluster",
                    "name": "m",
                    "uid": "u-1",
                    "controller": True,
                }
            ],
        )
        assert queue.create(owned, "--dry-run=server").refused_with(WRITTEN_BY_US + queue.user)


@EVERYWHERE
def test_a_binding_adds_no_allocation_to_its_pod(root: Person, namespace: str) -> None:
    person = root.within(namespace)
    person.create(make_pod("unbound").with_("spec.schedulerName", "nobody"))
    for mark in ("annotations", "labels"):
        for path in (
            f"/api/v1/namespaces/{namespace}/pods/unbound/binding",
            f"/api/v1/namespaces/{namespace}/bindings",
        ):
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "unbound", "namespace": namespace, mark: {names.JOBID_LABEL: "7"}},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
            }
            assert person.run("create", "--raw", path, "-f", "-", stdin=json.dumps(binding)).refused_with(
                WRITTEN_BY_US + "root"
            )


def test_a_gated_pod_is_not_bound_whatever_scheduler_it_names(root: Person) -> None:
    assert root.create(make_pod("foreign").gate("fluxqueue").with_("spec.schedulerName", "another")).ok
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "foreign"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    path = f"/api/v1/namespaces/{MANAGED}/pods/foreign/binding"
    assert root.run("create", "--raw", path, "-f", "-", stdin=json.dumps(binding)).refused_with(
        "schedulingGates"
    )


@pytest.mark.parametrize("subresource", ["resize", "ephemeralcontainers"])
def test_subresources_that_change_a_running_pod_leave_keys_and_gate_alone(
    alice: Person, root: Person, subresource: str
) -> None:
    name = f"changed-by-{subresource}"
    assert alice.create(make_pod(name).cpu("100m").gate("fluxqueue")).ok
    wanted: dict[str, Json] = {
        "resize": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]},
        "ephemeralcontainers": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]},
    }
    change = {**annotated(names.ALLOCATION_ANNOTATION), "spec": {**wanted[subresource], **UNGATE["spec"]}}
    assert not alice.patch("pod", name, change, "--type=strategic", f"--subresource={subresource}").ok, (
        "edit may not"
    )
    root.patch("pod", name, change, "--type=strategic", f"--subresource={subresource}")
    after = root.get("pod", name)
    assert names.ALLOCATION_ANNOTATION not in after["metadata"].get("annotations", {})
    assert after["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]


@pytest.mark.parametrize("way", ["update", "merge patch", "JSON patch"])
def test_our_gate_is_not_removed_by_people(alice: Person, way: str) -> None:
    name = f"gated-{way.split(maxsplit=1)[0].lower()}"
    assert alice.create(make_pod(name).gate("fluxqueue", "another/gate")).ok
    if way == "update":
        standing = alice.get("pod", name)
        standing["spec"]["schedulingGates"] = [{"name": "another/gate"}]
        answer = alice.run("replace", "-f", "-", stdin=json.dumps(standing))
    elif way == "merge patch":
        answer = alice.patch("pod", name, {"spec": {"schedulingGates": [{"name": "another/gate"}]}})
    else:
        operation = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        answer = alice.run("patch", "pod", name, "--type=json", f"--patch={json.dumps(operation)}")
    assert answer.refused_with(GATE_REMOVED)


def test_our_keys_in_an_unmanaged_namespace_may_be_removed_but_not_changed(
    alice: Person, queue: Person
) -> None:
    person, ours = alice.within(UNMANAGED), queue.within(UNMANAGED)
    assert person.create(make_pod("left").gate("fluxqueue")).ok
    assert person.create(make_job("left").suspended().annotation(names.SUSPENDED_BY_ANNOTATION, "webhook")).ok
    assert ours.patch("pod", "left", annotated(names.ALLOCATION_ANNOTATION)).ok
    assert ours.patch("job", "left", in_template(names.ALLOCATION_ANNOTATION)).ok
    assert person.patch("pod", "left", annotated(names.ALLOCATION_ANNOTATION, "8")).refused_with(
        WRITTEN_BY_US + "alice"
    )
    assert person.patch("job", "left", in_template(names.ALLOCATION_ANNOTATION, "8")).refused_with(
        WRITTEN_BY_US + "alice"
    )
    assert person.patch("pod", "left", UNGATE, "--type=strategic").ok
    cleared = {"metadata": {"annotations": {names.ALLOCATION_ANNOTATION: None}}}
    assert person.patch("pod", "left", cleared).ok
    assert person.patch("job", "left", {"spec": {"suspend": False, "template": cleared}}).ok


@pytest.mark.parametrize(
    ("verb", "resource", "subresource"),
    [
        ("create", "pods", "binding"),
        ("create", "bindings", ""),
        ("patch", "pods", "resize"),
        ("patch", "pods", "status"),
        ("patch", "pods", "ephemeralcontainers"),
        ("patch", "jobs", "status"),
        ("create", "fluxjobs", ""),
        ("delete", "fluxjobs", ""),
        ("patch", "fluxjobs", "status"),
        ("patch", "fluxqueues", ""),
        ("patch", "namespaces", ""),
        ("patch", "nodes", ""),
        ("impersonate", "users", ""),
    ],
)
def test_the_role_edit_does_not_reach(alice: Person, verb: str, resource: str, subresource: str) -> None:
    """The part of `docs/reference/trusted-writes.md` that RBAC decides: another Kubernetes may grant more."""
    assert not alice.may(verb, resource, f"--subresource={subresource}")


@pytest.fixture(scope="module")
def followed(queue: Person, alice: Person, installation: Installation) -> str:
    assert alice.create(make_pod("owner").gate("somebody/else")).ok
    uid = alice.get("pod", "owner")["metadata"]["uid"]
    document = fluxjob("followed")
    document["metadata"] |= {
        "annotations": {names.ACKNOWLEDGED_ANNOTATION: "{}", "theirs": "1"},
        "labels": {names.QUEUE_LABEL: "default"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": uid, "controller": False}
        ],
    }
    assert queue.create(document).ok
    return "followed"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            {"finalizers": ["me/forever"]}, "metadata.finalizers", id="a finalizer, by which it would stay"
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-9"}]},
            "metadata.ownerReferences",
            id="another owner, with which it would go",
        ),
        pytest.param(
            {"annotations": {names.ACKNOWLEDGED_ANNOTATION: '{"hold":true}'}},
            "metadata.annotations",
            id="what we took in",
        ),
        pytest.param(
            {"annotations": {names.ACKNOWLEDGED_ANNOTATION: None}},
            "metadata.annotations",
            id="that we took nothing in",
        ),
        pytest.param({"labels": {names.QUEUE_LABEL: "debug"}}, "metadata.labels", id="the queue it shows"),
    ],
)
def test_the_metadata_of_a_fluxjob_that_the_queue_reads_is_its_own(
    alice: Person, root: Person, followed: str, change: Json, sentence: str
) -> None:
    refused = root.patch("fluxjob", followed, {"metadata": change})
    assert refused.refused_with(f"FluxJob {MANAGED}/{followed}: {sentence}"), refused.output
    refused = alice.patch("fluxjob", followed, {"metadata": change})
    # OwnerReferencesPermissionEnforcement, before any policy
    first = "cannot set an ownerRef on a resource you can't delete"
    assert refused.refused_with(first if "ownerReferences" in change else sentence), refused.output


def test_the_rest_of_a_fluxjob_s_metadata_is_theirs(alice: Person, queue: Person, followed: str) -> None:
    assert alice.patch(
        "fluxjob", followed, {"metadata": {"annotations": {"theirs": "2"}, "labels": {"team": "x"}}}
    ).ok
    assert queue.patch(
        "fluxjob", followed, {"metadata": {"annotations": {names.ACKNOWLEDGED_ANNOTATION: "{}"}}}
    ).ok


def test_garbage_collection_may_remove_owners_of_a_fluxjob(
    cluster: ControlPlane, alice: Person, followed: str
) -> None:
    """A Job deleted with orphaned dependents waits until each of them has removed the finalizer.
    The queue restores what is missing.
    """
    collector = Person(cluster, "system:serviceaccount:kube-system:generic-garbage-collector")
    assert collector.patch("fluxjob", followed, {"metadata": {"ownerReferences": None}}).ok
    assert "ownerReferences" not in alice.get("fluxjob", followed)["metadata"]
