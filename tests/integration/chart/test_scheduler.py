"""The rights of our own scheduler: those that it needs and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.builders import make_pod
from support.chart_installation import QUEUE, UNMANAGED, Answer, Installation, Person
from support.chart_rendering import NAMESPACE

from fluxqueue.api import names
from fluxqueue.local.processes import wait_until

NAME = "fluxqueue-scheduler"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
READ = ("list", "watch")

ALLOWED = {
    *(
        ("", resource, verb)
        for resource in ("pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims")
        for verb in READ
    ),
    *(("storage.k8s.io", resource, verb) for resource in ("storageclasses", "csinodes") for verb in READ),
    ("", "nodes", "get"),
    ("", "pods/binding", "create"),
    ("", "pods/status", "patch"),
    ("", "persistentvolumeclaims", "patch"),
    ("", "persistentvolumes", "patch"),
    ("", "events", "create"),
    ("", "events", "patch"),
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
}
READ_BY_EVERYBODY = {
    *((names.GROUP, kind) for kind in (names.FLUXQUEUES, names.FLUXACCOUNTS, names.FLUXRESERVATIONS)),
    ("", "services/proxy"),  # the history, which answers nothing without the token of another account
}
OF_ITS_NAMESPACE = {
    ("coordination.k8s.io", "leases", "create"),
    *(("coordination.k8s.io", f"leases/{NAME}", verb) for verb in ("get", *READ, "patch")),
}


@pytest.fixture(scope="module")
def scheduler(installation: Installation) -> Iterator[Person]:
    """The scheduler with the chart's rights, in a namespace that is not managed."""
    installation.upgrade(scheduler={"enabled": True, "replicas": 0})
    person = Person(installation.cluster, QUEUE.replace("-queue", "-scheduler"), UNMANAGED)
    wait_until(lambda: bind(person, "nobody").refused_with("name its uid"), "the policy in force", 30)
    yield person
    installation.upgrade()


@pytest.fixture
def pod(scheduler: Person, root: Person) -> Iterator[dict[str, Any]]:
    """A pod of our scheduler."""
    assert (
        root.within(UNMANAGED).create(make_pod("ours").with_("spec.schedulerName", names.SCHEDULER_NAME)).ok
    )
    yield root.within(UNMANAGED).get("pod", "ours")
    root.within(UNMANAGED).run("delete", "pod", "ours", "--grace-period=0", "--force")


