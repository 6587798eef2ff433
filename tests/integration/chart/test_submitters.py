"""Nobody names another as the submitter of an object, whether or not a webhook answers."""

from __future__ import annotations

import pytest
from support.builders import Builder, Json, make_job, make_pod
from support.chart_installation import JOB_CONTROLLER, MANAGED, UNMANAGED, Installation, Person

pytestmark = pytest.mark.usefixtures("installation")

KEY = "fluxqueue/submitted-by"
FORGED = "fluxqueue/submitted-by names who created the object and is written by fluxqueue: "
EVERYWHERE = pytest.mark.parametrize("namespace", [MANAGED, UNMANAGED])


def named(value: str | None) -> Json:
    return {"metadata": {"annotations": {KEY: value}}}


def make(kind: str, name: str) -> Builder:
    """Return an object that never runs."""
    return make_job(name).suspended() if kind == "job" else make_pod(name).gate("somebody/else")


@EVERYWHERE
@pytest.mark.parametrize("kind", ["job", "pod"])
def test_an_object_is_created_with_the_own_name_or_none(alice: Person, namespace: str, kind: str) -> None:
    person = alice.within(namespace)
    assert person.create(make(kind, "forged").annotation(KEY, "bob"), "--dry-run=server").refused_with(
        f"{FORGED}alice may leave it out"
    )
    for thing in (make(kind, "own").annotation(KEY, "alice"), make(kind, "none")):
        assert person.create(thing, "--dry-run=server").ok


@EVERYWHERE
@pytest.mark.parametrize("kind", ["job", "pod"])
def test_a_name_is_neither_changed_nor_added_later_but_may_be_left_out(
    alice: Person, root: Person, namespace: str, kind: str
) -> None:
    person, powerful = alice.within(namespace), root.within(namespace)
    assert person.create(make(kind, "submitted").annotation(KEY, "alice")).ok
    for somebody in (person, powerful):
        for name in ("bob", "root"):
            assert somebody.patch(kind, "submitted", named(name)).refused_with(FORGED)
    assert powerful.patch(kind, "submitted", named("root"), "--subresource=status").refused_with(FORGED)
    assert person.patch(kind, "submitted", {"metadata": {"labels": {"team": "a"}}}).ok
    assert person.patch(kind, "submitted", named(None)).ok
    assert person.patch(kind, "submitted", named("alice")).refused_with(FORGED), (
        "whoever patches is not who created it"
    )
    assert person.run("delete", kind, "submitted", "--now").ok


def test_pods_of_a_job_are_created_whatever_its_template_says(cluster_pods: Person) -> None:
    pod = make_pod("of-a-job").owned_by("Job", "sweep").annotation(KEY, "bob").gate("somebody/else")
    assert cluster_pods.create(pod, "--dry-run=server").ok


@pytest.fixture
def cluster_pods(alice: Person) -> Person:
    """The Job controller."""
    return Person(alice.cluster, JOB_CONTROLLER)


def test_a_binding_names_nobody(root: Person, installation: Installation) -> None:
    assert root.create(make_pod("bound").gate("somebody/else")).ok
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "namespace": MANAGED, "annotations": {KEY: "bob"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    assert root.create(binding).refused_with(FORGED)
    assert root.run("delete", "pod", "bound", "--now").ok


def test_a_minicluster_names_nobody_else_since_its_job_inherits_the_name(
    root: Person, installation: Installation
) -> None:
    def minicluster(name: str, **annotations: str) -> Json:
        meta = {"name": name, "namespace": MANAGED, "annotations": annotations}
        spec = {"size": 1, "containers": [{"image": "flux"}]}
        return {
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "metadata": meta,
            "spec": spec,
        }

    assert root.create(minicluster("forged", **{KEY: "bob"})).refused_with(FORGED)
    assert root.create(minicluster("own", **{KEY: "root"})).ok
    assert root.patch("minicluster", "own", named("bob")).refused_with(FORGED)
    assert root.patch("minicluster", "own", named(None)).ok
    assert root.run("delete", "minicluster", "own", "--now", "--wait=false").ok
