from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.queue_builders import a_job, a_pod, an_allocation

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.indexes import parse_indexes
from fluxqueue.queue.model.job_slots import JobSlots
from fluxqueue.queue.model.records import Allocation, SlotState
from fluxqueue.queue.tracking.job_plan import ClosedNodes, conclude_job, plan_job_slots
from fluxqueue.queue.tracking.slot_changes import SlotChanges, plan_pod_slot

HOSTS = ("n1", "n2", "n3")
TAKEN = (SlotState.TAKEN,) * 3
PODS = ("p0", "p1", "p2")


def lacks_slot(
    pod: Pod,
    job: Job,
    pods: Iterable[Pod],
    allocation: Allocation,
    closed: Callable[[str], bool] = lambda _: False,
) -> bool:
    return JobSlots(job, pods, allocation, closed).lack(pod)


def released(builder: Any) -> Any:
    return builder.suspended(False).label("fluxqueue/jobid", "7")


def indexed() -> Any:
    return released(make_job().indexed(3))


def loose(parallelism: int = 3, completions: int | None = 3) -> Any:
    return released(make_job().pods(parallelism, completions))


def pod(
    uid: str, index: int | None = None, node: str | None = None, phase: str = "Running", gated: bool = False
) -> Pod:
    builder = make_pod(uid).owned_by("Job").phase(phase)
    if index is not None:
        builder = builder.index(index)
    if node is not None:
        builder = builder.on_node(node)
    if gated:
        builder = builder.gate("fluxqueue")
    return a_pod(builder, uid=uid)


def test_pods_of_an_indexed_job_take_the_slot_of_their_index_and_then_it_runs() -> None:
    pods = [pod(f"p{index}", index, host) for index, host in enumerate(HOSTS)]
    slot_changes = plan_job_slots(a_job(indexed()), pods, an_allocation(HOSTS))
    assert [(rank, taken.metadata.name) for rank, taken in slot_changes.take] == [
        (0, "p0"),
        (1, "p1"),
        (2, "p2"),
    ]
    assert slot_changes.running
    assert not slot_changes.end


