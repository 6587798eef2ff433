"""When pods that the API server refused are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.controller_bench import TriggerLog, running, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload
from support.recording_ledger import RecordingLedger
from support.work_counts import assert_linear

from fluxqueue.api.clusterobjects import ResourceQuota
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs
from fluxqueue.queue.requeue.pod_refusals import PodRefusals, leaves_more_room
from fluxqueue.queue.store import DatabaseUnavailable


def quota(hard: dict[str, str], used: dict[str, str]) -> ResourceQuota:
    return msgspec.convert(
        {"metadata": {"name": "q", "namespace": "default"}, "status": {"hard": hard, "used": used}},
        ResourceQuota,
    )


BEFORE = quota({"pods": "2", "cpu": "4"}, {"pods": "2", "cpu": "500m"})


@pytest.mark.parametrize(
    ("after", "roomier"),
    [
        pytest.param(
            quota({"pods": "3", "cpu": "4"}, {"pods": "2", "cpu": "500m"}), True, id="a bound was raised"
        ),
        pytest.param(quota({"cpu": "4"}, {"cpu": "500m"}), True, id="a bound was removed"),
        pytest.param(quota({"pods": "2", "cpu": "4"}, {"pods": "1", "cpu": "0.5"}), True, id="less is used"),
        pytest.param(quota({"pods": "2", "cpu": "4"}, {"pods": "2", "cpu": "1"}), False, id="more is used"),
        pytest.param(
            quota({"pods": "1", "cpu": "4"}, {"pods": "2", "cpu": "500m"}), False, id="a bound was lowered"
        ),
    ],
)
def test_a_quota_is_tried_again_when_it_allows_more(after: ResourceQuota, roomier: bool) -> None:
    assert leaves_more_room(BEFORE, after) is roomier


class Bench:
    """Work whose pods were refused, and a quota."""

    def __init__(self) -> None:
        self.server = MemoryApi()
        self.caches = Caches(self.server.api)
        self.ledger = RecordingLedger()
        self.ledger.now = EPOCH + timedelta(minutes=1)
        backoffs = JobBackoffs(self.caches, self.ledger.clock)
        self.refusals = PodRefusals(self.ledger, TriggerLog().trigger, backoffs)
        subscribe(self.caches, self.ledger, self.refusals, backoffs)
        self.server.watch_into("events", self.caches.failed_creations)
        self.server.watch_into("resourcequotas", self.caches.resource_quotas)
        self.server.watch_into("serviceaccounts", self.caches.service_accounts)
        self.quota(used=2)

    def quota(self, used: int) -> None:
        status = {"hard": {"pods": "2"}, "used": {"pods": str(used)}}
        self.server.put(
            "resourcequotas", {"metadata": {"name": "q", "namespace": "default"}, "status": status}
        )

    def refuse(self, workload: Workload) -> None:
        about = {"kind": "Job", "namespace": "default", "name": workload.name, "uid": workload.uid}
        event = {
            "metadata": {"name": f"of-{workload.name}", "namespace": "default"},
            "reason": "FailedCreate",
            "involvedObject": about,
        }
        self.ledger.put(replace(workload, state=State.ALLOCATED))
        self.server.put("events", {**event, "message": "no", "source": {"component": "job-controller"}})

    def wait(self, name: str, *, refusals: int = 1, **changes: Any) -> Workload:
        """A refused workload that waits."""
        state = RequeueState(refused_pods=refusals, not_before=self.ledger.now + timedelta(minutes=5))
        workload = a_workload(name, uid=name, requeue_state=state, **changes)
        self.ledger.put(workload)
        return workload

    async def retried(self) -> list[int]:
        """The workloads that are matched again by now."""
        async with running(self.refusals.run()):
            for _ in range(20):
                await asyncio.sleep(0)
        return [workload for workload, _ in self.ledger.written("set_requeue_states")]


async def test_a_change_of_a_quota_lets_the_one_try_that_was_refused_least_and_is_oldest() -> None:
    bench = Bench()
    often, first, second = bench.wait("often", refusals=3), bench.wait("first"), bench.wait("second")
    bench.quota(used=1)
    assert await bench.retried() == [first.id]
    assert often.id < first.id < second.id


async def test_when_it_runs_the_next_one_tries() -> None:
    bench = Bench()
    first, second = bench.wait("first"), bench.wait("second")
    bench.quota(used=1)
    assert await bench.retried() == [first.id]
    bench.ledger.put(replace(first, state=State.RUNNING))
    assert (await bench.retried())[-1] == second.id


async def test_a_new_service_account_lets_all_try() -> None:
    bench = Bench()
    waiting = [bench.wait(name) for name in "ab"]
    bench.server.put("serviceaccounts", {"metadata": {"name": "robot", "namespace": "default"}})
    assert sorted(await bench.retried()) == [each.id for each in waiting]


async def test_a_new_service_account_lets_only_those_try_that_lacked_it_or_may_have() -> None:
    """Who may make one may make a thousand, and thousands of refused starts would keep others off the nodes
    meanwhile.
    """
    bench = Bench()
    lacked = bench.wait(
        "lacked",
        refusals=3,
        message='error looking up service account default/robot: serviceaccount "robot" not found',
    )
    bench.wait("other", refusals=3, message='serviceaccount "another" not found')
    unknown = bench.wait("unknown", refusals=3)
    bench.server.put("serviceaccounts", {"metadata": {"name": "robot", "namespace": "default"}})
    assert sorted(await bench.retried()) == [lacked.id, unknown.id]


def test_work_that_is_gone_is_forgotten_in_proportion_to_its_number() -> None:
    def end(count: int) -> Callable[[], object]:
        bench = Bench()
        waiting = [bench.wait(f"w{number}") for number in range(count)]

        def run() -> None:
            for workload in waiting:
                bench.ledger._workloads.pop(workload.id)
                bench.refusals.workload_changed(workload.id)
            assert not bench.refusals._waiting

        return run

    assert_linear(end)


async def test_a_new_service_account_lets_all_try_if_postgres_was_away_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    waiting = [bench.wait(name) for name in "ab"]
    write = bench.ledger.set_requeue_states

    async def fail(_changes: object) -> None:
        monkeypatch.setattr(bench.ledger, "set_requeue_states", write)
        raise DatabaseUnavailable("as the test wants it")

    monkeypatch.setattr(bench.ledger, "set_requeue_states", fail)
    bench.server.put("serviceaccounts", {"metadata": {"name": "robot", "namespace": "default"}})
    async with running(bench.refusals.run()):
        await until(lambda: bench.ledger.written("set_requeue_states"))
    assert sorted(workload for workload, _ in bench.ledger.written("set_requeue_states")) == [
        each.id for each in waiting
    ]


async def test_room_that_came_while_its_pods_ended_is_not_missed() -> None:
    bench = Bench()
    workload = a_workload("late", uid="late")
    bench.refuse(workload)
    bench.quota(used=1)
    state = RequeueState(refused_pods=1, not_before=bench.ledger.now + timedelta(minutes=5))
    bench.ledger.put(replace(workload, requeue_state=state))
    assert await bench.retried() == [workload.id]


async def test_room_that_its_own_pods_left_does_not_start_it_again_at_once() -> None:
    bench = Bench()
    workload = bench.wait("again", refusals=2)
    bench.refuse(workload)
    bench.ledger.put(workload)
    bench.quota(used=1)
    assert await bench.retried() == []
    bench.ledger.now += timedelta(seconds=3)
    bench.quota(used=0)
    assert await bench.retried() == [workload.id]


async def test_room_of_long_ago_is_forgotten() -> None:
    bench = Bench()
    bench.quota(used=1)
    bench.refusals.resync()
    assert bench.refusals._roomier_at
    bench.ledger.now += timedelta(hours=1)
    bench.refusals.resync()
    assert not bench.refusals._roomier_at
