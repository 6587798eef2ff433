"""Annotations about the topology that no installation could read."""

from __future__ import annotations

import pytest
from support.admission import admit
from support.builders import Builder, make_job, make_minicluster, make_pod, make_review

from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionSettings
from fluxqueue.webhook.reviews import read_review
from fluxqueue.webhook.validation import validate

ODD = [
    ("fluxqueue/topology-slice", "8", "annotation fluxqueue/topology-slice: '8' is no slice: write pods@level, such as 8@rack"),
    ("fluxqueue/exclusive", "yes", 'annotation fluxqueue/exclusive: \'yes\' is neither "true" nor "false"'),
    ("fluxqueue/pods-per-node", "0", "annotation fluxqueue/pods-per-node: '0' is no number of pods: write a whole number from 1 to"),
    ("kueue.x-k8s.io/podset-slice-size", "x", "annotation kueue.x-k8s.io/podset-slice-size: 'x' is no number of pods"),
]


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
@pytest.mark.parametrize("builder", [make_job("w"), make_pod("w")], ids=["Job", "Pod"])
def test_what_cannot_be_read_is_refused_by_its_annotation(builder: Builder, key: str, text: str, sentence: str) -> None:
    refusal = admit(builder.annotation(key, text)).decision.refusal
    assert refusal is not None
    assert sentence in refusal.message


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
def test_the_pod_template_is_read_too_and_a_controller_gets_a_warning_instead(key: str, text: str, sentence: str) -> None:
    refusal = admit(make_job("w").pod_annotation(key, text)).decision.refusal
    assert refusal is not None
    assert sentence in refusal.message
    decision = admit(make_job("w").owned_by("CronJob").pod_annotation(key, text)).decision
    assert decision.outcome is AdmissionOutcome.HELD
    assert sentence in decision.warnings[0]


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
def test_a_minicluster_is_refused_by_its_annotation(key: str, text: str, sentence: str) -> None:
    cluster = make_minicluster("w", 2)
    cluster["metadata"]["annotations"] = {key: text}
    decision = validate(read_review(make_review(cluster).body()), AdmissionSettings())
    assert decision.refusal is not None
    assert sentence in decision.refusal.message


def test_levels_are_not_judged_where_they_are_not_known() -> None:
    job = make_job("w").annotation("fluxqueue/required-topology", "row").annotation("fluxqueue/topology-slice", "8@shelf")
    decision = admit(job.annotation("fluxqueue/exclusive", "none").pod_annotation("fluxqueue/pods-per-node", "4")).decision
    assert (decision.outcome, decision.warnings) == (AdmissionOutcome.HELD, ())
