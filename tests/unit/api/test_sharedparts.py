"""What many decoded objects have in common is in memory once."""

from __future__ import annotations

import gc
import sys
from types import FunctionType
from typing import Any

import msgspec
import pytest
from support.builders import Json, make_job

from fluxqueue.api import names, sharedparts
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.kube.decoding import decode_object

CREATED = "2026-01-02T03:04:05Z"


def a_job(number: int) -> Json:
    """A waiting Job as the API server has it, with another list of nodes than all others."""
    name, uid = f"waiting-{number:06}", f"3b0c7e5e-1111-4222-8333-{number:012}"
    prefixes = ("", "batch.kubernetes.io/")
    labels = {f"{each}job-name": name for each in prefixes}
    labels |= {f"{each}controller-uid": uid for each in prefixes}
    values = {"key": names.HOSTNAME_LABEL, "operator": "In", "values": ["n0", f"absent-{number}"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [values]}]}
    body = make_job(name).uid(uid).cpu("5").suspended().build()
    body["metadata"] |= {
        "namespace": "ada",
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": CREATED,
        "labels": labels,
        "annotations": {
            names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK,
            names.SUBMITTED_BY_ANNOTATION: "ada",
        },
    }
    template = body["spec"]["template"]
    template["metadata"] = {"labels": labels}
    template["spec"] |= {
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "schedulingGates": [{"name": names.GATE}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
    }
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
    body["status"] = {"conditions": [{**suspended, "lastTransitionTime": CREATED}]}
    return body


def a_fluxjob(number: int) -> Json:
    job = a_job(number)["metadata"]
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": job["name"], "uid": job["uid"]}
    return {
        "metadata": {
            "name": f"job-{job['name']}-0123456789",
            "namespace": "ada",
            "uid": f"3b0c7e5e-1111-4222-9333-{number:012}",
            "resourceVersion": str(2_000_000 + number),
            "generation": 1,
            "creationTimestamp": CREATED,
            "labels": {names.QUEUE_LABEL: "default"},
            "annotations": {names.ACKNOWLEDGED_ANNOTATION: '{"queue":"default","priority":0}'},
            "ownerReferences": [{**ref, "controller": False}],
        },
        "spec": {"objectRef": ref, "queue": "default", "pods": 1, "jobspec": ""},
        "status": {
            "state": "Pending",
            "reason": "WaitingForNodes",
            "message": "no node has 5 cpu free: the most free is 4 cpu",
            "submittedBy": "ada",
            "submittedAt": CREATED,
        },
    }


def decoded(body: Json, of: type[Any]) -> Any:
    return decode_object(msgspec.json.encode(body), of)


def bytes_of(objects: list[Any]) -> int:
    """Return what objects take, and all that they refer to, each once."""
    seen: set[int] = set()
    waiting, total = [*objects], 0
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not isinstance(each, type | FunctionType):
            seen.add(id(each))
            total += sys.getsizeof(each)
            structs = isinstance(each, msgspec.Struct)
            waiting += msgspec.structs.astuple(each) if structs else gc.get_referents(each)
    return total


@pytest.mark.parametrize(("make", "of", "most"), [(a_job, Job, 2_200), (a_fluxjob, FluxJob, 1_200)])
def test_waiting_work_of_which_none_is_like_another_takes_little_memory(
    make: Any, of: type[Any], most: int
) -> None:
    objects = [decoded(make(number), of) for number in range(400)]
    assert bytes_of(objects) / len(objects) < most
    assert objects == [msgspec.convert(make(number), of) for number in range(400)]


def test_equal_parts_of_objects_are_one() -> None:
    first, second = decoded(a_job(1), Job), decoded(a_job(2), Job)
    assert first.spec.template.spec.containers is second.spec.template.spec.containers
    assert first.metadata.annotations is second.metadata.annotations
    assert first.metadata.labels is first.spec.template.metadata.labels
    assert first.metadata.labels["job-name"] is first.metadata.name
    assert first.metadata.labels["controller-uid"] is first.metadata.uid


def test_labels_of_a_template_that_differ_from_those_of_its_job_stay_its_own() -> None:
    body = a_job(1)
    body["metadata"]["labels"] = {"team": "blue"}
    body["spec"]["template"]["metadata"]["labels"] = {"team": "red"}
    job = decoded(body, Job)
    assert (job.metadata.labels, job.spec.template.metadata.labels) == ({"team": "blue"}, {"team": "red"})


def test_what_is_remembered_is_bounded() -> None:
    for number in range(2_000):
        annotations = {names.SUBMITTED_BY_ANNOTATION: f"user {number}", names.AFTER_ANNOTATION: number * "x"}
        decoded({"metadata": {"name": f"{number:0300}", "uid": f"{number}", "annotations": annotations}}, Job)
        decoded(a_job(number), Job)
    assert len(sharedparts._texts) <= sharedparts._MOST_TEXTS
    assert len(sharedparts._parts) <= sharedparts._MOST_PARTS
    assert max(map(len, sharedparts._texts)) <= sharedparts._LONGEST_TEXT
    assert max(len(text) for _, text in sharedparts._parts) <= sharedparts._LONGEST_PART
