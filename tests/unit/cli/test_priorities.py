"""The parts of priorities as people see them."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import cast

import pytest

from fluxqueue.api.fluxaccounts import FairShareStatus, FluxAccount, FluxAccountStatus, UserShareStatus
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, PriorityWeights
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli import priorities
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.listing import Listed
from fluxqueue.cli.priorities import PriorityQuery

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def a_job(
    name: str,
    *,
    priority: int = 0,
    pods: int = 1,
    state: str = "Pending",
    account: str = "",
    queue: str = "default",
    user: str = "carol",
) -> FluxJob:
    return FluxJob(
        metadata=ObjectMeta(name=f"job-{name}", namespace="md"),
        spec=FluxJobSpec(
            object_ref=ObjectRef(kind="Job", name=name), queue=queue, pods=pods, priority=priority
        ),
        status=FluxJobStatus(
            state=state, account=account, submitted_by=user, submitted_at="2026-03-02T11:00:00Z"
        ),
    )


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = PriorityWeights(age=240, fair_share=1_000, size=-50, max_age_seconds=86_400)
    queues = [
        FluxQueue(ObjectMeta(name="default"), FluxQueueSpec(priority=5, priority_weights=weights)),
        FluxQueue(ObjectMeta(name="plain"), FluxQueueSpec(priority=2)),
    ]
    jobs = [
        a_job("one", priority=5, account="a"),
        a_job("two", priority=12, pods=50, account="b"),
        a_job("three", priority=9, queue="plain"),
        a_job("runs", state="Running"),
    ]
    users = [UserShareStatus("alice", 5, 0.25), UserShareStatus("system:serviceaccounts:md", 9, 0.125)]
    shown = FluxAccountStatus(fair_share=FairShareStatus(factor=0.5, users=users))
    accounts = [FluxAccount(ObjectMeta(name="a"), status=shown), FluxAccount(ObjectMeta(name="b"))]
    monkeypatch.setattr(priorities, "list_queues", lambda _client: queues)
    monkeypatch.setattr(
        priorities, "list_jobs", lambda _client, _namespace: ([Listed(job, b"") for job in jobs], "1")
    )
    monkeypatch.setattr(priorities, "list_accounts", lambda _client: accounts)


def shown(query: PriorityQuery) -> list[list[str]]:
    out = io.StringIO()
    assert priorities.priorities(cast("ApiClient", None), query, out, NOW) == 0
    return [line.split() for line in out.getvalue().splitlines()]


def test_waiting_work_is_in_order_with_the_parts_of_its_priority() -> None:
    assert shown(PriorityQuery()) == [
        ["OBJECT", "QUEUE", "PRIORITY", "AGE", "FAIRSHARE", "SIZE", "OFQUEUE", "OWN"],
        ["job/one", "default", "515", "10", "500", "0", "5", "0"],
        ["job/three", "plain", "9", "0", "0", "0", "2", "7"],
        ["job/two", "default", "-3", "10", "0", "-25", "5", "7"],
    ]


def test_the_wide_form_has_what_the_parts_come_from() -> None:
    (line,) = shown(PriorityQuery(namespace=None, names=("one",), wide=True, titles=False))
    assert line == [
        "md",
        "job-one",
        "job/one",
        "default",
        "515",
        "10",
        "500",
        "0",
        "5",
        "0",
        "60m",
        "a",
        "0.5",
        "1",
    ]


def test_a_terminal_of_eighty_columns_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(
        priorities,
        "list_jobs",
        lambda _client, _namespace: ([Listed(a_job("x" * 60, queue="plain"), b"")], "1"),
    )
    out = io.StringIO()
    priorities.priorities(cast("ApiClient", None), PriorityQuery(namespace=None), out, NOW)
    assert all(len(line) <= 80 for line in out.getvalue().splitlines())
    assert "PRIORITY" in out.getvalue()


def test_the_weights_of_queues_are_shown_as_they_count() -> None:
    assert shown(PriorityQuery(weights=True, titles=False)) == [
        ["default", "240", "1000", "-50", "1", "1", "24h", "100", "pods", "5"],
        ["plain", "0", "0", "0", "1", "1", "7d", "100", "pods", "2"],
    ]


def test_work_that_does_not_wait_has_no_place_in_the_order() -> None:
    with pytest.raises(ClusterError, match='"runs" does not wait'):
        shown(PriorityQuery(names=("runs",)))
    assert shown(PriorityQuery(queue="empty")) == [["Nothing", "waits."]]


def test_work_has_the_factor_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [
        a_job(f"of-{number}", account="a", user=user) for number, user in enumerate(("carol", "alice", ""))
    ]
    monkeypatch.setattr(
        priorities, "list_jobs", lambda _client, _namespace: ([Listed(job, b"") for job in jobs], "1")
    )
    assert [line[4] for line in shown(PriorityQuery(titles=False))] == ["500", "250", "125"]
