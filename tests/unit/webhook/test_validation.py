from typing import Any

import pytest
from support.admission import DEFAULTS
from support.builders import Json, make_job, make_minicluster, make_queue, make_review

from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.webhook.choices import SchedulerChoices
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionSettings, Decision
from fluxqueue.webhook.reviews import MalformedReview, read_review
from fluxqueue.webhook.validation import validate

GPU = "nvidia.com/gpu"


def judged(queue: Json, former: Json | None = None, settings: AdmissionSettings = DEFAULTS) -> Decision:
    review = make_review(queue)
    if former is not None:
        review = review.operation("UPDATE").with_("request.oldObject", former)
    return validate(read_review(review.body()), settings)


def refused(decision: Decision) -> str:
    assert decision.refusal is not None
    assert decision.refusal.reason == "Invalid"
    return decision.refusal.message


def test_a_queue_with_every_field_is_accepted() -> None:
    decision = judged(
        make_queue(
            "gpu",
            policy="conservative",
            reservationDepth=10,
            limits={"running": 4, "nodes": 8, "perNamespace": {"nodes": 2}},
            nodeSelector={"example.com/pool": "gpu", "zone": ""},
            namespaces={"names": ["a", "team-1"], "matchLabels": {"team": "hpc"}},
            topology={
                "required": "zone",
                "preferred": "rack",
                "slice": "8@rack",
                "exclusive": True,
                "podsPerNode": 4,
            },
        )
    )
    assert (decision.outcome, decision.refusal, decision.warnings) == (AdmissionOutcome.PASSED, None, ())


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"nodeSelector": {"not a key": "x"}},
            "spec.nodeSelector: 'not a key' is no key of a label, no node can have it",
        ),
        ({"nodeSelector": {"/pool": "x"}}, "spec.nodeSelector: '/pool' is no key"),
        ({"nodeSelector": {"UPPER.com/pool": "x"}}, "spec.nodeSelector: 'UPPER.com/pool' is no key"),
        ({"nodeSelector": {"pool": "a,b"}}, "spec.nodeSelector: 'a,b' is no value of the label pool"),
        (
            {
                "flavors": [
                    {"name": "own", "nodeSelector": {"a": "b"}},
                    {"name": "x", "nodeSelector": {"c d": "x"}},
                ]
            },
            "spec.flavors[1].nodeSelector: 'c d' is no key of a label, no node can have it",
        ),
        (
            {"namespaces": {"matchLabels": {"team": "-x"}}},
            "spec.namespaces.matchLabels: '-x' is no value of the label team",
        ),
        (
            {"namespaces": {"names": ["Team One"]}},
            "spec.namespaces.names: 'Team One' is no name of a namespace",
        ),
    ],
)
def test_selectors_that_match_nothing_are_refused_by_field(spec: dict[str, Any], sentence: str) -> None:
    message = refused(judged(make_queue("odd", **spec)))
    assert message.startswith("FluxQueue odd: ")
    assert sentence in message
    assert "correct or remove it" in message


@pytest.mark.parametrize("text", ["0@rack", "9999999@rack", "8@two racks"])
def test_slices_by_default_that_cannot_be_read_are_refused(text: str) -> None:
    message = refused(judged(make_queue("odd", topology={"slice": text})))
    assert (
        message
        == f"FluxQueue odd: spec.topology.slice: '{text}' is no slice: write pods@level, such as 8@rack"
    )


def test_all_errors_are_reported_at_once() -> None:
    message = refused(judged(make_queue("odd", nodeSelector={"a b": "x"}, namespaces={"names": ["A"]})))
    assert "spec.nodeSelector" in message
    assert "spec.namespaces.names" in message


def test_a_queue_for_a_scheduler_that_is_not_installed_gets_a_warning() -> None:
    (warning,) = judged(make_queue("ours", scheduler="fluxion")).warnings
    assert warning.startswith("spec.scheduler is fluxion: no scheduler of fluxqueue is installed here")
    installed = AdmissionSettings(choices=SchedulerChoices(SchedulerName.STOCK))
    assert judged(make_queue("ours", scheduler="fluxion"), settings=installed).warnings == ()
    assert judged(make_queue("stock", scheduler="stock")).warnings == ()


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (
            {"running": 0},
            (
                "spec.limits.running is 0: nothing of this queue can start: "
                "to stop it for a while set spec.state to held"
            ),
        ),
        (
            {"nodes": 0},
            (
                "spec.limits.nodes is 0: nothing of this queue can start: "
                "to stop it for a while set spec.state to held"
            ),
        ),
        (
            {"perNamespace": {"running": 0}},
            "spec.limits.perNamespace.running is 0: nothing of this queue can start",
        ),
        (
            {"perNamespace": {"cores": 0}},
            "spec.limits.perNamespace.cores is 0: no work of this queue that asks for cores can start",
        ),
        (
            {"perWorkload": {"nodes": 0}},
            "spec.limits.perWorkload.nodes is 0: nothing of this queue can start",
        ),
        (
            {"resources": {GPU: 0}},
            f"spec.limits.resources: {GPU} is 0: no work of this queue that asks for it can start",
        ),
        (
            {"perNamespace": {"resources": {GPU: "0"}}},
            (
                f"spec.limits.perNamespace.resources: {GPU} is 0: "
                "no work of this queue that asks for it can start"
            ),
        ),
        (
            {"perWorkload": {"resources": {"memory": "0Gi"}}},
            (
                "spec.limits.perWorkload.resources: memory is 0: "
                "no work of this queue that asks for it can start"
            ),
        ),
        (
            {"nodes": 2, "perNamespace": {"nodes": 5}},
            "spec.limits.perNamespace.nodes is 5, but the whole queue may use 2",
        ),
        (
            {"perWorkload": {"cores": 0}},
            "spec.limits.perWorkload.cores is 0: no work of this queue that asks for cores can start",
        ),
        (
            {"nodes": 2, "perWorkload": {"nodes": 5}},
            "spec.limits.perWorkload.nodes is 5, but the whole queue may use 2",
        ),
        (
            {"cores": 2, "perWorkload": {"cores": 5}},
            "spec.limits.perWorkload.cores is 5, but the whole queue may use 2",
        ),
    ],
)
def test_surprising_limits_are_accepted_with_a_warning(limits: dict[str, Any], sentence: str) -> None:
    decision = judged(make_queue("tight", limits=limits))
    assert decision.allowed
    assert any(sentence in warning for warning in decision.warnings)


