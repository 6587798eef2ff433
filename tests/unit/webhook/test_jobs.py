import pytest
from support.admission import admit
from support.builders import JobBuilder, make_job

from fluxqueue.webhook.decide import AdmissionOutcome


def test_a_job_is_suspended_and_marked_as_suspended_by_the_webhook() -> None:
    admitted = admit(make_job())
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.after["spec"]["suspend"] is True
    assert admitted.annotations == {"fluxqueue/suspended-by": "webhook"}
    assert admitted.labels == {"fluxqueue.seen": "yes"}


def test_the_pod_template_of_a_plain_job_stays_as_it_was() -> None:
    admitted = admit(make_job())
    assert admitted.after["spec"]["template"] == admitted.before["spec"]["template"]


UPDATED = {"manager": "kubectl-create", "operation": "Update", "fieldsV1": {"f:spec": {}}}
APPLIED = {"manager": "argocd", "operation": "Apply", "fieldsV1": {"f:spec": {}}}


def test_managed_fields_go_unless_server_side_apply_needs_them() -> None:
    assert (
        "managedFields" not in admit(make_job().with_("metadata.managedFields", [UPDATED])).after["metadata"]
    )
    applied = admit(make_job().with_("metadata.managedFields", [UPDATED, APPLIED]))
    assert applied.after["metadata"]["managedFields"] == [UPDATED, APPLIED]
    assert not any("managedFields" in each["path"] for each in admit(make_job()).patch)


@pytest.mark.parametrize("suspend", [None, False])
def test_a_job_without_a_suspend_field_is_suspended(suspend: bool | None) -> None:
    assert admit(make_job().with_("spec.suspend", suspend)).after["spec"]["suspend"] is True
    assert admit(make_job().without("spec.suspend")).after["spec"]["suspend"] is True


def test_a_job_its_user_suspended_stays_his_to_resume() -> None:
    admitted = admit(make_job().suspended())
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.after["spec"]["suspend"] is True
    assert "fluxqueue/suspended-by" not in admitted.annotations


def test_a_copied_mark_on_a_running_job_is_written_again() -> None:
    admitted = admit(make_job().annotation("fluxqueue/suspended-by", "me"))
    assert admitted.annotations["fluxqueue/suspended-by"] == "webhook"
    assert {
        "op": "replace",
        "path": "/metadata/annotations/fluxqueue~1suspended-by",
        "value": "webhook",
    } in admitted.patch


def test_queue_and_opt_in_are_copied_to_the_pod_template() -> None:
    admitted = admit(
        make_job().label("fluxqueue/queue", "long").label("fluxqueue/managed", "true").label("app", "lammps")
    )
    assert admitted.after["spec"]["template"]["metadata"]["labels"] == {
        "fluxqueue/queue": "long",
        "fluxqueue/managed": "true",
    }


def test_labels_are_copied_into_a_template_without_metadata() -> None:
    admitted = admit(make_job().label("fluxqueue/queue", "long").without("spec.template.metadata"))
    assert admitted.after["spec"]["template"]["metadata"] == {"labels": {"fluxqueue/queue": "long"}}


def test_values_of_the_template_are_not_overwritten() -> None:
    job = (
        make_job()
        .label("fluxqueue/queue", "long")
        .pod_label("fluxqueue/queue", "short")
        .pod_label("app", "x")
    )
    assert admit(job).after["spec"]["template"]["metadata"]["labels"] == {
        "fluxqueue/queue": "short",
        "app": "x",
    }


def test_no_allocation_affinity_or_gate_is_written_into_a_template() -> None:
    template = admit(make_job().indexed(4)).after["spec"]["template"]
    assert "schedulingGates" not in template["spec"]
    assert "affinity" not in template["spec"]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job().generated("sleep-"), id="generateName"),
        pytest.param(make_job().pods(0), id="parallelism 0"),
        pytest.param(make_job().owned_by("CronJob"), id="of a CronJob"),
        pytest.param(make_job().label("fluxqueue/queue", "no-such-queue"), id="of a queue nobody knows here"),
        pytest.param(
            make_job().with_("metadata.labels", None).with_("metadata.annotations", None),
            id="with null labels",
        ),
        pytest.param(
            make_job().annotation("fluxqueue/duration", "1.5h").annotation("fluxqueue/priority", "-3"),
            id="with wishes",
        ),
    ],
)
def test_a_job_is_held(job: JobBuilder) -> None:
    admitted = admit(job)
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.after["spec"]["suspend"] is True
    assert not admitted.decision.warnings


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job(), id="plain"),
        pytest.param(make_job().suspended(), id="suspended by its user"),
        pytest.param(
            make_job().label("fluxqueue/queue", "q").label("fluxqueue/managed", "true"), id="labelled"
        ),
        pytest.param(make_job().label("fluxqueue/managed", "false"), id="opted out"),
        pytest.param(make_job().label("kueue.x-k8s.io/queue-name", "q"), id="Kueue's"),
        pytest.param(make_job().with_("spec.managedBy", "example.com/other"), id="managed by another"),
    ],
)
def test_a_second_pass_changes_nothing(job: JobBuilder) -> None:
    assert admit(admit(job).after).patch == []


