import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, Reason
from fluxqueue.api.metadata import ObjectCondition, ObjectMeta
from fluxqueue.api.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements, SchedulingGate
from fluxqueue.cli.explain import Observed, explain
from fluxqueue.cli.pod_placement import placement, pod_state
from fluxqueue.queue.model.jobspecs import PlacementRules, ServicesPod, SizedPods, jobspec_of

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SIX_CPUS = PodSpec(
    containers=[
        Container(name="main", resources=ResourceRequirements(requests={"cpu": "6", "memory": "4Gi"}))
    ]
)


def fluxjob(
    *, pods: int = 4, duration: int = 600, priority: int = 0, hold: bool = False, **status: object
) -> FluxJob:
    return FluxJob(
        metadata=ObjectMeta(
            name="job-lammps-1a2b3", namespace="default", creation_timestamp="2026-03-02T11:50:00Z"
        ),
        spec=FluxJobSpec(
            object_ref=ObjectRef(kind="Job", name="lammps"),
            pods=pods,
            duration_seconds=duration,
            priority=priority,
            hold=hold,
        ),
        status=msgspec.convert(status, FluxJobStatus),
    )


def with_services(job: FluxJob) -> FluxJob:
    one = {"cpu": Decimal(1)}
    jobspec = jobspec_of(
        "default/lammps", [SizedPods(one, job.spec.pods - 1)], duration_s=600, services=ServicesPod(one)
    )
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, jobspec=jobspec))


def pod(
    name: str,
    node: str | None = None,
    index: int | None = None,
    created: str = "2026-03-02T11:55:00Z",
    phase: str = "Running",
) -> Pod:
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    return Pod(
        metadata=ObjectMeta(name=name, annotations=annotations, creation_timestamp=created),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase),
    )


def test_times_in_reasons_are_in_the_zone_of_all_other_times() -> None:
    told = "node n1 is reserved for it from 2026-03-02T12:04:00Z on"
    job = fluxjob(state="Pending", reason="WaitingForNodes", message=told, reservedAt="2026-03-02T12:04:00Z")
    text = explain(Observed(job, SIX_CPUS), NOW.astimezone(timezone(timedelta(hours=2))))
    assert "reserved for it from 14:04:00 on" in text
    assert "reserved for 14:04:00, in" in text


@pytest.mark.parametrize("state", ["Pending", "Draining"])
def test_says_of_what_is_being_cancelled_nothing_that_helps_it_start(state: str) -> None:
    job = fluxjob(state=state, reason="WaitingForNodes", message="needs 24 cpu", eta="2026-03-02T12:04:00Z")
    text = explain(
        Observed(msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, cancel=True))), NOW
    )
    assert "Cancelled   its cancellation is in progress" in text
    assert not re.search("Why|What helps|Start ", text)


@pytest.mark.parametrize(
    ("allocated", "words"),
    [
        ("11:59:00", "it got its nodes 60s later"),
        ("11:57:58", "it got its nodes 2s sooner"),
        ("11:58:00", "kept"),
    ],
)
def test_says_of_work_that_started_how_good_its_first_estimate_was(allocated: str, words: str) -> None:
    job = fluxjob(state="Running", etaFirst="2026-03-02T11:58:00Z", allocatedAt=f"2026-03-02T{allocated}Z")
    assert f"First estimate   11:58:00; {words}\n" in explain(Observed(job, SIX_CPUS), NOW)


def test_says_of_a_waiting_job_what_where_why_what_helps_and_when() -> None:
    job = fluxjob(
        state="Pending",
        reason="WaitingForNodes",
        message="needs 24 cpu on 4 nodes, 2 nodes have 6 free",
        position=1,
        submittedAt="2026-03-02T11:58:00Z",
        eta="2026-03-02T12:04:00Z",
    )
    assert (
        explain(Observed(job, SIX_CPUS), NOW)
        == """\
job/lammps in namespace default waits in queue default at position 1, for 2m so far.

  Asked for    4 pods, each with 6 cpu and 4 GiB memory, together, for 10m
  Why          WaitingForNodes: needs 24 cpu on 4 nodes, 2 nodes have 6 free
  What helps   it starts when enough of what runs has ended; \
asking for less, or for less time, may start it sooner
  Start        estimated for 12:04:00, in 4m
  Submitted    11:58:00
"""
    )


