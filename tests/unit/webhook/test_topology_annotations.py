"""Annotations about the topology that no installation could read."""

from __future__ import annotations

import pytest
from support.admission import admit
from support.builders import Builder, make_job, make_minicluster, make_pod, make_queue, make_review

from fluxqueue.api.topology import levels_of
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionSettings
from fluxqueue.webhook.reviews import read_review
from fluxqueue.webhook.validation import validate

LEVELS = AdmissionSettings(
    levels=levels_of(["block=topology.kubernetes.io/block", "rack=topology.kubernetes.io/rack"])
)
ODD = [
    (
        "fluxqueue/topology-slice",
        "8",
        "annotation fluxqueue/topology-slice: '8' is no slice: write pods@level, such as 8@rack",
    ),
    ("fluxqueue/exclusive", "yes", 'annotation fluxqueue/exclusive: \'yes\' is neither "true" nor "false"'),
    (
        "fluxqueue/pods-per-node",
        "0",
        "annotation fluxqueue/pods-per-node: '0' is no number of pods: write a whole number from 1 to",
    ),
    (
        "kueue.x-k8s.io/podset-slice-size",
        "x",
        "annotation kueue.x-k8s.io/podset-slice-size: 'x' is no number of pods",
    ),
]


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
@pytest.mark.parametrize("builder", [make_job("w"), make_pod("w")], ids=["Job", "Pod"])
def test_what_cannot_be_read_is_refused_by_its_annotation(
    builder: Builder, key: str, text: str, sentence: str
) -> None:
    refusal = admit(builder.annotation(key, text)).decision.refusal
    assert refusal is not None
    assert sentence in refusal.message


@pytest.mark.parametrize(("key", "text", "sentence"), ODD)
def test_the_pod_template_is_read_too_and_a_controller_gets_a_warning_instead(
    key: str, text: str, sentence: str
) -> None:
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


UNKNOWN = [
    (
        {"fluxqueue/required-topology": "racks"},
        (
            "annotation fluxqueue/required-topology: 'racks' is no level of this cluster: did you mean "
            "rack? use one of block, rack, node, or"
        ),
    ),
    (
        {"fluxqueue/preferred-topology": "Block"},
        "annotation fluxqueue/preferred-topology: 'Block' is no level of this cluster: did you mean",
    ),
    (
        {"fluxqueue/topology-slice": "8@row"},
        "annotation fluxqueue/topology-slice: 'row' is no level of this cluster: use one of block",
    ),
    (
        {"kueue.x-k8s.io/podset-required-topology": "topology.kubernetes.io/racks"},
        (
            "annotation kueue.x-k8s.io/podset-required-topology: "
            "'topology.kubernetes.io/racks' is no level of this cluster: did"
        ),
    ),
    (
        {"kueue.x-k8s.io/podset-slice-required-topology": "shelf", "kueue.x-k8s.io/podset-slice-size": "2"},
        "annotation kueue.x-k8s.io/podset-slice-required-topology: 'shelf' is no level",
    ),
]


@pytest.mark.parametrize(("annotations", "sentence"), UNKNOWN)
def test_a_level_that_the_cluster_does_not_have_is_refused(
    annotations: dict[str, str], sentence: str
) -> None:
    job, pod = make_job("w"), make_pod("w")
    for key, text in annotations.items():
        job, pod = job.pod_annotation(key, text), pod.annotation(key, text)
    for refused, kind in (
        (admit(job, settings=LEVELS), "Job default/w"),
        (admit(pod, settings=LEVELS), "Pod default/w"),
    ):
        assert refused.sentence.startswith(f"{kind}: {sentence}")
    held = admit(job.owned_by("CronJob"), settings=LEVELS).decision
    assert (held.outcome, sentence in held.warnings[0]) == (AdmissionOutcome.HELD, True), (
        "nobody waits for what a controller creates"
    )
    cluster = make_minicluster("w", 2)
    cluster["metadata"]["annotations"] = annotations
    decision = validate(read_review(make_review(cluster).body()), LEVELS)
    assert decision.refusal is not None
    assert sentence in decision.refusal.message


def test_levels_that_the_cluster_has_pass_by_name_and_by_label() -> None:
    job = (
        make_job("w")
        .annotation("fluxqueue/required-topology", "block")
        .annotation("fluxqueue/topology-slice", "8@rack")
    )
    job = job.annotation("fluxqueue/preferred-topology", "topology.kubernetes.io/rack")
    assert admit(job, settings=LEVELS).decision.warnings == ()
    assert admit(
        make_job("w").annotation("fluxqueue/required-topology", "none"), settings=LEVELS
    ).decision.allowed


def test_a_queue_whose_default_is_no_level_gets_a_warning() -> None:
    review = read_review(make_review(make_queue("deep", topology={"required": "racks"})).body())
    (warning,) = validate(review, LEVELS).warnings
    assert (
        "spec.topology: the default of its queue for fluxqueue/required-topology: "
        "'racks' is no level of this cluster"
    ) in warning
    assert validate(review, AdmissionSettings()).warnings == ()


def test_levels_are_not_judged_where_they_are_not_known() -> None:
    job = (
        make_job("w")
        .annotation("fluxqueue/required-topology", "row")
        .annotation("fluxqueue/topology-slice", "8@shelf")
    )
    decision = admit(
        job.annotation("fluxqueue/exclusive", "none").pod_annotation("fluxqueue/pods-per-node", "4")
    ).decision
    assert (decision.outcome, decision.warnings) == (AdmissionOutcome.HELD, ())
