"""A failure is reported on the object that causes it, and on none while Postgres or the API server is
unavailable.
"""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from support.builders import make_job, make_pod
from support.controller_bench import RecordedEvents, managed_caches
from support.memory_api import MemoryApi
from support.queue_builders import a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.kube.errors import Invalid, NotLeading, ServerError
from fluxqueue.kube.events import Severity, Subject
from fluxqueue.queue.model.groups import POD_GROUP, GroupKey
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.status.failures import FailureReporter, failure_message
from fluxqueue.queue.status.subjects import object_subjects, workload_subjects
from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader

JOB = Subject("batch/v1", "Job", "default", "bad", "uid")


@pytest.fixture
def reporter(events: RecordedEvents) -> FailureReporter[str]:
    return FailureReporter(events.recorder, "taken in", lambda _key: [JOB])


def test_a_failure_is_a_warning_with_one_sentence(
    reporter: FailureReporter[str], events: RecordedEvents
) -> None:
    reporter.report("uid", ValueError("no closing\n quotation"))
    ((subject, reason, message, severity),) = events.events
    assert (subject, reason, severity) == ("Job bad", "ProcessingFailed", Severity.WARNING)
    assert message.startswith(
        "Job default/bad could not be taken in: no closing quotation; it is tried again"
    )


@pytest.mark.parametrize(
    "error",
    [
        DatabaseUnavailable("away"),
        StaleLeader("newer"),
        ServerError(500, "InternalError", "down"),
        NotLeading("lost"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_outage_is_reported_on_no_object(
    error: Exception, reporter: FailureReporter[str], events: RecordedEvents
) -> None:
    reporter.report("uid", error)
    assert events.events == []


def test_a_work_queue_counts_its_failures(reporter: FailureReporter[str], events: RecordedEvents) -> None:
    count = reporter.counting("test-failures")
    count("uid", Invalid(422, "Invalid", "spec.size is 0"))
    count("uid", ServerError(500, "InternalError", "down"))
    assert REGISTRY.get_sample_value("fluxqueue_object_failures_total", {"batch": "test-failures"}) == 2
    assert len(events.events) == 1


def test_without_a_recorder_nothing_is_reported() -> None:
    FailureReporter[str](None, "taken in", lambda _key: [JOB]).report("uid", ValueError("bad"))


def test_a_message_names_the_error_if_it_has_no_text_and_cuts_a_long_one() -> None:
    assert "could not be released: KeyError;" in failure_message(JOB, "released", KeyError())
    assert len(failure_message(JOB, "released", ValueError("x" * 10_000))) < 500
    assert failure_message(Subject("v1", "Node", "", "n1", ""), "read", ValueError("x")).startswith(
        "Node n1 could"
    )


def test_the_subject_of_a_uid_is_its_job_or_pod_and_of_a_group_its_first_pods() -> None:
    memory = MemoryApi()
    memory.put("jobs", make_job("lammps").uid("job-uid").build())
    for number in range(5):
        memory.put(
            "pods", make_pod(f"p{number}").uid(f"pod-{number}").label(names.POD_GROUP_LABEL, "gang").build()
        )
    find = object_subjects(managed_caches(memory))
    assert [subject.name for subject in find("job-uid")] == ["lammps"]
    assert [subject.name for subject in find("pod-3")] == ["p3"]
    assert list(find("unknown")) == []
    assert len(list(find(GroupKey("default", "gang", POD_GROUP)))) == 3


def test_the_subject_of_a_workload_is_its_object_while_the_workload_exists() -> None:
    ledger = RecordingLedger()
    workload = ledger.put(a_workload("lammps"))
    find = workload_subjects(managed_caches(MemoryApi()), ledger)
    assert [(subject.kind, subject.name) for subject in find(workload.id)] == [("Job", "lammps")]
    assert list(find(WorkloadId(10**9))) == []
