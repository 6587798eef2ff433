"""The spans of a workload's way."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.records import Epoch, FluxionJobId, Transition, WorkloadId
from fluxqueue.queue.model.traces import EndedWorkload, Span, spans_of, trace_id

P, A, R, D, C, F = (
    State.PENDING,
    State.ALLOCATED,
    State.RUNNING,
    State.DRAINING,
    State.COMPLETED,
    State.FAILED,
)


def at(second: float) -> datetime:
    return EPOCH + timedelta(seconds=second)


def ended(
    way: list[tuple[float, State, str]], *, release_s: float | None = None, message: str = ""
) -> EndedWorkload:
    """A workload that entered these states at these seconds for these reasons."""
    seconds, last, _ = way[-1]
    workload = a_workload(
        "w",
        id=WorkloadId(1),
        uid="u-1",
        submitted_at=at(0),
        finished_at=at(seconds),
        state=last,
        outcome=Outcome.SUCCEEDED if last is C else Outcome.FAILED,
        message=message,
        jobid=FluxionJobId(7),
        hosts="n[1-2]",
    )
    before = [None, *(state for _, state, _ in way)]
    transitions = tuple(
        Transition(
            workload=workload.id,
            at=at(second),
            before=known,
            after=state,
            reason=reason,
            detail="",
            epoch=Epoch(1),
        )
        for known, (second, state, reason) in zip(before, way, strict=False)
    )
    releases = ((FluxionJobId(7), at(release_s)),) if release_s is not None else ()
    return EndedWorkload(workload=workload, transitions=transitions, releases=releases)


def shown(spans: list[Span]) -> list[tuple[str, float, float]]:
    return [
        (span.name, (span.start - EPOCH).total_seconds(), (span.end - EPOCH).total_seconds())
        for span in spans
    ]


def test_each_state_is_a_span_below_the_whole() -> None:
    root, *states = spans_of(ended([(0, P, ""), (2, A, ""), (3, R, ""), (9, C, "")], release_s=2.5))
    assert shown([root, *states]) == [
        ("Job", 0, 9),
        ("Pending", 0, 2),
        ("Allocated", 2, 3),
        ("Running", 3, 9),
    ]
    assert root.parent is None
    assert {span.parent for span in states} == {root.id}
    assert len({root.id, *(span.id for span in states)}) == 4
    assert root.attributes == {
        "k8s.namespace.name": "default",
        "k8s.job.name": "w",
        "k8s.job.uid": "u-1",
        "fluxqueue.queue": "default",
        "fluxqueue.priority": 0,
        "fluxqueue.pods": 1,
        "fluxqueue.requeues": 0,
        "fluxqueue.outcome": "Succeeded",
        "fluxqueue.jobid": 7,
        "fluxqueue.nodes": "n[1-2]",
    }
    (released,) = states[1].events
    assert (released.name, released.at, released.attributes) == ("released", at(2.5), {"fluxqueue.jobid": 7})
    assert [span.events for span in (root, states[0], states[2])] == [(), (), ()]


def test_a_release_that_is_stored_with_the_start_belongs_to_the_state_before() -> None:
    _, _, allocated, running = spans_of(
        ended([(0, P, ""), (2, A, ""), (3, R, ""), (9, C, "")], release_s=3.001)
    )
    assert [(event.name, event.at) for event in allocated.events] == [("released", at(3))]
    assert running.events == ()


def test_work_that_waited_again_has_each_turn_with_its_reason() -> None:
    spans = spans_of(
        ended([(0, P, ""), (1, A, ""), (2, D, "NodeLost"), (4, P, "NodeLost"), (5, A, ""), (6, C, "")])
    )
    assert shown(spans[1:]) == [
        ("Pending", 0, 1),
        ("Allocated", 1, 2),
        ("Draining", 2, 4),
        ("Pending", 4, 5),
        ("Allocated", 5, 6),
    ]
    assert [span.attributes.get("fluxqueue.reason") for span in spans[1:]] == [
        None,
        None,
        "NodeLost",
        "NodeLost",
        None,
    ]
    assert len({span.id for span in spans}) == 6


def test_work_that_failed_says_why_and_its_parts_do_not() -> None:
    root, *states = spans_of(ended([(0, P, ""), (1, A, ""), (2, F, "")], message="exit code 3"))
    assert root.error == "exit code 3"
    assert {span.error for span in states} == {""}
    assert spans_of(ended([(0, P, ""), (2, F, "")]))[0].error == "Failed"


def test_the_time_between_an_end_and_a_new_turn_is_no_state() -> None:
    spans = spans_of(ended([(0, P, ""), (1, State.CANCELLED, ""), (50, P, ""), (51, A, ""), (60, C, "")]))
    assert shown(spans[1:]) == [("Pending", 0, 1), ("Pending", 50, 51), ("Allocated", 51, 60)]


def test_the_same_workload_has_the_same_ids_again() -> None:
    way = ended([(0, P, ""), (2, A, ""), (9, C, "")])
    assert [span.id for span in spans_of(way)] == [span.id for span in spans_of(way)]


def test_a_trace_has_the_bits_of_the_uid() -> None:
    uid = uuid.uuid4()
    assert trace_id(str(uid)) == uid.int
    assert trace_id("u-1") == trace_id("u-1") != trace_id("u-2")
    assert 0 < trace_id("z" * 32) < 2**128
