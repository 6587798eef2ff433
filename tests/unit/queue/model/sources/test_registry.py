"""Which source a pod belongs to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.gang_builders import pod_builder, pods_of
from support.queue_builders import a_workload

from fluxqueue.queue.model.groups import GroupKey, group_of, group_of_workload
from fluxqueue.queue.model.owner_handles import HANDLES
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.model.sources.registry import SOURCES, source_named, source_of_object, source_of_pod

CHART = Path(__file__).parents[5] / "charts" / "fluxqueue"


def test_each_source_is_found_by_its_name_and_by_the_kind_of_its_workloads() -> None:
    for source in SOURCES:
        assert source_named(source.name) is source
        assert source_of_object(source.api_version, source.kind) is source
        row = a_workload(
            "x", api_version=source.api_version, kind=source.kind, release_mode=ReleaseMode.GROUP
        )
        assert group_of_workload(row) == GroupKey("default", "x", source.kind, source.name)


@pytest.mark.parametrize(
    "label",
    ["scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name", "workload.codeflare.dev/appwrapper"],
)
def test_the_pods_of_a_job_are_the_jobs_whatever_group_they_name(label: str) -> None:
    (pod,) = pods_of(pod_builder("a", {label: "x"}).owned_by("Job", "lammps"))
    assert group_of(pod) is None


def test_our_own_groups_have_no_source() -> None:
    row = a_workload("x", api_version="v1", kind="PodGroup", release_mode=ReleaseMode.GROUP)
    assert group_of_workload(row) == GroupKey("default", "x")


def test_a_pod_of_nobody_has_no_source() -> None:
    plain, owned = pods_of(
        pod_builder("a", {"app": "x"}, {"note": "y"}),
        pod_builder("b").owned_by("Strange", api_version="example.org/v1"),
    )
    assert source_of_pod(plain) is None
    assert source_of_pod(owned) is None


@pytest.mark.parametrize("path", ["templates/rbac/gangs.yaml", "values.schema.json"])
def test_the_chart_knows_every_resource_that_is_read(path: str) -> None:
    text = (CHART / path).read_text()
    read = {source.resource.name for source in SOURCES if source.resource is not None}
    read |= {f"{handle.plural}.{handle.group}" for handle in HANDLES}
    if path.endswith(".json"):
        known = set(json.loads(text)["properties"]["gangs"]["properties"]["resources"]["items"]["enum"])
    else:
        known = set(re.findall(r'^  "([a-z.0-9-]+)" \(list', text, re.MULTILINE))
        for source in (each.resource for each in SOURCES if each.resource is not None):
            for version in source.versions:
                assert f'"{source.group}/{version}/{source.kind}"' in text
    assert known == read
