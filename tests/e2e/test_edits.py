"""An edit of a FluxJob or a FluxQueue takes effect or is refused with a message,
and Events report what happens.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_pod, make_queue
from support.end_to_end import Stage, wrong
from support.kubernetes_gates import JOBS_CHANGE_RESOURCES

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.metadata import PartialObject

RUN_SECONDS = "fluxqueue.local/run-seconds"


class Event(PartialObject, frozen=True):
    reason: str = ""
    message: str = ""
    involved_object: dict[str, str] = msgspec.field(default_factory=dict)


def job(name: str, seconds: str = "0.5") -> JobBuilder:
    return make_job(name).cpu("2").pod_annotation(RUN_SECONDS, seconds)


def edit(stage: Stage, name: str, **fields: Any) -> None:
    """Change the FluxJob of an object with ``kubectl patch``."""
    stage.until(f"{name} has a FluxJob", lambda: stage.row(name).fluxjob is not None)
    patch = json.dumps({"spec": fields})
    stage.kubectl("patch", "fluxjob", fluxjob(stage, name).metadata.name, "--type=merge", "-p", patch)


def events_of(stage: Stage, name: str) -> dict[str, str]:
    """Return reason and message of the Events on an object."""
    return {
        event.reason: event.message
        for event in stage.items("events", Event)
        if event.involved_object.get("name") == name
    }


def fluxjob(stage: Stage, name: str) -> FluxJob:
    found = stage.row(name).fluxjob
    assert found is not None
    return found


@pytest.fixture
def full(stage: Stage) -> Stage:
    """All nodes run the Job ``blocker``."""
    stage.apply(job("blocker", "forever").cpu("8").indexed(8).build())
    stage.until_state("blocker", State.RUNNING)
    return stage


@pytest.fixture
def queue(stage: Stage) -> Iterator[str]:
    """A FluxQueue for this test only."""
    name = f"q-{stage.namespace}"
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(name)))
    yield name
    stage.kubectl("delete", "fluxqueue", name, "--ignore-not-found")


def change(stage: Stage, queue: str, **spec: Any) -> None:
    stage.kubectl("patch", "fluxqueue", queue, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_a_held_job_waits_until_its_hold_is_removed(full: Stage) -> None:
    full.apply(job("held").build())
    edit(full, "held", hold=True)
    full.until_reason("held", "Held")
    full.kubectl("delete", "job", "blocker")
    full.apply(job("other").build())
    full.until_state("other", State.COMPLETED)
    assert fluxjob(full, "held").status.state == State.PENDING
    edit(full, "held", hold=False)
    assert wrong([full.until_state("held", State.COMPLETED)]) == []


def test_edits_that_are_taken_back_at_once_leave_nothing(full: Stage) -> None:
    """The second edit leads back to what the queue has acknowledged, before it has acknowledged the first."""
    full.apply(job("moody").build())
    full.until_reason("moody", "WaitingForNodes")
    for _ in range(4):
        edit(full, "moody", hold=True, priority=9)
        edit(full, "moody", hold=False, priority=0)
    full.kubectl("delete", "job", "blocker")
    full.until_state("moody", State.COMPLETED)
    assert fluxjob(full, "moody").spec.priority == 0


def test_a_template_that_an_edit_leaves_no_room_says_so_and_delays_no_other_work(full: Stage) -> None:
    """Kubernetes takes 256 KiB of annotations, and a release adds some."""

    def note(text: str | None) -> None:
        template = {"metadata": {"annotations": {"note": text}}}
        patch = json.dumps({"spec": {"template": template}})
        full.kubectl("patch", "job", "noted", "--type=merge", "--patch-file=/dev/stdin", stdin=patch)

    full.apply(job("noted").build())
    full.until_reason("noted", "WaitingForNodes")
    note("x" * 262_080)
    full.apply(job("other").build())
    full.kubectl("delete", "job", "blocker")
    message = full.until_reason("noted", "ReleaseFailed").status.message
    assert "spec.template.annotations: Too long" in message
    full.until_state("other", State.COMPLETED)
    note(None)
    full.until_state("noted", State.COMPLETED)


def test_a_hold_outlives_the_fluxjob(full: Stage) -> None:
    full.apply(job("held").build())
    edit(full, "held", hold=True, priority=7)
    before = full.until_reason("held", "Held")
    full.kubectl("delete", "fluxjob", before.metadata.name)

    def again() -> FluxJob | None:
        restored = full.row("held").fluxjob
        return restored if restored is not None and restored.metadata.uid != before.metadata.uid else None

    after = full.until("it comes back", again)
    assert after is not None
    assert (after.spec.hold, after.spec.priority) == (True, 7)
    edit(full, "held", hold=False)
    full.kubectl("delete", "job", "blocker")
    full.until_state("held", State.COMPLETED)


def test_a_running_job_refuses_edits_with_a_reason(stage: Stage) -> None:
    stage.apply(job("busy", "forever").build())
    stage.until_state("busy", State.RUNNING)
    edit(stage, "busy", hold=True, priority=9, queue="elsewhere", durationSeconds=5)
    stage.until("an Event says that it was refused", lambda: "EditRefused" in events_of(stage, "busy"))
    stage.until("the spec is put back", lambda: not fluxjob(stage, "busy").spec.hold)
    spec = fluxjob(stage, "busy").spec
    assert (spec.priority, spec.queue, spec.duration_seconds) == (0, "default", 3600)
    message = events_of(stage, "busy")["EditRefused"]
    assert "spec.queue, spec.priority, spec.durationSeconds, spec.hold" in message
    assert stage.row("busy").state == State.RUNNING


def test_a_change_of_priority_reorders_pending_work(full: Stage) -> None:
    # timestamps have whole seconds
    full.apply(job("first").cpu("8").indexed(8).build(), job("second", "2").cpu("8").indexed(8).build())
    full.until_reason("second", "WaitingForNodes")
    edit(full, "second", priority=5)
    full.until("the queue took it in", lambda: _acknowledged(full, "second").get("priority") == 5)
    full.kubectl("delete", "job", "blocker")
    full.until_state("first", State.COMPLETED, 60)
    full.until_state("second", State.COMPLETED)
    first, second = fluxjob(full, "first").status, fluxjob(full, "second").status
    assert (second.allocated_at or "") < (first.allocated_at or "")


def _acknowledged(stage: Stage, name: str) -> dict[str, Any]:
    acknowledged: dict[str, Any] = json.loads(
        fluxjob(stage, name).metadata.annotation(names.ACKNOWLEDGED_ANNOTATION) or "{}"
    )
    return acknowledged


def test_a_pending_job_moved_to_another_queue_follows_its_rules(full: Stage, queue: str) -> None:
    change(full, queue, priority=3, defaultDurationSeconds=60)
    full.apply(job("moved").build())
    full.until_reason("moved", "WaitingForNodes")
    edit(full, "moved", queue=queue)
    full.until(
        "it has the queue's priority and duration",
        lambda: (
            (fluxjob(full, "moved").spec.priority, fluxjob(full, "moved").spec.duration_seconds) == (3, 60)
        ),
    )
    edit(full, "moved", queue="nowhere")
    full.until_reason("moved", "UnknownQueue")
    edit(full, "moved", queue=queue, durationSeconds=30)
    full.kubectl("delete", "job", "blocker")
    full.until_state("moved", State.COMPLETED)
    assert fluxjob(full, "moved").spec.duration_seconds == 30


def test_cancelling_a_pending_job_leaves_it_suspended(full: Stage) -> None:
    full.apply(job("unwanted").build())
    full.until_reason("unwanted", "WaitingForNodes")
    edit(full, "unwanted", cancel=True)
    full.until_state("unwanted", State.CANCELLED)
    assert fluxjob(full, "unwanted").status.outcome == "Cancelled"
    assert full.job("unwanted").spec.suspend is True
    full.until("an Event says so", lambda: "Cancelled" in events_of(full, "unwanted"))


@pytest.mark.parametrize("shape", ["pinned", "gated"])
def test_cancelling_a_running_job_suspends_it_and_frees_its_nodes(shape: str, stage: Stage) -> None:
    running = job("running", "forever").cpu("8")
    stage.apply(running.indexed(8).build() if shape == "pinned" else running.pods(8, 8).build())
    stage.until_state("running", State.RUNNING)
    stage.apply(job("next").cpu("8").build())
    stage.until_reason("next", "WaitingForNodes")
    edit(stage, "running", cancel=True)
    ended = stage.until_state("running", State.CANCELLED).fluxjob
    assert ended is not None
    assert (ended.status.nodes != "", ended.status.started_at is not None, ended.status.requeues) == (
        True,
        True,
        0,
    ), "it shows its run"
    assert "was cancelled by spec.cancel of its FluxJob after it ran" in ended.status.message
    stage.until_state("next", State.COMPLETED)
    left = stage.job("running")
    assert left.spec.suspend is True
    assert [
        key
        for key in names.ALLOCATION_KEYS
        if left.metadata.label(key) or left.spec.template.metadata.annotation(key)
    ] == []


def test_cancelling_a_gated_pod_deletes_it_and_a_running_one_is_refused(full: Stage) -> None:
    pod = make_pod("gated").cpu("2").annotation(RUN_SECONDS, "forever").with_("spec.restartPolicy", "Never")
    full.apply(pod.build())
    full.until_reason("gated", "WaitingForNodes")
    edit(full, "gated", cancel=True)
    full.until(
        "the pod is gone",
        lambda: not any(found.example.name == "gated" and found.pods for found in full.rows()),
    )
    full.kubectl("delete", "job", "blocker")
    full.apply(
        make_pod("runs")
        .cpu("2")
        .annotation(RUN_SECONDS, "forever")
        .with_("spec.restartPolicy", "Never")
        .build()
    )
    full.until_state("runs", State.RUNNING)
    edit(full, "runs", cancel=True)
    full.until("it is refused", lambda: "EditRefused" in events_of(full, "runs"))
    full.until("the field is put back", lambda: not fluxjob(full, "runs").spec.cancel)
    assert full.row("runs").state == State.RUNNING


def test_a_held_queue_starts_nothing_and_an_open_one_does(stage: Stage, queue: str) -> None:
    change(stage, queue, state="held")
    stage.apply(job("waits").label(names.QUEUE_LABEL, queue).build())
    stage.until_reason("waits", "QueueHeld")
    change(stage, queue, state="open")
    stage.until_state("waits", State.COMPLETED)


def test_a_drained_queue_starts_its_work_and_accepts_no_more(full: Stage, queue: str) -> None:
    full.apply(job("old").label(names.QUEUE_LABEL, queue).build())
    full.until_reason("old", "WaitingForNodes")
    change(full, queue, state="drained")
    full.apply(job("new").label(names.QUEUE_LABEL, queue).build())
    assert "drained" in full.until_reason("new", "QueueNotAllowed").status.message
    full.kubectl("delete", "job", "blocker")
    full.until_state("old", State.COMPLETED)
    change(full, queue, state="open")
    full.until_state("new", State.COMPLETED)


def test_work_of_a_deleted_queue_waits_until_the_queue_exists_again(full: Stage, queue: str) -> None:
    full.apply(job("orphan").label(names.QUEUE_LABEL, queue).build())
    full.until_reason("orphan", "WaitingForNodes")
    full.kubectl("delete", "fluxqueue", queue)
    full.until_reason("orphan", "UnknownQueue")
    full.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(queue)))
    full.kubectl("delete", "job", "blocker")
    full.until_state("orphan", State.COMPLETED)


def test_an_edit_while_the_queue_is_stopped_takes_effect_when_it_starts(full: Stage) -> None:
    full.apply(job("held").build(), job("unwanted").build())
    full.until_reason("held", "WaitingForNodes")
    full.until_reason("unwanted", "WaitingForNodes")
    full.kill("queue")
    edit(full, "held", hold=True, priority=6)
    edit(full, "unwanted", cancel=True)
    edit(full, "blocker", cancel=True, priority=6)
    full.until_ready("queue")
    full.until_state("unwanted", State.CANCELLED)
    full.until_state("blocker", State.CANCELLED)
    full.until_reason("held", "Held")
    assert fluxjob(full, "blocker").spec.priority == 0
    full.kill("queue")
    full.until_ready("queue")
    assert fluxjob(full, "held").status.state == State.PENDING
    edit(full, "held", hold=False)
    assert wrong([full.until_state("held", State.COMPLETED)]) == []


def test_the_rules_of_a_queue_apply_to_its_pending_work(full: Stage, queue: str) -> None:
    full.apply(job("bound").label(names.QUEUE_LABEL, queue).build())
    full.until_reason("bound", "WaitingForNodes")
    change(full, queue, namespaces={"names": ["somebody-else"]})
    full.until_reason("bound", "QueueNotAllowed")
    change(
        full, queue, namespaces={"names": [full.namespace]}, defaultDurationSeconds=60, maxDurationSeconds=120
    )
    full.until("it has the new duration", lambda: fluxjob(full, "bound").spec.duration_seconds == 60)
    edit(full, "bound", durationSeconds=600)
    assert "120 s" in full.until_reason("bound", "InvalidRequest").status.message
    edit(full, "bound", durationSeconds=90)
    full.kubectl("delete", "job", "blocker")
    full.until_state("bound", State.COMPLETED)


def test_a_queue_matches_its_work_by_its_own_match_policy(stage: Stage, queue: str) -> None:
    change(stage, queue, matchPolicy="hinode")
    stage.apply(job("usual").build(), job("high").label(names.QUEUE_LABEL, queue).build())
    assert (
        wrong([stage.until_state("usual", State.COMPLETED), stage.until_state("high", State.COMPLETED)]) == []
    )
    assert (stage.row("usual").hosts, stage.row("high").hosts) == (["node-1"], ["node-8"])


def test_limits_of_a_queue_apply_and_an_edit_of_them_takes_effect_at_once(stage: Stage, queue: str) -> None:
    change(stage, queue, limits={"running": 1})
    for name in ("first", "second", "third"):
        stage.apply(job(name, "forever").label(names.QUEUE_LABEL, queue).build())
    stage.until_state("first", State.RUNNING)
    assert "may run 1 workloads at once" in stage.until_reason("second", "QueueLimit").status.message
    stage.until_reason("third", "QueueLimit")
    change(stage, queue, limits={"running": None, "perNamespace": {"running": 2}})
    stage.until_state("second", State.RUNNING)
    stage.until(
        "the namespace is at its limit",
        lambda: f"namespace '{stage.namespace}'" in fluxjob(stage, "third").status.message,
    )
    stage.kubectl("delete", "job", "first")
    stage.until_state("third", State.RUNNING)
    assert stage.row("second").ran_on == stage.row("second").hosts


def test_urgent_work_preempts_the_least_important_job_which_keeps_its_order(stage: Stage, queue: str) -> None:
    change(stage, queue, preemption="lowerPriority")
    for name, priority in (("middle", "1"), ("least", "0")):
        some = (
            job(name, "forever")
            .cpu("8")
            .indexed(4)
            .label(names.QUEUE_LABEL, queue)
            .annotation(names.PRIORITY_ANNOTATION, priority)
        )
        stage.apply(some.build())
        stage.until_state(name, State.RUNNING)
    submitted = fluxjob(stage, "least").status.submitted_at
    urgent = (
        job("urgent")
        .cpu("8")
        .indexed(2)
        .label(names.QUEUE_LABEL, queue)
        .annotation(names.PRIORITY_ANNOTATION, "10")
    )
    stage.apply(urgent.build())
    whom = f"by Job {stage.namespace}/urgent (priority 10)"
    stage.until(
        "its Event names the urgent Job", lambda: whom in events_of(stage, "least").get("Requeued", "")
    )
    assert wrong([stage.until_state("urgent", State.COMPLETED)]) == []
    stage.until_state("least", State.RUNNING, 60)
    least, middle = fluxjob(stage, "least").status, fluxjob(stage, "middle").status
    # a very quick release may take its own clean-up for an edit, and the Job is matched once more
    assert least.requeues >= 1
    assert least.submitted_at == submitted
    assert middle.requeues == 0
    why, *_ = least.requeue_reasons or []
    assert why.reason == "Preempted"
    assert f"Preempted: {why.message}\n" in stage.plugin("explain", "job/least").stdout, (
        "also when it runs again"
    )
    assert stage.row("least").ran_on == stage.row("least").hosts


def test_the_status_of_a_queue_counts_its_work_and_reports_whether_it_has_nodes(
    full: Stage, queue: str
) -> None:
    full.apply(job("counted").label(names.QUEUE_LABEL, queue).build())

    def status(name: str) -> FluxQueue:
        return msgspec.convert(
            json.loads(full.kubectl("get", "fluxqueue", name, "-o", "json").stdout), FluxQueue
        )

    full.until("one waits", lambda: status(queue).status.pending == 1)
    full.until(
        "eight nodes are used",
        lambda: (status("default").status.running, status("default").status.nodes_in_use) == (1, 8),
    )
    change(full, queue, nodeSelector={"no": "such-node"})

    def starting() -> str:
        return next(
            (found.reason for found in status(queue).status.conditions or () if found.type == "Starting"), ""
        )

    full.until("it says that it has no nodes", lambda: starting() == "NoNodes")
    full.until_reason("counted", "Unsatisfiable")


@pytest.mark.skipif(not JOBS_CHANGE_RESOURCES, reason="a Job keeps its requests before 1.36")
def test_unsatisfiable_work_is_labelled_until_it_can_start(stage: Stage) -> None:
    stage.apply(job("huge").cpu("64").build())
    stage.until(
        "the label is there", lambda: stage.job("huge").metadata.label(names.UNSCHEDULABLE_LABEL) == "yes"
    )
    body = {
        "spec": {
            "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
        }
    }
    stage.kubectl("patch", "job", "huge", "-p", json.dumps(body))
    stage.until_state("huge", State.COMPLETED)
    stage.until(
        "the label is gone", lambda: stage.job("huge").metadata.label(names.UNSCHEDULABLE_LABEL) is None
    )


def test_work_that_waited_has_an_event_and_work_that_started_at_once_has_none(stage: Stage) -> None:
    stage.apply(job("blocker", "forever").cpu("8").indexed(8).build())
    stage.until_state("blocker", State.RUNNING)
    stage.apply(job("patient").build())
    stage.until("it is told that it waits", lambda: "WaitingForNodes" in events_of(stage, "patient"), 30)
    stage.kubectl("delete", "job", "blocker")
    stage.until_state("patient", State.COMPLETED)
    stage.until("it is told that it starts", lambda: "Released" in events_of(stage, "patient"))
    assert not {"WaitingForNodes", "Released"} & set(events_of(stage, "blocker"))


def test_events_of_pending_work_report_position_reservation_and_start(full: Stage) -> None:
    full.apply(job("first").cpu("8").indexed(8).build(), job("second").cpu("8").indexed(8).build())

    def all_events() -> bool:
        """The Events have estimates that are updated from time to time,
        and are written one after the other.
        """
        ahead, behind = full.row("first").fluxjob, full.row("second").fluxjob
        if ahead is None or behind is None:
            return False
        first, second = ahead.status, behind.status
        if not first.eta or not second.eta:
            return False
        own = (first.position, first.reserved_at, first.eta_first) == (1, first.eta, first.eta)
        other = (second.position, second.reserved_at) == (2, None) and (
            second.eta_soonest or ""
        ) <= second.eta
        return own and other and first.eta < second.eta

    full.until(
        "both know when they start",
        all_events,
        60,
        lambda: [full.row(name).fluxjob for name in ("first", "second")],
    )
    explanation = full.plugin("explain", "job/first").stdout
    assert "at position 1" in explanation
    assert "reserved for" in explanation


def test_the_commands_of_the_plugin_have_their_documented_effect(full: Stage) -> None:
    def verb(*words: str) -> subprocess.CompletedProcess[str]:
        return full.plugin(*words)

    full.apply(job("steered").build())
    full.until_reason("steered", "WaitingForNodes")
    assert verb("hold", "job/steered").stdout == "job/steered held\n"
    full.until_reason("steered", "Held")
    assert verb("hold", "steered").stdout == "job/steered is held already\n"
    assert "Held: Job" in verb("explain", "job/steered").stdout
    verb("release", "steered")
    verb("prioritize", "steered", "4")
    full.until("it has the priority", lambda: _acknowledged(full, "steered").get("priority") == 4)
    refused = verb("hold", "blocker")
    assert (refused.returncode, refused.stderr) == (
        1,
        "error: job/blocker runs: only what waits can be held\n",
    )
    assert verb("cancel", "blocker").stdout == "job/blocker cancelled\n"
    full.until_state("blocker", State.CANCELLED)
    full.until_state("steered", State.COMPLETED)


def test_a_queue_whose_selectors_can_match_nothing_is_refused(stage: Stage) -> None:
    name = f"odd-{stage.namespace}"
    refused = stage.kubectl(
        "apply", "-f", "-", stdin=json.dumps(make_queue(name, nodeSelector={"not a label": "x"})), check=False
    )
    assert refused.returncode != 0
    assert f"FluxQueue {name}: spec.nodeSelector: 'not a label' is no key of a label" in refused.stderr


def test_the_queue_restores_a_removed_owner_reference_of_a_fluxjob(full: Stage) -> None:
    full.apply(job("waits").build())
    full.until("it has a FluxJob", lambda: full.row("waits").fluxjob is not None)
    name = fluxjob(full, "waits").metadata.name
    full.kubectl("patch", "fluxjob", name, "--type=merge", "-p", '{"metadata":{"ownerReferences":null}}')
    uid = full.job("waits").metadata.uid
    full.until(
        "its Job owns it",
        lambda: [owner.uid for owner in fluxjob(full, "waits").metadata.owner_references or ()] == [uid],
    )