def test_a_warning_about_a_limit_of_zero_says_what_cannot_start() -> None:
    """Work has nodes whatever it asks for; not all work asks for cores."""
    (nodes,) = judged(make_queue("tight", limits={"perWorkload": {"nodes": 0}})).warnings
    assert "asks for" not in nodes
    (cores,) = judged(make_queue("tight", limits={"cores": 0})).warnings
    assert "nothing" not in cores
    assert judged(make_queue("tight", limits={"resources": {GPU: 1, "memory": "1Gi"}})).warnings == ()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"enforceDuration": {"graceSeconds": 5}}, "spec.enforceDuration is not enabled"),
        ({"preemptionRules": {"graceSeconds": 5}}, "spec.preemptionRules has no effect"),
        ({"preemption": "never", "preemptionRules": {}}, "spec.preemptionRules has no effect"),
        ({"policy": "fcfs", "planning": {"reservedNodes": "freeLast"}}, "spec.planning has no effect"),
        ({"policy": "fcfs", "planning": {"backfillDurations": "predicted"}}, "spec.planning has no effect"),
        ({"consolidation": {"maxLostSeconds": 60}}, "spec.consolidation is not enabled"),
        ({"policy": "fcfs", "consolidation": {"enabled": True}}, "spec.consolidation has no effect"),
        (
            {
                "consolidation": {"enabled": True, "maxLostSeconds": 60},
                "preemptionRules": {"minRunSeconds": 60},
            },
            "spec.consolidation.maxLostSeconds is 60, but work runs at least 60 s",
        ),
    ],
)
def test_rules_without_effect_are_accepted_with_a_warning(spec: dict[str, Any], sentence: str) -> None:
    (warning,) = judged(make_queue("odd", **spec)).warnings
    assert warning.startswith(sentence)


def test_rules_with_effect_pass_without_a_word() -> None:
    rules = {
        "preemption": "lowerPriority",
        "preemptionRules": {"minRunSeconds": 60},
        "enforceDuration": {"enabled": True},
        "consolidation": {"enabled": True},
    }
    assert judged(make_queue("plain", **rules)).warnings == ()


def test_an_error_that_was_stored_before_does_not_keep_a_queue_from_being_changed() -> None:
    before = make_queue("old", nodeSelector={"a b": "x"})
    decision = judged(make_queue("old", nodeSelector={"a b": "x"}, state="held"), before)
    assert decision.allowed
    assert "'a b' is no key of a label" in decision.warnings[0]
    assert "'c d'" in refused(judged(make_queue("old", nodeSelector={"a b": "x", "c d": "x"}), before))


def test_a_queue_being_deleted_and_foreign_objects_pass() -> None:
    going = make_queue("odd", nodeSelector={"a b": "x"})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert judged(going, going).allowed
    assert validate(read_review(make_review(make_job()).body()), DEFAULTS).allowed
    deletion = (
        make_review(make_queue("q", nodeSelector={"a b": "x"})).operation("DELETE").without("request.object")
    )
    assert validate(read_review(deletion.body()), DEFAULTS).allowed


def test_a_queue_of_another_shape_is_no_review_of_ours() -> None:
    with pytest.raises(MalformedReview, match="the object of kind FluxQueue cannot be read"):
        judged(make_queue("odd", policy="newer-than-this-webhook"))


def test_a_minicluster_that_cannot_run_is_refused_with_every_mistake() -> None:
    message = refused(judged(make_minicluster("odd", duration="soon", tasks=-1)))
    assert message.startswith(("MiniCluster default/odd: ", "MiniCluster odd: "))
    assert "spec.tasks is -1" in message
    assert "spec.duration" in message


def test_a_minicluster_nested_deeper_than_can_be_read_is_refused_by_name() -> None:
    body = make_review(make_minicluster("deep", podTemplate={"spec": "DEEP"})).body()
    message = refused(
        validate(read_review(body.replace(b'"DEEP"', b'{"a":' * 9_000 + b"1" + b"}" * 9_000)), DEFAULTS)
    )
    assert message.startswith("MiniCluster ")
    assert "nested more than 32 deep" in message


def test_fields_that_do_nothing_are_warned_about() -> None:
    decision = judged(make_minicluster("old", flux={"arch": "arm"}))
    assert decision.allowed
    assert decision.warnings[0].startswith("spec.flux.arch does nothing")


def test_a_minicluster_with_nodes_accepts_edits_only_of_fields_outside_its_pods() -> None:
    waiting = {**make_minicluster("flux"), "status": {"state": "Queued", "maximumSize": 4}}
    running = {**make_minicluster("flux"), "status": {"state": "Running", "maximumSize": 4}}
    assert judged(make_minicluster("flux", command="other"), waiting).allowed
    assert "spec.containers cannot be changed" in refused(
        judged(make_minicluster("flux", command="other"), running)
    )
    assert judged(make_minicluster("flux", size=2), running).allowed
