"""What the queue finds on the Job of a Flux cluster, and what its brokers are given."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_minicluster
from support.queue_builders import a_job, an_allocation, around

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.minicluster.injection_settings import InvalidInjection
from fluxqueue.minicluster.render import objects
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.jobs import release_mode_of
from fluxqueue.queue.model.minicluster_jobs import (
    annotated,
    digest_of,
    is_flux_cluster,
    minicluster_of_job,
    owner_uid,
    queued_job,
    shares_for,
    with_flux,
)
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.tracking.job_plan import plan_job_slots


def minicluster(**spec: Any) -> MiniCluster:
    body = make_minicluster("flux", **spec)
    body["metadata"] |= {"namespace": "ada", "uid": "mc-uid"}
    return msgspec.convert(body, MiniCluster)


def job_of(cluster: MiniCluster) -> Job:
    """As the API server has it."""
    rendered = objects(cluster, certificate=None, image="fluxqueue-queue")[-1]
    body = queued_job(rendered, cluster)
    body["metadata"] |= {"uid": "job-uid", "generation": 1}
    return msgspec.convert(body, Job)


def annotated_job() -> JobBuilder:
    labels = {names.JOB_NAME_LABEL: "solver", names.CONTROLLER_UID_LABEL: "job-uid"}
    template = {"labels": labels, "annotations": {names.MINICLUSTER_ANNOTATION: "true"}}
    return make_job("solver").indexed(4).cpu("2").with_("spec.template.metadata", template)


def test_the_job_of_a_minicluster_waits_by_its_queue_priority_and_duration() -> None:
    cluster = minicluster(queue="default", priority=7, duration="30m")
    found = describe_job(job_of(cluster), around())
    assert found is not None
    assert (found.reason, found.queue, found.priority, found.duration_s, found.pods) == (
        Reason.NONE,
        "default",
        7,
        1800,
        4,
    )
    assert found.release_mode is ReleaseMode.GATE


def test_a_deadline_that_means_for_ever_is_not_taken_for_the_time_it_needs() -> None:
    found = describe_job(job_of(minicluster()), around())
    assert found is not None
    assert found.duration_assumed
    limited = describe_job(job_of(minicluster(deadlineSeconds=600)), around())
    assert limited is not None
    assert (limited.duration_s, limited.duration_assumed) == (600, False)


def test_what_is_injected_counts_as_asked_for() -> None:
    resources = {"requests": {"cpu": "3"}}
    plain, larger = minicluster(), minicluster(flux={"container": {"resources": resources}})
    template = job_of(larger).spec.template
    assert [
        container.name
        for container in with_flux(template.spec, template.metadata, "ada").init_containers or ()
    ] == ["flux-view"]
    asked = [describe_job(job_of(cluster), around()) for cluster in (plain, larger)]
    assert "3000" in str(asked[1] and asked[1].jobspec)
    assert "3000" not in str(asked[0] and asked[0].jobspec)


def test_an_edit_of_what_its_pods_are_made_from_changes_the_digest_and_others_do_not() -> None:
    plain = digest_of(minicluster().spec)
    assert digest_of(minicluster(tasks=8).spec) != plain
    assert digest_of(minicluster(priority=3, cleanup=True, queue="gpu").spec) == plain
    assert digest_of(minicluster(deadlineSeconds=60, duration="1h").spec) == plain
    assert job_of(minicluster()).metadata.annotation("fluxqueue/spec-digest") == plain


def test_whose_a_job_is_tells_its_controller() -> None:
    own, asked = job_of(minicluster()), a_job(annotated_job())
    assert (owner_uid(own), annotated(own), is_flux_cluster(own)) == ("mc-uid", False, True)
    assert (owner_uid(asked), annotated(asked), is_flux_cluster(asked)) == (None, True, True)
    assert release_mode_of(asked) is ReleaseMode.GATE
    assert not is_flux_cluster(a_job(make_job()))


def test_an_annotated_job_is_a_minicluster_of_its_completions() -> None:
    found = minicluster_of_job(a_job(annotated_job()))
    assert (found.spec.size, found.metadata.name) == (4, "solver")
    with pytest.raises(InvalidInjection, match="completionMode"):
        minicluster_of_job(a_job(annotated_job().with_("spec.parallelism", 2)))


def test_an_annotated_job_whose_pods_cannot_be_brokers_says_so() -> None:
    broken = annotated_job().suspended().annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
    template = {
        "annotations": {names.MINICLUSTER_ANNOTATION: "true", names.MINICLUSTER_MODE_ANNOTATION: "fast"}
    }
    labels = {names.JOB_NAME_LABEL: "solver", names.CONTROLLER_UID_LABEL: "job-uid"}
    found = describe_job(
        a_job(broken.with_("spec.template.metadata", {**template, "labels": labels})), around()
    )
    assert found is not None
    assert found.reason is Reason.INVALID_REQUEST
    assert "single, launcher, session" in found.message


def test_each_broker_may_use_what_its_container_asks_for_or_else_its_node() -> None:
    asking = a_job(annotated_job()).spec.template
    assert [
        share.cores
        for share in shares_for(asking.spec, asking.metadata, "ada", ["n1", "n2"], lambda _node: Decimal(8))
    ] == [2, 2]
    idle = a_job(annotated_job().with_("spec.template.spec.containers", [{"name": "app"}])).spec.template
    cpus = {"n1": Decimal(8), "n2": Decimal(4)}
    assert [share.cores for share in shares_for(idle.spec, idle.metadata, "ada", ["n1", "n2"], cpus.get)] == [
        8,
        4,
    ]


def test_when_it_shrinks_the_highest_places_return_and_the_others_stay() -> None:
    shrunk = a_job(
        annotated_job()
        .with_("spec.completions", 2)
        .with_("spec.parallelism", 2)
        .label(names.JOBID_LABEL, "7")
    )
    judged = plan_job_slots(shrunk, [], an_allocation(["n1", "n2", "n3", "n4"]))
    assert judged.end == (2, 3)
    assert judged.state is None
