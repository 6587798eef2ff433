"""A release by generation does what the merge patch does, and nothing to a Job that was edited meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job
from support.json_patches import PatchFailed, apply_patch
from support.memory_api import merged
from support.queue_builders import EPOCH

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.jobs import Job, JobSpec
from fluxqueue.kube.decoding import decode
from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.release.generation_patches import by_generation
from fluxqueue.queue.release.patches import gate_release_job, hold_node_release_job, pin_release_job

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
JOB = (
    make_job("mpi")
    .indexed(2)
    .uid("job-uid")
    .suspended()
    .with_("metadata.generation", 3)
    .label(names.SEEN_LABEL, names.SEEN_VALUE)
    .annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
    .pod_label("batch.kubernetes.io/job-name", "mpi")
)


def patches(job: Job) -> list[Any]:
    until = EPOCH + timedelta(seconds=30)
    return [
        pin_release_job(job, FluxionJobId(7), ["n1", "n2"], until),
        pin_release_job(job, FluxionJobId(7), ["n1", "n2"], until, parallelism=2),
        gate_release_job(job, FluxionJobId(7)),
        gate_release_job(job, FluxionJobId(7), parallelism=1),
        hold_node_release_job(job, FluxionJobId(7), "n1"),
        hold_node_release_job(job, FluxionJobId(7), "n1", SchedulerName.FLUXION),
    ]


def normalised(spec: JobSpec) -> JobSpec:
    """Without the difference between no gates and an empty list of them."""
    template = spec.template
    inside = msgspec.structs.replace(template.spec, scheduling_gates=template.spec.scheduling_gates or None)
    return msgspec.structs.replace(spec, template=msgspec.structs.replace(template, spec=inside))


def decoded(document: Any) -> Job:
    return msgspec.convert(document, Job)


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(JOB, id="as the webhook leaves it"),
        pytest.param(JOB.annotation("team~a/b", "x").pod_annotation("kept", "y"), id="annotations of others"),
        pytest.param(JOB.pod_annotation("team/a", "x"), id="only annotations that nobody reads"),
        pytest.param(JOB.with_("metadata.annotations", {}), id="our mark is gone"),
        pytest.param(
            JOB.with_("spec.template.spec.schedulingGates", [{"name": "theirs"}]), id="another gate"
        ),
        pytest.param(
            JOB.with_("spec.template.spec.schedulingGates", [{"name": names.GATE}]), id="our gate is there"
        ),
        pytest.param(
            JOB.with_("spec.template.spec.schedulingGates", [{"name": "theirs"}, {"name": names.GATE}]),
            id="both gates",
        ),
        pytest.param(JOB.with_("spec.template.spec.affinity", {"podAffinity": {}}), id="an affinity to pods"),
        pytest.param(
            JOB.with_("spec.template.spec.affinity", {"nodeAffinity": {PREFERRED: []}}), id="preferred nodes"
        ),
        pytest.param(JOB.pod_annotation(names.SCHEDULER_LABEL, "fluxion"), id="released before"),
        pytest.param(
            JOB.with_("spec.parallelism", 1).annotation(names.STARTED_PODS_ANNOTATION, "1"),
            id="started with fewer pods before",
        ),
    ],
)
def test_it_does_what_the_merge_patch_does(builder: JobBuilder) -> None:
    document = builder.build()
    job = decode(msgspec.json.encode(document), Job, "get")
    for patch in patches(job):
        operations = by_generation(job, patch)
        assert operations is not None
        wanted = decoded(
            merged(
                document, {**patch, "metadata": {**patch["metadata"], "resourceVersion": None}}, by_key=True
            )
        )
        found = decoded(apply_patch(document, operations))
        assert normalised(found.spec) == normalised(wanted.spec), "with the annotations of others"
        assert (found.metadata.labels, found.metadata.annotations or {}) == (
            wanted.metadata.labels,
            wanted.metadata.annotations or {},
        )


@pytest.mark.parametrize("change", [{"generation": 4}, {"uid": "another"}])
def test_another_generation_or_object_is_refused_and_another_status_is_not(change: dict[str, Any]) -> None:
    document = JOB.build()
    for patch in patches(decoded(document)):
        operations = by_generation(decoded(document), patch)
        assert operations is not None
        with pytest.raises(PatchFailed):
            apply_patch({**document, "metadata": {**document["metadata"], **change}}, operations)
        later = {
            **document,
            "metadata": {**document["metadata"], "resourceVersion": "99"},
            "status": {"conditions": []},
        }
        assert apply_patch(later, operations)["spec"]["suspend"] is False


@pytest.mark.parametrize("place", ["metadata.labels", "spec.template.metadata.labels"])
def test_without_labels_the_resource_version_is_needed(place: str) -> None:
    job = decoded(JOB.with_(place, {}).build())
    assert {by_generation(job, patch) is None for patch in patches(job)} == {True}
