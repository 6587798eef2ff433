"""CPU of a leader for each pod of a large gang, on an API server and tables in memory, and how long
strangers' Jobs wait meanwhile.

``python benchmarks/gang_costs.py [--sizes 1000,10000] [--kinds nonindexed,indexed,podgroup] [--rate
400]``. With ``--kinds waiting`` the sizes are those of Jobs of one pod that wait for one node, each with
another request, until each has its row. A leader of all parts and the matcher run in this process; there is
no network, no Postgres and no Job controller. The pods of a gang come at a rate and are bound as soon as
nothing keeps them. Each second somebody else creates a Job of one pod, which ends after two seconds. The CPU
time of the stand-ins is part of the figures. How long strangers wait is told in seconds and in seconds of CPU
of this process: on a busy machine only the second says something about the queue. With ``--steps`` the CPU
time of the longest step of the event loop is told, which costs a quarter more. `benchmarks/growth.py`
measures the same with real programs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gang_manifests import filling_job, job, member, waiting_job
from support.builders import Json, make_node
from support.controller_bench import RecordedEvents, managed_caches, running
from support.memory_api import MemoryApi
from support.memory_store import MemoryStore, memory_ledger

from fluxqueue.api import hostlists, names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.leadership.context import Controller, LeaderContext
from fluxqueue.queue.leadership.controllers import Controllers, make_controllers
from fluxqueue.queue.leadership.planning import Planning, make_capacity, make_planning
from fluxqueue.queue.leadership.repairs import make_sweeper
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.leadership.writers import make_writers
from fluxqueue.queue.model.pods import pinned_node
from fluxqueue.queue.recovery.sweep import Sweeper
from fluxqueue.queue.scheduling.provisioning.leftover_requests import LeftoverRequests
from fluxqueue.queue.store.clock import LeaderClock
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

KINDS = ("nonindexed", "indexed", "podgroup")
WAITING = "waiting"
GANG, STRANGER = "gang", "stranger"
_PODS_OF_NODE = 100
_RUN_S, _LIMIT_S, _TICK_S, _LONG_TICK_S = 2.0, 1_800.0, 0.005, 0.1


class Cluster:
    """Stand-ins for the Job controller, the scheduler and the kubelets.

    Attributes
    ----------
    memory
        The API server.
    released_at
        When each Job was released.
    bound
        The pods of the gang that are on their nodes, by uid.
    """

    def __init__(self, memory: MemoryApi) -> None:
        self.memory = memory
        self.released_at: dict[str, tuple[float, float]] = {}
        self.bound: set[str] = set()

    def job_changed(self, change: Change[Job]) -> None:
        """Note that a Job was released, and run that of a stranger."""
        job = change.new
        if job is None or job.spec.suspend or job.metadata.name in self.released_at:
            return
        self.released_at[job.metadata.name] = time.perf_counter(), time.process_time()
        if job.metadata.name.startswith(STRANGER):
            asyncio.get_running_loop().call_later(_RUN_S, self._end, job.metadata.name)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Bind a pod that nothing keeps any more."""
        pod = change.new
        if pod is not None and not pod.spec.node_name and not pod.held:
            asyncio.get_running_loop().call_soon(self._bind, pod)

    def _bind(self, pod: Pod) -> None:
        body, node = self.memory.get("pods", pod.metadata.name), pinned_node(pod)
        assert node is not None, pod
        self.memory.put(
            "pods", body | {"spec": body["spec"] | {"nodeName": node}, "status": {"phase": "Running"}}
        )
        self.bound.add(pod.metadata.uid)

    def _end(self, name: str) -> None:
        body = self.memory.get("jobs", name)
        conditions = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
        self.memory.put("jobs", body | {"status": {"succeeded": 1, "conditions": conditions}})
        asyncio.get_running_loop().call_later(_RUN_S, self.memory.remove, "jobs", name)

    async def make_waiting(self, jobs: int, rate: float) -> None:
        """Create Jobs at a rate that wait for a node on which other work runs,
        and ask for something else each.
        """
        self.memory.put("jobs", held(filling_job(GANG, "n0")))
        while GANG not in self.released_at:
            await asyncio.sleep(_TICK_S)
        began = time.perf_counter()
        for number in range(jobs):
            if (early_s := began + number / rate - time.perf_counter()) > 0:
                await asyncio.sleep(early_s)
            elif number % 16 == 0:
                await asyncio.sleep(0)
            self.memory.put("jobs", held(waiting_job(f"{WAITING}-{number}", number, "n0")))

    async def make_pods(self, kind: str, pods: int, rate: float) -> None:
        """Create the pods of the gang at a rate, as the Job controller and the webhook do."""
        if kind != "podgroup":
            self.memory.put("jobs", suspended(GANG, pods, indexed=kind == "indexed"))
            while GANG not in self.released_at:
                await asyncio.sleep(_TICK_S)
        hosts = (
            hostlists.decode(
                self.memory.get("jobs", GANG)["spec"]["template"]["metadata"]["annotations"][
                    names.NODES_ANNOTATION
                ]
            )
            if kind == "indexed"
            else []
        )
        began = time.perf_counter()
        for number in range(pods):
            if (early_s := began + number / rate - time.perf_counter()) > 0:
                await asyncio.sleep(early_s)
            elif number % 16 == 0:
                await asyncio.sleep(0)
            self.memory.put("pods", self._pod(kind, pods, number, hosts))

    def _pod(self, kind: str, pods: int, number: int, hosts: Sequence[str]) -> Json:
        if kind == "podgroup":
            body = member(GANG, pods, number)
            body["spec"]["schedulingGates"] = [{"name": names.GATE}]
            body["metadata"]["namespace"] = "default"
            return body
        job = self.memory.get("jobs", GANG)
        body = copy.deepcopy(job["spec"]["template"])
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": GANG,
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        body["metadata"] |= {"name": f"{GANG}-{number}", "ownerReferences": [owner]}
        if hosts:
            del body["spec"]["schedulingGates"]
            body["metadata"]["annotations"] |= {
                names.COMPLETION_INDEX_ANNOTATION: str(number),
                names.NODES_ANNOTATION: hosts[number],
            }
        return body


