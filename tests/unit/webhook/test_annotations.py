from support.admission import admit
from support.builders import make_job, make_minicluster, make_pod

from fluxqueue.webhook.decide import AdmissionOutcome


def test_a_misspelled_key_is_a_warning_that_says_what_may_be_meant() -> None:
    admitted = admit(make_job().annotation("fluxqueue/durration", "2h").label("fluxqueue/queu", "night"))
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.decision.warnings == (
        "Job default/j: label fluxqueue/queu is unknown and has no effect: did you mean fluxqueue/queue?",
        (
            "Job default/j: annotation fluxqueue/durration is unknown and has no effect: "
            "did you mean fluxqueue/duration?"
        ),
    )


def test_a_key_of_a_template_is_named_once() -> None:
    admitted = admit(
        make_job().annotation("fluxqueue/exclusiv", "true").pod_annotation("fluxqueue/exclusiv", "true")
    )
    assert len(admitted.decision.warnings) == 1


def test_pods_and_miniclusters_are_read_too() -> None:
    assert (
        "did you mean fluxqueue/gang?"
        in admit(make_pod().annotation("fluxqueue/gangs", "true")).decision.warnings[0]
    )
    minicluster = make_minicluster("m")
    minicluster["metadata"]["annotations"] = {"fluxqueue/afterr": "ok:job/a"}
    assert "did you mean fluxqueue/after?" in admit(minicluster).decision.warnings[0]


def test_nobody_reads_warnings_about_what_a_controller_creates() -> None:
    assert not admit(
        make_pod().annotation("fluxqueue/gangs", "true").owned_by("ReplicaSet")
    ).decision.warnings
    assert not admit(make_job().annotation("fluxqueue/durration", "1h").owned_by("CronJob")).decision.warnings


def test_the_warnings_about_keys_are_few() -> None:
    job = make_job()
    for number in range(50):
        job = job.annotation(f"fluxqueue/x{number}", "")
    assert len(admit(job).decision.warnings) == 8