def test_unknown_fields_of_a_newer_kubernetes_survive() -> None:
    job = (
        make_job()
        .with_("spec.fieldOfTomorrow", {"deep": [1, {"x": None}]})
        .with_("spec.template.spec.alsoNew", True)
    )
    admitted = admit(job)
    assert admitted.after["spec"]["fieldOfTomorrow"] == {"deep": [1, {"x": None}]}
    assert admitted.after["spec"]["template"]["spec"]["alsoNew"] is True


@pytest.mark.parametrize(
    ("job", "key"),
    [
        (make_job().annotation("fluxqueue/allocation", "9"), "fluxqueue/allocation"),
        (make_job().pod_annotation("fluxqueue/fluxion-nodes", "n1"), "fluxqueue/fluxion-nodes"),
        (make_job().label("fluxqueue/jobid", "9"), "fluxqueue/jobid"),
        (make_job().pod_label("fluxqueue/jobid", "9"), "fluxqueue/jobid"),
        (make_job().suspended().pod_annotation("fluxqueue/fluxion-nodes", "n1"), "fluxqueue/fluxion-nodes"),
        (
            make_job().label("fluxqueue/managed", "false").pod_annotation("fluxqueue/fluxion-nodes", "n1"),
            "fluxqueue/fluxion-nodes",
        ),
    ],
)
def test_a_job_with_an_allocation_in_its_manifest_is_refused(job: JobBuilder, key: str) -> None:
    admitted = admit(job)
    assert admitted.decision.outcome is AdmissionOutcome.REFUSED
    assert not admitted.decision.allowed
    assert admitted.patch == []
    assert admitted.sentence == (
        f"Job default/j: {key} is written by fluxqueue only, not by alice: "
        "remove it from the manifest and its pod template"
    )


def test_the_refusal_names_every_forged_key() -> None:
    job = (
        make_job().pod_annotation("fluxqueue/fluxion-nodes", "n1").pod_annotation("fluxqueue/allocation", "1")
    )
    assert (
        "fluxqueue/allocation, fluxqueue/fluxion-nodes are written by fluxqueue only" in admit(job).sentence
    )


def test_an_empty_allocation_key_is_none_as_in_the_policy() -> None:
    assert (
        admit(make_job().pod_annotation("fluxqueue/allocation", "")).decision.outcome is AdmissionOutcome.HELD
    )


@pytest.mark.parametrize(
    ("annotation", "value", "remedy"),
    [
        ("fluxqueue/duration", "soon", "write 90, 30m, 1.5h, 2d or 01:30:00"),
        ("fluxqueue/duration", "0", "write at least 1s"),
        ("fluxqueue/duration", "9" * 400 + "d", "write 90, 30m, 1.5h, 2d or 01:30:00"),
        ("fluxqueue/priority", "urgent", "write a whole number"),
    ],
)
def test_an_invalid_annotation_is_refused_at_apply(annotation: str, value: str, remedy: str) -> None:
    admitted = admit(make_job("lammps").namespace("hpc").annotation(annotation, value))
    assert admitted.decision.outcome is AdmissionOutcome.REFUSED
    assert admitted.sentence.startswith(f"Job hpc/lammps: annotation {annotation}: ")
    assert remedy in admitted.sentence


def test_a_job_of_more_pods_than_one_workload_may_have_is_refused() -> None:
    admitted = admit(make_job("lammps").pods(20_001, 2**31 - 1))
    assert admitted.decision.outcome is AdmissionOutcome.REFUSED
    assert admitted.sentence.startswith(
        "Job default/lammps: it wants 20001 pods at once, "
        "the most of one workload is 20000 (queue.config.maxPods"
    )


