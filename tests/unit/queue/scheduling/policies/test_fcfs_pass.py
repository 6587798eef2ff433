from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.fluxion.messages import MatchResult, MatchVerdict
from fluxqueue.queue.model.records import FluxionJobId, Workload
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import (
    CancelStep,
    CycleContext,
    HeldReservation,
    MatchStep,
    PendingQueue,
)
from fluxqueue.queue.scheduling.policies.rounds import Round

GRANTED, BUSY, NEVER = (
    MatchResult(MatchVerdict.GRANTED),
    MatchResult(MatchVerdict.BUSY, reason="short of cpu"),
    MatchResult(MatchVerdict.UNSATISFIABLE),
)
FCFS = Discipline(Policy.FCFS)


def a_round(workloads: Sequence[Workload], context: CycleContext | None = None) -> Round:
    """FCFS queues, one for each name."""
    names = sorted({workload.queue for workload in workloads})
    queues = [
        PendingQueue(name, Backlog(workload for workload in workloads if workload.queue == name))
        for name in names
    ]
    return Round(queues, dict.fromkeys(names, FCFS), context or CycleContext(0))


def run(
    round_: Round, fits: Sequence[Workload], never: Sequence[Workload] = (), limit: int = 3
) -> list[Workload]:
    """Answer like a matcher that stops at the first refusal; return the matched workloads in order."""
    offered: list[Workload] = []
    while calls := round_.next_call(limit):
        ((pass_, step),) = calls
        assert isinstance(step, MatchStep)
        assert step.stop
        assert not step.reserve
        assert 1 <= len(step.workloads) <= limit
        answers = []
        for workload in step.workloads:
            offered.append(workload)
            answers.append(GRANTED if workload in fits else NEVER if workload in never else BUSY)
            if answers[-1] is not GRANTED:
                break
        pass_.accept(step, answers)
    return offered


def granted(round_: Round) -> list[Workload]:
    return [workload for each in round_.passes for workload, _ in each.result.granted]


def reasons(round_: Round) -> dict[int, Reason]:
    return {change.workload: change.reason for each in round_.passes for change in each.result.reasons}


def test_the_first_that_does_not_fit_closes_its_queue() -> None:
    first, big, small = a_workload("first"), a_workload("big"), a_workload("small")
    round_ = a_round([first, big, small])
    assert run(round_, fits=[first, small]) == [first, big]
    assert granted(round_) == [first]
    assert reasons(round_) == {big.id: Reason.WAITING_FOR_NODES}


def test_queues_do_not_wait_for_each_other() -> None:
    blocked, other = a_workload(queue="a"), a_workload(queue="b")
    round_ = a_round([blocked, other])
    run(round_, fits=[other])
    assert granted(round_) == [other]


def test_the_order_holds_across_queues() -> None:
    workloads = [a_workload(queue=name) for name in "abba"]
    assert run(a_round(workloads), fits=workloads) == workloads


def test_work_that_can_never_start_does_not_close_its_queue() -> None:
    unsatisfiable, behind = a_workload(), a_workload()
    round_ = a_round([unsatisfiable, behind])
    run(round_, fits=[behind], never=[unsatisfiable])
    assert granted(round_) == [behind]
    assert reasons(round_) == {unsatisfiable.id: Reason.UNSATISFIABLE}


def test_a_shape_known_to_be_unsatisfiable_is_not_matched_again() -> None:
    known = a_workload(shape="huge")
    assert run(a_round([known], CycleContext(0, unsatisfiable={"huge": NEVER})), fits=[]) == []


def test_a_queue_that_became_fcfs_cancels_its_reservations_first() -> None:
    waiting = a_workload()
    reservation = HeldReservation(waiting.id, FluxionJobId(7), 100, 200)
    round_ = Round(
        [PendingQueue("default", Backlog([waiting]), {waiting.id: reservation})],
        {"default": FCFS},
        CycleContext(0),
    )
    ((pass_, step),) = round_.next_call(3)
    assert isinstance(step, CancelStep)
    assert step.reservations == (reservation,)
    pass_.accept(step, ())
    assert run(round_, fits=[waiting]) == [waiting]


def test_work_that_waits_for_its_reservation_closes_no_queue_whatever_other_queues_displace() -> None:
    course = a_workload(
        "course", jobspec='{"attributes": {"system": {"reservation": "course"}}}', shape="course"
    )
    behind = a_workload("behind")
    round_ = a_round([course, behind])
    ((pass_, step),) = round_.next_call(1)
    pass_.accept(step, [BUSY])
    round_.displaced({})
    run(round_, fits=[behind])
    assert granted(round_) == [behind]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=20), st.integers(1, 5)
)
def test_within_a_queue_nothing_ever_overtakes(spec: list[tuple[str, bool, bool]], limit: int) -> None:
    workloads = [a_workload(queue=queue) for queue, _, _ in spec]
    fits = [workload for workload, (_, fit, _) in zip(workloads, spec, strict=True) if fit]
    never = [
        workload for workload, (_, _, unsatisfiable) in zip(workloads, spec, strict=True) if unsatisfiable
    ]
    round_ = a_round(workloads)
    run(round_, fits, never, limit)
    started = granted(round_)
    for queue in "ab":
        mine = [workload for workload in workloads if workload.queue == queue]
        closed = next(
            (index for index, each in enumerate(mine) if each not in fits and each not in never), len(mine)
        )
        assert [each for each in started if each.queue == queue] == [
            each for each in mine[:closed] if each in fits
        ]