def test_shows_a_reservation_its_range_and_the_first_estimate() -> None:
    told: dict[str, Any] = {
        "reservedAt": "2026-03-02T12:04:00Z",
        "eta": "2026-03-02T12:04:00Z",
        "etaSoonest": "2026-03-02T12:01:00Z",
    }
    job = fluxjob(
        state="Pending", reason="WaitingForNodes", position=1, **told, etaFirst="2026-03-02T12:06:00Z"
    )
    text = explain(Observed(job, SIX_CPUS), NOW)
    assert "reserved for 12:04:00, in 4m, or from 12:01:00 on if others end early\n" in text
    assert "First estimate   12:06:00; the start is now 2m sooner\n" in text
    soon = fluxjob(
        state="Pending", reason="WaitingForNodes", position=1, **told | {"etaSoonest": "2026-03-02T11:59:00Z"}
    )
    assert "reserved for 12:04:00, in 4m, or sooner if others end early\n" in explain(
        Observed(soon, SIX_CPUS), NOW
    )
    past = fluxjob(
        state="Pending",
        reason="WaitingForNodes",
        position=1,
        eta="2026-03-02T11:59:00Z",
        etaFirst="2026-03-02T11:58:00Z",
    )
    text = explain(Observed(past, SIX_CPUS), NOW)
    assert "  Start            due now\n" in text
    assert "First estimate   11:58:00; the start is now 2m later\n" in text
    unmoved = fluxjob(
        state="Pending", reason="WaitingForNodes", position=1, **told, etaFirst="2026-03-02T12:04:00Z"
    )
    assert "First estimate" not in explain(Observed(unmoved, SIX_CPUS), NOW)


def test_names_the_work_whose_reservation_is_in_the_way() -> None:
    message = "would start now, but not end before nodes are needed that are reserved for Job default/big"
    text = explain(
        Observed(
            fluxjob(state="Pending", reason="BlockedByReservation", message=message, position=2), SIX_CPUS
        ),
        NOW,
    )
    assert f"BlockedByReservation: {message}\n" in text
    assert "a shorter duration may let it fit in before the reservation begins\n" in text


def test_shows_of_a_running_job_which_pod_is_on_which_node() -> None:
    job = fluxjob(
        pods=2,
        state="Running",
        nodes="node-[1-2]",
        submittedAt="2026-03-02T11:58:00Z",
        allocatedAt="2026-03-02T11:58:30Z",
        startedAt="2026-03-02T11:58:31Z",
    )
    text = explain(
        Observed(job, SIX_CPUS, pods=[pod("lammps-1-b", "node-7", 1), pod("lammps-0-a", "node-1", 0)]), NOW
    )
    assert text.startswith(
        "job/lammps in namespace default runs, for 89s so far, after waiting 31s in queue default.\n"
    )
    assert "Ends by     12:08:31" in text
    assert text.endswith(
        """
  RANK   NODE     POD          RUNS ON                 POD STATE
  0      node-1   lammps-0-a   node-1                  Running
  1      node-2   lammps-1-b   node-7 (not its node)   Running
"""
    )


def test_says_in_words_which_nodes_it_may_have() -> None:
    job = fluxjob(state="Pending", reason="WaitingForNodes")
    constraint = {
        "and": [{"properties": ["disk=ssd"]}, {"not": [{"properties": ["taint:dedicated=ml:NoSchedule"]}]}]
    }
    jobspec = jobspec_of(
        "default/lammps",
        [SizedPods({"cpu": Decimal(1)}, 4)],
        duration_s=600,
        placement=PlacementRules(constraint),
    )
    text = explain(
        Observed(
            msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, jobspec=jobspec)), SIX_CPUS
        ),
        NOW,
    )
    assert "  Only nodes   disk=ssd, without the taint dedicated=ml:NoSchedule\n" in text
    assert not any(character in text for character in '{}["')
    for unreadable in ("", "{", "[]"):
        broken = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, jobspec=unreadable))
        assert "Only nodes" not in explain(Observed(broken, SIX_CPUS), NOW)


