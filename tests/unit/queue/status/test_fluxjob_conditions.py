"""What the conditions of a FluxJob say in each state, and that they follow from the other fields."""

import pytest

from fluxqueue.api.fluxjobs import (
    Condition,
    ConditionReason,
    FluxJobStatus,
    Outcome,
    Reason,
    RequeueReason,
    State,
)
from fluxqueue.queue.status.fluxjob_conditions import conditions_of

SUBMITTED, FOUND, RAN, ENDED = (f"2026-03-02T12:00:0{second}Z" for second in range(4))
WITH_NODES = {"submitted_at": SUBMITTED, "allocated_at": FOUND}


def shown(**status: object) -> dict[str, tuple[str, str, str]]:
    """Type -> status, reason and time."""
    conditions = conditions_of(FluxJobStatus(**({"submitted_at": SUBMITTED} | status)))  # type: ignore[arg-type]  # fields by name
    return {each["type"]: (each["status"], each["reason"], each["lastTransitionTime"]) for each in conditions}


def test_work_that_waits_says_for_what_and_is_on_its_way() -> None:
    assert shown(state="Pending", reason="WaitingForNodes", message="8 cpu are short") == {
        "Allocated": ("False", "WaitingForNodes", SUBMITTED),
        "Started": ("False", "Waiting", SUBMITTED),
        "Finished": ("False", "Waiting", SUBMITTED),
        "Reconciling": ("True", "Waiting", SUBMITTED),
    }
    assert shown(state="Pending")["Allocated"] == ("False", "Queued", SUBMITTED)


def test_the_sentence_of_the_reason_is_in_the_condition_that_is_missing() -> None:
    allocated, *others = conditions_of(
        FluxJobStatus(state="Pending", reason="Held", message="by a person", submitted_at=SUBMITTED)
    )
    assert allocated["message"] == "by a person"
    assert not any("message" in each for each in others)


def test_work_that_nobody_but_a_person_helps_is_stalled() -> None:
    conditions = shown(state="Pending", reason="Unsatisfiable", message="no node has 900 cpu")
    assert conditions["Stalled"] == ("True", "Unsatisfiable", SUBMITTED)
    assert "Reconciling" not in conditions


def test_work_that_is_requeued_waits_since_then_and_has_no_nodes() -> None:
    again = RequeueReason(at=ENDED, reason="StartTimeout", message="x")
    conditions = shown(state="Pending", **WITH_NODES, started_at=RAN, requeue_reasons=[again])
    assert conditions["Allocated"] == ("False", "Queued", ENDED)
    assert conditions["Started"][0] == "False"


def test_work_that_runs_is_as_it_should_be() -> None:
    assert shown(state="Running", **WITH_NODES, started_at=RAN) == {
        "Allocated": ("True", "NodesFound", FOUND),
        "Started": ("True", "PodsRan", RAN),
        "Finished": ("False", "Running", SUBMITTED),
    }
    assert shown(state="Allocated", **WITH_NODES)["Reconciling"] == ("True", "Starting", SUBMITTED)


@pytest.mark.parametrize(
    ("state", "outcome", "stalled"),
    [
        ("Completed", "Succeeded", False),
        ("Failed", "Failed", True),
        ("Failed", "TimeLimit", True),
        ("Cancelled", "Cancelled", False),
    ],
)
def test_work_that_has_ended_says_how(state: str, outcome: str, stalled: bool) -> None:
    conditions = shown(state=state, outcome=outcome, **WITH_NODES, started_at=RAN, finished_at=ENDED)
    assert conditions["Finished"] == ("True", outcome, ENDED)
    assert [conditions["Allocated"][0], conditions["Started"][0]] == ["True", "True"], (
        "who waited for the start sees it"
    )
    assert ("Stalled" in conditions) is stalled
    assert "Reconciling" not in conditions


def test_work_that_was_cancelled_before_it_started_never_was() -> None:
    conditions = shown(state="Cancelled", outcome="Cancelled", finished_at=ENDED)
    assert conditions["Started"] == ("False", "Cancelled", SUBMITTED)
    assert conditions["Finished"] == ("True", "Cancelled", ENDED)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("reason", list(Reason))
def test_types_and_reasons_are_of_a_closed_set_and_every_time_is_known(state: State, reason: Reason) -> None:
    status = FluxJobStatus(
        state=str(state), reason=str(reason), submitted_at=SUBMITTED, finished_at=ENDED, outcome="Failed"
    )
    conditions = conditions_of(status)
    assert {each["type"] for each in conditions} <= set(Condition)
    assert {each["reason"] for each in conditions} <= {
        *map(str, Reason),
        *map(str, Outcome),
        *map(str, ConditionReason),
    } - {""}
    assert all(each["lastTransitionTime"] for each in conditions)
    both = {each["type"] for each in conditions} & {Condition.RECONCILING, Condition.STALLED}
    assert len(both) <= 1, "kstatus takes the first that is true"


def test_a_row_without_a_time_of_submission_has_none() -> None:
    assert conditions_of(FluxJobStatus(state="Pending")) == []


def kstatus(status: FluxJobStatus) -> str:
    """Return what kstatus computes for an object of a kind that it does not know (sigs.k8s.io/cli-utils,
    generic rules).
    """
    conditions = {each["type"]: each["status"] for each in conditions_of(status)}
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"


@pytest.mark.parametrize(
    ("state", "reason", "computed"),
    [
        ("Pending", "WaitingForNodes", "InProgress"),
        ("Pending", "Held", "InProgress"),
        ("Pending", "Unsatisfiable", "Failed"),
        ("Allocated", "", "InProgress"),
        ("Running", "", "Current"),
        ("Running", "TimeLimit", "Current"),
        ("Draining", "", "InProgress"),
        ("Completed", "", "Current"),
        ("Failed", "", "Failed"),
        ("Cancelled", "", "Current"),
    ],
)
def test_kstatus_computes_what_people_expect(state: str, reason: str, computed: str) -> None:
    assert (
        kstatus(
            FluxJobStatus(
                state=state, reason=reason, outcome="Failed", submitted_at=SUBMITTED, finished_at=ENDED
            )
        )
        == computed
    )
