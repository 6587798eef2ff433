import pytest
from support.admission import NOW, admit
from support.builders import (
    DAEMONSET_CONTROLLER,
    JOB_CONTROLLER,
    REPLICASET_CONTROLLER,
    Builder,
    Json,
    make_job,
    make_pod,
    make_review,
)

from fluxqueue.webhook.decide import AdmissionOutcome, AdmissionSettings, decide
from fluxqueue.webhook.reviews import read_review

CONTROLLER_MANAGER = "system:kube-controller-manager"


@pytest.mark.parametrize(
    ("thing", "user"),
    [
        pytest.param(make_pod().namespace("kube-system"), "alice", id="pod in kube-system"),
        pytest.param(make_job().namespace("kube-system"), "alice", id="Job in kube-system"),
        pytest.param(make_pod().namespace("kube-public"), "alice", id="pod in kube-public"),
        pytest.param(make_pod().owned_by("DaemonSet"), DAEMONSET_CONTROLLER, id="DaemonSet pod"),
        pytest.param(
            make_pod().owned_by("DaemonSet"),
            CONTROLLER_MANAGER,
            id="DaemonSet pod of a controller manager with one identity",
        ),
        pytest.param(
            make_pod().annotation("kubernetes.io/config.mirror", "x"), "system:node:n1", id="mirror pod"
        ),
        pytest.param(make_pod().on_node("n1"), "alice", id="pod that names its node"),
        pytest.param(make_pod().label("fluxqueue/managed", "false"), "alice", id="pod that opted out"),
        pytest.param(make_pod().label("kueue.x-k8s.io/queue-name", "q"), "alice", id="Kueue's pod"),
        pytest.param(
            make_job().with_("spec.template.spec.nodeName", "n1"), "alice", id="Job that names its node"
        ),
        pytest.param(
            make_job().pod_label("fluxqueue/managed", "false"),
            "alice",
            id="Job that opted out in its template",
        ),
        pytest.param(make_job().pods(1, 0), "alice", id="Job that is complete from the beginning"),
    ],
)
def test_is_left_alone(thing: Builder, user: str) -> None:
    admitted = admit(thing, user=user)
    assert admitted.decision.outcome is AdmissionOutcome.EXEMPT
    assert admitted.decision.allowed
    assert admitted.patch == []


def test_the_release_namespace_is_left_alone_when_configured() -> None:
    settings = AdmissionSettings(exempt_namespaces=frozenset({"fluxqueue-system"}))
    assert (
        admit(make_pod().namespace("fluxqueue-system"), settings=settings).decision.outcome
        is AdmissionOutcome.EXEMPT
    )
    assert admit(make_pod().namespace("fluxqueue-system")).decision.outcome is AdmissionOutcome.HELD


@pytest.mark.parametrize(
    ("thing", "user"),
    [
        pytest.param(make_pod().owned_by("DaemonSet"), "alice", id="a user who writes a DaemonSet as owner"),
        pytest.param(
            make_pod().owned_by("DaemonSet", controller=False),
            DAEMONSET_CONTROLLER,
            id="a DaemonSet that does not control it",
        ),
        pytest.param(
            make_pod().owned_by("ReplicaSet"),
            CONTROLLER_MANAGER,
            id="a ReplicaSet's pod of the controller manager",
        ),
        pytest.param(make_pod(), CONTROLLER_MANAGER, id="a pod of the controller manager without owner"),
        pytest.param(make_pod().owned_by("ReplicaSet"), REPLICASET_CONTROLLER, id="a Deployment's pod"),
        pytest.param(
            make_pod().annotation("kubernetes.io/config.mirror", "x"),
            "alice",
            id="a user who calls his pod a mirror",
        ),
        pytest.param(make_pod().label("fluxqueue/managed", "true"), "alice", id="an opted-in pod"),
        pytest.param(
            make_pod().label("fluxqueue.seen", "yes"), "alice", id="a pod that claims to have been seen"
        ),
        pytest.param(
            make_pod().annotation("fluxqueue/exempt", "true"), "alice", id="a pod that claims to be exempt"
        ),
    ],
)
def test_is_not_left_alone(thing: Builder, user: str) -> None:
    admitted = admit(thing, user=user)
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.gates == ["fluxqueue"]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job().label("fluxqueue/managed", "false"), id="opted out on the Job"),
        pytest.param(
            make_job().label("fluxqueue/managed", "false").pod_label("fluxqueue/managed", "true"),
            id="opted out on the Job, in below",
        ),
        pytest.param(make_job().label("kueue.x-k8s.io/queue-name", "q"), id="Kueue's"),
        pytest.param(make_job().pod_label("kueue.x-k8s.io/queue-name", "q"), id="Kueue's by its template"),
        pytest.param(
            make_job().with_("spec.managedBy", "kueue.x-k8s.io/multikueue"),
            id="managed by another controller",
        ),
    ],
)
def test_the_pods_of_an_exempt_job_are_exempt_too(job: Builder) -> None:
    admitted = admit(job)
    assert admitted.decision.outcome is AdmissionOutcome.EXEMPT
    assert admitted.after["spec"]["suspend"] is False
    template = admitted.after["spec"]["template"]["metadata"]
    assert template["labels"]["fluxqueue/managed"] == "false"
    pod = make_pod("j-abcde").owned_by("Job", "j").with_("metadata.labels", template["labels"])
    assert admit(pod, user=JOB_CONTROLLER).patch == []