def suspended(name: str, pods: int, *, indexed: bool) -> Json:
    """Return a Job as the webhook leaves it."""
    return held(job(name, pods, indexed=indexed))


def held(body: Json) -> Json:
    """Return a Job as the webhook leaves it."""
    body["metadata"]["annotations"] = {names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK}
    body["spec"]["suspend"] = True
    return body


@dataclass
class Outcome:
    """What one gang cost.

    Attributes
    ----------
    kind, pods
        The gang.
    seconds, cpu_ms_of_pod
        Until all its pods were bound, and the CPU time of this process for each pod until then.
    released_s, released_cpu_s
        From creation to release, of each stranger, and the CPU time of this process in between.
    longest_s
        The longest run of each control task, and the CPU time of the longest step of the event loop.
    """

    kind: str
    pods: int
    seconds: float = 0.0
    cpu_ms_of_pod: float = 0.0
    released_s: list[float] = field(default_factory=list)
    released_cpu_s: list[float] = field(default_factory=list)
    longest_s: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, seconds: float) -> None:
        """Keep the longest of each kind."""
        self.longest_s[name] = max(seconds, self.longest_s.get(name, 0.0))

    def __str__(self) -> str:
        waits, of_cpu = sorted(self.released_s), sorted(self.released_cpu_s)
        longest = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.longest_s.items())
        return (
            f"{self.kind:>10} {self.pods:6} pods: {self.seconds:.1f} s, {self.cpu_ms_of_pod:.2f} ms of CPU "
            f"a pod; {len(waits)} strangers: {statistics.median(waits):.2f} s, at most {waits[-1]:.2f}; of "
            f"CPU {statistics.median(of_cpu):.2f}, at most {of_cpu[-1]:.2f}; longest: {longest}"
        )


def made_leader(
    context: LeaderContext, fluxion: LocalFluxion
) -> tuple[Controllers, Planning, tuple[Controller, ...], Sweeper]:
    """Build the parts of a leader, and have them told of changes; return them with all its controllers."""
    capacity = make_capacity(context, fluxion)
    parts = make_controllers(context, capacity.port_volume_pools)
    planning = make_planning(context, capacity, parts.requeuer)
    writers = make_writers(context, planning, parts.idle)
    controllers = (*parts.controllers, *planning.controllers, *writers.controllers)
    subscribe(context.caches, context.ledger, capacity, parts, planning, *writers.controllers)
    sweeper = make_sweeper(
        context,
        capacity,
        controllers,
        None,
        LeaderClock(MemoryStore(context.ledger.clock), context.ledger.epoch),
        writers.fluxjobs.is_due,
        parts.intake.is_due,
    )
    return parts, planning, controllers, sweeper


