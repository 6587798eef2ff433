"""Memory of waiting Jobs that all ask for different nodes: in the queue's caches and rows, and in the
matcher, also once they are gone.

``python benchmarks/different_requests.py [--jobs 3300] [--values 400] [--nodes 100] [--budget MIB] [--json
FILE]``. Each Job has a required node affinity with this many values of a label: 13 KiB with 400, 16 KiB, the
most that is accepted, with 503, and with 0 all Jobs ask for the same. It needs no services: the queue's part
is its caches and rows in memory, the matcher's part the engine behind its service. Each part is measured in a
process of its own. FluxJobs are counted as they are listed at start, each with its own copy of the request;
the leader has them share it with their rows soon after. With a budget, the rest waits without a request
(`fluxqueue.queue.intake.namespace_budgets`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec
from support.builders import make_job
from support.memory_api import MemoryApi
from support.memory_store import memory_ledger
from support.queue_builders import around

from fluxqueue.api.fluxjobs import FluxJob, FluxJobStatus
from fluxqueue.api.fluxqueues import WaitingBudget
from fluxqueue.api.graphnames import label_property
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace
from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, JobMatchRequest, Pool
from fluxqueue.kube.decoding import decode
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.status.fluxjob_status import fluxjob_manifest
from fluxqueue.queue.tasks.triggers import Trigger

KEY = "kubernetes.io/hostname"
MIB = 2**20
BATCH = 100
GONE_S = 700
"""After so many seconds the matcher has forgotten what nobody asks for."""


def documents(jobs: int, values: int) -> Iterator[bytes]:
    """Yield Jobs as the API server writes them, each with other nodes in its affinity."""
    rng = random.Random(1)
    for number in range(jobs):
        names = [f"node-{rng.randrange(10**12):012}.example.com" for _ in range(values)]
        terms = [{"matchExpressions": [{"key": KEY, "operator": "In", "values": [*names, "node-1"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        job = (
            make_job(f"job-{number}")
            .cpu("1")
            .suspended()
            .uid(f"job-{number}")
            .annotation("fluxqueue/suspended-by", "webhook")
        )
        yield msgspec.json.encode(
            job.with_("spec.template.spec.affinity", {"nodeAffinity": required}).build()
        )


def resident_mib() -> float:
    """Return the memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / MIB


async def queue(jobs: int, values: int, budget: WaitingBudget) -> dict[str, float]:
    """Return what caches and rows take."""
    api = MemoryApi()
    caches, ledger = Caches(api.api), await memory_ledger()
    managed = {"metadata": {"name": "default", "uid": "ns", "labels": {"fluxqueue/managed": "true"}}}
    caches.namespaces.apply(msgspec.convert(managed, Namespace))
    intake = IntakeController(api.api, caches, ledger, Trigger(lambda _task: None), waiting=budget)
    subscribe(caches, ledger, intake)
    before = resident_mib()
    for text in documents(jobs, values):
        caches.jobs.apply(decode(text, Job, "list"))
    cached = resident_mib()
    names = [f"job-{number}" for number in range(jobs)]
    for first in range(0, jobs, BATCH):
        await intake.take_in(names[first : first + BATCH])
    rows, stored = ledger.all(), resident_mib()
    assert len(rows) == jobs
    for row in rows:
        manifest = fluxjob_manifest(
            row.name, row, [], FluxJobStatus(state=row.state, reason=row.reason, message=row.message)
        )
        manifest["metadata"]["uid"] = f"fluxjob-{row.name}"
        caches.fluxjobs.apply(decode(msgspec.json.encode(manifest), FluxJob, "list"))
    return {
        "held": sum(bool(row.jobspec) for row in rows),
        "requests_mib": sum(len(row.jobspec) for row in rows) / MIB,
        "affinity_kib": len(next(documents(1, values))) / 1024,
        "jobspec_kib": len(rows[0].jobspec) / 1024,
        "queue_objects_mib": cached - before,
        "queue_rows_mib": stored - cached,
        "queue_fluxjobs_mib": resident_mib() - stored,
        "queue_whole_mib": resident_mib(),
        "queue_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


async def matcher(jobs: int, values: int, nodes: int) -> dict[str, float]:
    """Return what the matcher takes while they wait, and after they are gone."""
    names = [f"node-{number}" for number in range(nodes)]
    specs = [
        GraphNodeSpec(
            name,
            (Pool("cpu", 1000, 10), Pool("pods", 110, 1)),
            (),
            {KEY: name, label_property(KEY, name): ""},
        )
        for name in names
    ]
    engine, now = Engine(), CallContext(now=1_000)
    engine.init("first", nodes=specs, call=now)
    context = around()
    before = resident_mib()
    for number, text in enumerate(documents(jobs, values), start=2):
        described = describe_job(decode(text, Job, "list"), context)
        assert described is not None
        engine.match_batch([JobMatchRequest(described.jobspec, number, explain=True)], now)
    waiting = resident_mib()
    later = CallContext(now=1_000 + GONE_S)
    engine.apply([CancelJobs([*range(2, jobs + 2)])], later)
    return {
        "matcher_waiting_mib": waiting - before,
        "matcher_gone_mib": resident_mib() - before,
        "matcher_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Measure each part in a process of its own, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3_300)
    parser.add_argument("--values", type=int, default=400)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--budget", type=int, help="MiB of requests that may wait; none: any")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        result = pool.apply(_queue, (asked.jobs, asked.values, asked.budget))
        result |= pool.apply(_matcher, (int(result["held"]), asked.values, asked.nodes))
    for name, value in result.items():
        print(f"{name:20} {value:8.1f}")
    if asked.json:
        asked.json.write_text(json.dumps(result))


def _queue(jobs: int, values: int, budget_mib: int | None) -> dict[str, float]:
    return asyncio.run(queue(jobs, values, WaitingBudget(requests_mi_b=budget_mib)))


def _matcher(jobs: int, values: int, nodes: int) -> dict[str, float]:
    return asyncio.run(matcher(jobs, values, nodes))


if __name__ == "__main__":
    main()