def test_each_failed_start_has_time_and_reason_also_while_another_reason_holds() -> None:
    failed = [
        {
            "at": "2026-03-02T11:52:00Z",
            "reason": "BindFailed",
            "message": "pod lammps-0 could not be bound to node-2: host port 80 is taken",
        },
        {
            "at": "2026-03-02T11:57:00Z",
            "reason": "StartTimeout",
            "message": "pod lammps-0 was not bound in 300 s",
        },
    ]
    text = explain(
        Observed(
            fluxjob(state="Pending", reason="WaitingForNodes", requeues=2, requeueReasons=failed), SIX_CPUS
        ),
        NOW,
    )
    assert "  Requeued     2 times\n" in text
    assert (
        "  Requeues     11:52:00  BindFailed: pod lammps-0 could not be bound to node-2: "
        "host port 80 is taken\n"
    ) in text
    assert "               11:57:00  StartTimeout: pod lammps-0 was not bound in 300 s\n" in text
    assert "11:57:00  StartTimeout" in explain(
        Observed(fluxjob(state="Running", requeues=2, requeueReasons=failed), SIX_CPUS), NOW
    )


def test_a_requeue_by_its_user_has_no_remedy_of_then() -> None:
    then = {
        "at": "2026-03-02T11:52:00Z",
        "reason": "UserSuspended",
        "message": "Job a/b was suspended by its user: set spec.suspend to false",
    }
    text = explain(Observed(fluxjob(state="Running", requeues=1, requeueReasons=[then]), SIX_CPUS), NOW)
    assert "11:52:00  UserSuspended: its user suspended it, had it wait again, or scaled it to 0\n" in text


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, "the queue has not processed it yet"),
        ({"state": "Pending"}, "the queue has not processed it yet"),
        (
            {
                "state": "Pending",
                "requeues": 1,
                "requeueReasons": [{"at": "2026-03-02T11:52:00Z", "reason": "BindFailed"}],
            },
            "it was requeued (BindFailed) and waits for nodes again",
        ),
        ({"state": "Pending", "reason": "MoonPhase"}, "MoonPhase"),
    ],
)
def test_says_of_pending_work_always_why(status: dict[str, Any], why: str) -> None:
    text = explain(Observed(fluxjob(**status), SIX_CPUS), NOW)
    (line,) = [line for line in text.splitlines() if line.startswith("  Why")]
    assert line.endswith(why)


def test_what_others_wrote_commands_no_terminal() -> None:
    told = explain(
        Observed(fluxjob(state="Pending", reason="Held", message="\x1b]0;evil\x07")), NOW, colour=True
    )
    assert "\\x1b]0;evil" in told
    assert "\x1b]" not in told
    assert told.startswith("\x1b[1m"), "its own colours stay"


def test_two_pods_on_one_node_are_that_node_and_a_number() -> None:
    text = explain(Observed(fluxjob(pods=3, state="Running", nodes="node-[4,4],gpu-1"), SIX_CPUS), NOW)
    assert "  Nodes       node-4 (2), gpu-1\n" in text


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_every_reason_has_a_cause_and_a_remedy(reason: Reason) -> None:
    text = explain(Observed(fluxjob(state="Pending", reason=str(reason))), NOW)
    why = next(line for line in text.splitlines() if line.startswith("  Why"))
    assert f"{reason}: " in why
    assert any(line.startswith("  What helps") for line in text.splitlines())


def test_a_reason_that_is_newer_than_this_program_is_shown_as_it_is() -> None:
    text = explain(
        Observed(fluxjob(state="Pending", reason="MoonPhase", message="wait for the new moon")), NOW
    )
    assert "MoonPhase: wait for the new moon" in text
    assert "What helps" not in text