async def measure(kind: str, pods: int, rate: float, *, steps: bool) -> Outcome:
    """Run one gang, with strangers beside it until two seconds after it runs."""
    outcome, memory, trigger = Outcome(kind, pods), MemoryApi(), Trigger()
    cores = "8" if kind == WAITING else "64"
    for number in range(-(-pods // _PODS_OF_NODE) + 2):
        memory.put(
            "nodes", make_node(f"n{number}", cpu=cores, memory="256Gi", pods=str(_PODS_OF_NODE + 10)).build()
        )
    cluster, caches, ledger, fluxion = (
        Cluster(memory),
        managed_caches(memory),
        await memory_ledger(),
        LocalFluxion(),
    )
    caches.jobs.add_handler(cluster.job_changed)
    caches.pods.add_handler(cluster.pod_changed)
    context = LeaderContext(memory.api, caches, ledger, trigger, RecordedEvents().recorder, QueueConfig())
    parts, planning, controllers, sweeper = made_leader(context, fluxion)
    await sweeper.adopt()
    await sweeper.resync()
    work = [
        follow(trigger, ControlTask.SCHEDULE, planning.scheduler.cycle, outcome),
        follow(trigger, ControlTask.RELEASE, parts.releaser.release_due, outcome),
    ]
    with steps_noted(outcome) if steps else contextlib.nullcontext():
        lasting = (each for each in controllers if not isinstance(each, LeftoverRequests))  # it ends at once
        async with running(*work, *(each.run() for each in lasting)):
            await asyncio.sleep(1)
            others = asyncio.create_task(strangers(cluster, outcome))
            await asyncio.sleep(1)
            began, used = time.perf_counter(), time.process_time()
            making = asyncio.create_task(
                cluster.make_waiting(pods, rate) if kind == WAITING else cluster.make_pods(kind, pods, rate)
            )
            async with asyncio.timeout(_LIMIT_S):
                while (
                    len(cluster.bound) < pods
                    if kind != WAITING
                    else not making.done() or _waiting(ledger) < pods
                ):
                    await asyncio.sleep(_TICK_S if kind != WAITING else _LONG_TICK_S)
            outcome.seconds, outcome.cpu_ms_of_pod = (
                time.perf_counter() - began,
                1e3 * (time.process_time() - used) / pods,
            )
            await making
            swept = time.perf_counter()
            await sweeper.sweep()
            outcome.note("sweep", time.perf_counter() - swept)
            await asyncio.sleep(_RUN_S)
            others.cancel()
            await asyncio.gather(others, return_exceptions=True)
    return outcome


def _waiting(ledger: Ledger) -> int:
    return sum(row.name.startswith(WAITING) for row in ledger.all())


async def follow(
    trigger: Trigger, task: ControlTask, run: Callable[[], Awaitable[None]], outcome: Outcome
) -> None:
    """Run a control task whenever it is requested, with the pauses of
    `fluxqueue.queue.tasks.control_tasks`.
    """
    while True:
        await trigger.take(task)
        began = time.perf_counter()
        await run()
        took_s = time.perf_counter() - began
        outcome.note(task.value, took_s)
        if task is ControlTask.SCHEDULE:
            await asyncio.sleep(min(2 * took_s, 0.5))


@contextlib.contextmanager
def steps_noted(outcome: Outcome) -> Iterator[None]:
    """Note the CPU time of the longest step of the event loop:
    on a busy machine a step takes longer than its CPU time.
    """
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        outcome.note("step", time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


async def strangers(cluster: Cluster, outcome: Outcome) -> None:
    """Create a Job of one pod each second, and note how long it waits."""
    number, created = 0, dict[str, tuple[float, float]]()
    try:
        while True:
            name = f"{STRANGER}-{number}"
            created[name] = time.perf_counter(), time.process_time()
            cluster.memory.put("jobs", suspended(name, 1, indexed=False))
            number += 1
            await asyncio.sleep(1)
    finally:
        now = time.perf_counter(), time.process_time()
        both = [(cluster.released_at.get(name, now), at) for name, at in created.items()]
        outcome.released_s = [released[0] - at[0] for released, at in both]
        outcome.released_cpu_s = [released[1] - at[1] for released, at in both]


def main() -> None:
    """Measure each gang, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument(
        "--rate", type=float, default=400, help="pods that are created in a second (default: %(default)s)"
    )
    parser.add_argument("--steps", action="store_true", help="measure the longest step of the event loop")
    asked = parser.parse_args()
    for pods in map(int, asked.sizes.split(",")):
        for kind in asked.kinds.split(","):
            print(asyncio.run(measure(kind, pods, asked.rate, steps=asked.steps)), flush=True)


if __name__ == "__main__":
    main()