OPTED_OUT = {"fluxqueue/managed": "false"}
KUEUE = {"kueue.x-k8s.io/queue-name": "default"}


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"metadata.labels": OPTED_OUT}, id="opts it out"),
        pytest.param({"metadata.labels": KUEUE}, id="gives it to Kueue"),
        pytest.param({"spec.nodeName": "n1"}, id="chooses its node"),
    ],
)
def test_a_pod_that_a_later_webhook_takes_out_of_the_queue_loses_our_gate(later: Json) -> None:
    first = admit(make_pod().gate("theirs"))
    assert first.gates == ["theirs", "fluxqueue"]
    again = admit(changed(first.after, later))
    assert (again.decision.outcome, again.gates) == (AdmissionOutcome.EXEMPT, ["theirs"])
    assert admit(again.after).patch == []


@pytest.mark.parametrize(
    ("later", "suspended"),
    [
        pytest.param({"metadata.labels": OPTED_OUT}, False, id="opts it out"),
        pytest.param({"spec.template.metadata.labels": OPTED_OUT}, False, id="opts out its pods"),
        pytest.param({"spec.template.spec.nodeName": "n1"}, False, id="chooses its node"),
        pytest.param({"metadata.labels": KUEUE}, True, id="gives it to Kueue, which resumes it"),
        pytest.param(
            {"spec.managedBy": "kueue.x-k8s.io/multikueue"}, True, id="gives it to another controller"
        ),
    ],
)
def test_a_job_that_a_later_webhook_takes_out_of_the_queue_does_not_wait_for_us(
    later: Json, suspended: bool
) -> None:
    first = admit(make_job())
    assert first.after["spec"]["suspend"] is True
    again = admit(changed(first.after, later))
    assert again.decision.outcome is AdmissionOutcome.EXEMPT
    assert again.after["spec"]["suspend"] is suspended
    assert "fluxqueue/suspended-by" not in again.annotations
    assert admit(again.after).patch == []


def test_a_job_that_its_user_suspended_stays_so_when_a_later_webhook_opts_it_out() -> None:
    again = admit(changed(admit(make_job().suspended()).after, {"metadata.labels": OPTED_OUT}))
    assert again.after["spec"]["suspend"] is True


def changed(thing: Json, later: Json) -> Json:
    """Return an object after another webhook has set these fields, and added these labels."""
    builder: Builder = Builder(thing)
    for path, value in later.items():
        added = path.endswith("labels")
        present = builder.build()
        for part in path.split("."):
            present = present.get(part) or {}
        builder = builder.with_(path, {**present, **value} if added else value)
    return builder.build()


def test_a_job_that_names_the_stock_controller_is_queued_as_one_that_names_none() -> None:
    admitted = admit(make_job().with_("spec.managedBy", "kubernetes.io/job-controller"))
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.after["spec"]["suspend"] is True


def test_a_queue_label_without_effect_causes_a_warning() -> None:
    admitted = admit(make_job().label("kueue.x-k8s.io/queue-name", "q").label("fluxqueue/queue", "long"))
    assert admitted.decision.warnings == (
        (
            "Job default/j: label fluxqueue/queue has no effect, "
            "because another queue's label leaves this Job to another controller"
        ),
    )
    assert not admit(
        make_job().label("fluxqueue/managed", "false").label("fluxqueue/queue", "long")
    ).decision.warnings


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
def test_other_operations_pass_untouched_whatever_they_carry(operation: str) -> None:
    forged = make_pod().allocation("n1")
    for review in (
        make_review(forged).operation(operation),
        make_review(forged).operation(operation).with_("request.object", None),
        make_review(forged).operation(operation).without("request.object"),
        make_review(forged).operation(operation).with_("request.object", {"metadata": 5}),
    ):
        decision = decide(read_review(review.body()), AdmissionSettings(), NOW)
        assert decision.outcome is AdmissionOutcome.PASSED
        assert decision.allowed
        assert decision.operations == ()


def test_other_kinds_and_subresources_pass_untouched() -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    assert (
        decide(read_review(make_review(deployment).body()), AdmissionSettings(), NOW).outcome
        is AdmissionOutcome.PASSED
    )
    eviction = make_review(make_pod()).with_("request.subResource", "eviction")
    assert decide(read_review(eviction.body()), AdmissionSettings(), NOW).outcome is AdmissionOutcome.PASSED


def test_a_dry_run_gets_the_same_answer() -> None:
    real, dry = (
        decide(read_review(review.body()), AdmissionSettings(), NOW)
        for review in (make_review(make_job()), make_review(make_job()).dry_run())
    )
    assert real == dry
