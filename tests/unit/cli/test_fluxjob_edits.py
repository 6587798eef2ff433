import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, State
from fluxqueue.cli.fluxjob_edits import FluxJobEdit, cancelled, held, prioritized, released


def job(state: str, kind: str = "Job") -> FluxJob:
    return FluxJob(spec=FluxJobSpec(object_ref=ObjectRef(kind=kind, name="x")), status=FluxJobStatus(state=state))


@pytest.mark.parametrize("change", [held(), released(), prioritized(5)])
@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("", ""),
        ("Pending", ""),
        ("Allocated", "is being started: only what waits can be "),
        ("Running", "runs: only what waits can be "),
        ("Draining", "is stopping: only what waits can be "),
        ("Completed", "has ended: only what waits can be "),
        ("Sleeping", "does not wait: only what waits can be "),
    ],
)
def test_only_waiting_workloads_are_held_released_or_reordered(change: FluxJobEdit, state: str, message: str) -> None:
    objection = change.objection(job(state))
    assert objection.startswith(message) if message else objection == ""


@pytest.mark.parametrize("state", [State.PENDING, State.ALLOCATED, State.RUNNING, State.DRAINING])
def test_a_job_can_be_cancelled_until_it_has_ended(state: State) -> None:
    assert cancelled().objection(job(state)) == ""
    assert cancelled().objection(job(State.CANCELLED)) == "has ended already (Cancelled)"


def test_a_pod_that_runs_is_its_owner_s_to_delete() -> None:
    assert cancelled().objection(job(State.PENDING, "Pod")) == ""
    assert "kubectl delete pod x" in cancelled().objection(job(State.RUNNING, "Pod"))
