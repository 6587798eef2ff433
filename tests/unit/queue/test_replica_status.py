"""A replica is ready if nothing is missing, and each missing condition has a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from fluxqueue.queue.health import ReplicaRole
from fluxqueue.queue.replica_status import ReplicaStatus
from fluxqueue.queue.store import DatabaseUnavailable


def caches(problem: str) -> Any:
    return SimpleNamespace(watches=SimpleNamespace(problem=problem))


def role_metric() -> dict[ReplicaRole, float | None]:
    return {role: REGISTRY.get_sample_value("fluxqueue_role", {"role": str(role)}) for role in ReplicaRole}


def test_a_replica_is_not_ready_before_its_start_is_finished() -> None:
    status = ReplicaStatus()
    assert status.conditions() == {"start": "the service is starting"}
    status.clear()
    assert status.conditions() == {}


def test_the_role_is_the_only_one_in_the_metric() -> None:
    status = ReplicaStatus()
    status.shown.held = lambda: True
    status.become(ReplicaRole.LEADER)
    assert role_metric() == {ReplicaRole.STARTING: 0, ReplicaRole.FOLLOWER: 0, ReplicaRole.LEADER: 1}


def test_a_leader_that_lost_its_lease_is_no_leader_and_not_ready() -> None:
    status, held = ReplicaStatus(), [True]
    status.clear()
    status.shown.held = lambda: held[0]
    status.become(ReplicaRole.LEADER)
    assert (status.role, status.conditions()) == (ReplicaRole.LEADER, {})
    held[0] = False
    assert status.role is ReplicaRole.STARTING
    assert list(status.conditions()) == ["lease"]
    assert role_metric() == {ReplicaRole.STARTING: 1, ReplicaRole.FOLLOWER: 0, ReplicaRole.LEADER: 0}


def test_an_outage_of_postgres_is_a_condition_until_it_ends() -> None:
    status = ReplicaStatus()
    status.postgres_unavailable(DatabaseUnavailable("it does not answer"), 0.5)
    assert status.conditions() == {"postgres": "it does not answer"}
    assert REGISTRY.get_sample_value("fluxqueue_postgres_up") == 0
    status.postgres_available()
    assert status.conditions() == {}
    assert REGISTRY.get_sample_value("fluxqueue_postgres_up") == 1


def test_an_outage_is_logged_once_as_long_as_its_cause_stays() -> None:
    status = ReplicaStatus()
    with capture_logs() as logged:
        for cause in ("it does not answer", "it does not answer", "it only reads"):
            status.postgres_unavailable(DatabaseUnavailable(cause), 0.5)
    assert [each["error"] for each in logged if each["log_level"] == "warning"] == [
        "it does not answer",
        "it only reads",
    ]


def test_problems_of_watches_and_of_the_scheduler_are_conditions() -> None:
    status = ReplicaStatus()
    status.clear()
    status.watch(
        caches("nodes cannot be watched"), cast("Any", SimpleNamespace(last_error="Fluxion does not answer"))
    )
    assert status.conditions() == {
        "api-server": "nodes cannot be watched",
        "fluxion": "Fluxion does not answer",
    }
    status.watch(caches(""))
    assert status.conditions() == {}
