"""What a Job says of its own scheduling in the words of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import JobBuilder, make_job
from support.controller_bench import managed_caches
from support.gang_builders import read_object
from support.memory_api import MemoryApi
from support.queue_builders import a_job

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.intake.native_scheduling import NativeScheduling, native_scheduling
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS

ZONE = {"topology": [{"key": "zone"}]}


def group(constraints: Any = None) -> Any:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        **({"schedulingConstraints": constraints} if constraints else {}),
    }
    return read_object(NATIVE_POD_GROUPS, spec)


def naming(name: str = "x") -> JobBuilder:
    return (
        make_job("j").namespace("default").with_("spec.template.spec.schedulingGroup", {"podGroupName": name})
    )


@pytest.fixture
def caches() -> Caches:
    return managed_caches(MemoryApi())


@pytest.mark.parametrize(
    ("lookup", "expected"),
    [
        pytest.param(Lookup(Readable.YES, group(ZONE)), NativeScheduling("zone"), id="a domain"),
        pytest.param(Lookup(Readable.YES, group()), NativeScheduling(), id="none"),
        pytest.param(Lookup(Readable.FORBIDDEN), NativeScheduling(), id="not known"),
        pytest.param(Lookup(Readable.NOT_SERVED), NativeScheduling(), id="not served"),
    ],
)
def test_a_job_has_the_domain_of_the_group_that_its_template_names(
    caches: Caches, monkeypatch: pytest.MonkeyPatch, lookup: Lookup, expected: NativeScheduling
) -> None:
    monkeypatch.setattr(caches.gang_objects, "find", lambda *_: lookup)
    assert native_scheduling(a_job(naming()), caches) == expected


def test_a_group_that_does_not_exist_is_named_with_the_remedy(
    caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches.gang_objects, "find", lambda *_: Lookup(Readable.YES))
    problem = native_scheduling(a_job(naming("late")), caches).problem
    assert problem == (
        "spec.template.spec.schedulingGroup: PodGroup default/late does not exist: "
        "create it and the work can start"
    )


def test_a_job_states_its_domain_itself(caches: Caches) -> None:
    stated = make_job("j").with_(
        "spec.scheduling", {"schedulingConstraints": ZONE, "schedulingPolicy": {"gang": {}}}
    )
    assert native_scheduling(a_job(stated), caches) == NativeScheduling("zone")
    two = make_job("j").with_(
        "spec.scheduling", {"schedulingConstraints": {"topology": [{"key": "zone"}, {"key": "rack"}]}}
    )
    assert (
        "spec.scheduling.schedulingConstraints.topology has 2 constraints"
        in native_scheduling(a_job(two), caches).problem
    )
    assert native_scheduling(a_job(make_job("j")), caches) == NativeScheduling()


def test_jobs_are_found_by_the_group_that_they_name(caches: Caches) -> None:
    job = a_job(naming("train").with_("metadata.resourceVersion", "1"), uid="j")
    caches.jobs.apply(job)
    caches.jobs.apply(a_job(make_job("other").with_("metadata.resourceVersion", "1"), uid="other"))
    name = NATIVE_POD_GROUPS.name
    assert caches.jobs_of_pod_group(name, "default", "train") == [job]
    assert caches.jobs_of_pod_group(name, "", "") == [job]
    assert (
        caches.jobs_of_pod_group(name, "default", "other") == caches.jobs_of_pod_group("kueue", "", "") == []
    )
