"""The checker of statements finds what FluxJobs say falsely, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import make_job, make_node, make_pod, make_queue
from support.queue_builders import EPOCH, a_job, a_pod, a_workload, an_allocation
from support.reason_sentences import sentences_in
from support.statement_claims import CLAIMS, False_, false_claims
from support.statement_pictures import Ledger, Picture, PictureReader, ShownWork
from support.statement_reasons import REASONS, NotCheckable
from support.statement_sentences import SENTENCES
from support.statements import Patience, StatementChecker, statements_checked

from fluxqueue.api.clusterobjects import ResourceQuota
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, ObjectRef, Outcome, Reason, State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.queue import service as queue_code
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    Reservation,
    SlotState,
    Workload,
)
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.model.start_conditions import StartConditions
from fluxqueue.queue.status.fluxjob_conditions import conditions_of
from fluxqueue.queue.status.fluxjob_status import status_of

QUEUE = Path(queue_code.__file__).parent
NOW = EPOCH + timedelta(hours=1)
T0 = NOW - timedelta(minutes=5)
LATER = NOW + timedelta(minutes=5)
NODES = {name: msgspec.convert(make_node(name).build(), Node) for name in ("n1", "n2")}


def a_queue(name: str = "default", **spec: Any) -> FluxQueue:
    return msgspec.convert(make_queue(name, **spec), FluxQueue)


def shown(
    row: Workload, estimate: Estimate | None = None, *, spec: Mapping[str, Any] | None = None, **rest: Any
) -> ShownWork:
    """A FluxJob that shows what the queue has."""
    status = status_of(row, estimate)
    ref = ObjectRef(api_version=row.api_version, kind=row.kind, name=row.name, uid=row.uid)
    fluxjob = FluxJob(
        spec=FluxJobSpec(object_ref=ref, queue=row.queue, pods=row.pods, **(spec or {})), status=status
    )
    return ShownWork(fluxjob, row, conditions=tuple(conditions_of(status)), **rest)


def picture(*work: ShownWork, **rest: Any) -> Picture:
    """Two empty nodes, the default queue, and this work."""
    ledger = Ledger(
        NOW,
        tuple(each.row for each in work),
        tuple(allocation for each in work for allocation in each.allocations),
        tuple(each.reservation for each in work if each.reservation is not None),
    )
    around: dict[str, Any] = {"nodes": NODES, "queues": {"default": a_queue()}}
    return Picture(ledger=ledger, work=work, **(around | rest))


def waiting(reason: Reason, message: str = "", estimate: Estimate | None = None, **changes: Any) -> ShownWork:
    rest = {key: changes.pop(key) for key in ("job", "pods", "reservation", "spec") if key in changes}
    fields: dict[str, Any] = {"submitted_at": T0, "reason": reason, "message": message}
    return shown(a_workload(**(fields | changes)), estimate, **rest)


def running(
    state: State = State.RUNNING, *, pod: Mapping[str, Any] | None = None, hosts: str = "n1", **changes: Any
) -> ShownWork:
    """Work with one pod that runs on n1."""
    fields: dict[str, Any] = {
        "state": state,
        "jobid": 7,
        "hosts": hosts,
        "submitted_at": T0,
        "allocated_at": T0,
    }
    row = a_workload(**(fields | {"started_at": T0 if state is State.RUNNING else None} | changes))
    builder = make_pod("p").with_("spec.nodeName", "n1").with_("status.phase", "Running")
    for field, value in (pod or {}).items():
        builder = builder.with_(field, value)
    allocation = replace(an_allocation(["n1"], states=[SlotState.TAKEN], pods=["pod-uid"]), workload=row.id)
    return shown(row, allocations=(allocation,), pods=(a_pod(builder),))


def ended(state: State, outcome: Outcome, condition: str = "", **changes: Any) -> ShownWork:
    times: dict[str, Any] = {"submitted_at": T0, "allocated_at": T0, "started_at": T0, "finished_at": NOW}
    row = a_workload(**(times | {"state": state, "outcome": outcome, "jobid": 7, "hosts": "n1"} | changes))
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return shown(row, job=a_job(make_job().with_("status.conditions", conditions)))


def expected(
    at: datetime, *, position: int = 1, first: datetime | None = LATER, reserved: bool = False
) -> Estimate:
    return Estimate(position=position, eta=at, eta_soonest=at, eta_first=first, reserved=reserved)


def reserved(work: ShownWork, *, node: str = "n1") -> ShownWork:
    share = NodeShare(node, {"pod": 1})
    reservation = Reservation(
        workload=work.row.id, jobid=FluxionJobId(9), first_start=LATER, start=LATER, end=None, shares=(share,)
    )
    return replace(work, reservation=reservation)


def suspended(**annotations: str) -> Any:
    job = make_job().with_("spec.suspend", True)
    for key, value in annotations.items():
        job = job.annotation(key.replace("_", "/", 1).replace("_", "-"), value)
    return a_job(job)


def plain_job(cpu: str) -> Any:
    return a_job(make_job().cpu(cpu))


FROM = f"{LATER:%Y-%m-%dT%H:%M:%SZ}"
HELD_FOR_IT = f"node n1 is reserved for it from {FROM} on: it starts then, or sooner if that is free"
TWO_RUN = "the queue 'default' may run 2 workloads at once, and 2 run or have nodes reserved"
TOO_LARGE = (
    "the queue 'default' allows one workload 4 cores, and this wants {}: ask for less "
    "(spec.limits.perWorkload of its FluxQueue)"
)
GAVE_BACK = GivenBack(jobid=7, stop_at=NOW, message="Job default/j gave 1 of its 2 pods back")
LIMITED = {"default": a_queue(limits={"running": 2})}
ONE_OF_USER = (
    "user 'alice' in the queue 'default' may run 1 workloads at once, and 1 run or have nodes reserved"
)
LIMITED_USERS = {"default": a_queue(limits={"perUser": {"running": 1}})}


def without_nodes(job: Any) -> ShownWork:
    return replace(running(hosts=""), allocations=(), job=job)


def one_running_of(user: str) -> Picture:
    """Somebody waits for the limit of alice."""
    work = waiting(Reason.QUEUE_LIMIT, ONE_OF_USER, submitted_by="alice", uid="waits")
    return picture(work, running(submitted_by=user), queues=LIMITED_USERS, ran=frozenset({"pod-uid"}))


def two_running(work: ShownWork) -> Picture:
    return picture(work, running(), running(), queues=LIMITED, ran=frozenset({"pod-uid"}))


def waits_for(name: str, why: str, **spec: Any) -> Picture:
    """One waits for what the other one holds, which runs and is called w."""
    held = (
        f"fits no node; nothing is preempted for it: nodes that it needs are held by Job default/{name} "
        f"({why}) and 2 more"
    )
    work = waiting(Reason.WAITING_FOR_NODES, held, job=plain_job("8"), uid="waits")
    nodes = {"n1": NODES["n1"]}
    return picture(
        work, running(), nodes=nodes, ran=frozenset({"pod-uid"}), queues={"default": a_queue(**spec)}
    )


def waits_for_flavor(wait_s: int) -> Picture:
    """One waits, and is told that it may use spot nodes in five minutes."""
    told = f"flavor 'own': wants 1 pod, free now: 0; it may use flavor 'spot' too from {FROM} on"
    flavors = [
        {"name": name, "nodeSelector": {"kind": name}, "waitSeconds": seconds}
        for name, seconds in (("own", 0), ("spot", wait_s))
    ]
    work = waiting(Reason.WAITING_FOR_NODES, told, job=plain_job("8"))
    return picture(work, queues={"default": a_queue(flavors=flavors)})


def alone(work: ShownWork) -> Picture:
    return picture(work, ran=frozenset({"pod-uid"}))


TRUE: Mapping[str, Callable[[], Picture]] = {
    "held": lambda: alone(waiting(Reason.HELD, spec={"hold": True})),
    "suspended by its user": lambda: alone(waiting(Reason.USER_SUSPENDED, job=suspended())),
    "too large for the nodes": lambda: alone(waiting(Reason.UNSATISFIABLE, job=plain_job("9"))),
    "no node is free": lambda: picture(
        waiting(Reason.WAITING_FOR_NODES, job=plain_job("8")),
        running(),
        nodes={"n1": NODES["n1"]},
        ran=frozenset({"pod-uid"}),
    ),
    "nodes are held by work of equal priority": lambda: waits_for("w", "of equal priority"),
    "nodes are held for the least time": lambda: waits_for(
        "w", f"in its minimum run time until {FROM}", preemptionRules={"minRunSeconds": 600}
    ),
    "nodes are held without preemption": lambda: waits_for("w", "in a queue without preemption"),
    "waits for a flavor": lambda: waits_for_flavor(600),
    "reserved": lambda: alone(
        reserved(waiting(Reason.WAITING_FOR_NODES, HELD_FOR_IT, expected(LATER, reserved=True)))
    ),
    "too large": lambda: picture(waiting(Reason.QUEUE_LIMIT, TOO_LARGE.format(5)), queues=LIMITED),
    "a user at a limit": lambda: one_running_of("alice"),
    "at a limit": lambda: two_running(waiting(Reason.QUEUE_LIMIT, TWO_RUN)),
    "of no queue": lambda: alone(waiting(Reason.UNKNOWN_QUEUE, queue="other")),
    "may not begin yet": lambda: alone(
        waiting(
            Reason.WAITING_FOR_BEGIN,
            f"Job default/w may begin from {FROM} on",
            start_conditions=StartConditions(begin_at=LATER),
        )
    ),
    "running": lambda: alone(running()),
    "gave pods back": lambda: alone(running(requeue_state=RequeueState(given_back=GAVE_BACK))),
    "allocated": lambda: alone(
        running(State.ALLOCATED, pod={"spec.nodeName": None, "status.phase": "Pending"})
    ),
    "running, with pods that are matched alone": lambda: alone(without_nodes(a_job(make_job()))),
    "first come, first served": lambda: picture(
        *(waiting(Reason.WAITING_FOR_NODES, "", expected(LATER, position=n)) for n in (1, 2)),
        queues={"default": a_queue(policy="fcfs")},
    ),
    "completed": lambda: alone(ended(State.COMPLETED, Outcome.SUCCEEDED, "Complete")),
    "failed": lambda: alone(ended(State.FAILED, Outcome.FAILED, "Failed")),
}

FALSE: Mapping[str, tuple[str, Callable[[], Picture]]] = {
    "held by nobody": ("reason", lambda: alone(waiting(Reason.HELD))),
    "suspended by us": (
        "reason",
        lambda: alone(waiting(Reason.USER_SUSPENDED, job=suspended(fluxqueue_suspended_by="webhook"))),
    ),
    "suspended by nobody": ("reason", lambda: alone(waiting(Reason.USER_SUSPENDED, job=a_job(make_job())))),
    "too large for the nodes": ("reason", lambda: alone(waiting(Reason.UNSATISFIABLE, job=plain_job("8")))),
    "no node is free": ("reason", lambda: alone(waiting(Reason.WAITING_FOR_NODES, job=plain_job("8")))),
    "of no queue": ("reason", lambda: alone(waiting(Reason.UNKNOWN_QUEUE))),
    "of a held queue": ("reason", lambda: alone(waiting(Reason.QUEUE_HELD))),
    "at a limit without limits": ("reason", lambda: alone(waiting(Reason.QUEUE_LIMIT))),
    "too large by figures that allow it": (
        "limits",
        lambda: picture(waiting(Reason.QUEUE_LIMIT, TOO_LARGE.format(4)), queues=LIMITED),
    ),
    "a user at the limit that somebody else reached": ("limits", lambda: one_running_of("bob")),
    "at a limit that is not reached": (
        "limits",
        lambda: picture(waiting(Reason.QUEUE_LIMIT, TWO_RUN), queues=LIMITED),
    ),
    "at a quota that nothing uses": (
        "quota",
        lambda: picture(
            waiting(
                Reason.QUEUE_LIMIT,
                "the ResourceQuota 'q' of namespace 'default' allows 4 pods and leaves 1 pod, and this asks",
            ),
            quotas={("default", "q"): ResourceQuota()},
        ),
    ),
    "waits for a flavor that it may use": ("next flavor", lambda: waits_for_flavor(60)),
    "a failed start of a pod on its node": (
        "failed start",
        lambda: alone(
            running(
                State.ALLOCATED,
                reason=Reason.START_TIMEOUT,
                message="pod p was not bound in 5 s: is its scheduler running?",
            )
        ),
    ),
    "a failed start of pods that are there": (
        "failed start",
        lambda: alone(
            running(
                State.ALLOCATED,
                reason=Reason.START_TIMEOUT,
                message="1 of 1 pods were not created in 5 s: a quota",
            )
        ),
    ),
    "of an account": (
        "names",
        lambda: alone(waiting(Reason.WAITING_FOR_NODES, "the account 'physics' is full")),
    ),
    "reserved": ("reserved for it", lambda: alone(waiting(Reason.WAITING_FOR_NODES, HELD_FOR_IT))),
    "reserved on another node": (
        "reserved for it",
        lambda: alone(reserved(waiting(Reason.WAITING_FOR_NODES, HELD_FOR_IT), node="n2")),
    ),
    "nodes are held by work without nodes": ("held by", lambda: waits_for("work", "of equal priority")),
    "nodes are held by work of another priority": ("held by", lambda: waits_for("w", "of higher priority")),
    "nodes are held in a queue without preemption": (
        "held by",
        lambda: waits_for("w", "in a queue without preemption", preemption="lowerPriority"),
    ),
    "nodes are held for a time that is over": (
        "held by",
        lambda: waits_for("w", f"in its minimum run time until {T0:%Y-%m-%dT%H:%M:%SZ}"),
    ),
    "nodes are held for longer than the queue grants": (
        "held by",
        lambda: waits_for(
            "w", f"in its minimum run time until {FROM}", preemptionRules={"minRunSeconds": 301}
        ),
    ),
    "behind a reservation": ("reason", lambda: alone(waiting(Reason.BLOCKED_BY_RESERVATION))),
    "for a FluxReservation": ("reason", lambda: alone(waiting(Reason.RESERVATION))),
    "for a dependency": ("reason", lambda: alone(waiting(Reason.WAITING_FOR_DEPENDENCY))),
    "for what never happens": ("reason", lambda: alone(waiting(Reason.DEPENDENCY_NEVER_SATISFIED))),
    "for a time that has come": (
        "reason",
        lambda: alone(
            waiting(
                Reason.WAITING_FOR_BEGIN,
                f"Job default/w may begin from {T0:%Y-%m-%dT%H:%M:%SZ} on",
                start_conditions=StartConditions(begin_at=T0),
            )
        ),
    ),
    "for nodes that are up": (
        "reason",
        lambda: alone(
            waiting(
                Reason.NODES_UNAVAILABLE,
                "the nodes that are up could not hold it: n1, n2 are cordoned or not ready",
            )
        ),
    ),
    "for its group": (
        "reason",
        lambda: alone(waiting(Reason.WAITING_FOR_GROUP, "pod group default/g has 2 of 2 pods: it is")),
    ),
    "for a claim that exists": (
        "reason",
        lambda: picture(
            waiting(
                Reason.WAITING_FOR_VOLUMES, "PersistentVolumeClaim default/data does not exist: create it"
            ),
            claims=frozenset({("default", "data")}),
        ),
    ),
    "preempted by less urgent work": (
        "reason",
        lambda: alone(
            waiting(
                Reason.PREEMPTED,
                "Job a (priority 3) was preempted by Job b (priority 3): it is requeued",
                requeues=1,
            )
        ),
    ),
    "a failed start, never requeued": ("reason", lambda: alone(waiting(Reason.START_TIMEOUT))),
    "beyond its time": ("reason", lambda: alone(running(reason=Reason.TIME_LIMIT))),
    "unreachable deadline": ("deadline", lambda: alone(waiting(Reason.DEADLINE_UNREACHABLE))),
    "no reason": ("reason in time", lambda: alone(waiting(Reason.NONE))),
    "waits while it runs": (
        "Pending",
        lambda: alone(replace(waiting(Reason.PREEMPTED, requeues=1), pods=running().pods)),
    ),
    "runs without a pod": (
        "Running",
        lambda: picture(running(pod={"spec.nodeName": None, "status.phase": "Pending"})),
    ),
    "has not started": ("Allocated", lambda: alone(running(State.ALLOCATED))),
    "drains nothing": (
        "Draining",
        lambda: alone(replace(running(State.DRAINING, started_at=T0), allocations=())),
    ),
    "ended, and holds nodes": (
        "ended",
        lambda: alone(
            replace(ended(State.COMPLETED, Outcome.SUCCEEDED, "Complete"), allocations=running().allocations)
        ),
    ),
    "completed, and its Job failed": (
        "outcome",
        lambda: alone(ended(State.COMPLETED, Outcome.SUCCEEDED, "Failed")),
    ),
    "failed, and its Job is complete": (
        "outcome",
        lambda: alone(ended(State.FAILED, Outcome.FAILED, "Complete")),
    ),
    "on another node": ("nodes", lambda: alone(running(pod={"spec.nodeName": "n2"}))),
    "runs without nodes, and is suspended": ("nodes", lambda: alone(without_nodes(suspended()))),
    "runs without nodes, and is over": (
        "nodes",
        lambda: alone(
            without_nodes(
                a_job(make_job().with_("status.conditions", [{"type": "Complete", "status": "True"}]))
            )
        ),
    ),
    "shows other nodes": ("nodes", lambda: alone(running(hosts="n2"))),
    "starts before it is submitted": ("times", lambda: alone(running(submitted_at=NOW))),
    "started in the future": ("times", lambda: alone(running(started_at=LATER))),
    "starts in the past": (
        "past estimate",
        lambda: alone(waiting(Reason.WAITING_FOR_NODES, "", expected(T0))),
    ),
    "begins too early": (
        "estimate",
        lambda: alone(
            waiting(
                Reason.WAITING_FOR_NODES,
                "",
                expected(NOW),
                start_conditions=StartConditions(begin_at=LATER),
            )
        ),
    ),
    "never expected before": (
        "etaFirst",
        lambda: alone(waiting(Reason.WAITING_FOR_NODES, "", expected(LATER, first=None))),
    ),
    "nothing is reserved": (
        "reservedAt",
        lambda: alone(waiting(Reason.WAITING_FOR_NODES, "", expected(LATER, reserved=True))),
    ),
    "two are first": (
        "position",
        lambda: picture(*(waiting(Reason.WAITING_FOR_NODES, "", expected(LATER)) for _ in range(2))),
    ),
    "the less urgent is first": (
        "position",
        lambda: picture(
            *(waiting(Reason.WAITING_FOR_NODES, "", expected(LATER, position=n), priority=n) for n in (1, 2)),
        ),
    ),
    "the second starts first": (
        "one after the other",
        lambda: picture(
            *(
                waiting(Reason.WAITING_FOR_NODES, "", expected(at, position=n))
                for n, at in ((1, LATER), (2, NOW))
            ),
            queues={"default": a_queue(policy="fcfs")},
        ),
    ),
    "the second starts and nothing is known of the first": (
        "one after the other",
        lambda: picture(
            waiting(
                Reason.WAITING_FOR_NODES,
                "",
                Estimate(position=1, eta=None, eta_soonest=None, eta_first=None, reserved=False),
            ),
            waiting(Reason.WAITING_FOR_NODES, "", expected(LATER, position=2)),
            queues={"default": a_queue(policy="fcfs")},
        ),
    ),
    "both have the node for themselves": (
        "exclusive",
        lambda: picture(*(_with_share(running(), jobid) for jobid in (1, 2)), ran=frozenset({"pod-uid"})),
    ),
    "another state": (
        "stored state",
        lambda: alone(replace(waiting(Reason.HELD, spec={"hold": True}), row=running().row)),
    ),
    "other words": (
        "stored words",
        lambda: alone(_with_message(waiting(Reason.WAITING_FOR_NODES, "one"), "two")),
    ),
    "conditions of other work": (
        "conditions",
        lambda: alone(replace(running(), conditions=waiting(Reason.HELD).conditions[:2])),
    ),
}


def _with_share(work: ShownWork, jobid: int) -> ShownWork:
    own: Allocation = replace(
        work.allocations[0],
        jobid=FluxionJobId(jobid),
        workload=work.row.id,
        shares=(NodeShare("n1", exclusive=True),),
    )
    return replace(work, allocations=(own,))


def _with_message(work: ShownWork, message: str) -> ShownWork:
    return replace(work, row=replace(work.row, message=message))


def test_each_reason_has_a_predicate_or_says_why_it_has_none() -> None:
    assert set(REASONS) == set(Reason)
    assert all(check.why for check in REASONS.values() if isinstance(check, NotCheckable))


def test_each_sentence_of_a_reason_is_checked_or_says_why_not() -> None:
    """A new one is entered in `statement_sentences`, one that is gone is removed there."""
    assert sentences_in(QUEUE) == set(SENTENCES)
    claims = {claim.name for claim in CLAIMS}
    assert all(
        check.why if isinstance(check, NotCheckable) else check in claims for check in SENTENCES.values()
    )


@pytest.mark.parametrize("name", TRUE)
def test_a_true_statement_is_not_complained_of(name: str) -> None:
    assert list(map(str, false_claims(TRUE[name]()))) == []


@pytest.mark.parametrize("name", FALSE)
def test_a_false_statement_is_found(name: str) -> None:
    claim, made = FALSE[name]
    assert claim in {each.claim for each in false_claims(made())}


def test_each_claim_has_a_planted_false_statement() -> None:
    assert {claim for claim, _ in FALSE.values()} >= {claim.name for claim in CLAIMS}


def test_work_of_another_namespace_is_not_judged() -> None:
    wrong = alone(waiting(Reason.HELD))
    assert list(false_claims(wrong, "elsewhere")) == []
    assert list(false_claims(wrong, "default")) != []


# ---- time --------------------------------------------------------------------------------------------------


def a_falsehood(said: str = "Held", extra_s: float = 0) -> False_:
    return False_("reason", "uid", "Job a/b", said, "it is not", extra_s)


def overdue_after(patience: Patience, steps: int, passed_s: float = 0.5, **fields: Any) -> list[False_]:
    found: list[False_] = []
    for _ in range(steps):
        found = patience.note([a_falsehood(**fields)], passed_s)
    return found


def test_a_claim_that_is_false_for_a_moment_is_forgotten() -> None:
    patience = Patience(2)
    assert overdue_after(patience, 5) == []
    assert patience.note([], 0.5) == []
    assert overdue_after(patience, 5) == []


def test_a_claim_that_stays_false_is_reported() -> None:
    assert overdue_after(Patience(2), 6) == [a_falsehood()]


def test_a_claim_that_may_be_late_is_reported_later() -> None:
    patience = Patience(2)
    assert overdue_after(patience, 6, extra_s=1) == []
    assert overdue_after(patience, 3, extra_s=1) == [a_falsehood(extra_s=1)]


def test_a_machine_that_stands_still_makes_nothing_false_for_long() -> None:
    assert overdue_after(Patience(2), 4, passed_s=60) == []


class Pictures(PictureReader):
    """Shows one picture after the other, the last one again and again."""

    def __init__(self, *pictures: Picture) -> None:
        self.life: object | None = "queue"
        self._left = list(pictures)

    def read(self) -> Picture:
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]

    def leader_life(self) -> object | None:
        return self.life

    def close(self) -> None:
        pass


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr("support.statements.time.monotonic", lambda: self.now)

    def looks(self, checker: StatementChecker, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            checker.look()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


WRONG = FALSE["suspended by nobody"][1]()
RIGHT = picture()


def test_a_false_statement_fails_the_test_that_runs(clock: Clock) -> None:
    checker = StatementChecker(Pictures(WRONG), None, limit_s=2)
    clock.looks(checker, 9)
    with pytest.raises(
        AssertionError,
        match=r"reason: Job default/w says 'Pending UserSuspended: ?', but its Job is not suspended",
    ):
        checker.assert_true()


def test_a_statement_that_is_true_when_it_is_read_again_fails_nothing(clock: Clock) -> None:
    pictures = Pictures(*([WRONG] * 6), RIGHT)
    checker = StatementChecker(pictures, None, limit_s=2)
    clock.looks(checker, 12)
    checker.assert_true()


def test_nothing_counts_while_no_queue_leads_or_just_after(clock: Clock) -> None:
    pictures = Pictures(WRONG)
    checker = StatementChecker(pictures, None, limit_s=2)
    for life in (None, "queue", None, "another"):
        pictures.life = life
        clock.looks(checker, 4)
    checker.assert_true()


def test_a_checker_that_fails_by_itself_fails_the_test() -> None:
    class Broken(Pictures):
        def leader_life(self) -> object | None:
            raise KeyError("queue")

    checker = StatementChecker(Broken(RIGHT), None, limit_s=2)
    checker.start()
    checker.stop()
    with pytest.raises(AssertionError, match="KeyError"):
        checker.assert_true()


def test_what_was_false_is_noted_with_the_failure_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEMENT_LIMIT_S", "0")
    monkeypatch.setattr("support.statements.PictureReader", lambda _cluster: Pictures(WRONG))

    def fail_once_it_is_found() -> None:
        until = time.monotonic() + 60
        with statements_checked(InProcessCluster.__new__(InProcessCluster), "default") as checker:
            while not checker.found and time.monotonic() < until:
                time.sleep(0.01)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as failure:
        fail_once_it_is_found()
    assert any("UserSuspended" in note for note in failure.value.__notes__)