@pytest.mark.parametrize(
    ("job", "first_line"),
    [
        pytest.param(
            fluxjob(state="Pending", reason="Unsatisfiable"),
            "job/lammps in namespace default can never start on this cluster as it is; "
            "it stays in queue default.",
            id="impossible",
        ),
        pytest.param(
            fluxjob(state="Allocated", submittedAt="2026-03-02T11:59:00Z"),
            "job/lammps in namespace default has its nodes and is being started, after waiting 60s.",
            id="allocated",
        ),
        pytest.param(
            fluxjob(state="Draining"),
            "job/lammps in namespace default has stopped; its nodes are free when its last pods are deleted.",
            id="draining",
        ),
        pytest.param(
            fluxjob(state="Draining", reason="Preempted"),
            "job/lammps in namespace default is preempted; its nodes are free when its last pods have ended.",
            id="in its grace",
        ),
        pytest.param(
            fluxjob(
                state="Completed",
                outcome="Succeeded",
                submittedAt="2026-03-02T11:50:00Z",
                startedAt="2026-03-02T11:52:00Z",
                finishedAt="2026-03-02T11:55:00Z",
            ),
            "job/lammps in namespace default completed: it waited 2m in queue default and ran 3m.",
            id="completed",
        ),
        pytest.param(
            fluxjob(state="Failed", message="BackoffLimitExceeded"),
            "job/lammps in namespace default failed: BackoffLimitExceeded.",
            id="failed",
        ),
        pytest.param(
            fluxjob(state="Cancelled"),
            "job/lammps in namespace default was cancelled: it waited 10m and never ran.",
            id="cancelled",
        ),
        pytest.param(
            fluxjob(state="Cancelled", startedAt="2026-03-02T11:52:00Z", finishedAt="2026-03-02T11:52:41Z"),
            "job/lammps in namespace default was cancelled: it waited 2m and ran 41s.",
            id="cancelled while it ran",
        ),
        pytest.param(
            fluxjob(state="Pending", requeues=1, position=2, submittedAt="2026-03-02T11:50:00Z"),
            "job/lammps in namespace default waits again in queue default at position 2, "
            "10m after it was submitted.",
            id="requeued",
        ),
        pytest.param(
            fluxjob(state="Allocated", requeues=1, submittedAt="2026-03-02T11:50:00Z"),
            "job/lammps in namespace default has its nodes and is being started again, "
            "10m after it was submitted.",
            id="requeued and allocated",
        ),
        pytest.param(
            fluxjob(
                state="Running",
                requeues=2,
                submittedAt="2026-03-02T11:50:00Z",
                startedAt="2026-03-02T11:59:00Z",
            ),
            "job/lammps in namespace default runs again, for 60s so far; "
            "this run began 9m after it was submitted to queue default.",
            id="runs again",
        ),
        pytest.param(
            fluxjob(
                state="Completed",
                requeues=1,
                submittedAt="2026-03-02T11:50:00Z",
                startedAt="2026-03-02T11:52:00Z",
                finishedAt="2026-03-02T11:55:00Z",
            ),
            "job/lammps in namespace default completed: its last run began 2m after it was submitted to "
            "queue default and took 3m.",
            id="completed after a requeue",
        ),
        pytest.param(
            fluxjob(
                state="Cancelled",
                requeues=1,
                startedAt="2026-03-02T11:52:00Z",
                finishedAt="2026-03-02T11:52:41Z",
            ),
            "job/lammps in namespace default was cancelled: "
            "its last run began 2m after it was submitted and took 41s.",
            id="cancelled while it ran again",
        ),
        pytest.param(
            fluxjob(state="Cancelled", requeues=1, finishedAt="2026-03-02T11:52:41Z"),
            "job/lammps in namespace default was cancelled while it waited again, "
            "2m41s after it was submitted.",
            id="cancelled while it waited again",
        ),
        pytest.param(
            fluxjob(state="Resting"),
            "job/lammps in namespace default is Resting in queue default.",
            id="a newer state",
        ),
    ],
)
def test_the_first_line_says_where_it_stands(job: FluxJob, first_line: str) -> None:
    assert explain(Observed(job), NOW).splitlines()[0] == first_line


