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
def test_what_cannot_be_read_is_refused_by_its_annotation(
    builder: Builder, key: str, text: str, sentence: str
) -> None:
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


@pytest.mark.parametrize(
    ("annotations", "warned"),
    [
        ({"deadline": "+2h", "duration": "1h"}, False),
        ({"deadline": "+2h", "duration": "3h"}, True),
        ({"deadline": "+2h", "duration": "90m", "begin": "+1h"}, True),
        ({"deadline": "2026-01-01T13:00:00Z", "duration": "90m"}, True),
        ({"deadline": "2026-01-01T13:00:00Z"}, False),
        ({"deadline": "2026-01-01T11:00:00Z"}, True),
        ({"duration": "3h"}, False),
    ],
)
@pytest.mark.parametrize("builder", [make_job("w"), make_pod("w")], ids=["Job", "Pod"])
def test_a_deadline_that_cannot_be_met_by_its_own_annotations_is_warned_of(
    builder: Builder, annotations: dict[str, str], warned: bool
) -> None:
    for key, text in annotations.items():
        builder = builder.annotation(f"fluxqueue/{key}", text)
    decision = admit(builder).decision
    assert (decision.outcome, len(decision.warnings)) == (AdmissionOutcome.HELD, int(warned))
    assert not warned or "annotation fluxqueue/deadline: by its duration" in decision.warnings[0]


def test_a_deadline_that_cannot_be_read_is_refused() -> None:
    refusal = admit(make_job("w").annotation("fluxqueue/deadline", "soon")).decision.refusal
    assert refusal is not None
    assert "annotation fluxqueue/deadline: 'soon' is not a time" in refusal.message