def test_a_template_without_room_for_the_annotations_of_the_queue_is_refused() -> None:
    def job(size: int) -> JobBuilder:
        return make_job("lammps").with_(
            "spec.template.metadata.annotations", {"note": "ü" + "x" * (size - 6)}
        )

    assert admit(job(258_048)).decision.outcome is AdmissionOutcome.HELD
    assert admit(job(258_049)).sentence == (
        "Job default/lammps: the annotations of spec.template.metadata have 258049 bytes: shorten them "
        "to 258048, because the queue adds its own and Kubernetes takes 262144"
    )
    assert admit(job(258_049).owned_by("CronJob")).decision.outcome is AdmissionOutcome.HELD


def test_a_job_of_many_completions_runs_as_many_at_once_as_one_workload_may() -> None:
    assert admit(make_job().pods(20_000, 2**31 - 1)).decision.outcome is AdmissionOutcome.HELD


def test_a_job_with_a_made_up_name_is_named_by_its_prefix() -> None:
    assert admit(make_job().generated("sleep-").annotation("fluxqueue/duration", "soon")).sentence.startswith(
        "Job default/sleep-*: "
    )


def test_a_controllers_job_with_an_invalid_annotation_passes_with_a_warning() -> None:
    admitted = admit(
        make_job()
        .owned_by("CronJob")
        .annotation("fluxqueue/duration", "soon")
        .annotation("fluxqueue/priority", "x")
    )
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert ["duration" in warning or "priority" in warning for warning in admitted.decision.warnings] == [
        True,
        True,
    ]


def test_a_job_may_say_with_how_few_pods_it_starts() -> None:
    admitted = admit(make_job().indexed(4).annotation("fluxqueue/min-pods", "2"))
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.decision.warnings == ()


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (make_job().indexed(4).annotation("fluxqueue/min-pods", "5"), "write a whole number from 1 to 4"),
        (make_job().pods(4, 4).annotation("fluxqueue/min-pods", "2"), "set completionMode: Indexed"),
        (
            make_job()
            .indexed(4)
            .annotation("fluxqueue/min-pods", "2")
            .pod_annotation("fluxqueue/topology-slice", "2@rack"),
            "fluxqueue/topology-slice cannot both hold",
        ),
    ],
)
def test_a_job_that_needs_all_its_pods_is_refused_if_it_asks_to_start_with_fewer(
    job: JobBuilder, words: str
) -> None:
    admitted = admit(job)
    assert admitted.decision.outcome is AdmissionOutcome.REFUSED
    assert admitted.sentence.startswith("Job default/j: annotation fluxqueue/min-pods")
    assert words in admitted.sentence


GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (
            make_job().indexed(4).with_("spec.scheduling", GANG).annotation("fluxqueue/min-pods", "2"),
            "fluxqueue/min-pods: 2 is below 3",
        ),
        (
            make_job()
            .indexed(4)
            .with_("spec.scheduling", {**GANG, "disruptionMode": {"all": {}}})
            .annotation("fluxqueue/min-pods", "3"),
            "fluxqueue/min-pods and spec.scheduling.disruptionMode: all cannot both hold",
        ),
        (
            make_job().pods(4, 2).with_("spec.scheduling", {"schedulingPolicy": {"gang": {}}}),
            "spec.scheduling.schedulingPolicy.gang needs 4 pods at once, and only 2 run",
        ),
        (
            make_job()
            .indexed(4)
            .with_("spec.scheduling", GANG)
            .with_("spec.template.spec.schedulingGroup", {"podGroupName": "mine"}),
            "spec.template.spec.schedulingGroup names PodGroup mine: leave one of them out",
        ),
    ],
)
def test_a_job_whose_own_scheduling_contradicts_the_rest_of_it_is_refused(
    job: JobBuilder, words: str
) -> None:
    admitted = admit(job)
    assert admitted.decision.outcome is AdmissionOutcome.REFUSED
    assert admitted.sentence.startswith("Job default/j: ")
    assert words in admitted.sentence


def test_a_job_with_a_scheduling_of_its_own_is_held_as_any() -> None:
    whole = {**GANG, "schedulingConstraints": {"topology": [{"key": "zone"}]}, "disruptionMode": {"all": {}}}
    admitted = admit(make_job().indexed(4).with_("spec.scheduling", whole))
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.decision.warnings == ()
    assert admitted.after["spec"]["scheduling"] == whole


def test_a_controllers_job_that_cannot_start_with_fewer_passes_with_a_warning() -> None:
    admitted = admit(make_job().pods(4, 4).owned_by("CronJob").annotation("fluxqueue/min-pods", "2"))
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert len(admitted.decision.warnings) == 1
