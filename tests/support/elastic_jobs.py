"""Moldable Jobs that run in a queue without a cluster, and what is shown of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from support.builders import make_job
from support.queue_bench import Bench
from support.queue_builders import a_job, around

from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import TakenSlot
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.records import Allocation, NewWorkload, Workload
from fluxqueue.queue.model.victim_views import VictimView
from fluxqueue.queue.scheduling.possible_victims import OnlyJobs

__all__ = ["ShownPods", "held", "leaving", "moldable", "pods_end", "run", "started"]


class ShownPods(OnlyJobs):
    """Pods that run, by Job (uid), with the time since when each has saved nothing;
    and those that have no slot of the Job.
    """

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, datetime]] = {}
        self.further: dict[str, list[str]] = {}

    def view(self, workload: Workload, _allocation: Allocation) -> VictimView:
        if workload.kind == "Job":
            return VictimView()
        return VictimView(
            "a part of something",
            job=next((job for job, uids in self.further.items() if workload.uid in uids), ""),
        )

    def elastic_pods(self, workload: Workload) -> Mapping[str, datetime]:
        return self.pods.get(workload.uid, {})


def moldable(
    name: str, pods: int, least: int, duration: str = "1h", cpu: str = "8", priority: str = "0"
) -> NewWorkload:
    builder = (
        make_job(name).indexed(pods).cpu(cpu).suspended().annotation("fluxqueue/suspended-by", "webhook")
    )
    builder = builder.annotation("fluxqueue/min-pods", str(least)).annotation("fluxqueue/priority", priority)
    builder = builder.annotation("fluxqueue/duration", duration)
    described = describe_job(a_job(builder, uid=name), around())
    assert described is not None
    return described


def held(bench: Bench, name: str) -> Allocation:
    allocation = bench.ledger.allocation(bench.row(name).id)
    assert allocation is not None
    return allocation


async def run(bench: Bench, shown: ShownPods, *names: str) -> None:
    """Release Jobs, and have a pod run in each of their slots."""
    for name in names:
        allocation = held(bench, name)
        uids = {slot.rank: f"{name}-{slot.rank}" for slot in allocation.slots}
        await bench.ledger.mark_released([allocation.jobid])
        await bench.ledger.take_slots(
            [TakenSlot(allocation.jobid, rank, uid, uid) for rank, uid in uids.items()]
        )
        await bench.ledger.mark_started([bench.row(name).id])
        shown.pods[name] = dict.fromkeys(uids.values(), bench.ledger.clock())


async def started(bench: Bench, shown: ShownPods, *jobs: NewWorkload) -> None:
    """Start Jobs, one after the other."""
    for described in jobs:
        await bench.submit(described)
        await bench.cycle()
        await run(bench, shown, described.uid)


def leaving(bench: Bench, name: str) -> list[int]:
    return sorted(leaving_ranks(bench.row(name), held(bench, name)))


async def pods_end(bench: Bench, shown: ShownPods, name: str, *ranks: int) -> None:
    """End the pods in slots that are given back, as the tracker does once they are gone."""
    await bench.ledger.end_slots([(held(bench, name).jobid, rank) for rank in ranks])
    for rank in ranks:
        del shown.pods[name][f"{name}-{rank}"]
