import io

import msgspec
import pytest
from support.plugin_server import PluginServer

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, State
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli import fluxjob_edits
from fluxqueue.cli.fluxjob_edits import FluxJobEdit, cancelled, edit_fluxjobs, held, prioritized, released


def job(state: str, kind: str = "Job") -> FluxJob:
    meta = ObjectMeta(name="x-1", namespace="default")
    return FluxJob(
        metadata=meta,
        spec=FluxJobSpec(object_ref=ObjectRef(kind=kind, name="x")),
        status=FluxJobStatus(state=state),
    )


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
def test_only_waiting_workloads_are_held_released_or_reordered(
    change: FluxJobEdit, state: str, message: str
) -> None:
    objection = change.objection(job(state))
    assert objection.startswith(message) if message else objection == ""


@pytest.mark.parametrize("state", [State.PENDING, State.ALLOCATED, State.RUNNING, State.DRAINING])
def test_a_job_can_be_cancelled_until_it_has_ended(state: State) -> None:
    assert cancelled().objection(job(state)) == ""
    assert cancelled().objection(job(State.CANCELLED)) == "has ended already (Cancelled)"


def test_a_pod_that_runs_is_its_owner_s_to_delete() -> None:
    assert cancelled().objection(job(State.PENDING, "Pod")) == ""
    assert "kubectl delete pod x" in cancelled().objection(job(State.RUNNING, "Pod"))


@pytest.mark.parametrize(
    ("reference", "end"),
    [
        (ObjectRef("v1", "PodGroup", "x"), "kubectl delete pod -l fluxqueue/pod-group=x"),
        (ObjectRef("jobset.x-k8s.io/v1alpha2", "JobSet", "x"), "kubectl delete jobset x"),
    ],
)
def test_a_group_that_runs_is_ended_by_deletion_as_the_queue_would_say(
    reference: ObjectRef, end: str
) -> None:
    runs = FluxJob(ObjectMeta(name="x-1"), FluxJobSpec(reference), FluxJobStatus(state=State.RUNNING))
    assert (
        cancelled().objection(runs) == f"runs, and a pod cannot be stopped without deleting it: {end} ends it"
    )
    waits = FluxJob(ObjectMeta(name="x-1"), FluxJobSpec(reference), FluxJobStatus(state=State.PENDING))
    assert cancelled().objection(waits) == ""


@pytest.mark.parametrize(
    ("change", "hold", "said"),
    [
        (released(), False, "job/x is not held\n"),
        (released(), True, "job/x released\n"),
        (held(), True, "job/x is held already\n"),
        (prioritized(0), False, "job/x has priority 0 already\n"),
    ],
)
def test_an_edit_that_changes_nothing_is_not_said_to_be_done(
    change: FluxJobEdit, hold: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = job("Pending")
    waits = msgspec.structs.replace(waits, spec=msgspec.structs.replace(waits.spec, hold=hold))
    monkeypatch.setattr(fluxjob_edits, "fluxjobs_of", lambda *_: [waits])
    out = io.StringIO()
    assert edit_fluxjobs(PluginServer().client, "default", ["x"], change, out) == 0
    assert out.getvalue() == said
