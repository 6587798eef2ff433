from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from builders import PodBuilder, make_pod
from queue_builders import EPOCH, a_pod, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.objects import Pod
from fluxqueue.queue.records import Setbacks, SlotState
from fluxqueue.queue.setbacks import FailedStart, after_failed_start, after_loss, failed_start, nodes_under

REFUSAL = "0/4 nodes are available: 1 node(s) were unschedulable. preemption: 0/4 nodes are available."
TWO = an_allocation(["n1", "n2"], states=[SlotState.TAKEN] * 2, pods=["a", "b"])
LATE = FailedStart(Reason.BIND_FAILED, "pod a could not be bound", ("n1",))
ROW = a_workload("lammps", state=State.ALLOCATED, jobid=7)


def pod(name: str, builder: PodBuilder | None = None) -> Pod:
    return a_pod(builder or make_pod(name).on_node("n1").phase("Running"), uid=name)


def refused(name: str) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": REFUSAL}
    return pod(name, make_pod(name).with_("status.conditions", [condition]))


def test_a_start_has_not_failed_when_every_place_has_a_bound_pod() -> None:
    assert failed_start(TWO, [pod("a"), pod("b")], 300) is None


def test_what_the_scheduler_says_is_told_with_the_node_that_would_not_have_the_pod() -> None:
    failed = failed_start(TWO, [pod("a"), refused("b")], 300)
    assert failed == FailedStart(
        Reason.BIND_FAILED,
        "pod b could not be bound to n2 in 300 s: 0/4 nodes are available: 1 node(s) were unschedulable",
        ("n2",),
    )


def test_pods_that_nobody_made_are_counted() -> None:
    failed = failed_start(TWO, [pod("a")], 300)
    assert failed is not None
    assert (failed.reason, failed.nodes) == (Reason.START_TIMEOUT, ())
    assert failed.message.startswith("1 of 2 pods were not made in 300 s: a quota or an admission plugin may refuse them")


def test_a_gate_of_somebody_else_is_named() -> None:
    failed = failed_start(TWO, [pod("a"), pod("b", make_pod("b").gate("example.com/wait"))], 300)
    assert failed is not None
    assert failed.others_gate
    assert "example.com/wait of somebody else" in failed.message


def test_a_failed_start_is_tried_elsewhere_twice_and_then_held() -> None:
    first = after_failed_start(ROW, LATE, EPOCH)
    assert first.reason is Reason.BIND_FAILED
    assert first.message.endswith("it is matched again (start 2 of 3), for 10 min not on n1")
    assert first.setbacks == Setbacks(starts=1, avoided={"n1": EPOCH + timedelta(minutes=10)})
    second = after_failed_start(replace(ROW, setbacks=first.setbacks), replace(LATE, nodes=("n2",)), EPOCH)
    assert second.setbacks is not None
    assert sorted(second.setbacks.avoided) == ["n1", "n2"]
    third = after_failed_start(replace(ROW, setbacks=second.setbacks), LATE, EPOCH)
    assert (third.reason, third.setbacks) == (Reason.HELD, Setbacks())
    assert "did not start 3 times in a row and is held: pod a could not be bound; mend that" in third.message


def test_a_lost_node_is_forgiven_at_once_then_after_longer_and_longer_and_in_the_end_it_is_held() -> None:
    row, pauses = ROW, []
    for _ in range(5):
        back = after_loss(row, ["n1"], EPOCH)
        assert back.reason is Reason.NODES_UNAVAILABLE
        assert back.setbacks is not None
        pauses.append((back.setbacks.not_before - EPOCH).total_seconds() if back.setbacks.not_before else 0)
        row = replace(row, setbacks=back.setbacks)
    assert pauses == [0, 10, 20, 40, 80]
    assert after_loss(row, ["n1", "n2"], EPOCH).reason is Reason.HELD


def test_who_ran_for_a_while_begins_to_count_anew() -> None:
    row = replace(ROW, setbacks=Setbacks(starts=2, losses=5), started_at=EPOCH, state=State.RUNNING)
    assert after_loss(row, ["n1"], EPOCH + timedelta(minutes=11)).setbacks == Setbacks(losses=1)
    assert after_loss(row, ["n1"], EPOCH + timedelta(minutes=9)).reason is Reason.HELD


def test_only_places_that_are_still_needed_count_as_lost() -> None:
    allocation = an_allocation(["n1", "n2"], states=[SlotState.ENDED, SlotState.TAKEN])
    assert nodes_under(allocation, {"n1"}.__contains__) == ()
    assert nodes_under(allocation, {"n1", "n2"}.__contains__) == ("n2",)
