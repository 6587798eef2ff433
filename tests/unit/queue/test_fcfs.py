from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, Verdict
from fluxqueue.queue.policies.fcfs import FcfsPass
from fluxqueue.queue.records import Workload

GRANTED, BUSY, NEVER = MatchResult(Verdict.GRANTED), MatchResult(Verdict.BUSY, reason="short of cpu"), MatchResult(Verdict.UNSATISFIABLE)


def run(round_: FcfsPass, fits: Sequence[Workload], never: Sequence[Workload] = (), limit: int = 3) -> list[Workload]:
    """Answer as a matcher would that stops at the first refusal; returns what was offered, in order."""
    offered: list[Workload] = []
    while batch := round_.next_batch(limit):
        answers = []
        for workload in batch:
            offered.append(workload)
            answers.append(GRANTED if workload in fits else NEVER if workload in never else BUSY)
            if answers[-1] is not GRANTED:
                break
        round_.accept(batch, answers)
    return offered


def reasons(round_: FcfsPass) -> dict[int, Reason]:
    return {change.workload: change.reason for change in round_.reasons}


def test_the_first_that_does_not_fit_closes_its_queue() -> None:
    first, big, small = a_workload("first"), a_workload("big"), a_workload("small")
    round_ = FcfsPass([first, big, small])
    assert run(round_, fits=[first, small]) == [first, big]
    assert [workload for workload, _ in round_.granted] == [first]
    assert reasons(round_) == {big.id: Reason.WAITING_FOR_NODES, small.id: Reason.WAITING_FOR_NODES}
    assert "Job default/big" in next(change.message for change in round_.reasons if change.workload == small.id)


def test_queues_do_not_wait_for_each_other() -> None:
    blocked, other = a_workload(queue="a"), a_workload(queue="b")
    round_ = FcfsPass([blocked, other])
    run(round_, fits=[other])
    assert [workload for workload, _ in round_.granted] == [other]


def test_what_can_never_start_stands_aside() -> None:
    impossible, behind = a_workload(), a_workload()
    round_ = FcfsPass([impossible, behind])
    run(round_, fits=[behind], never=[impossible])
    assert [workload for workload, _ in round_.granted] == [behind]
    assert reasons(round_) == {impossible.id: Reason.UNSATISFIABLE}


def test_a_shape_known_to_be_impossible_is_not_offered_again() -> None:
    known = a_workload(shape="huge")
    round_ = FcfsPass([known], {"huge": NEVER})
    assert run(round_, fits=[]) == []
    assert reasons(round_) == {known.id: Reason.UNSATISFIABLE}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=30), st.integers(1, 7))
def test_within_a_queue_nothing_ever_overtakes(spec: list[tuple[str, bool, bool]], limit: int) -> None:
    waiting = [a_workload(queue=queue) for queue, _, _ in spec]
    fits = [workload for workload, (_, fit, _) in zip(waiting, spec, strict=True) if fit]
    never = [workload for workload, (_, fit, no) in zip(waiting, spec, strict=True) if no and not fit]
    round_ = FcfsPass(waiting)
    run(round_, fits, never, limit)
    granted = {workload.id for workload, _ in round_.granted}
    for queue in "abc":
        possible = [workload for workload in waiting if workload.queue == queue and workload not in never]
        started = [workload.id in granted for workload in possible]
        assert started == sorted(started, reverse=True)
    assert len(round_.granted) + len(round_.reasons) == len(waiting)