@pytest.mark.parametrize(
    ("seen", "asked"),
    [
        pytest.param(
            Observed(fluxjob(pods=1), SIX_CPUS), "1 pod, with 6 cpu and 4 GiB memory, for 10m", id="one pod"
        ),
        pytest.param(
            Observed(fluxjob(pods=1), PodSpec(containers=[Container(name="a")])),
            "1 pod without requests, for 10m",
            id="nothing asked",
        ),
        pytest.param(
            Observed(fluxjob(pods=1, duration=3600), None, duration_stated=False),
            "1 pod, for 60m (assumed: the object does not say)",
            id="assumed",
        ),
        pytest.param(
            Observed(with_services(fluxjob(pods=5)), SIX_CPUS),
            "4 pods, each with 6 cpu and 4 GiB memory, and a services pod, together, for 10m",
            id="services",
        ),
        pytest.param(
            Observed(fluxjob(priority=7, duration=0)), "4 pods, together; priority 7", id="priority"
        ),
        pytest.param(
            Observed(fluxjob(duration=0), PodSpec(priority_class_name="urgent")),
            "4 pods without requests, together; priority 0: "
            "the PriorityClass 'urgent' does not put it ahead in this queue",
            id="a PriorityClass that does not count",
        ),
        pytest.param(
            Observed(fluxjob(priority=7, duration=0), PodSpec(priority_class_name="urgent")),
            "4 pods without requests, together; priority 7",
            id="a PriorityClass that counts",
        ),
        pytest.param(
            Observed(
                fluxjob(pods=1),
                PodSpec(
                    containers=[
                        Container(
                            name="a",
                            resources=ResourceRequirements(
                                requests={"cpu": "250m", "nvidia.com/gpu": 2, "memory": "1500Mi"}
                            ),
                        )
                    ]
                ),
            ),
            "1 pod, with 0.25 cpu and 1.465 GiB memory and 2 nvidia.com/gpu, for 10m",
            id="fractions and gpus",
        ),
        pytest.param(
            Observed(
                fluxjob(pods=1),
                PodSpec(
                    containers=[Container(name="a", resources=ResourceRequirements(requests={"cpu": "much"}))]
                ),
            ),
            "something unreadable",
            id="a request that is none",
        ),
    ],
)
def test_says_what_was_asked_for(seen: Observed, asked: str) -> None:
    line = next(line for line in explain(seen, NOW).splitlines() if line.startswith("  Asked for"))
    assert asked in line


def test_an_overrun_is_shown() -> None:
    text = explain(Observed(fluxjob(state="Running", duration=60, startedAt="2026-03-02T11:50:00Z")), NOW)
    assert "11:51:00: it runs longer than its duration" in text


def test_the_history_says_how_long_each_step_took_and_how_it_ended() -> None:
    job = fluxjob(
        state="Completed",
        outcome="Succeeded",
        requeues=2,
        submittedAt="2026-03-02T11:50:00Z",
        allocatedAt="2026-03-02T11:52:00Z",
        finishedAt="2026-03-02T11:55:00Z",
    )
    text = explain(Observed(job), NOW)
    assert "Allocated   11:52:00, 2m later" in text
    assert "Finished    11:55:00, 3m later" in text
    assert "Outcome     Succeeded" in text
    assert "Requeued    2 times" in text


def test_a_thousand_pods_are_cut_short_unless_all_are_wanted() -> None:
    job = fluxjob(pods=1000, state="Running", nodes="n[0-999]")
    assert "... and 976 more" in explain(Observed(job), NOW)
    assert "n999" in explain(Observed(job), NOW, every_pod=True).splitlines()[-1]


def test_indexed_pods_stand_at_their_index_and_the_newest_counts() -> None:
    old, new = (
        pod("old", "n1", 0, created="2026-03-02T11:00:00Z"),
        pod("new", "n1", 0, created="2026-03-02T11:30:00Z"),
    )
    places = placement(fluxjob(nodes="n1,n2"), [old, new])
    assert [(place.rank, place.pod and place.pod.metadata.name) for place in places] == [
        (0, "new"),
        (1, None),
    ]


def test_an_index_is_no_rank_of_a_gang_of_several_jobs() -> None:
    """The pods of each Job of a JobSet begin with index 0."""
    job = fluxjob(pods=2, state="Running", nodes="n1,n2")
    gang = msgspec.structs.replace(
        job, spec=msgspec.structs.replace(job.spec, object_ref=ObjectRef(kind="JobSet", name="pair"))
    )
    text = explain(Observed(gang, pods=[pod("a-0", "n1", 0), pod("b-0", "n2", 0)]), NOW)
    assert [line.split() for line in text.splitlines()[-2:]] == [
        ["0", "n1", "a-0", "n1", "Running"],
        ["1", "n2", "b-0", "n2", "Running"],
    ]


