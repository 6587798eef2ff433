"""Which ends a new leader has to show."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import make_job, make_pod
from support.controller_bench import managed_caches
from support.memory_api import MemoryApi
from support.queue_builders import a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import fluxjob_name
from fluxqueue.queue.status.unshown_ends import outdated_fluxjobs, without_fluxjob

COMPLETE = [{"type": "Complete", "status": "True"}]
JOB = (
    make_job("lammps")
    .uid("u1")
    .with_("metadata.labels", {names.SEEN_LABEL: names.SEEN_VALUE})
    .with_("status.conditions", COMPLETE)
)


def fluxjob(state: str) -> Any:
    return {
        "metadata": {"name": fluxjob_name("Job", "lammps", "u1")},
        "spec": SPEC,
        "status": {"state": state},
    }


SPEC = {"objectRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "lammps", "uid": "u1"}}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(JOB, ["u1"], id="finished"),
        pytest.param(JOB.with_("status.conditions", []), [], id="runs"),
        pytest.param(JOB.with_("metadata.labels", {}), [], id="never in the queue"),
    ],
)
def test_a_finished_job_of_ours_has_a_fluxjob(job: Any, expected: list[str]) -> None:
    memory, ledger = MemoryApi(), RecordingLedger()
    memory.put("jobs", job.build())
    caches = managed_caches(memory)
    assert list(without_fluxjob(caches, ledger)) == expected
    memory.put("fluxjobs", fluxjob("Running"))
    assert list(without_fluxjob(caches, ledger)) == []


def test_a_finished_pod_is_looked_at_unless_its_job_stands_for_it() -> None:
    memory, pod = (
        MemoryApi(),
        make_pod("p").uid("p1").label(names.SEEN_LABEL, names.SEEN_VALUE).with_("status.phase", "Succeeded"),
    )
    memory.put("pods", pod.build())
    caches = managed_caches(memory)
    assert list(without_fluxjob(caches, RecordingLedger())) == ["p1"]
    memory.put("pods", pod.owned_by("Job", "lammps").build())
    assert list(without_fluxjob(caches, RecordingLedger())) == []


@pytest.mark.parametrize(("state", "expected"), [("Running", ["u1"]), ("Completed", [])])
def test_a_fluxjob_that_shows_no_end_is_outdated_once_its_work_is_not_in_the_queue(
    state: str, expected: list[str]
) -> None:
    memory, ledger = MemoryApi(), RecordingLedger()
    memory.put("fluxjobs", fluxjob(state))
    caches = managed_caches(memory)
    assert list(outdated_fluxjobs(caches, ledger)) == expected
    ledger.put(a_workload("lammps", uid="u1"))
    assert list(outdated_fluxjobs(caches, ledger)) == []
