"""Flux at admission: requested on Jobs, injected into pods."""

import msgspec
import pytest
from support.admission import admit
from support.builders import JOB_CONTROLLER, JobBuilder, PodBuilder, make_job, make_minicluster, make_pod

from fluxqueue.api import names
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.minicluster.injection_settings import identity_of, injection_settings
from fluxqueue.minicluster.pods import pod_template
from fluxqueue.webhook.decide import AdmissionOutcome


def annotated(name: str = "solver") -> JobBuilder:
    return (
        make_job(name)
        .indexed(4)
        .annotation(names.MINICLUSTER_ANNOTATION, "true")
        .with_("spec.template.spec.containers", [container()])
    )


def container(**more: object) -> dict[str, object]:
    return {"name": "app", "image": "app", "command": ["solve", "a b"], **more}


def broker_pod(index: int = 1) -> PodBuilder:
    """A pod as the Job controller creates it from an annotated Job's template."""
    return (
        make_pod(f"solver-{index}")
        .index(index)
        .owned_by("Job", "solver")
        .label(names.JOB_NAME_LABEL, "solver")
        .label(names.CONTROLLER_UID_LABEL, "uid-of-solver")
        .annotation(names.MINICLUSTER_ANNOTATION, "true")
        .with_("spec.containers", [container()])
    )


def test_the_choice_of_a_job_is_copied_into_its_template() -> None:
    admitted = admit(annotated().annotation(names.MINICLUSTER_MODE_ANNOTATION, "launcher"))
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.after["spec"]["template"]["metadata"]["annotations"] == {
        names.MINICLUSTER_ANNOTATION: "true",
        names.MINICLUSTER_MODE_ANNOTATION: "launcher",
    }


def test_it_is_copied_with_labels_and_into_templates_without_metadata() -> None:
    both = admit(annotated().label(names.QUEUE_LABEL, "gpu").without("spec.template.metadata")).after["spec"][
        "template"
    ]["metadata"]
    assert both == {
        "labels": {names.QUEUE_LABEL: "gpu"},
        "annotations": {names.MINICLUSTER_ANNOTATION: "true"},
    }
    alone = admit(annotated().without("spec.template.metadata")).after["spec"]["template"]["metadata"]
    assert alone == {"annotations": {names.MINICLUSTER_ANNOTATION: "true"}}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (annotated().annotation(names.MINICLUSTER_ANNOTATION, "yes"), "'true', or left out"),
        (annotated().with_("spec.completionMode", "NonIndexed"), "completionMode: Indexed"),
        (annotated().with_("spec.parallelism", 2), "parallelism the same as completions"),
        (annotated("x" * 60), "52 characters"),
        (annotated("solver-v1.2"), "its name has no dots"),
        (annotated().annotation(names.MINICLUSTER_MODE_ANNOTATION, "fast"), "single, launcher, session"),
        (annotated().annotation(names.MINICLUSTER_TASKS_ANNOTATION, "many"), "number of tasks"),
        (
            annotated().with_(
                "spec.template.spec.containers", [{"name": "app", "image": "app", "args": ["x"]}]
            ),
            "set the command",
        ),
        (annotated().with_("spec.template.spec.hostNetwork", True), "host name of its node"),
    ],
)
def test_a_job_whose_pods_could_not_be_brokers_is_refused_with_the_remedy(
    job: JobBuilder, expected: str
) -> None:
    assert expected in admit(job).sentence


def test_a_gated_broker_has_flux_in_it_and_keeps_its_command() -> None:
    admitted = admit(broker_pod(), user=JOB_CONTROLLER)
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.gates == [names.GATE]
    spec = admitted.after["spec"]
    assert spec["containers"][0]["command"][-2:] == ["solve", "a b"]
    assert {volume["name"] for volume in spec["volumes"]} >= {"flux-curve", "flux-files", "flux-view"}
    assert spec["initContainers"][0]["name"] == "flux-view"


def test_a_second_pass_over_a_broker_changes_nothing() -> None:
    once = admit(broker_pod(), user=JOB_CONTROLLER)
    assert admit(once.after, user=JOB_CONTROLLER).patch == []


def test_the_pods_of_a_minicluster_go_the_same_way() -> None:
    cluster = msgspec.convert(make_minicluster("flux"), MiniCluster)
    cluster = msgspec.structs.replace(
        cluster, metadata=msgspec.structs.replace(cluster.metadata, namespace="ada", uid="u")
    )
    identity = identity_of(cluster)
    template = pod_template(identity, cluster.spec, injection_settings(identity, cluster.spec, "fluxqueue"))
    pod = (
        PodBuilder({"apiVersion": "v1", "kind": "Pod", **template})
        .generated("flux-0-")
        .index(0)
        .owned_by("Job", "flux")
    )
    admitted = admit(pod, user=JOB_CONTROLLER)
    assert admitted.gates == [names.GATE]
    secrets = [
        volume["secret"]["secretName"] for volume in admitted.after["spec"]["volumes"] if "secret" in volume
    ]
    assert secrets == [identity.certificate]


def test_a_pod_that_cannot_be_the_broker_it_requests_is_held_with_a_warning() -> None:
    admitted = admit(broker_pod().without("metadata.labels"), user=JOB_CONTROLLER)
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert "is for Jobs" in admitted.decision.warnings[0]


def test_other_pods_get_nothing_of_it() -> None:
    assert "volumes" not in admit(make_pod("plain")).after["spec"]