def test_other_pods_take_a_rank_of_the_node_they_are_on() -> None:
    places = placement(
        fluxjob(nodes="n1,n2,n1"), [pod("a", "n1"), pod("b", "n2"), pod("c", "n1"), pod("d", "n9")]
    )
    assert [(place.rank, place.node, place.pod and place.pod.metadata.name) for place in places] == [
        (0, "n1", "a"),
        (1, "n2", "b"),
        (2, "n1", "c"),
        (None, "", "d"),
    ]


def test_a_hostlist_that_cannot_be_read_hides_no_pod() -> None:
    assert [
        place.pod and place.pod.metadata.name for place in placement(fluxjob(nodes="n[1"), [pod("a", "n1")])
    ] == ["a"]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        pytest.param(pod("a", phase="Running"), "Running", id="phase"),
        pytest.param(
            Pod(spec=PodSpec(scheduling_gates=[SchedulingGate(name="fluxqueue"), SchedulingGate(name="x")])),
            "Gated by fluxqueue, x",
            id="gated",
        ),
        pytest.param(
            Pod(metadata=ObjectMeta(deletion_timestamp="2026-03-02T11:00:00Z")), "Terminating", id="going"
        ),
        pytest.param(
            Pod(
                status=PodStatus(
                    phase="Pending",
                    conditions=[
                        ObjectCondition(
                            type="PodScheduled",
                            status="False",
                            reason="Unschedulable",
                            message="0/8 nodes are available",
                        )
                    ],
                )
            ),
            "Unschedulable: 0/8 nodes are available",
            id="the scheduler's words",
        ),
        pytest.param(
            Pod(
                spec=PodSpec(scheduler_name="FluxionScheduler"),
                status=PodStatus(
                    phase="Pending",
                    conditions=[
                        ObjectCondition(
                            type="PodScheduled",
                            status="False",
                            reason="Unschedulable",
                            message="node n1 is full",
                        )
                    ],
                ),
            ),
            "Waits for the queue; node n1 is full",
            id="taken back",
        ),
        pytest.param(
            Pod(status=PodStatus(phase="Succeeded", message="a stand-in")),
            "Succeeded: a stand-in",
            id="its node's words",
        ),
    ],
)
def test_a_pod_says_what_keeps_it(one: Pod, text: str) -> None:
    assert pod_state(one) == text


@pytest.mark.parametrize(
    ("schedulers", "words"),
    [
        ([], None),
        (["FluxionScheduler"], "Bound by +fluxion, the scheduler of fluxqueue"),
        (["default-scheduler"], "Bound by +stock, the scheduler of the cluster"),
        (
            ["FluxionScheduler", "default-scheduler"],
            r"Bound by +fluxion \(fluxqueue's scheduler\) 1 pods, stock \(kube-scheduler\) 1",
        ),
    ],
)
def test_it_says_who_binds_what_was_released(schedulers: list[str], words: str | None) -> None:
    pods = [
        Pod(
            metadata=ObjectMeta(name=f"p{n}", annotations={"fluxqueue/allocation": "7"}),
            spec=PodSpec(scheduler_name=each),
        )
        for n, each in enumerate(schedulers)
    ]
    text = explain(Observed(fluxjob(state="Running"), pods=pods), NOW)
    assert ("Bound by" not in text) if words is None else re.search(words, text)


def test_names_the_account_and_its_limit() -> None:
    message = "the account 'physics' may use 64 cores at once: it uses 60, and this wants 24 more"
    text = explain(
        Observed(
            fluxjob(state="Pending", reason="AccountLimit", message=message, account="physics"), SIX_CPUS
        ),
        NOW,
    )
    assert "  Account      physics\n" in text
    assert f"AccountLimit: {message}\n" in text
    assert "have its limit raised (spec.limits or spec.budget of the FluxAccount)\n" in text