def bind(person: Person, pod: str, **metadata: str) -> Answer:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": person.namespace, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    path = f"/api/v1/namespaces/{person.namespace}/pods/{pod}/binding"
    return person.run("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def report(person: Person, pod: str, metadata: dict[str, Any] | None = None, **status: Any) -> Answer:
    """Patch the status as the scheduler does."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "node-1 is cordoned",
    }
    body = {"metadata": metadata or {}, "status": {"conditions": [condition], **status}}
    return person.patch("pod", pod, body, "--type=strategic", "--subresource=status")


def rights(person: Person) -> set[tuple[str, str, str]]:
    """All RBAC rights in a person's namespace, except self-subject reviews and what everybody may read."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {"namespace": person.namespace},
    }
    answer = person.run("create", "--validate=false", "-f", "-", "-o", "json", stdin=json.dumps(review))
    assert answer.ok, answer.output
    return {
        (group, f"{resource}/{name}" if name else resource, verb)
        for rule in json.loads(answer.output)["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
        for verb in rule["verbs"]
        if not resource.startswith("selfsubject") and (group, resource) not in READ_BY_EVERYBODY
    }


def test_it_has_exactly_these_rights(scheduler: Person) -> None:
    assert rights(scheduler) == ALLOWED
    assert rights(scheduler.within(NAMESPACE)) == ALLOWED | OF_ITS_NAMESPACE


def test_it_binds_a_pod_only_as_it_has_seen_it(scheduler: Person, root: Person, pod: dict[str, Any]) -> None:
    seen = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    for known in ({}, {"uid": seen["uid"]}, {"resourceVersion": seen["resourceVersion"]}):
        assert bind(scheduler, "ours", **known).refused_with(
            "name its uid and its resourceVersion in the Binding"
        )
    assert root.within(UNMANAGED).patch("pod", "ours", {"metadata": {"annotations": {"changed": "since"}}}).ok
    assert bind(scheduler, "ours", **seen).refused_with("Conflict")
    now = {
        **seen,
        "resourceVersion": root.within(UNMANAGED).get("pod", "ours")["metadata"]["resourceVersion"],
    }
    assert bind(scheduler, "ours", **now).ok
    assert root.within(UNMANAGED).get("pod", "ours")["spec"]["nodeName"] == "node-1"
    assert report(scheduler, "ours").refused_with("that have no node yet")


def test_it_reports_by_conditions_and_changes_nothing_else_of_a_pod(
    scheduler: Person, root: Person, pod: dict[str, Any]
) -> None:
    assert report(scheduler, "ours").ok
    (condition,) = root.within(UNMANAGED).get("pod", "ours")["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("Unschedulable", "node-1 is cordoned")
    for change in ({"annotations": {"a": "b"}}, {"labels": {"a": "b"}}, {"finalizers": ["example.com/x"]}):
        answer = report(scheduler, "ours", change)
        assert answer.refused_with("changes the conditions of a pod's status, and nothing else of a pod"), (
            answer.output
        )
    assert report(scheduler, "ours", phase="Failed").refused_with("changes the conditions of a pod's status")
    assert report(scheduler, "ours", nominatedNodeName="node-2").refused_with(
        "changes the conditions of a pod's status"
    )


def test_it_reports_nothing_about_pods_of_other_schedulers(scheduler: Person, root: Person) -> None:
    theirs = make_pod("theirs").with_("spec.nodeSelector", {"nowhere": "to-be-found"})
    assert root.within(UNMANAGED).create(theirs).ok
    assert report(scheduler, "theirs").refused_with("reports on pods with schedulerName FluxionScheduler")
    assert root.within(UNMANAGED).run("delete", "pod", "theirs", "--wait=false").ok


def test_of_a_claim_it_writes_the_selected_node_alone(scheduler: Person, root: Person) -> None:
    spec = {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    assert root.within(UNMANAGED).create(claim).ok
    only = "changes the annotation volume.kubernetes.io/selected-node of a claim, and nothing else of it"
    assert scheduler.patch("pvc", "data", {"metadata": {"annotations": {SELECTED_NODE: "node-1"}}}).ok
    assert scheduler.patch("pvc", "data", {"metadata": {"annotations": {SELECTED_NODE: None}}}).ok
    changes: tuple[dict[str, Any], ...] = (
        {"annotations": {"a": "b"}},
        {"labels": {"a": "b"}},
        {"finalizers": []},
    )
    for change in changes:
        assert scheduler.patch("pvc", "data", {"metadata": change}).refused_with(only)
    assert scheduler.patch("pvc", "data", {"spec": {"volumeName": "stolen"}}).refused_with(only)
    assert root.within(UNMANAGED).run("delete", "pvc", "data", "--wait=false").ok


def test_it_writes_only_the_claim_of_a_volume_and_only_of_a_free_one(scheduler: Person, root: Person) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "late",
        "hostPath": {"path": "/data"},
    }
    assert root.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk-of-policy"}, "spec": spec}
    ).ok
    only = "writes a claim into a volume that no claim has, and changes nothing else of it"

    def claimed_by(uid: str, name: str = "data") -> dict[str, Any]:
        return {
            "spec": {
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": UNMANAGED,
                    "name": name,
                    "uid": uid,
                }
            }
        }

    def change(body: dict[str, Any]) -> Answer:
        return scheduler.patch("pv", "disk-of-policy", body)

    changes: tuple[dict[str, Any], ...] = (
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"capacity": {"storage": "2Gi"}}},
        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    )
    for body in changes:
        assert change(body).refused_with(only)
    assert change(
        {"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}, **claimed_by("u-1")}
    ).ok
    assert change(claimed_by("u-1")).ok
    assert change(claimed_by("u-2", "other")).refused_with(only)
    assert change({"spec": {"claimRef": None}}).refused_with(only)
    assert root.run("delete", "pv", "disk-of-policy", "--wait=false").ok


def test_the_policy_on_it_has_no_type_error(installation: Installation, scheduler: Person) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{NAME}"

    def checked() -> dict[str, Any] | None:
        found: dict[str, Any] | None = (
            installation.cluster.client.get(path).get("status", {}).get("typeChecking")
        )
        return found

    wait_until(lambda: checked() is not None, "the controller to check the policy", 30)
    assert checked() == {}


def test_without_it_none_of_its_rights_is_left(installation: Installation, scheduler: Person) -> None:
    installation.upgrade()
    wait_until(lambda: not rights(scheduler.within(NAMESPACE)), "the rights to be taken back", 30)
    installation.upgrade(scheduler={"enabled": True, "replicas": 0})
