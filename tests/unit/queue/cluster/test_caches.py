from __future__ import annotations

from typing import cast

import msgspec
from support.builders import make_account, make_job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, ObjectRef, fluxjob_names
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta, PriorityClass
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches

UID = "uid-lammps"
NEW, LONGER, _LONGEST, FORMER = fluxjob_names("Job", "lammps", UID)


def a_fluxjob(
    name: str, namespace: str = "team-a", *, created: str = "2026-11-22T08:00:00Z", cancel: bool = False
) -> FluxJob:
    ref = ObjectRef(api_version="batch/v1", kind="Job", name="lammps", uid=UID)
    meta = ObjectMeta(
        name=name, namespace=namespace, uid=f"uid-{namespace}-{name}", creation_timestamp=created
    )
    return FluxJob(metadata=meta, spec=FluxJobSpec(object_ref=ref, cancel=cancel))


def caches_with(*fluxjobs: FluxJob) -> Caches:
    caches = Caches(cast("Api", None))
    caches.jobs.replace([msgspec.convert(make_job("lammps").namespace("team-a").uid(UID).build(), Job)])
    caches.fluxjobs.replace(list(fluxjobs))
    return caches


def test_a_fluxjob_is_found_by_the_uid_of_its_object_under_each_name_the_queue_gives() -> None:
    for name in (NEW, LONGER, FORMER):
        found = caches_with(a_fluxjob(name)).fluxjob_of(UID)
        assert found is not None
        assert found.metadata.name == name


def test_a_fluxjob_in_another_namespace_says_nothing_about_an_object() -> None:
    """It would hold or cancel the work of others."""
    assert caches_with(a_fluxjob(NEW, "team-b", cancel=True)).fluxjob_of(UID) is None
    found = caches_with(
        a_fluxjob(NEW, "team-b", created="2020-01-01T00:00:00Z", cancel=True), a_fluxjob(NEW)
    ).fluxjob_of(UID)
    assert found is not None
    assert found.metadata.namespace == "team-a"


def test_a_fluxjob_of_a_name_the_queue_never_gives_says_nothing_about_an_object() -> None:
    assert caches_with(a_fluxjob("mine", cancel=True)).fluxjob_of(UID) is None


def test_an_object_stands_as_long_as_it_or_its_fluxjob_is_there() -> None:
    caches = caches_with()
    assert caches.exists(UID)
    assert caches.exists(f"group-{UID}")
    assert not caches.exists("uid-of-another")
    caches.jobs.replace([])
    assert not caches.exists(UID)
    caches.fluxjobs.replace([a_fluxjob(NEW)])
    assert caches.exists(UID)


def test_the_account_of_a_namespace_follows_the_fluxaccounts() -> None:
    caches = caches_with()
    assert caches.cluster_context("team-a").account == ""
    for version, (namespaces, account) in enumerate(
        [(["team-a"], "physics"), (["team-b"], ""), (["team-a", "team-b"], "physics")]
    ):
        document = make_account("physics", namespaces=namespaces)
        document["metadata"] |= {"uid": "physics", "resourceVersion": str(version + 1)}
        caches.fluxaccounts.apply(msgspec.convert(document, FluxAccount))
        assert caches.cluster_context("team-a").account == account
        assert caches.accounts.tree.account_of("team-a") == account


def test_no_class_of_the_system_or_of_programs_counts_in_the_queue() -> None:
    caches = Caches(cast("Api", None))
    caches.priority_classes.replace(
        [
            PriorityClass(metadata=ObjectMeta(name="system-node-critical"), value=2_000_001_000),
            PriorityClass(
                metadata=ObjectMeta(name="programs", labels={"fluxqueue/priority-counts": "false"}),
                value=10**9,
            ),
            PriorityClass(metadata=ObjectMeta(name="usual"), value=3, global_default=True),
            PriorityClass(metadata=ObjectMeta(name="urgent"), value=900),
        ]
    )
    context = caches.cluster_context("team-a")
    assert context.priority_classes == {"system-node-critical": 3, "programs": 3, "usual": 3, "urgent": 900}
    assert context.default_priority == 3
