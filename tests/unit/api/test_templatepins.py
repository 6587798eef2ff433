"""A node goes into a template beside what its user wrote, and out of it again without a trace."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, Json, make_job
from support.memory_api import merged

from fluxqueue.api import names
from fluxqueue.api.pods import PodTemplateSpec
from fluxqueue.api.templatepins import (
    affinity_patch_without_pin,
    has_required_nodes,
    is_pinned,
    node_affinity,
    without_pin,
)

ANTI = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
PREFERRED = [{"weight": 1, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}]
AFFINITIES: list[Json | None] = [
    None,
    {"podAntiAffinity": ANTI},
    {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED}},
    {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED}, "podAntiAffinity": ANTI},
]


def template(builder: JobBuilder) -> tuple[Json, PodTemplateSpec]:
    document = builder.build()["spec"]["template"]
    return document, msgspec.convert(document, PodTemplateSpec)


def pinned(affinity: Json | None) -> JobBuilder:
    job = (
        make_job()
        .pod_label("app", "mpi")
        .pod_label(names.PINNED_LABEL, "yes")
        .pod_annotation(names.NODES_ANNOTATION, "n7")
    )
    return job.with_("spec.template.spec.affinity", merged(affinity or {}, node_affinity("n7"), by_key=True))


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_a_pin_is_removed_and_leaves_what_the_user_wrote(affinity: Json | None) -> None:
    document, spec = template(pinned(affinity))
    assert has_required_nodes(spec.spec)
    cleared = merged(document["spec"], affinity_patch_without_pin(spec), by_key=True)
    assert cleared.get("affinity") == affinity
    before = without_pin(spec)
    assert before.spec.affinity == affinity
    assert before.metadata.labels == {"app": "mpi"}
    assert not is_pinned(before.metadata)


def test_terms_that_a_person_added_stay() -> None:
    job = pinned(None)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = f"spec.template.spec.affinity.nodeAffinity.{required}.nodeSelectorTerms"
    (pin,) = node_affinity("n7")["nodeAffinity"][required]["nodeSelectorTerms"]
    theirs = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    other = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}
    document, spec = template(job.with_(terms, [pin, {**theirs, **copy.deepcopy(pin)}, other]))
    cleared = merged(document["spec"], affinity_patch_without_pin(spec), by_key=True)
    required = cleared["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [theirs, other]}
    assert without_pin(spec).spec.affinity == cleared["affinity"]


@pytest.mark.parametrize("value", ["", "no", None])
def test_a_template_without_the_mark_keeps_its_affinity(value: Any) -> None:
    job = (
        make_job()
        .pod_annotation(names.NODES_ANNOTATION, "n7")
        .with_("spec.template.spec.affinity", node_affinity("n7"))
    )
    _, spec = template(job if value is None else job.pod_label(names.PINNED_LABEL, value))
    assert not is_pinned(spec.metadata)
    assert affinity_patch_without_pin(spec) == {}
    assert without_pin(spec) is spec


def test_a_pod_of_our_own_scheduler_has_the_mark_and_no_affinity() -> None:
    _, spec = template(
        make_job().pod_label(names.PINNED_LABEL, "yes").pod_annotation(names.NODES_ANNOTATION, "n7")
    )
    assert not has_required_nodes(spec.spec)
    assert affinity_patch_without_pin(spec) == {}
    assert without_pin(spec).spec.affinity is None
