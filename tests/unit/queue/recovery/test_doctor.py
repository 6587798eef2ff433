"""The doctor reads the Lease of our own scheduler, and only if a pod waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from support.builders import make_job, make_pod
from support.controller_bench import managed_caches
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_job, a_pod, a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.clusterobjects import Lease
from fluxqueue.kube.errors import Forbidden, NotFound
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.recovery.doctor import Doctor
from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.snapshot import SchedulerState
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.store.ledger import Ledger

WAITS = a_pod(make_pod().by_fluxion("n1"))
BOUND = a_pod(make_pod().by_fluxion("n1").on_node("n1"))
LEASE = ("fluxqueue-system", "fluxqueue-scheduler")


class _Ledger:
    def wall(self) -> Any:
        return EPOCH


class _Api:
    def __init__(self, answer: Lease | Exception | None) -> None:
        self._answer = answer

    async def get(self, _kind: object, name: str, namespace: str) -> Lease:
        assert (namespace, name) == LEASE
        assert self._answer is not None, "no Lease should be read"
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def lease(age_s: float, holder: str = "scheduler-0") -> Lease:
    at = (EPOCH - timedelta(seconds=age_s)).isoformat()
    return msgspec.convert(
        {"spec": {"holderIdentity": holder, "leaseDurationSeconds": 8, "renewTime": at}}, Lease
    )


def doctor(answer: Lease | Exception | None, scheduler: tuple[str, str] | None = LEASE) -> Doctor:
    api, ledger = cast(Api, _Api(answer)), cast(Ledger, _Ledger())
    return Doctor(
        api, cast(Caches, None), ledger, cast(GraphKeeper, None), cast(ForeignPods, None), scheduler
    )


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (lease(1), SchedulerState.LEADS),
        (lease(-5), SchedulerState.LEADS),
        (lease(60), SchedulerState.AWAY),
        (lease(1, holder=""), SchedulerState.AWAY),
        (Lease(), SchedulerState.AWAY),
        (NotFound(404, "NotFound", "no lease"), SchedulerState.AWAY),
        (Forbidden(403, "Forbidden", "no right"), SchedulerState.UNKNOWN),
    ],
    ids=[
        "renewed",
        "by a clock ahead of ours",
        "stale",
        "handed back",
        "never held",
        "missing",
        "not allowed to ask",
    ],
)
async def test_a_scheduler_leads_while_its_lease_is_renewed(
    answer: Lease | Exception, state: SchedulerState
) -> None:
    assert await doctor(answer).scheduler_state([WAITS]) is state


async def test_no_lease_is_read_if_no_pod_waits_for_the_scheduler() -> None:
    assert await doctor(None).scheduler_state([BOUND]) is SchedulerState.UNKNOWN


async def test_no_lease_is_read_if_the_scheduler_is_not_installed() -> None:
    assert await doctor(None, None).scheduler_state([WAITS]) is SchedulerState.ABSENT


async def test_what_waits_for_its_turn_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, fails = a_workload("waits"), a_workload("fails")
    unread, taken, lost = (
        a_job(make_job(name), uid=uid)
        for name, uid in (("unread", "unread-uid"), ("waits", waits.uid), ("lost", "lost-uid"))
    )
    due = [
        Finding(Difference.NO_FLUXJOB, waits.ref, "it has no FluxJob"),
        Finding(Difference.UNKNOWN_OBJECT, "Job default/unread", "it is not in the queue"),
        Finding(
            Difference.UNKNOWN_OBJECT,
            "Job default/waits",
            "it was taken in after the look",
        ),
    ]
    others = [
        Finding(Difference.NO_FLUXJOB, fails.ref, "it has no FluxJob"),
        Finding(Difference.NO_REASON, waits.ref, "it waits without a reason"),
        Finding(Difference.UNKNOWN_OBJECT, "Job default/lost", "it is not in the queue"),
    ]
    caches = managed_caches(MemoryApi())
    for job in (unread, taken, lost):
        caches.jobs.apply(job)
    doctor = Doctor(
        cast(Api, None),
        caches,
        RecordingLedger((waits, None), (fails, None)),
        cast(GraphKeeper, None),
        cast(ForeignPods, None),
        fluxjob_due=lambda workload: workload is waits,
        job_due=lambda uid: uid == "unread-uid",
    )

    async def look(**_kinds: bool) -> list[Finding]:
        return [*due, *others]

    monkeypatch.setattr(doctor, "_look", look)
    assert await doctor.examine(looks=1) == others