def test_a_plan_that_was_carried_out_leaves_nothing_to_do() -> None:
    pods = [pod(f"p{index}", index, host) for index, host in enumerate(HOSTS)]
    slot_changes = plan_job_slots(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert slot_changes == SlotChanges(running=True)


def test_it_does_not_run_before_every_pod_is_on_its_node() -> None:
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2"), pod("p2", 2)]
    assert not plan_job_slots(a_job(indexed()), pods, an_allocation(HOSTS)).running


def test_a_job_read_before_its_release_says_nothing() -> None:
    stale = a_job(make_job().indexed(3).suspended())
    assert plan_job_slots(stale, [], an_allocation(HOSTS)) == SlotChanges()


def test_the_slot_of_a_failed_pod_is_kept_for_the_retry_of_its_index() -> None:
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2", phase="Failed"), pod("p2", 2, "n3")]
    slot_changes = plan_job_slots(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert slot_changes.vacate == (1,)
    assert not slot_changes.end


def test_the_slot_of_an_index_that_succeeded_ends_while_others_run() -> None:
    job = a_job(indexed().with_("status.completedIndexes", "1"))
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2", phase="Succeeded"), pod("p2", 2, "n3")]
    slot_changes = plan_job_slots(job, pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert slot_changes.end == (1,)


def test_a_pod_that_is_being_deleted_keeps_its_slot_even_if_the_job_is_gone() -> None:
    leaving = pod("p0", 0, "n1")
    slot_changes = plan_job_slots(None, [leaving], an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert slot_changes.end == (1, 2)
    assert slot_changes.state is State.CANCELLED


def test_a_job_that_was_complete_when_it_vanished_ended_well() -> None:
    complete = indexed().with_("status.conditions", [{"type": "Complete", "status": "True"}])
    slot_changes = plan_job_slots(None, [], an_allocation(HOSTS), a_job(complete))
    assert (slot_changes.state, slot_changes.outcome, slot_changes.end) == (
        State.COMPLETED,
        Outcome.SUCCEEDED,
        (0, 1, 2),
    )


@pytest.mark.parametrize(
    ("last", "state"),
    [
        pytest.param(loose(2, 6).with_("status.succeeded", 2), State.CANCELLED, id="two of six completions"),
        pytest.param(loose(2, 2).with_("status.succeeded", 1), State.COMPLETED, id="all completions"),
        pytest.param(loose(2, 6).with_("status.succeeded", 6), State.COMPLETED, id="its first pods are gone"),
        pytest.param(loose(2, None), State.COMPLETED, id="one success is enough"),
        pytest.param(indexed(), State.CANCELLED, id="two of three indexes"),
        pytest.param(indexed().with_("status.completedIndexes", "2"), State.COMPLETED, id="all indexes"),
        pytest.param(None, State.CANCELLED, id="nobody saw how many it wanted"),
    ],
)
def test_a_deleted_job_succeeded_only_if_it_had_all_its_completions(last: Any, state: State) -> None:
    seen = (
        a_job(last.with_("metadata.deletionTimestamp", "2026-11-21T08:00:00Z")) if last is not None else None
    )
    orphans = [pod("p0", 0, "n1", phase="Succeeded"), pod("p1", 1, "n2", phase="Succeeded")]
    assert plan_job_slots(None, orphans, an_allocation(HOSTS), seen).state is state
    assert conclude_job(None, orphans, seen).state is state


@pytest.mark.parametrize("last", [indexed(), loose(2, 6), None])
def test_a_job_that_ran_when_it_was_last_seen_and_is_gone_was_cancelled(last: Any) -> None:
    seen = a_job(last.suspended(False)) if last is not None else None
    assert plan_job_slots(None, [], an_allocation(HOSTS), seen).state is State.CANCELLED
    assert conclude_job(None, [], seen).state is State.CANCELLED


def test_gated_pods_take_free_slots_oldest_first() -> None:
    pods = [pod("late", gated=True), pod("early", gated=True)]
    pods = [
        a_pod(
            make_pod("b")
            .owned_by("Job")
            .gate("fluxqueue")
            .with_("metadata.creationTimestamp", "2026-01-01T00:00:02Z"),
            uid="b",
        ),
        a_pod(
            make_pod("a")
            .owned_by("Job")
            .gate("fluxqueue")
            .with_("metadata.creationTimestamp", "2026-01-01T00:00:01Z"),
            uid="a",
        ),
    ]
    slot_changes = plan_job_slots(a_job(loose()), pods, an_allocation(HOSTS))
    assert [(rank, given.metadata.name) for rank, given in slot_changes.assign] == [(0, "a"), (1, "b")]
    assert not slot_changes.end


def test_a_pod_beyond_the_slots_stays_gated() -> None:
    pods = [pod(f"p{number}", gated=True) for number in range(5)]
    assert len(plan_job_slots(a_job(loose()), pods, an_allocation(HOSTS)).assign) == 3


def test_a_pod_already_on_a_node_takes_a_slot_of_that_node() -> None:
    slot_changes = plan_job_slots(a_job(loose()), [pod("p", node="n3")], an_allocation(HOSTS))
    assert [rank for rank, _ in slot_changes.take] == [2]


@pytest.mark.parametrize(
    ("succeeded", "ends"),
    [
        pytest.param(0, (), id="all still to start"),
        pytest.param(4, (2,), id="two left to run: one slot is spare"),
        pytest.param(6, (0, 1, 2), id="none left"),
    ],
)
def test_without_indexes_slots_end_as_completions_run_out(succeeded: int, ends: tuple[int, ...]) -> None:
    job = a_job(loose(3, 6).with_("status.succeeded", succeeded))
    assert plan_job_slots(job, [], an_allocation(HOSTS)).end == ends


@pytest.mark.parametrize(
    ("completed", "failed", "ends"),
    [
        pytest.param("0,1", "", (), id="four left"),
        pytest.param("0,1", "2,4", (2,), id="two left: two failed for good"),
        pytest.param("0-2", "3-5", (0, 1, 2), id="none left"),
    ],
)
def test_an_index_that_failed_for_good_needs_no_slot(
    completed: str, failed: str, ends: tuple[int, ...]
) -> None:
    """``backoffLimitPerIndex``: the Job goes on with its other indexes."""
    builder = loose(3, 6).with_("spec.completionMode", "Indexed").with_("spec.backoffLimitPerIndex", 0)
    status = {
        "succeeded": len(parse_indexes(completed)),
        "completedIndexes": completed,
        "failedIndexes": failed,
    }
    job = a_job(builder.with_("status", status))
    assert plan_job_slots(job, [], an_allocation(HOSTS)).end == ends


@pytest.mark.parametrize("decided", ["FailureTarget", "SuccessCriteriaMet"])
@pytest.mark.parametrize(
    "builder", [indexed(), loose(), loose(3, None)], ids=["elastic", "without indexes", "work queue"]
)
@pytest.mark.parametrize("pin_window_open", [True, False])
def test_a_job_whose_end_is_decided_keeps_only_the_slots_of_pods_that_terminate(
    decided: str, builder: Any, pin_window_open: bool
) -> None:
    """A failure that no retry follows, a deadline, a success policy:
    one pod that is stuck keeps the Job, and no other nodes.
    """
    job = a_job(builder.with_("status.conditions", [{"type": decided, "status": "True"}]))
    terminating = (
        make_pod("p1")
        .owned_by("Job")
        .index(1)
        .on_node("n2")
        .with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
    )
    stuck = a_pod(terminating, uid="p1")
    slot_changes = plan_job_slots(
        job, [stuck], an_allocation(HOSTS, states=TAKEN, pods=PODS), pin_window_open=pin_window_open
    )
    assert (slot_changes.end, slot_changes.state) == ((0, 2), None)


def test_a_work_queue_job_starts_no_more_pods_after_its_first_success() -> None:
    job = a_job(loose(3, None).with_("status.succeeded", 1))
    slot_changes = plan_job_slots(job, [pod("p0", node="n1")], an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert slot_changes.end == (1, 2)


def test_a_finished_job_ends_all_slots_except_those_of_living_pods() -> None:
    job = a_job(indexed().with_("status.conditions", [{"type": "Failed", "status": "True"}]))
    slot_changes = plan_job_slots(job, [pod("p1", 1, "n2")], an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert slot_changes.end == (0, 2)
    assert (slot_changes.state, slot_changes.outcome) == (State.FAILED, Outcome.FAILED)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            {
                "containerStatuses": [
                    {
                        "state": {
                            "terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}
                        }
                    }
                ]
            },
            "no such file",
        ),
        (
            {
                "initContainerStatuses": [
                    {"state": {"terminated": {"reason": "ContainerCannotRun", "message": "denied"}}}
                ]
            },
            "denied",
        ),
        (
            {
                "containerStatuses": [
                    {"state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "of the program"}}}
                ]
            },
            "",
        ),
        ({"reason": "NotSupported", "message": "hostPath is not supported"}, "hostPath is not supported"),
        ({"reason": "Evicted"}, "Evicted"),
        ({}, ""),
    ],
)
def test_a_failure_before_the_program_ran_is_told_in_the_words_of_the_pod(
    status: dict[str, Any], message: str
) -> None:
    failed = a_pod(
        make_pod("last").owned_by("Job").with_("status", {"phase": "Failed", **status}), uid="last"
    )
    job = a_job(indexed().with_("status.conditions", [{"type": "Failed", "status": "True"}]))
    assert conclude_job(job, [failed, pod("p0", phase="Succeeded")]).message == (message or "the Job failed")
    assert plan_pod_slot(failed, an_allocation(["n1"])).message == message


@pytest.mark.parametrize(
    ("found", "last", "state", "outcome"),
    [
        pytest.param(
            a_pod(make_pod().phase("Succeeded")), "", State.COMPLETED, Outcome.SUCCEEDED, id="succeeded"
        ),
        pytest.param(a_pod(make_pod().phase("Failed")), "", State.FAILED, Outcome.FAILED, id="failed"),
        pytest.param(None, "Running", State.CANCELLED, Outcome.CANCELLED, id="deleted while it ran"),
        pytest.param(None, "", State.CANCELLED, Outcome.UNKNOWN, id="vanished unseen"),
    ],
)
def test_a_pod_of_its_own_ends_with_its_phase(
    found: Pod | None, last: str, state: State, outcome: Outcome
) -> None:
    slot_changes = plan_pod_slot(
        found, an_allocation(["n1"], states=[SlotState.TAKEN], pods=["pod-uid"]), last
    )
    assert (slot_changes.state, slot_changes.outcome, slot_changes.end) == (state, outcome, (0,))


def test_a_single_pod_that_is_still_gated_is_released_again() -> None:
    slot_changes = plan_pod_slot(a_pod(make_pod().gate("fluxqueue")), an_allocation(["n1"]))
    assert [rank for rank, _ in slot_changes.assign] == [0]


def test_a_job_whose_slots_ended_before_it_was_complete_ends_with_it() -> None:
    done = [pod(f"p{index}", index, host, phase="Succeeded") for index, host in enumerate(HOSTS)]
    assert conclude_job(a_job(indexed()), done) == SlotChanges()
    complete = a_job(indexed().with_("status.conditions", [{"type": "Complete", "status": "True"}]))
    assert conclude_job(complete, done).state is State.COMPLETED
    assert conclude_job(complete, [*done, pod("late", node="n1")]).state is None


def test_a_pod_in_its_slot_that_is_still_gated_is_released_again() -> None:
    pods = [pod("p0", 0, gated=True), pod("p1", 1, "n2"), pod("p2", 2, "n3")]
    slot_changes = plan_job_slots(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert [(rank, assigned.metadata.uid) for rank, assigned in slot_changes.assign] == [(0, "p0")]


def test_a_slot_is_vacated_before_the_next_pod_takes_it() -> None:
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2", phase="Failed"), pod("p1b", 1, "n2"), pod("p2", 2, "n3")]
    slot_changes = plan_job_slots(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert (slot_changes.vacate, [(rank, taken.metadata.uid) for rank, taken in slot_changes.take]) == (
        (1,),
        [(1, "p1b")],
    )


def test_an_indexed_job_that_shrinks_ends_its_highest_slots() -> None:
    shrunk = released(make_job().indexed(2))
    slot_changes = plan_job_slots(
        a_job(shrunk), [pod("p0", 0, "n1"), pod("p1", 1, "n2")], an_allocation(HOSTS, states=TAKEN, pods=PODS)
    )
    assert slot_changes.end == (2,)


def test_a_slot_that_is_given_back_ends_with_its_pod_and_no_other_gets_it() -> None:
    job, allocation = a_job(indexed()), an_allocation(HOSTS, states=TAKEN, pods=PODS)
    standing, going = [pod("p0", 0, "n1"), pod("p1", 1, "n2")], a_pod(_going("p2", "n3").index(2), uid="p2")
    replacement = pod("p2b", 2, gated=True)
    while_it_goes = plan_job_slots(job, [*standing, going, replacement], allocation, leaving={2})
    assert (while_it_goes.assign, while_it_goes.end) == ((), ())
    once_gone = plan_job_slots(job, [*standing, replacement], allocation, leaving={2})
    assert (once_gone.assign, once_gone.end, once_gone.vacate) == ((), (2,), ())
    assert JobSlots(job, [*standing, going, replacement], allocation, leaving={2}).lack(replacement)
    assert not JobSlots(job, [*standing, replacement], allocation).lack(replacement)


@pytest.mark.parametrize("leaving", [{3, 4}, {0, 1}], ids=["the highest", "the lowest"])
@pytest.mark.parametrize("marked", [True, False], ids=["started with fewer", "elastic"])
def test_a_kept_slot_waits_for_its_next_pod_while_others_are_given_back(
    leaving: set[int], marked: bool
) -> None:
    hosts, uids = [f"n{rank}" for rank in range(5)], [f"p{rank}" for rank in range(5)]
    builder = released(make_job().indexed(5))
    job = a_job(builder.annotation("fluxqueue/started-pods", "5") if marked else builder)
    allocation = an_allocation(hosts, states=[SlotState.TAKEN] * 5, pods=uids)
    failed, *standing = [rank for rank in range(5) if rank not in leaving]
    kept = [
        pod(f"p{failed}", failed, f"n{failed}", phase="Failed"),
        *(pod(f"p{rank}", rank, f"n{rank}") for rank in standing),
    ]
    going = [a_pod(_going(f"p{rank}", f"n{rank}").index(rank), uid=f"p{rank}") for rank in leaving]
    replacements = [pod(f"r{rank}", rank, gated=True) for rank in leaving]
    while_they_go = plan_job_slots(job, [*kept, *going], allocation, elsewhere=replacements, leaving=leaving)
    assert (while_they_go.end, while_they_go.vacate) == ((), (failed,))
    once_gone = plan_job_slots(job, kept, allocation, elsewhere=replacements, leaving=leaving)
    assert (once_gone.end, once_gone.vacate) == (tuple(sorted(leaving)), (failed,))


def test_a_slot_that_is_given_back_stands_for_no_pod_that_is_still_to_be_bound() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    pods = [pod("p0", 0, "n1"), pod("p1", 1)]
    slot_changes = plan_job_slots(a_job(indexed()), pods, allocation, leaving={2})
    assert (slot_changes.end, slot_changes.running) == ((2,), False)


def test_a_pod_that_succeeds_while_it_is_given_back_counts_once_the_job_counts_it() -> None:
    job = a_job(released(make_job().indexed(3)).annotation("fluxqueue/started-pods", "3"))
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2", phase="Failed"), pod("p2", 2, "n3", phase="Succeeded")]
    slot_changes = plan_job_slots(job, pods, allocation, elsewhere=[pod("p2b", 2, gated=True)], leaving={2})
    assert (slot_changes.end, slot_changes.vacate) == ((2,), (1,))


def test_indexes_beyond_the_allocation_of_a_job_that_grew_have_no_slot() -> None:
    grown, allocation = a_job(released(make_job().indexed(5))), an_allocation(HOSTS, states=TAKEN, pods=PODS)
    pods = [pod(f"p{index}", index, gated=index > 2) for index in range(5)]
    assert [lacks_slot(each, grown, pods, allocation) for each in pods] == [False, False, False, True, True]
    assert plan_job_slots(grown, pods[3:], allocation).assign == ()


def test_without_indexes_replacements_have_a_slot_and_pods_beyond_have_none() -> None:
    grown, allocation = a_job(loose(5, None)), an_allocation(HOSTS, states=TAKEN, pods=PODS)
    standing = [pod(uid, node=host) for uid, host in zip(PODS, HOSTS, strict=True)]
    newcomer, failed = pod("q", gated=True), pod("p0", phase="Failed")
    assert lacks_slot(newcomer, grown, [*standing, newcomer], allocation)
    assert not lacks_slot(newcomer, grown, [failed, *standing[1:], newcomer], allocation)


def test_the_replacement_of_a_pod_on_a_lost_node_has_no_slot_there() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    standing, going = [pod("p0", 0, "n1"), pod("p2", 2, "n3")], a_pod(_going("p1", "n2").index(1), uid="p1")
    replacement, lost = pod("p1b", 1, gated=True), {"n2"}.__contains__
    for there in ([*standing, going, replacement], [*standing, replacement]):
        assert lacks_slot(replacement, a_job(indexed()), there, allocation, lost)
        assert not lacks_slot(replacement, a_job(indexed()), there, allocation), "its node is ready"
        slot_changes = plan_job_slots(a_job(indexed()), there, allocation, closed=ClosedNodes(lost, lost))
        assert (slot_changes.assign, slot_changes.end) == ((), ())
    both = [*standing, pod("p1", 1, "n2"), replacement]
    assert not lacks_slot(replacement, a_job(indexed()), both, allocation, lost), (
        "the other pod is still active"
    )
    loose_replacement, loose_going = pod("q", gated=True), a_pod(_going("p1", "n2"), uid="p1")
    assert lacks_slot(
        loose_replacement, a_job(loose()), [*standing, loose_going, loose_replacement], allocation, lost
    )


def test_the_slot_of_a_pod_that_is_replaced_elsewhere_ends_once_the_pod_is_gone() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    standing, going = [pod("p0", 0, "n1"), pod("p2", 2, "n3")], a_pod(_going("p1", "n2").index(1), uid="p1")
    for job, elsewhere in ((indexed(), pod("p1b", 1, "n4")), (loose(), pod("q", node="n4"))):
        assert plan_job_slots(a_job(job), [*standing, going], allocation, elsewhere=[elsewhere]).end == ()
        assert plan_job_slots(a_job(job), standing, allocation, elsewhere=[elsewhere]).end == (1,)
        assert plan_job_slots(a_job(job), standing, allocation).end == (), "a replacement may come for it"


def test_the_slot_on_a_lost_node_stays_open_until_the_replacement_is_bound() -> None:
    allocation, lost = an_allocation(HOSTS, states=TAKEN, pods=PODS), {"n2"}.__contains__
    standing = [pod("p0", 0, "n1"), pod("p2", 2, "n3")]
    for job, waits, runs in (
        (indexed(), pod("p1b", 1, gated=True), pod("p1b", 1, "n4")),
        (loose(), pod("q", gated=True), pod("q", node="n4")),
    ):
        assert (
            plan_job_slots(
                a_job(job), standing, allocation, elsewhere=[waits], closed=ClosedNodes(lost, lost)
            ).end
            == ()
        )
        assert plan_job_slots(a_job(job), standing, allocation, elsewhere=[waits]).end == (1,), (
            "its node is ready again: another pod may get the slot"
        )
        assert plan_job_slots(
            a_job(job), standing, allocation, elsewhere=[runs], closed=ClosedNodes(lost, lost)
        ).end == (1,)


def test_slots_of_a_shrink_inside_the_pin_window_end_when_it_closes() -> None:
    shrunk, left = a_job(released(make_job().indexed(1))), [pod("p0", 0, "n1")]
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    assert (kept := plan_job_slots(shrunk, left, allocation, pin_window_open=True)).end == ()
    assert (kept.more_end_later, kept.running) == (True, True)
    assert not plan_job_slots(a_job(indexed()), left, allocation, pin_window_open=True).more_end_later
    assert plan_job_slots(shrunk, left, allocation).end == (1, 2)
    stopped = a_job(released(make_job().pods(0, 3)))
    assert (
        plan_job_slots(stopped, [], allocation, pin_window_open=True).end,
        plan_job_slots(stopped, [], allocation).end,
    ) == (
        (),
        (0, 1, 2),
    )


def test_inside_the_pin_window_slots_of_finished_indexes_still_end() -> None:
    allocation, left = an_allocation(HOSTS, states=TAKEN, pods=PODS), [pod("p0", 0, "n1"), pod("p2", 2, "n3")]
    job = a_job(indexed().with_("status.completedIndexes", "1"))
    assert plan_job_slots(job, left, allocation, pin_window_open=True).end == (1,)
    assert plan_job_slots(
        a_job(indexed()), [pod("p1", 1, "n2", phase="Succeeded"), *left], allocation, pin_window_open=True
    ).end == (1,)
    one = an_allocation(HOSTS[:1], states=TAKEN[:1], pods=PODS[:1])
    assert (
        plan_job_slots(a_job(loose(1, 2).with_("status.succeeded", 1)), [], one, pin_window_open=True).end
        == ()
    )
    assert plan_job_slots(
        a_job(loose(1, 2).with_("status.succeeded", 2)), [], one, pin_window_open=True
    ).end == (0,)


def test_an_index_matched_elsewhere_keeps_its_slot_until_the_pin_window_closes() -> None:
    allocation, standing = (
        an_allocation(HOSTS, states=TAKEN, pods=PODS),
        [pod("p0", 0, "n1"), pod("p2", 2, "n3")],
    )
    elsewhere = [pod("p1b", 1, "n4")]
    assert (
        plan_job_slots(a_job(indexed()), standing, allocation, elsewhere=elsewhere, pin_window_open=True).end
        == ()
    )
    assert plan_job_slots(a_job(indexed()), standing, allocation, elsewhere=elsewhere).end == (1,)


def test_a_job_that_is_being_deleted_ends_each_slot_as_its_pod_goes() -> None:
    going = a_job(
        indexed()
        .with_("metadata.deletionTimestamp", "2026-11-21T08:00:00Z")
        .with_("metadata.finalizers", ["foregroundDeletion"])
    )
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    stuck = a_pod(_going("p1", "n2").index(1), uid="p1")
    slot_changes = plan_job_slots(going, [stuck], allocation)
    assert (slot_changes.end, slot_changes.state) == ((0, 2), State.CANCELLED)
    gated = pod("late", 0, gated=True)
    assert plan_job_slots(going, [stuck, gated], allocation).assign == ()


def test_a_gated_pod_is_not_released_onto_a_closed_node() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    siblings, replacement = [pod("p0", 0, "n1"), pod("p2", 2, "n3")], pod("p1b", 1, gated=True)
    drained = {"n2"}.__contains__
    slot_changes = plan_job_slots(
        a_job(indexed()), [*siblings, replacement], allocation, closed=ClosedNodes(drained, drained)
    )
    assert (slot_changes.assign, slot_changes.end, slot_changes.vacate) == ((), (), (1,))
    assert lacks_slot(replacement, a_job(indexed()), [*siblings, replacement], allocation, drained)
    own = plan_job_slots(a_job(indexed()), [*siblings, replacement], allocation)
    assert [(rank, given.metadata.uid) for rank, given in own.assign] == [(1, "p1b")]


def _going(name: str, node: str) -> PodBuilder:
    return (
        make_pod(name)
        .owned_by("Job")
        .phase("Running")
        .on_node(node)
        .with_("metadata.deletionTimestamp", "2026-11-21T08:00:00Z")
    )


def test_a_slot_ends_before_the_job_controller_counts_the_success_of_its_pod() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    done, others = pod("p1", 1, "n2", phase="Succeeded"), [pod("p0", 0, "n1"), pod("p2", 2, "n3")]
    assert plan_job_slots(a_job(indexed()), [done, *others], allocation).end == (1,)
    assert plan_job_slots(a_job(loose()), [done, *others], allocation).end == (1,)
    more = a_job(loose(3, 5).with_("status.succeeded", 1))
    assert plan_job_slots(more, [done, *others], allocation).end == (), (
        "it may be the one that is counted: a replacement comes for it"
    )
    assert plan_job_slots(
        more, [done, pod("former", phase="Succeeded"), pod("first", phase="Succeeded"), *others], allocation
    ).end == (1,)


def test_a_pod_that_is_released_late_gets_the_slot_that_never_had_a_pod() -> None:
    allocation = an_allocation(HOSTS[:2], states=[SlotState.TAKEN, SlotState.FREE], pods=["p0"])
    ended, late = pod("p0", node="n1", phase="Succeeded"), pod("p1", gated=True)
    slot_changes = plan_job_slots(a_job(loose(2, 2)), [ended, late], allocation)
    assert ([(rank, assigned.metadata.uid) for rank, assigned in slot_changes.assign], slot_changes.end) == (
        [(1, "p1")],
        (0,),
    )
    assert plan_job_slots(a_job(loose(2, 2)), [ended], allocation).end == (0,), (
        "the other slot is kept for its own pod"
    )


def test_a_withdrawn_pod_lacks_a_slot_though_it_is_older_than_pods_in_slots() -> None:
    first = a_pod(
        make_pod("p0").by_fluxion().with_("metadata.creationTimestamp", "2026-01-01T00:00:00Z"), uid="p0"
    )
    second = a_pod(
        make_pod("p1").on_node("n1").with_("metadata.creationTimestamp", "2026-01-01T00:00:01Z"), uid="p1"
    )
    allocation = an_allocation(["n0", "n1"], states=[SlotState.ENDED, SlotState.TAKEN], pods=[None, "p1"])
    job = a_job(make_job().pods(2, 2))
    assert lacks_slot(first, job, [first, second], allocation)
    assert not lacks_slot(second, job, [first, second], allocation)


def test_a_slot_whose_node_refused_its_pod_ends_once_the_pod_is_matched_alone() -> None:
    alone = pod("again", 1, gated=True)
    allocation = an_allocation(
        HOSTS, states=[SlotState.TAKEN, SlotState.FREE, SlotState.TAKEN], pods=["p0", None, "p2"]
    )
    standing = [pod("p0", 0, "n1"), pod("p2", 2, "n3")]

    def refused(node: str) -> bool:
        return node == "n2"

    assert plan_job_slots(
        indexed_job(), standing, allocation, elsewhere=[alone], closed=ClosedNodes(to_job=refused)
    ).end == (1,)
    assert (
        plan_job_slots(
            indexed_job(), standing, allocation, elsewhere=[alone], closed=ClosedNodes(refused, refused)
        ).end
        == ()
    )
    pinning = plan_job_slots(
        indexed_job(),
        standing,
        allocation,
        elsewhere=[alone],
        closed=ClosedNodes(to_job=refused),
        pin_window_open=True,
    )
    assert (pinning.end, pinning.more_end_later) == ((), True)


def indexed_job() -> Any:
    return a_job(indexed())
