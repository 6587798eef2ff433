"""Moldable Jobs and replicas that run in a queue without a cluster, and what is shown of their pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from support.builders import make_job
from support.queue_bench import Bench, job
from support.queue_builders import a_job, around

from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import TakenSlot
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.moldable import min_pods_in
from fluxqueue.queue.model.records import Allocation, NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.victim_views import Floor, Return, VictimView
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs

__all__ = ["ShownPods", "held", "leaving", "moldable", "pods_end", "replicas", "run", "started"]


class ShownPods(OnlyJobs):
    """Pods that run, by Job (uid), with the time since when each has saved nothing;
    those that have no slot of the Job; and floors of pods (uid) of Deployments. Of some by name: with how
    few pods they go on, and which can only spare their last ones.
    """

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, datetime]] = {}
        self.further: dict[str, list[str]] = {}
        self.floor_of_pod: dict[str, Floor] = {}
        self.least: dict[str, int] = {}
        self.floors_of_gang: dict[str, dict[str, Floor]] = {}
        self.in_order: set[str] = set()

    def view(self, workload: Workload, _allocation: Allocation) -> VictimView:
        if workload.name in self.floors_of_gang:
            return VictimView(least=1)
        if workload.kind == "Job":
            in_order = workload.name in self.in_order
            return VictimView(
                least=self.least.get(workload.name, min_pods_in(workload.jobspec)),
                place=0 if in_order else None,
            )
        if floor := self.floor_of_pod.get(workload.uid):
            place = int(workload.name.rpartition("-")[2]) if floor.owner.name in self.in_order else None
            return VictimView(returns=Return.REPLACED, floor=floor, place=place)
        return VictimView(
            "a part of something",
            job=next((job for job, uids in self.further.items() if workload.uid in uids), ""),
        )

    def floors(self, workload: Workload) -> Mapping[str, Floor]:
        return self.floors_of_gang.get(workload.name, {})

    def elastic_pods(self, workload: Workload) -> Mapping[str, datetime]:
        if floor := self.floor_of_pod.get(workload.uid):
            alike = [uid for uid, each in self.floor_of_pod.items() if each.owner == floor.owner]
            gang = floor.owner.name if workload.uid in self.floors_of_gang.get(floor.owner.name, {}) else ""
            return self._alone(alike) | self._in_slots(gang)
        if floors := self.floors_of_gang.get(workload.name):
            return self._alone(floors) | self._in_slots(workload.name)
        return self.pods.get(workload.uid, {})

    def _alone(self, uids: Iterable[str]) -> dict[str, datetime]:
        return {uid: since for uid in uids for since in self.pods.get(uid, {}).values()}

    def _in_slots(self, gang: str) -> dict[str, datetime]:
        floors = self.floors_of_gang.get(gang, {})
        return {uid: since for uid, since in self.pods.get(gang, {}).items() if uid in floors}


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


def replicas(shown: ShownPods, name: str, pods: int, least: int, **request: Any) -> list[NewWorkload]:
    """The pods of a Deployment with a floor."""
    owner = ReplicaOwner("default", "Deployment", name)
    made = [
        job(f"{name}-{number}", 1, request.get("cpu", "8"), "1h", priority=request.get("priority"))
        for number in range(pods)
    ]
    shown.floor_of_pod |= {each.uid: Floor(owner, least) for each in made}
    return [replace(each, kind="Pod", release_mode=ReleaseMode.POD) for each in made]


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
