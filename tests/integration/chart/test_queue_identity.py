"""What the queue's own identity may write: the policy on it, tried as that identity, row by row.

Whoever gets hold of the queue's token has these rights and no more. The rows that are allowed are what the
queue writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.builders import Builder, make_job, make_pod
from support.chart_installation import MANAGED, UNMANAGED, Installation, Person
from support.chart_rendering import NAMESPACE

from fluxqueue.api import names
from fluxqueue.api.templatepins import node_affinity
from fluxqueue.local.processes import wait_until

pytestmark = pytest.mark.usefixtures("installation")

Json = dict[str, Any]

SCOPE = "changes nothing in namespace unmanaged, which is not managed"
FIELDS = "changes whether, how often and where pods run"
TEMPLATE = "changes scheduling gates, affinity and its own labels and annotations of a pod template"
CREATES = "creates objects for MiniClusters in managed namespaces and room pods in its own, and no others"
DELETES = "deletes Jobs of MiniClusters and pods that it holds or has placed, and no others"
OWNED = "changes ConfigMaps, Services and NetworkPolicies of MiniClusters, and no others"
IMMUTABLE = "is invalid"
"""The API server refuses it to everybody, before any policy."""
LIMIT = "lowers activeDeadlineSeconds of Jobs that it has placed, and never raises or removes it"
OPAQUE = "creates Secrets of the type Opaque, and no others"

CONTROLLER = {"controller": True, "blockOwnerDeletion": True}
MINICLUSTER = [
    {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "name": "m",
        "uid": "u-1",
        **CONTROLLER,
    }
]
JOB = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-2", **CONTROLLER}]
CONTAINER = "main"


@pytest.fixture(scope="module", autouse=True)
def objects(installation: Installation, queue: Person, root: Person) -> Iterator[None]:
    """Objects of people in both namespaces, held by the queue and not."""
    held = {"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: "webhook"}}}
    for namespace in (MANAGED, UNMANAGED):
        person = root.within(namespace)
        for thing in (
            make_job("qi-job").suspended(),
            make_job("qi-held")
            .suspended()
            .annotation(names.SUSPENDED_BY_ANNOTATION, "webhook")
            .label("team", "theirs")
            .with_("spec.activeDeadlineSeconds", 3600)
            .with_("spec.template.spec.tolerations", [{"operator": "Exists"}]),
            make_pod("qi-pod"),
            make_pod("qi-gated").gate("fluxqueue"),
        ):
            assert person.create(thing).ok
        assert person.run("create", "configmap", "qi-config", "--from-literal=a=b").ok

    def in_force() -> bool:
        return queue.within(UNMANAGED).patch("job", "qi-job", held, "--dry-run=server").refused_with(SCOPE)

    wait_until(in_force, "the policy in force", 30)
    yield
    for namespace in (MANAGED, UNMANAGED):
        root.within(namespace).run("delete", "jobs,pods,configmaps", "--all", "--force", "--grace-period=0")


def container(**fields: Any) -> Json:
    return {"containers": [{"name": CONTAINER, **fields}]}


def template(**spec: Any) -> Json:
    return {"spec": {"template": {"spec": spec}}}


def released(metadata: Json | None = None, **spec: Any) -> Json:
    """The patch that releases a Job, with what else is changed by it."""
    allocation = {"annotations": {names.ALLOCATION_ANNOTATION: "7"}, "labels": {names.JOBID_LABEL: "7"}}
    inside = {
        "metadata": allocation,
        "spec": {"schedulingGates": [{"name": "fluxqueue"}], **spec.pop("template", {})},
    }
    marks = {
        "annotations": {names.SUSPENDED_BY_ANNOTATION: None},
        "labels": {names.JOBID_LABEL: "7", **(metadata or {})},
    }
    return {"metadata": marks, "spec": {"suspend": False, "template": inside, **spec}}


JOB_CHANGES = {
    "releases": (released(), ""),
    "releases, with the node in the template": (released(template={"affinity": node_affinity("n1")}), ""),
    "takes the node out of the template": (template(affinity=None), ""),
    "pods of the template near others": (template(affinity={"podAffinity": {}}), IMMUTABLE),
    "releases, with a label of others": (released({"app": "evil"}), FIELDS),
    "releases, without a label of others": (released({"team": None}), FIELDS),
    "releases, with a back-off limit": (released(backoffLimit=99), FIELDS),
    "releases, without a deadline": (released(activeDeadlineSeconds=None), LIMIT),
    "releases, with a node selector": (released(template={"nodeSelector": {"a": "b"}}), TEMPLATE),
    "releases, without tolerations": (released(template={"tolerations": None}), TEMPLATE),
    "ends what it has not placed": ({"spec": {"activeDeadlineSeconds": 60}}, LIMIT),
    "suspends": ({"spec": {"suspend": True}}, ""),
    "resumes": ({"spec": {"suspend": False}}, ""),
    "marks": ({"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: "webhook"}}}, ""),
    "gates the template": (template(schedulingGates=[{"name": "fluxqueue"}]), ""),
    "writes an allocation": (
        {"spec": {"template": {"metadata": {"annotations": {names.ALLOCATION_ANNOTATION: "7"}}}}},
        "",
    ),
    "resizes": ({"spec": {"parallelism": 2}}, ""),
    "image": (template(**container(image="evil")), IMMUTABLE),
    "command": (template(**container(command=["sh"])), IMMUTABLE),
    "arguments": (template(**container(args=["-c"])), IMMUTABLE),
    "environment": (template(**container(env=[{"name": "LD_PRELOAD", "value": "x"}])), IMMUTABLE),
    "volume": (template(volumes=[{"name": "host", "hostPath": {"path": "/"}}]), IMMUTABLE),
    "mount": (template(**container(volumeMounts=[{"name": "host", "mountPath": "/host"}])), IMMUTABLE),
    "service account": (template(serviceAccountName="admin"), IMMUTABLE),
    "another container": (template(containers=[{"name": "more", "image": "evil"}]), IMMUTABLE),
    "init container": (template(initContainers=[{"name": "first", "image": "evil"}]), IMMUTABLE),
    "host network": (template(hostNetwork=True), IMMUTABLE),
    "node": (template(nodeName="n1"), IMMUTABLE),
    "node selector": (template(nodeSelector={"a": "b"}), TEMPLATE),
    "tolerations": (template(tolerations=[{"operator": "Exists", "key": "evil"}]), TEMPLATE),
    "label of others in the template": (
        {"spec": {"template": {"metadata": {"labels": {"app": "evil"}}}}},
        TEMPLATE,
    ),
    "label of others": ({"metadata": {"labels": {"app": "evil"}}}, FIELDS),
    "annotation of others": ({"metadata": {"annotations": {"app": "evil"}}}, FIELDS),
    "finalizer": ({"metadata": {"finalizers": ["example.com/stay"]}}, FIELDS),
    "owner": ({"metadata": {"ownerReferences": [{**JOB[0], "uid": "u-3"}]}}, FIELDS),
    "back-off limit": ({"spec": {"backoffLimit": 99}}, FIELDS),
    "time to live": ({"spec": {"ttlSecondsAfterFinished": 1}}, FIELDS),
}
POD_CHANGES = {
    "ungates and pins": (
        {
            "metadata": {
                "annotations": {names.ALLOCATION_ANNOTATION: "7"},
                "labels": {names.JOBID_LABEL: "7"},
            },
            "spec": {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]},
        },
        "",
    ),
    "ungates and labels": (
        {
            "metadata": {"annotations": {names.ALLOCATION_ANNOTATION: "7"}, "labels": {"app": "evil"}},
            "spec": {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]},
        },
        FIELDS,
    ),
    "image": ({"spec": container(image="evil")}, FIELDS),
    "node selector": ({"spec": {"nodeSelector": {"a": "b"}}}, FIELDS),
    "deadline": ({"spec": {"activeDeadlineSeconds": 1}}, FIELDS),
    "label of others": ({"metadata": {"labels": {"app": "evil"}}}, FIELDS),
    "finalizer": ({"metadata": {"finalizers": ["example.com/stay"]}}, FIELDS),
}


@pytest.mark.parametrize(("change", "refusal"), JOB_CHANGES.values(), ids=JOB_CHANGES)
def test_of_a_job_it_changes_whether_it_runs_and_marks_of_its_own(
    queue: Person, change: Json, refusal: str
) -> None:
    answer = queue.patch("job", "qi-held", change, "--type=strategic", "--dry-run=server")
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


def test_it_ends_a_job_that_it_has_placed_and_gives_it_no_more_time(queue: Person, root: Person) -> None:
    job = (
        make_job("qi-placed")
        .suspended()
        .annotation(names.SUSPENDED_BY_ANNOTATION, "webhook")
        .with_("spec.activeDeadlineSeconds", 3600)
    )
    assert root.within(MANAGED).create(job).ok
    assert queue.patch("job", "qi-placed", {"metadata": {"labels": {names.JOBID_LABEL: "7"}}}).ok
    for seconds, refusal in ((60, ""), (3601, LIMIT), (None, LIMIT)):
        answer = queue.patch(
            "job",
            "qi-placed",
            {"spec": {"activeDeadlineSeconds": seconds}},
            "--type=strategic",
            "--dry-run=server",
        )
        assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        pytest.param({"status": {"startTime": None}}, "", id="start time"),
        pytest.param({"status": {"failed": 1}}, FIELDS, id="number of failed pods"),
        pytest.param({"metadata": {"labels": {"app": "evil"}}}, FIELDS, id="label of others"),
    ],
)
def test_of_the_status_of_a_job_it_changes_the_start_time(queue: Person, change: Json, refusal: str) -> None:
    answer = queue.patch("job", "qi-held", change, "--subresource=status", "--dry-run=server")
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


@pytest.mark.parametrize(("change", "refusal"), POD_CHANGES.values(), ids=POD_CHANGES)
def test_of_a_pod_it_changes_where_it_runs_and_marks_of_its_own(
    queue: Person, change: Json, refusal: str
) -> None:
    answer = queue.patch("pod", "qi-gated", change, "--type=strategic", "--dry-run=server")
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


@pytest.mark.parametrize(
    ("namespace", "placed", "owner", "left", "refusal"),
    [
        pytest.param(MANAGED, True, "Job", ["example.com/mine"], "", id="that of the Job controller"),
        pytest.param(MANAGED, True, "Job", [names.JOB_TRACKING_FINALIZER], FIELDS, id="that of others"),
        pytest.param(MANAGED, True, "Job", [], FIELDS, id="both"),
        pytest.param(
            MANAGED, False, "Job", ["example.com/mine"], FIELDS, id="that of a pod which it has not placed"
        ),
        pytest.param(MANAGED, True, "ReplicaSet", ["example.com/mine"], FIELDS, id="that of a pod of no Job"),
        pytest.param(
            UNMANAGED, False, "Job", ["example.com/mine"], SCOPE, id="that of a pod which it does not hold"
        ),
    ],
)
def test_it_takes_the_finalizer_of_the_job_controller_from_pods_of_jobs_that_it_has_placed(
    queue: Person, root: Person, namespace: str, placed: bool, owner: str, left: list[str], refusal: str
) -> None:
    """The owner is of a version that does not exist:
    no controller takes the finalizer, or deletes the pod because its owner is missing.
    """
    pod = make_pod("qi-counted").with_(
        "metadata.finalizers", ["example.com/mine", names.JOB_TRACKING_FINALIZER]
    )
    person, patcher = root.within(namespace), queue.within(namespace)
    pod = pod.owned_by(owner, "qi-owner", api_version="batch/v9")
    assert person.create(pod.gate("fluxqueue") if namespace == MANAGED else pod).ok
    assert (
        not placed
        or patcher.patch("pod", "qi-counted", {"metadata": {"labels": {names.JOBID_LABEL: "7"}}}).ok
    )
    answer = patcher.patch(
        "pod", "qi-counted", {"metadata": {"finalizers": left}}, "--type=merge", "--dry-run=server"
    )
    assert person.patch("pod", "qi-counted", {"metadata": {"finalizers": None}}, "--type=merge").ok
    assert person.run("delete", "pod", "qi-counted", "--force", "--grace-period=0").ok
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


@pytest.mark.parametrize(
    ("kind", "name", "allowed"),
    [("job", "qi-job", False), ("job", "qi-held", True), ("pod", "qi-pod", False), ("pod", "qi-gated", True)],
)
def test_in_a_namespace_that_is_not_managed_it_touches_only_what_it_holds(
    queue: Person, kind: str, name: str, allowed: bool
) -> None:
    change = {"metadata": {"annotations": {"fluxqueue/acknowledged": "x"}}}
    answer = queue.within(UNMANAGED).patch(kind, name, change, "--dry-run=server")
    assert answer.ok if allowed else answer.refused_with(SCOPE), answer.output
    assert queue.within(MANAGED).patch(kind, name, change, "--dry-run=server").ok


@pytest.mark.parametrize(
    ("kind", "name", "namespace", "refusal"),
    [
        ("pod", "qi-gated", MANAGED, ""),
        ("pod", "qi-gated", UNMANAGED, ""),
        ("pod", "qi-pod", MANAGED, DELETES),
        ("pod", "qi-pod", UNMANAGED, SCOPE),
        ("job", "qi-held", MANAGED, DELETES),
        ("job", "qi-job", UNMANAGED, SCOPE),
    ],
)
def test_it_deletes_pods_that_it_holds_and_no_jobs_of_people(
    queue: Person, kind: str, name: str, namespace: str, refusal: str
) -> None:
    answer = queue.within(namespace).run("delete", kind, name, "--dry-run=server", "--wait=false")
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


@pytest.mark.parametrize(
    ("namespace", "refusal"), [(MANAGED, ""), (UNMANAGED, "evicts pods in managed namespaces only")]
)
def test_it_evicts_pods_in_managed_namespaces(queue: Person, namespace: str, refusal: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "qi-gated", "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/qi-gated/eviction?dryRun=All"
    answer = queue.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


@pytest.mark.parametrize("key", [names.ALLOCATION_ANNOTATION, names.NODES_ANNOTATION])
def test_it_cannot_mark_a_pod_as_its_own_to_delete_it_afterwards(queue: Person, key: str) -> None:
    answer = queue.patch("pod", "qi-pod", {"metadata": {"annotations": {key: "7"}}}, "--dry-run=server")
    assert answer.refused_with("gives an allocation to pods that it holds, and to no others"), answer.output


def owned(thing: Builder, owners: list[Json]) -> Json:
    document: Json = thing.with_("metadata.ownerReferences", owners).build()
    del document["metadata"]["namespace"]
    return document


def plain(kind: str, owners: list[Json], **fields: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "qi-new", "ownerReferences": owners},
        **fields,
    }


SERVICE: Json = {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}
CREATED = {
    "a Job of a MiniCluster": (owned(make_job("qi-new").suspended(), MINICLUSTER), ""),
    "a pod of a MiniCluster": (owned(make_pod("qi-new").gate("fluxqueue"), MINICLUSTER), ""),
    "a Secret of a MiniCluster": (plain("Secret", MINICLUSTER, stringData={"a": "b"}), ""),
    "a Secret of an annotated Job": (plain("Secret", JOB, stringData={"a": "b"}), ""),
    "a Service of an annotated Job": (plain("Service", JOB, **SERVICE), ""),
    "a Job of nobody": (owned(make_job("qi-new").suspended(), []), CREATES),
    "a pod of nobody": (owned(make_pod("qi-new"), []), CREATES),
    "a pod of a Job": (owned(make_pod("qi-new"), JOB), CREATES),
    "a ConfigMap of nobody": (plain("ConfigMap", [], data={"a": "b"}), CREATES),
    "a Secret for a ServiceAccount's token": (
        {
            **plain("Secret", MINICLUSTER, type="kubernetes.io/service-account-token"),
            "metadata": {
                "name": "qi-new",
                "ownerReferences": MINICLUSTER,
                "annotations": {"kubernetes.io/service-account.name": "default"},
            },
        },
        OPAQUE,
    ),
}


@pytest.mark.parametrize(("document", "refusal"), CREATED.values(), ids=CREATED)
def test_it_creates_objects_of_flux_clusters_in_managed_namespaces(
    queue: Person, document: Json, refusal: str
) -> None:
    answer = queue.create(document, "--dry-run=server")
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output
    assert queue.within(UNMANAGED).create(document, "--dry-run=server").refused_with(CREATES)


def room_pod(**spec: Any) -> Json:
    """A pod as it asks autoscalers for nodes, with other fields of its spec."""
    pod = owned(make_pod("qi-room"), [])
    return pod | {"spec": pod["spec"] | {"schedulerName": names.ROOM_SCHEDULER} | spec}


@pytest.mark.parametrize(
    ("namespace", "document", "refusal"),
    [
        pytest.param(NAMESPACE, room_pod(), "", id="its own"),
        pytest.param(NAMESPACE, room_pod(nodeName="n1"), CREATES, id="with a node"),
        pytest.param(
            NAMESPACE, room_pod(schedulerName="default-scheduler"), CREATES, id="that a scheduler binds"
        ),
        pytest.param(MANAGED, room_pod(), CREATES, id="in a managed namespace"),
        pytest.param(UNMANAGED, room_pod(), CREATES, id="in a namespace of others"),
    ],
)
def test_it_creates_room_pods_in_its_own_namespace(
    queue: Person, namespace: str, document: Json, refusal: str
) -> None:
    answer = queue.within(namespace).create(document, "--dry-run=server")
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


@pytest.mark.parametrize(
    ("scheduler", "refusal"), [(names.ROOM_SCHEDULER, ""), ("other", "changes nothing in namespace")]
)
def test_it_writes_the_status_of_room_pods_and_deletes_them(
    queue: Person, root: Person, scheduler: str, refusal: str
) -> None:
    person, own = root.within(NAMESPACE), queue.within(NAMESPACE)
    assert person.create(room_pod(schedulerName=scheduler)).ok
    condition = {
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    }
    written = own.patch(
        "pod", "qi-room", condition, "--type=strategic", "--subresource=status", "--dry-run=server"
    )
    deleted = own.run("delete", "pod", "qi-room", "--dry-run=server", "--wait=false")
    assert person.run("delete", "pod", "qi-room", "--force", "--grace-period=0").ok
    for answer in (written, deleted):
        assert answer.refused_with(refusal) if refusal else answer.ok, answer.output


def test_it_changes_no_configuration_of_people(queue: Person) -> None:
    answer = queue.patch("configmap", "qi-config", {"data": {"a": "evil"}}, "--dry-run=server")
    assert answer.refused_with(OWNED), answer.output


MARK = {"metadata": {"annotations": {names.MAINTENANCE_ANNOTATION: "power"}}}
CORDON: Json = {"spec": {"unschedulable": True}}
UNCORDON: Json = {"spec": {"unschedulable": None}}
UNMARK = {"metadata": {"annotations": {names.MAINTENANCE_ANNOTATION: None}}}
NODE_FIELDS = "cordons and uncordons nodes, and changes nothing else of them"
NODE_MARK = "writes the annotation fluxqueue/maintenance of nodes, and changes nothing else of their metadata"
CORDONS = "cordons nodes with its mark fluxqueue/maintenance, and uncordons no others"
NODE_CHANGES = {
    "cordons and marks": ("free", MARK | CORDON, ""),
    "uncordons what it marked": ("qi-marked", UNMARK | UNCORDON, ""),
    "takes its mark off": ("qi-marked", UNMARK, ""),
    "cordons without a mark": ("free", CORDON, CORDONS),
    "uncordons what a person cordoned": ("qi-cordoned", UNCORDON, CORDONS),
    "labels": ("free", {"metadata": {"labels": {"a": "b"}}}, NODE_MARK),
    "takes a label off": ("free", {"metadata": {"labels": {"kept": None}}}, NODE_MARK),
    "annotates": ("free", {"metadata": {"annotations": {"a": "b"}}}, NODE_MARK),
    "takes an annotation off": ("free", {"metadata": {"annotations": {"kept": None}}}, NODE_MARK),
    "holds its deletion up": ("free", {"metadata": {"finalizers": ["example.com/x"]}}, NODE_MARK),
    "taints": ("free", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, NODE_FIELDS),
}


@pytest.fixture(scope="module")
def nodes(root: Person) -> Iterator[None]:
    kept = {"labels": {"kept": "yes"}, "annotations": {"kept": "yes"}}
    marked = {**kept, "annotations": {**kept["annotations"], names.MAINTENANCE_ANNOTATION: "power"}}
    made = {"free": (kept, {}), "qi-marked": (marked, CORDON["spec"]), "qi-cordoned": (kept, CORDON["spec"])}
    for name, (metadata, spec) in made.items():
        assert root.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "spec": spec}
        ).ok
    yield
    root.run("delete", "nodes", *made)


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(("node", "change", "refusal"), NODE_CHANGES.values(), ids=NODE_CHANGES)
def test_it_cordons_and_uncordons_nodes_with_its_mark_and_changes_nothing_else(
    queue: Person, root: Person, node: str, change: Json, refusal: str
) -> None:
    answer = queue.patch("node", node, change, "--dry-run=server")
    assert answer.refused_with(refusal) if refusal else answer.ok, answer.output
    assert root.patch("node", node, change, "--dry-run=server").ok


def test_it_keeps_the_certificate_in_its_own_namespace(queue: Person) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "qi-certificate"},
        "stringData": {"tls.crt": "x"},
    }
    assert queue.within(NAMESPACE).create(secret, "--dry-run=server").ok


def test_the_policy_concerns_nobody_else(root: Person, alice: Person) -> None:
    for person in (root, alice):
        answer = person.patch(
            "pod", "qi-gated", {"spec": container(image="theirs")}, "--type=strategic", "--dry-run=server"
        )
        assert answer.ok, answer.output


@pytest.mark.parametrize("policy", ["jobs", "pods", "bindings", "queue", "fluxjobs", "nodes"])
def test_the_api_server_finds_no_field_that_a_policy_names_in_vain(root: Person, policy: str) -> None:
    shown = root.run("get", "validatingadmissionpolicy", f"fluxqueue-{policy}", "-o", "json").output
    assert json.loads(shown)["status"]["typeChecking"] == {}
