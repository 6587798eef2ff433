import pytest
from support.admission import admit
from support.builders import Builder, make_job, make_minicluster, make_pod, make_review

from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionSettings
from fluxqueue.webhook.reviews import read_review
from fluxqueue.webhook.validation import validate

ODD = [
    ("after", "job/a", "annotation fluxqueue/after: 'job/a' is not a dependency"),
    ("after", "ok:job/a,ok:vm/b", "annotation fluxqueue/after: 'ok:vm/b': nothing can wait for a 'vm'"),
    ("begin", "noon", "annotation fluxqueue/begin: 'noon' is not a time"),
    ("singleton", "", "annotation fluxqueue/singleton: '' is not a name"),
]


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
@pytest.mark.parametrize("builder", [make_job("w"), make_pod("w")], ids=["Job", "Pod"])
def test_what_cannot_be_read_is_refused_by_its_annotation(builder: Builder, key: str, text: str, sentence: str) -> None:
    refusal = admit(builder.annotation(f"fluxqueue/{key}", text)).decision.refusal
    assert refusal is not None
    assert sentence in refusal.message


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
def test_a_controller_gets_a_warning_instead(key: str, text: str, sentence: str) -> None:
    decision = admit(make_job("w").owned_by("CronJob").annotation(f"fluxqueue/{key}", text)).decision
    assert decision.outcome is AdmissionOutcome.HELD
    assert sentence in decision.warnings[0]


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
def test_a_minicluster_is_refused_by_its_annotation(key: str, text: str, sentence: str) -> None:
    cluster = make_minicluster("w", 2)
    cluster["metadata"]["annotations"] = {f"fluxqueue/{key}": text}
    decision = validate(read_review(make_review(cluster).body()), AdmissionSettings())
    assert decision.refusal is not None
    assert sentence in decision.refusal.message


def test_an_object_that_waits_for_itself_is_refused_and_its_namesake_of_another_kind_is_not() -> None:
    job = make_job("w")
    refusal = admit(job.annotation("fluxqueue/after", "ok:job/v, any:job/w")).decision.refusal
    assert refusal is not None
    assert "'any:job/w' is the object itself, so it would wait for ever" in refusal.message
    assert admit(job.annotation("fluxqueue/after", "ok:pod-group/w")).decision.refusal is None


def test_readable_annotations_pass_without_a_word() -> None:
    job = make_job("w").annotation("fluxqueue/after", "ok:job/a+5m").annotation("fluxqueue/begin", "+2h")
    decision = admit(job.annotation("fluxqueue/singleton", "train")).decision
    assert (decision.outcome, decision.warnings) == (AdmissionOutcome.HELD, ())
