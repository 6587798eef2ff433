from typing import Any

import pytest
from builders import PodBuilder, make_job, make_pod
from queue_builders import a_job, a_pod, an_allocation

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.objects import Pod
from fluxqueue.queue.records import SlotState
from fluxqueue.queue.tracking import JobPhase, Judgement, conclude_job, judge_job, judge_pod, parse_indexes, stands_beyond

HOSTS = ("n1", "n2", "n3")
TAKEN = (SlotState.TAKEN,) * 3
PODS = ("p0", "p1", "p2")


def released(builder: Any) -> Any:
    return builder.suspended(False).label("fluxqueue/jobid", "7")


def indexed() -> Any:
    return released(make_job().indexed(3))


def loose(parallelism: int = 3, completions: int | None = 3) -> Any:
    return released(make_job().pods(parallelism, completions))


def pod(uid: str, index: int | None = None, node: str | None = None, phase: str = "Running", gated: bool = False) -> Pod:
    builder = make_pod(uid).owned_by("Job").phase(phase)
    if index is not None:
        builder = builder.index(index)
    if node is not None:
        builder = builder.on_node(node)
    if gated:
        builder = builder.gate("fluxqueue")
    return a_pod(builder, uid=uid)


def test_pods_of_an_indexed_job_stand_in_the_slot_of_their_index_and_then_it_runs() -> None:
    pods = [pod(f"p{index}", index, host) for index, host in enumerate(HOSTS)]
    judgement = judge_job(a_job(indexed()), pods, an_allocation(HOSTS))
    assert [(rank, taken.metadata.name) for rank, taken in judgement.take] == [(0, "p0"), (1, "p1"), (2, "p2")]
    assert judgement.running
    assert not judgement.end


