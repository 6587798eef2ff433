"""What a Job says of its own scheduling in the words of Kubernetes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job
from support.controller_bench import managed_caches
from support.gang_builders import read_object
from support.memory_api import MemoryApi
from support.queue_builders import a_job

from fluxqueue.api.pods import PodResourceClaim
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.intake.native_scheduling import native_scheduling
from fluxqueue.queue.intake.submission import NativeScheduling
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS

ZONE = {"topology": [{"key": "zone"}]}
CLAIMS = [{"name": "both", "resourceClaimTemplateName": "both"}]


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


def test_a_job_that_says_nothing_asks_for_nothing(caches: Caches) -> None:
    assert native_scheduling(a_job(make_job("j")), caches) == NativeScheduling()


def test_a_group_that_does_not_exist_is_named_with_the_remedy(
    caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches.gang_objects, "find", lambda *_: Lookup(Readable.YES))
    problem = native_scheduling(a_job(naming("late")), caches).problem
    assert problem == (
        "spec.template.spec.schedulingGroup: PodGroup default/late does not exist: "
        "create it and the work can start"
    )


def sharing() -> JobBuilder:
    return make_job("j").namespace("default").with_("spec.scheduling", {"resourceClaims": CLAIMS})


def read_groups(caches: Caches, readable: Readable = Readable.YES) -> None:
    caches.gang_objects._followed[NATIVE_POD_GROUPS.name].readable = readable


def test_the_claims_that_a_job_states_are_shared_before_its_pod_group_is_made(caches: Caches) -> None:
    read_groups(caches)
    shared = msgspec.convert(CLAIMS, list[PodResourceClaim])
    assert native_scheduling(a_job(sharing()), caches) == NativeScheduling(claims=dict.fromkeys(shared, ""))


def test_the_pod_group_of_a_job_knows_what_was_made_of_its_claims(caches: Caches) -> None:
    read_groups(caches)
    job = a_job(sharing().with_("metadata.resourceVersion", "1"), uid="j")
    caches.jobs.apply(job)
    made = {"resourceClaimStatuses": [{"name": "both", "resourceClaimName": "j-both-x"}]}
    owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    document = {
        "metadata": {"name": "j-pg", "namespace": "default", "uid": "g", "ownerReferences": [owner]},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": CLAIMS},
        "status": made,
    }
    assert NATIVE_POD_GROUPS.resource is not None
    name = NATIVE_POD_GROUPS.name
    caches.gang_objects.cache(name).apply(msgspec.convert(document, NATIVE_POD_GROUPS.resource.struct))
    assert [*native_scheduling(job, caches).claims.values()] == ["j-both-x"]
    assert caches.jobs_of_pod_group(name, "default", "j-pg") == [job], "it is read again when that changes"
    assert caches.jobs_of_pod_group(name, "", "") == [job]


def test_a_pod_group_of_another_namespace_says_nothing_of_the_claims_of_a_job(caches: Caches) -> None:
    read_groups(caches)
    job = a_job(sharing().with_("metadata.resourceVersion", "1"), uid="j")
    caches.jobs.apply(job)
    owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    document = {
        "metadata": {"name": "forged", "namespace": "other", "uid": "g", "ownerReferences": [owner]},
        "spec": {
            "schedulingPolicy": {"basic": {}},
            "resourceClaims": [{"name": "x", "resourceClaimName": "x"}],
        },
    }
    assert NATIVE_POD_GROUPS.resource is not None
    forged = msgspec.convert(document, NATIVE_POD_GROUPS.resource.struct)
    caches.gang_objects.cache(NATIVE_POD_GROUPS.name).apply(forged)
    assert [each.name for each in native_scheduling(job, caches).claims] == ["both"]


@pytest.mark.parametrize(
    ("readable", "words"),
    [
        (Readable.NOT_YET, "the queue has not read all podgroups.scheduling.k8s.io yet"),
        (Readable.NOT_SERVED, "the cluster has no podgroups.scheduling.k8s.io: leave them out"),
        (Readable.FORBIDDEN, "add it to gangs.resources of the chart"),
    ],
)
def test_a_job_waits_while_it_is_not_known_which_devices_its_pod_group_has(
    caches: Caches, readable: Readable, words: str
) -> None:
    read_groups(caches, readable)
    problem = native_scheduling(a_job(sharing()), caches).problem
    assert problem.startswith("spec.scheduling.resourceClaims are those of a PodGroup")
    assert words in problem


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


def test_a_template_that_names_a_part_of_a_composite_group_is_one_sentence(
    caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = read_object(
        NATIVE_POD_GROUPS, {"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "both"}
    )
    monkeypatch.setattr(caches.gang_objects, "find", lambda *_: Lookup(Readable.YES, part))
    assert native_scheduling(a_job(naming()), caches).problem.startswith(
        "PodGroup default/x: spec.parentCompositePodGroupName: CompositePodGroup both is not read for Jobs"
    )
