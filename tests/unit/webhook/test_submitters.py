"""Who submits an object: whose name is written, and that a manifest's own is not believed."""

from __future__ import annotations

import pytest
from support.admission import Admitted, admit
from support.builders import JOB_CONTROLLER, REPLICASET_CONTROLLER, Builder, Json, make_job, make_pod

from fluxqueue.webhook.decide import AdmissionOutcome, AdmissionSettings

KEY = "fluxqueue/submitted-by"
RECORDING = AdmissionSettings(record_submitters=True)


def recorded(thing: Builder, user: str = "alice") -> Admitted:
    return admit(thing, user=user, settings=RECORDING)


@pytest.mark.parametrize(
    "thing", [make_job(), make_job().suspended(), make_job().annotation("own", "x"), make_pod()]
)
def test_the_requester_of_a_job_or_pod_is_recorded(thing: Builder) -> None:
    admitted = recorded(thing)
    assert admitted.annotations[KEY] == "alice"
    assert admitted.annotations.get("own") == (admitted.before["metadata"].get("annotations") or {}).get(
        "own"
    )


def test_the_mark_of_suspension_stays_beside_it() -> None:
    assert recorded(make_job()).annotations == {"fluxqueue/suspended-by": "webhook", KEY: "alice"}


@pytest.mark.parametrize("thing", [make_job().annotation(KEY, "bob"), make_pod().annotation(KEY, "bob")])
def test_a_name_in_a_manifest_is_overwritten(thing: Builder) -> None:
    assert recorded(thing).annotations[KEY] == "alice"


def test_a_second_pass_changes_nothing() -> None:
    for thing in (make_job(), make_pod()):
        first = recorded(thing).after
        assert admit(first, user="alice", settings=RECORDING).patch == []


def test_pods_of_a_job_have_none_because_their_job_has_it() -> None:
    pod = make_pod().owned_by("Job")
    assert KEY not in recorded(pod, JOB_CONTROLLER).annotations
    assert KEY not in recorded(pod.annotation(KEY, "bob"), JOB_CONTROLLER).annotations


def test_pods_of_other_controllers_name_the_controller_and_not_what_a_template_says() -> None:
    pod = make_pod().owned_by("ReplicaSet").annotation(KEY, "bob")
    assert recorded(pod, REPLICASET_CONTROLLER).annotations[KEY] == REPLICASET_CONTROLLER


def test_the_job_of_a_minicluster_keeps_the_name_that_the_queue_wrote() -> None:
    job = (
        make_job().owned_by("MiniCluster", api_version="flux-framework.org/v1alpha2").annotation(KEY, "alice")
    )
    assert recorded(job, "system:serviceaccount:fluxqueue-system:fluxqueue-queue").annotations[KEY] == "alice"


@pytest.mark.parametrize("name", ["", "a" * 1_025, "a\nb"])
def test_a_name_that_is_no_line_of_bounded_length_is_left_out(name: str) -> None:
    assert KEY not in recorded(make_job().annotation(KEY, "bob"), name).annotations


def test_nothing_is_recorded_where_the_site_does_not_want_it() -> None:
    for thing in (
        make_job(),
        make_pod(),
        make_job().annotation(KEY, "bob"),
        make_pod().annotation(KEY, "bob"),
    ):
        assert KEY not in admit(thing).annotations


def test_what_is_left_alone_is_not_marked_either() -> None:
    assert KEY not in recorded(make_pod().label("fluxqueue/managed", "false")).annotations


def minicluster(**annotations: str) -> Json:
    meta = {"name": "lammps", "namespace": "science", "annotations": annotations}
    return {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": meta, "spec": {}}


def test_a_minicluster_names_who_creates_it_whatever_its_manifest_says() -> None:
    for thing in (minicluster(), minicluster(**{KEY: "bob"})):
        admitted = admit(thing, user="alice", settings=RECORDING)
        assert (admitted.decision.outcome, admitted.annotations[KEY]) == (AdmissionOutcome.PASSED, "alice")
        assert KEY not in admit(thing, user="alice").annotations