def test_nothing_is_left_to_do_once_a_judgement_was_carried_out() -> None:
    pods = [pod(f"p{index}", index, host) for index, host in enumerate(HOSTS)]
    judgement = judge_job(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert judgement == Judgement(running=True)


def test_it_does_not_run_before_every_pod_is_on_its_node() -> None:
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2"), pod("p2", 2)]
    assert not judge_job(a_job(indexed()), pods, an_allocation(HOSTS)).running


def test_a_job_read_before_its_release_says_nothing() -> None:
    stale = a_job(make_job().indexed(3).suspended())
    assert judge_job(stale, [], an_allocation(HOSTS)) == Judgement()


def test_a_failed_pod_of_an_index_that_is_tried_again_keeps_its_place() -> None:
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2", phase="Failed"), pod("p2", 2, "n3")]
    judgement = judge_job(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert judgement.vacate == (1,)
    assert not judgement.end


def test_an_index_that_succeeded_gives_its_place_back_while_others_run() -> None:
    job = a_job(indexed().with_("status.completedIndexes", "1"))
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2", phase="Succeeded"), pod("p2", 2, "n3")]
    judgement = judge_job(job, pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert judgement.end == (1,)


def test_a_pod_that_is_being_deleted_keeps_its_place_even_when_the_job_is_gone() -> None:
    leaving = pod("p0", 0, "n1")
    judgement = judge_job(None, [leaving], an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert judgement.end == (1, 2)
    assert judgement.state is State.CANCELLED


def test_a_job_that_was_complete_when_it_vanished_ended_well() -> None:
    judgement = judge_job(None, [], an_allocation(HOSTS), JobPhase.SUCCEEDED)
    assert (judgement.state, judgement.outcome, judgement.end) == (State.COMPLETED, Outcome.SUCCEEDED, (0, 1, 2))


def test_gated_pods_take_free_slots_oldest_first() -> None:
    pods = [pod("late", gated=True), pod("early", gated=True)]
    pods = [
        a_pod(make_pod("b").owned_by("Job").gate("fluxqueue").with_("metadata.creationTimestamp", "2026-01-01T00:00:02Z"), uid="b"),
        a_pod(make_pod("a").owned_by("Job").gate("fluxqueue").with_("metadata.creationTimestamp", "2026-01-01T00:00:01Z"), uid="a"),
    ]
    judgement = judge_job(a_job(loose()), pods, an_allocation(HOSTS))
    assert [(rank, given.metadata.name) for rank, given in judgement.assign] == [(0, "a"), (1, "b")]
    assert not judgement.end


def test_a_pod_beyond_the_places_stays_gated() -> None:
    pods = [pod(f"p{number}", gated=True) for number in range(5)]
    assert len(judge_job(a_job(loose()), pods, an_allocation(HOSTS)).assign) == 3


def test_a_pod_already_on_a_node_takes_a_slot_of_that_node() -> None:
    judgement = judge_job(a_job(loose()), [pod("p", node="n3")], an_allocation(HOSTS))
    assert [rank for rank, _ in judgement.take] == [2]


@pytest.mark.parametrize(
    ("succeeded", "ends"),
    [
        pytest.param(0, (), id="all still to start"),
        pytest.param(4, (2,), id="two left to run: one place is spare"),
        pytest.param(6, (0, 1, 2), id="none left"),
    ],
)
def test_without_indexes_places_go_back_as_completions_run_out(succeeded: int, ends: tuple[int, ...]) -> None:
    job = a_job(loose(3, 6).with_("status.succeeded", succeeded))
    assert judge_job(job, [], an_allocation(HOSTS)).end == ends


def test_a_work_queue_job_starts_no_more_pods_after_its_first_success() -> None:
    job = a_job(loose(3, None).with_("status.succeeded", 1))
    judgement = judge_job(job, [pod("p0", node="n1")], an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert judgement.end == (1, 2)


def test_a_finished_job_ends_all_places_but_those_of_pods_still_there() -> None:
    job = a_job(indexed().with_("status.conditions", [{"type": "Failed", "status": "True"}]))
    judgement = judge_job(job, [pod("p1", 1, "n2")], an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert judgement.end == (0, 2)
    assert (judgement.state, judgement.outcome) == (State.FAILED, Outcome.FAILED)


@pytest.mark.parametrize(
    ("found", "last", "state", "outcome"),
    [
        pytest.param(a_pod(make_pod().phase("Succeeded")), "", State.COMPLETED, Outcome.SUCCEEDED, id="succeeded"),
        pytest.param(a_pod(make_pod().phase("Failed")), "", State.FAILED, Outcome.FAILED, id="failed"),
        pytest.param(None, "Running", State.CANCELLED, Outcome.CANCELLED, id="deleted while it ran"),
        pytest.param(None, "", State.CANCELLED, Outcome.UNKNOWN, id="vanished unseen"),
    ],
)
def test_a_pod_of_its_own_ends_with_its_phase(found: Pod | None, last: str, state: State, outcome: Outcome) -> None:
    judgement = judge_pod(found, an_allocation(["n1"], states=[SlotState.TAKEN], pods=["pod-uid"]), last)
    assert (judgement.state, judgement.outcome, judgement.end) == (state, outcome, (0,))


def test_a_pod_that_is_still_gated_is_let_go_again() -> None:
    judgement = judge_pod(a_pod(make_pod().gate("fluxqueue")), an_allocation(["n1"]))
    assert [rank for rank, _ in judgement.assign] == [0]


def test_indexes_are_read_as_the_job_controller_writes_them() -> None:
    assert parse_indexes("") == set()
    assert parse_indexes("1,3-5,7") == {1, 3, 4, 5, 7}


def test_a_job_whose_places_went_back_before_it_was_complete_ends_with_it() -> None:
    done = [pod(f"p{index}", index, host, phase="Succeeded") for index, host in enumerate(HOSTS)]
    assert conclude_job(a_job(indexed()), done) == Judgement()
    complete = a_job(indexed().with_("status.conditions", [{"type": "Complete", "status": "True"}]))
    assert conclude_job(complete, done).state is State.COMPLETED
    assert conclude_job(complete, [*done, pod("late", node="n1")]).state is None


def test_a_pod_in_its_place_that_is_still_gated_is_let_go_again() -> None:
    pods = [pod("p0", 0, gated=True), pod("p1", 1, "n2"), pod("p2", 2, "n3")]
    judgement = judge_job(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert [(rank, assigned.metadata.uid) for rank, assigned in judgement.assign] == [(0, "p0")]


def test_a_place_is_vacated_before_the_next_pod_takes_it() -> None:
    pods = [pod("p0", 0, "n1"), pod("p1", 1, "n2", phase="Failed"), pod("p1b", 1, "n2"), pod("p2", 2, "n3")]
    judgement = judge_job(a_job(indexed()), pods, an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert (judgement.vacate, [(rank, taken.metadata.uid) for rank, taken in judgement.take]) == ((1,), [(1, "p1b")])


def test_an_indexed_job_that_shrinks_gives_its_highest_places_back() -> None:
    shrunk = released(make_job().indexed(2))
    judgement = judge_job(a_job(shrunk), [pod("p0", 0, "n1"), pod("p1", 1, "n2")], an_allocation(HOSTS, states=TAKEN, pods=PODS))
    assert judgement.end == (2,)


def test_indexes_beyond_the_allocation_of_a_job_that_grew_have_no_place() -> None:
    grown, allocation = a_job(released(make_job().indexed(5))), an_allocation(HOSTS, states=TAKEN, pods=PODS)
    pods = [pod(f"p{index}", index, gated=index > 2) for index in range(5)]
    assert [stands_beyond(each, grown, pods, allocation) for each in pods] == [False, False, False, True, True]
    assert judge_job(grown, pods[3:], allocation).assign == ()


def test_pods_beyond_the_places_of_a_job_without_indexes_have_none_but_successors_do() -> None:
    grown, allocation = a_job(loose(5, None)), an_allocation(HOSTS, states=TAKEN, pods=PODS)
    standing = [pod(uid, node=host) for uid, host in zip(PODS, HOSTS, strict=True)]
    newcomer, failed = pod("q", gated=True), pod("p0", phase="Failed")
    assert stands_beyond(newcomer, grown, [*standing, newcomer], allocation)
    assert not stands_beyond(newcomer, grown, [failed, *standing[1:], newcomer], allocation)


def test_a_pod_made_anew_for_one_on_a_lost_node_has_no_place_there_even_when_the_other_is_gone() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    standing, going = [pod("p0", 0, "n1"), pod("p2", 2, "n3")], a_pod(_going("p1", "n2").index(1), uid="p1")
    anew, lost = pod("p1b", 1, gated=True), {"n2"}.__contains__
    for there in ([*standing, going, anew], [*standing, anew]):
        assert stands_beyond(anew, a_job(indexed()), there, allocation, lost)
        assert not stands_beyond(anew, a_job(indexed()), there, allocation), "its node is well"
        judgement = judge_job(a_job(indexed()), there, allocation, lost=lost)
        assert (judgement.assign, judgement.end) == ((), ())
    assert not stands_beyond(anew, a_job(indexed()), [*standing, pod("p1", 1, "n2"), anew], allocation, lost), "the other is not let go yet"
    loose_anew, loose_going = pod("q", gated=True), a_pod(_going("p1", "n2"), uid="p1")
    assert stands_beyond(loose_anew, a_job(loose()), [*standing, loose_going, loose_anew], allocation, lost)


def test_the_place_of_a_pod_that_was_made_anew_elsewhere_goes_back_once_its_pod_is_gone() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    standing, going = [pod("p0", 0, "n1"), pod("p2", 2, "n3")], a_pod(_going("p1", "n2").index(1), uid="p1")
    for job, elsewhere in ((indexed(), pod("p1b", 1, "n4")), (loose(), pod("q", node="n4"))):
        assert judge_job(a_job(job), [*standing, going], allocation, elsewhere=[elsewhere]).end == ()
        assert judge_job(a_job(job), standing, allocation, elsewhere=[elsewhere]).end == (1,)
        assert judge_job(a_job(job), standing, allocation).end == (), "another may come for it"


def test_the_place_of_a_lost_pod_stays_open_until_another_is_found_for_the_one_made_anew() -> None:
    allocation, lost = an_allocation(HOSTS, states=TAKEN, pods=PODS), {"n2"}.__contains__
    standing = [pod("p0", 0, "n1"), pod("p2", 2, "n3")]
    for job, waits, runs in (
        (indexed(), pod("p1b", 1, gated=True), pod("p1b", 1, "n4")),
        (loose(), pod("q", gated=True), pod("q", node="n4")),
    ):
        assert judge_job(a_job(job), standing, allocation, elsewhere=[waits], lost=lost).end == ()
        assert judge_job(a_job(job), standing, allocation, elsewhere=[waits]).end == (1,), "its node is back: others may have the place"
        assert judge_job(a_job(job), standing, allocation, elsewhere=[runs], lost=lost).end == (1,)


def _going(name: str, node: str) -> PodBuilder:
    return make_pod(name).owned_by("Job").phase("Running").on_node(node).with_("metadata.deletionTimestamp", "2026-11-21T08:00:00Z")


def test_a_place_goes_back_as_its_pod_succeeds_before_the_job_controller_has_counted_it() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    done, others = pod("p1", 1, "n2", phase="Succeeded"), [pod("p0", 0, "n1"), pod("p2", 2, "n3")]
    assert judge_job(a_job(indexed()), [done, *others], allocation).end == (1,)
    assert judge_job(a_job(loose()), [done, *others], allocation).end == (1,)
    more = a_job(loose(3, 5).with_("status.succeeded", 1))
    assert judge_job(more, [done, *others], allocation).end == (), "it may be the one that is counted: another comes for it"
    assert judge_job(more, [done, pod("former", phase="Succeeded"), pod("first", phase="Succeeded"), *others], allocation).end == (1,)


def test_a_pod_that_is_let_go_late_gets_its_own_place_not_that_of_one_that_has_ended() -> None:
    allocation = an_allocation(HOSTS[:2], states=[SlotState.TAKEN, SlotState.FREE], pods=["p0"])
    ended, late = pod("p0", node="n1", phase="Succeeded"), pod("p1", gated=True)
    judgement = judge_job(a_job(loose(2, 2)), [ended, late], allocation)
    assert ([(rank, assigned.metadata.uid) for rank, assigned in judgement.assign], judgement.end) == ([(1, "p1")], (0,))
    assert judge_job(a_job(loose(2, 2)), [ended], allocation).end == (0,), "the other place is kept for the one that comes"
