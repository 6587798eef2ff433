"""Rules about other pods, as the intake reads them:
what becomes of them in a request, and what of a group cannot be matched.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.constraints import InexpressibleConstraint
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.noderules.admitted_nodes import AdmittedNodes
from fluxqueue.queue.noderules.jobspec_rules import rule_pods, rules_in, with_admitted_nodes
from fluxqueue.queue.noderules.pod_rules import (
    MAX_RULES,
    PodRules,
    Requirement,
    labels_told_apart,
    rules_of,
    with_labels,
)

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
INDEX = "batch.kubernetes.io/job-completion-index"


def term(selector: Any, topology: str = HOST, **more: Any) -> dict[str, Any]:
    return {"labelSelector": selector, "topologyKey": topology, **more}


def asking(kind: str, *terms: dict[str, Any], pods: int = 4) -> JobBuilder:
    builder = (
        make_job("md")
        .indexed(pods)
        .pod_label("app", "md")
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    return builder.with_(
        "spec.template.spec.affinity", {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}
    )


def described(builder: JobBuilder) -> NewWorkload:
    found = describe_job(a_job(builder), around())
    assert found is not None
    return found


MINE = {"matchLabels": {"app": "md"}}


def test_rules_stand_in_the_request_and_belong_to_its_shape() -> None:
    found, other = (
        described(asking("podAffinity", term(MINE, ZONE))),
        described(asking("podAffinity", term(MINE, HOST))),
    )
    rules = rules_in(found.jobspec)
    assert rules is not None
    (affinity,) = rules.affinity
    assert (affinity.topology, affinity.namespaces, rules.labels) == (ZONE, ("default",), {"app": "md"})
    assert found.shape != other.shape
    assert rules_in(described(asking("podAffinity")).jobspec) is None


def test_a_request_is_matched_with_what_its_rules_come_to_and_without_them() -> None:
    found = described(
        asking("podAffinity", term(MINE, ZONE)).with_("spec.template.spec.nodeSelector", {"disk": "ssd"})
    )
    spec = json.loads(with_admitted_nodes(found.jobspec, AdmittedNodes({"properties": ["zone=a"]})))
    assert spec["attributes"]["system"]["constraints"] == {
        "and": [{"and": [{"properties": ["disk=ssd"]}, {"tolerates": []}]}, {"properties": ["zone=a"]}]
    }
    assert "podRules" not in spec["attributes"]["system"]


@pytest.mark.parametrize(
    ("said", "apart"),
    [
        pytest.param(term(MINE), True, id="its own pods"),
        pytest.param(term({}), True, id="every pod of its namespace"),
        pytest.param(term(MINE, ZONE), False, id="by zone"),
        pytest.param(term({"matchLabels": {"app": "other"}}), False, id="others"),
        pytest.param(term(MINE, namespaces=["b"]), False, id="in another namespace"),
        pytest.param(term(None), False, id="nobody"),
    ],
)
def test_pods_that_keep_apart_from_each_other_by_hostname_ask_for_a_node_each(
    said: dict[str, Any], apart: bool
) -> None:
    found = described(asking("podAntiAffinity", said))
    assert found.reason is Reason.NONE
    assert rule_pods(found.jobspec) == (4, apart)
    assert rule_pods(described(asking("podAntiAffinity", said, pods=1)).jobspec) == (1, False)


def test_label_keys_are_merged_into_the_selector_as_the_api_server_does() -> None:
    found = described(
        asking(
            "podAntiAffinity", term(MINE, matchLabelKeys=["app", "absent"], mismatchLabelKeys=["tier"])
        ).pod_label("tier", "x")
    )
    rules = rules_in(found.jobspec)
    assert rules is not None
    assert rules.anti_affinity[0].selector.requirements == (
        Requirement("app", "In", ("md",)),
        Requirement("tier", "NotIn", ("x",)),
    )


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        pytest.param(
            asking("podAffinity", term({"matchLabels": {INDEX: "0"}})),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution selects some of its "
            "own pods and not others",
            id="a selector that tells its pods apart",
        ),
        pytest.param(
            asking("podAntiAffinity", term(MINE, matchLabelKeys=[INDEX])),
            "its pods have different rules about other pods",
            id="rules that differ by pod",
        ),
        pytest.param(
            asking("podAntiAffinity", *(term(MINE, f"level-{number}") for number in range(MAX_RULES + 1))),
            f"no more than {MAX_RULES} are read",
            id="too many",
        ),
    ],
)
def test_what_a_group_cannot_be_matched_by_is_refused_with_field_and_remedy(
    builder: JobBuilder, words: str
) -> None:
    found = described(builder)
    assert found.reason is Reason.INVALID_REQUEST
    assert words in found.message
    assert found.message.startswith("Job default/md: ")


def test_a_single_pod_may_be_told_apart_by_any_label() -> None:
    assert described(asking("podAffinity", term({"matchLabels": {INDEX: "0"}}), pods=1)).reason is Reason.NONE


def numbered(count: int, **more: str) -> list[dict[str, str]]:
    """Labels of pods that are told apart by one label and by what numbers them."""
    return [
        {"app": "a", "task": f"t{number}", "apps.kubernetes.io/pod-index": str(number), **more}
        for number in range(count)
    ]


def keeping_off(*labels: str) -> PodRules:
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key in labels
    ]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return rules_of(msgspec.convert({"affinity": affinity}, PodSpec), "ada", {"app": "a"})


def test_what_only_numbers_pods_does_not_tell_them_apart_unless_a_rule_names_it() -> None:
    labels = [{"app": "a", "apps.kubernetes.io/pod-index": str(number)} for number in range(10_000)]
    assert labels_told_apart(keeping_off("app"), labels) == [{"app": "a"}]
    assert labels_told_apart(keeping_off("app"), labels[:1]) == labels[:1]
    assert len(labels_told_apart(keeping_off("apps.kubernetes.io/pod-index"), labels[:10])) == 10


def test_of_very_many_different_labels_those_count_that_all_pods_have_or_their_rules_name() -> None:
    """Executors of Spark have a number as a label.
    With each of 10,000 the request would be megabytes long.
    """
    assert len(labels_told_apart(keeping_off("app"), numbered(64))) == 64
    assert labels_told_apart(keeping_off("app"), numbered(10_000, team="x")) == [{"app": "a", "team": "x"}]
    half = [
        {**each, "side": "left" if number % 2 else "right"} for number, each in enumerate(numbered(10_000))
    ]
    assert sorted(each["side"] for each in labels_told_apart(keeping_off("side"), half)) == ["left", "right"]
    found = with_labels(keeping_off("app"), numbered(10_000))
    assert (found.labels, found.labels_of_each) == ({"app": "a"}, ())


def test_a_group_whose_rules_tell_very_many_of_its_pods_apart_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        InexpressibleConstraint,
        match=r"more than 64 different labels .*: select by labels that all of them have",
    ):
        labels_told_apart(keeping_off("task"), numbered(10_000))