def test_names_what_is_guaranteed_to_the_account() -> None:
    words = "to 'physics': 4 nodes (used 6, borrowed 2)"
    text = explain(Observed(fluxjob(state="Pending", account="md"), SIX_CPUS), NOW, guaranteed=words)
    assert f"  Guaranteed   {words}\n" in text
    assert "Guaranteed" not in explain(Observed(fluxjob(state="Pending", account="md"), SIX_CPUS), NOW)


def test_running_work_says_since_when_it_is_idle() -> None:
    words = "idle since 2026-03-02T11:00:00Z (use below 5); it is ended from 2026-03-02T13:00:00Z on, unless"
    seen = Observed(fluxjob(state="Running", message=words, started_at="2026-03-02T10:00:00Z"))
    text = explain(seen, NOW)
    assert "  Idle        since 11:00:00 (use below 5); it is ended from 13:00:00 on, unless" in text
    assert "Gave back" not in text


@pytest.mark.parametrize("state", ["Running", "Completed"])
def test_work_says_what_was_moved_for_it_and_what_that_came_to(state: str) -> None:
    words = (
        "room was made for it: 1 workload moved or gave pods back at 2026-03-02T09:00:00Z, so that it starts "
        "before 2026-03-02T19:00:00Z: 594 node-minutes won, 6 node-minutes lost by the plan; in fact 590 "
        "node-minutes won, 9 node-minutes lost"
    )
    text = explain(Observed(fluxjob(state=state, message=words, started_at="2026-03-02T10:00:00Z")), NOW)
    assert "  Room        1 workload moved or gave pods back at 09:00:00, so that it starts before" in text
    assert "in fact 590 node-minutes won, 9 node-minutes lost" in text
    assert "Gave back" not in text


def test_running_work_says_what_it_gave_back() -> None:
    jobspec = jobspec_of("default/lammps", [SizedPods({"cpu": Decimal(1)}, 4)], duration_s=600, min_pods=1)
    told = (
        "Job default/lammps (priority 0) gave 2 of its 4 pods back at {}, 7 node-minutes lost, "
        "so that Job default/a (priority 9) starts"
    )
    smaller = fluxjob(state="Running", nodes="n[1-2]", message=told.format("2026-03-02T11:50:00Z"))
    smaller = msgspec.structs.replace(smaller, spec=msgspec.structs.replace(smaller.spec, jobspec=jobspec))
    text = explain(Observed(smaller, SIX_CPUS, pods=[pod("c", "n1", 2), pod("d", "n2", 1)]), NOW)
    assert "2 of 4 kept since its start, 2 now" in text
    assert f"Gave back   {told.format('11:50:00')}\n" in text


def test_work_for_which_something_was_preempted_says_for_what_it_waits_and_until_when_at_most() -> None:
    told = (
        "needs 16 cpu; it waits for 2 pods of Job default/wide to end, since {}, at most until {}: "
        "7 node-minutes lost"
    )
    waiting = fluxjob(
        state="Pending",
        reason="WaitingForNodes",
        message=told.format("2026-03-02T11:59:00Z", "2026-03-02T12:04:00Z"),
    )
    assert told.format("11:59:00", "12:04:00") in explain(Observed(waiting, SIX_CPUS), NOW)


def test_moldable_work_shows_with_how_many_pods_it_runs_and_until_when() -> None:
    jobspec = jobspec_of("default/lammps", [SizedPods({"cpu": Decimal(1)}, 4)], duration_s=600, min_pods=1)
    small = fluxjob(state="Running", nodes="n[1-2]", startedAt="2026-03-02T11:59:00Z")
    small = msgspec.structs.replace(small, spec=msgspec.structs.replace(small.spec, jobspec=jobspec))
    pods = [pod("c", "n1", 2), pod("d", "n2", 1), pod("e", "n3", 3)]
    text = explain(Observed(small, SIX_CPUS, pods=pods), NOW)
    assert re.search(r"^ +Pods +2 of 4 since its start, 3 now: it grows", text, re.MULTILINE)
    assert re.search(r"^ +Ends by +12:19:00", text, re.MULTILINE), text
    assert "not its node" not in text, "an index is no rank of it"
