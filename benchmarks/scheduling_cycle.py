"""Time of one scheduling cycle at full scale: the policy and the real matcher in one process, without an API
server.

A cluster of 5,000 nodes with 64 cores each has 20,000 running jobs that end within a day, and 100,000 pending
workloads of several hundred shapes (8 sizes of pod, 8 counts, 12 durations). Three cycles are timed for each
policy:

- *full*: the first cycle of a leader, without former refusals and reservations;
- *again*: the next cycle, without any change;
- *after one end*: a running job ended early, so its nodes are free and every reservation may improve.

    python benchmarks/scheduling_cycle.py [--nodes N] [--running N] [--pending N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    MatchResult,
    MatchVerdict,
    Pool,
)
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue import collector
from fluxqueue.queue.model.jobspecs import SLOT, shape_of
from fluxqueue.queue.model.records import FluxionJobId, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import (
    CycleContext,
    HeldReservation,
    PendingQueue,
    RefusalCache,
)
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.round_driver import RoundDriver

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
NOW = int(START.timestamp())
CPUS_M = (1000, 2000, 4000, 8000, 16_000, 32_000, 48_000, 64_000)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
DURATIONS_S = (
    600,
    1800,
    3600,
    2 * 3600,
    3 * 3600,
    4 * 3600,
    6 * 3600,
    8 * 3600,
    12 * 3600,
    24 * 3600,
    36 * 3600,
    48 * 3600,
)
ENDS = 20


def jobspec(count: int, cpu_m: int, duration_s: int) -> str:
    """Return a request as the intake writes it."""
    members = [
        {"type": "cpu", "count": cpu_m},
        {"type": "memory", "count": cpu_m // 1000 * 2048},
        {"type": "pods", "count": 1},
    ]
    slot = {"type": "slot", "count": count, "label": SLOT, "with": members}
    return json.dumps(
        {"version": 1, "resources": [slot], "tasks": [], "attributes": {"system": {"duration": duration_s}}}
    )


def workloads(pending: int, chance: random.Random) -> list[Workload]:
    """Return pending workloads, oldest first."""
    shapes: dict[tuple[int, int, int], tuple[str, str]] = {}
    made = []
    for number in range(1, pending + 1):
        key = chance.choice(COUNTS), chance.choice(CPUS_M), chance.choice(DURATIONS_S)
        if key not in shapes:
            text = jobspec(*key)
            shapes[key] = text, shape_of(text)
        text, shape = shapes[key]
        made.append(
            Workload(
                id=WorkloadId(number),
                uid=str(number),
                api_version="batch/v1",
                kind="Job",
                namespace="bench",
                name=f"w{number}",
                queue="default",
                priority=0,
                jobspec=text,
                shape=shape,
                pods=key[0],
                duration_s=key[2],
                duration_assumed=False,
                release_mode=ReleaseMode.PIN,
                generation=1,
                state=State.PENDING,
                reason=Reason.NONE,
                message="",
                submitted_at=START - timedelta(seconds=pending - number),
            )
        )
    return made


class Bench:
    """A queue at full scale."""

    def __init__(self, discipline: Discipline, backlog: Backlog, fluxion: LocalFluxion) -> None:
        self.backlog, self.fluxion = backlog, fluxion
        self.disciplines = {"default": discipline}
        self.reservations: dict[WorkloadId, HeldReservation] = {}
        self.refusal_cache = RefusalCache()
        self.driver = RoundDriver(fluxion, self.identify, self.granted, limit=100)
        self.started = 0

    async def identify(self, batch: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(1_000_000 + workload.id) for workload in batch]

    async def granted(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        self.started += len(answers)

    async def cycle(self, *, capacity_changed: bool) -> float:
        """Run one cycle, and return its time in seconds."""
        if capacity_changed:
            self.refusal_cache.clear()
        began = time.process_time()
        queue = PendingQueue("default", self.backlog, dict(self.reservations), self.refusal_cache)
        result = await self.driver.run(
            Round([queue], self.disciplines, CycleContext(NOW, capacity_changed)),
            self.reservations,
            CallContext(now=NOW),
        )
        for each in result:
            self.backlog.remove_all(workload.id for workload, _ in each.granted)
        return time.process_time() - began


async def machine(nodes: int, running: int, chance: random.Random) -> LocalFluxion:
    """Return a full cluster: four jobs of 15 cores on each node, and a few free cores."""
    fluxion = LocalFluxion()
    pools = (Pool("cpu", 64_000, 10), Pool("memory", 512 * 1024, 64), Pool("pods", 110))
    await fluxion.init(
        "lonode",
        nodes=[GraphNodeSpec(f"node-{number:05}", pools) for number in range(nodes)],
        call=CallContext(now=NOW),
    )
    text = jobspec(1, 15_000, 0)
    requests = [
        JobMatchRequest(text, number, duration_s=chance.randrange(60, 86_400))
        for number in range(1, running + 1)
    ]
    answered = 0
    while answered < running:
        some = requests[answered : answered + 1000]
        answers = (await fluxion.match_batch(some, call=CallContext(now=NOW))).results
        answered += len(answers)
        if any(answer.verdict is not MatchVerdict.GRANTED for answer in answers):
            raise SystemExit(f"{running} running jobs do not fit {nodes} nodes: at most four of a node do")
    return fluxion


async def measure(policy: Discipline, options: argparse.Namespace) -> dict[str, float]:
    chance = random.Random(options.seed)
    before = _resident_mib()
    fluxion = await machine(options.nodes, options.running, chance)
    pending = workloads(options.pending, chance)
    began = time.process_time()
    backlog = Backlog(pending)
    loaded = time.process_time() - began
    bench = Bench(policy, backlog, fluxion)
    collector.settle()  # as a leader does when its caches are filled
    full = await bench.cycle(capacity_changed=True)
    again = await bench.cycle(capacity_changed=False)
    after = []
    for jobid in chance.sample(range(1, options.running + 1), ENDS):
        await fluxion.apply([CancelJobs([jobid])], call=CallContext(now=NOW))
        after.append(await bench.cycle(capacity_changed=True))
    return {
        "load_s": loaded,
        "full_s": full,
        "again_s": again,
        "after_one_end_median_s": statistics.median(after),
        "after_one_end_max_s": max(after),
        "started": bench.started,
        "promised": len(bench.reservations),
        "steps": bench.driver.steps,
        "memory_mib": _resident_mib() - before,
    }


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--running", type=int, default=20_000)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--policy", choices=["easy", "conservative"], default="easy", help="conservative reserves for 100"
    )
    options = parser.parse_args()
    figures = asyncio.run(measure(Discipline(Policy(options.policy), 100), options))
    json.dump({"policy": options.policy, **figures}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
