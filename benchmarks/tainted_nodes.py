"""What taints of nodes cost the intake while work waits: memory of the requests, and CPU and changed requests
for new taints.

``python benchmarks/tainted_nodes.py [--waiting 10000] [--taints 100] [--steady 1500] [--new 10] [--json
FILE]``. It needs no services: the Jobs and nodes are in the queue's caches, and the rows are in memory. A
changed request is also a write of a row and of a FluxJob.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from support.builders import make_job, make_node
from support.controller_bench import subscribed
from support.memory_api import MemoryApi
from support.memory_store import memory_ledger
from support.queue_builders import a_job

from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.intake.object_watch import ObjectWatch
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

KEY = "ToBeDeletedByClusterAutoscaler"


class Intake:
    """An intake with waiting Jobs and one node."""

    def __init__(self, caches: Caches, ledger: Ledger, controller: IntakeController) -> None:
        self.caches = caches
        self.ledger = ledger
        self.controller = controller
        self._version = 1
        self._read_again: list[str | GroupKey] = []
        self._watch = ObjectWatch(caches, ledger, self._read_again.append, self._read_again.append)
        subscribe(caches, ledger, self._watch)
        self._watch.resync()

    @classmethod
    async def start(cls, waiting: int) -> Intake:
        """Return an intake that has read this many Jobs."""
        api = MemoryApi()
        caches, ledger = Caches(api.api), await memory_ledger()
        managed = {"metadata": {"name": "default", "uid": "ns", "labels": {"fluxqueue/managed": "true"}}}
        caches.namespaces.apply(msgspec.convert(managed, Namespace))
        made = cls(
            caches,
            ledger,
            subscribed(
                IntakeController(api.api, caches, ledger, Trigger(lambda _task: None)), caches, ledger
            ),
        )
        names = [f"job-{number}" for number in range(waiting)]
        for name in names:
            caches.jobs.apply(
                a_job(
                    make_job(name).cpu("1").suspended().annotation("fluxqueue/suspended-by", "webhook"),
                    uid=name,
                )
            )
        await made.controller.take_in(names)
        await made.settle()
        return made

    def taint(self, values: Sequence[int]) -> None:
        """Give the node a taint for each of these values."""
        self._version += 1
        builder = make_node("node-1").with_("metadata.resourceVersion", str(self._version))
        for value in values:
            builder = builder.taint(f"{KEY}-{value}", "NoSchedule", str(1_764_000_000 + value))
        self.caches.nodes.apply(msgspec.convert(builder.build(), Node))

    async def settle(self) -> int:
        """Read what is to be read again; return how many requests changed."""
        before = {row.uid: row.jobspec for row in self.ledger.all()}
        keys = [*self._read_again]
        self._read_again.clear()
        await self.controller.take_in(keys)
        return sum(before[row.uid] != row.jobspec for row in self.ledger.all())

    def request_bytes(self) -> int:
        """Return the bytes of the distinct texts of requests in memory."""
        texts = {id(row.jobspec): row.jobspec for row in self.ledger.all()}
        return sum(sys.getsizeof(text) for text in texts.values())


async def measure(waiting: int, taints: int, steady: int, new: int) -> dict[str, float]:
    """Return the figures."""
    many = await Intake.start(waiting)
    without = many.request_bytes()
    many.taint(range(taints))
    await many.settle()
    result = {"request_mib_without": without / 2**20, "request_mib_with": many.request_bytes() / 2**20}
    few = await Intake.start(steady)
    began, changed = time.process_time(), 0
    for number in range(1, new + 1):
        few.taint(range(number))
        changed += await few.settle()
    return {**result, "cpu_s": time.process_time() - began, "changed_requests": changed}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--taints", type=int, default=100)
    parser.add_argument("--steady", type=int, default=1_500)
    parser.add_argument("--new", type=int, default=10)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    result = asyncio.run(measure(asked.waiting, asked.taints, asked.steady, asked.new))
    without, with_taints = result["request_mib_without"], result["request_mib_with"]
    print(
        f"{asked.waiting} waiting: {without:.1f} MiB of requests; "
        f"with {asked.taints} taints: {with_taints:.1f} MiB"
    )
    changed, cpu_s = result["changed_requests"], result["cpu_s"]
    print(
        f"{asked.new} new taints with {asked.steady} waiting: {cpu_s:.2f} s of CPU, "
        f"{changed:.0f} requests changed"
    )
    if asked.json:
        asked.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
