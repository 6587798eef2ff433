"""Large gangs, or much waiting work, on the local control plane, and a stranger's one-pod Job every second
beside each.

For each kind and size a gang is created in one namespace. It is followed until all its pods are bound.
Meanwhile another namespace gets a Job of one pod every second, whose time from the call that creates it to
its release (`spec.suspend` is false) is what counts: work of others must not wait for a large gang. With
``--plain`` the same is done in namespaces that the queue does not manage: there the time until the pod of the
Job is bound says what machine and control plane cost. With ``--kinds waiting`` the sizes are those of Jobs of
one pod that wait for one node, each with a request of its own; they have arrived when each has its row. Those
of ``--kinds unlike`` have each a list of nodes of its own, so that the refusal of one says nothing about
another.

The report has the CPU time of the queue for each pod, its restarts, losses of its Lease, and the blocks of
its event loop with the CPU time of the blocks: on a busy machine a block takes longer than its CPU time. Of
strangers it has the seconds until they were stored, had nodes, and were released, as the tables say, and
until this program saw it; ``nodes p99`` begins when the API server has answered the creation. After the gang
runs, a full sweep of the queue is waited for (``--after``), because it also grows with the gang. The cluster
has the nodes that the largest gang fills.

With ``--apart`` the programs of Kubernetes and this one have one half of the cores, and the queue's with
Postgres the other, as in a cluster whose control plane is another machine. Without it the API server, which
has many threads, takes most of the time of few cores, and a cycle of the queue takes three times as long.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from burst import clean, cpu_of_programs
from cores import set_apart
from gang_manifests import filling_job, job, member, stateful_set, unlike_job, waiting_job
from growth_report import Outcome, strangers_steps, summary

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import JOBS, NAMESPACES, NODES, PODS, STATEFULSETS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster


@dataclass(frozen=True)
class Place:
    """The namespaces of gang and strangers, and whether the queue manages them."""

    gang: str
    stranger: str
    managed: bool


QUEUED, PLAIN = (
    Place("growth-gang", "growth-stranger", managed=True),
    Place("plain-gang", "plain-stranger", managed=False),
)
GANGS = ("indexed", "nonindexed", "podgroup", "statefulset")
WAITING = {"waiting": waiting_job, "unlike": unlike_job}
"""As many Jobs of one pod that wait for a node, each with a request of its own."""
KINDS = (*GANGS, *WAITING)
_ROWS = "SELECT count(*) FROM fluxqueue.workload WHERE namespace = %s"
_PODS_OF_NODE = 110
_CREATED_AT_ONCE = 16
_NODES_OF_STRANGERS = 4
"""Room for strangers whose pods come late, since the controller manager has much to do."""
_CONTROLLER_MANAGER_FLAGS = ("--concurrent-job-syncs=50",)
"""With the default of five, the pods of each Job come minutes late beside many thousands of other Jobs."""
_STRANGERS_LEFT_S = 60
_SLOWEST = 5


class Watched:
    """The Jobs and pods of all namespaces, and when strangers were released and bound."""

    def __init__(self, api: Api) -> None:
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.jobs: ObjectCache[Job] = ObjectCache()
        self.released_at: dict[str, float] = {}
        self.bound_at: dict[str, float] = {}
        self.bound: set[str] = set()
        self.jobs.add_handler(self._note_job)
        self.pods.add_handler(self._note_pod)
        self._of_pods, self._of_jobs = Reflector(api, PODS, self.pods), Reflector(api, JOBS, self.jobs)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._of_pods.run()), asyncio.create_task(self._of_jobs.run())]
        await self._of_pods.synced.wait()
        await self._of_jobs.synced.wait()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _note_job(self, change: Change[Job]) -> None:
        job = change.new
        if (
            job is not None
            and job.metadata.namespace in (QUEUED.stranger, PLAIN.stranger)
            and not job.spec.suspend
        ):
            self.released_at.setdefault(job.metadata.name, time.monotonic())

    def _note_pod(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or not pod.spec.node_name:
            return
        if pod.metadata.namespace in (QUEUED.gang, PLAIN.gang):
            self.bound.add(pod.metadata.uid)
        elif (
            pod.metadata.namespace in (QUEUED.stranger, PLAIN.stranger)
            and (owner := pod.metadata.controller) is not None
        ):
            self.bound_at.setdefault(owner.name, time.monotonic())


async def create(api: Api, watched: Watched, namespace: str, kind: str, name: str, pods: int) -> None:
    if kind == "statefulset":
        await api.create(STATEFULSETS, stateful_set(name, pods), namespace)
    elif kind == "podgroup":
        await _all(partial(api.create, PODS, member(name, pods, number), namespace) for number in range(pods))
    elif (made := WAITING.get(kind)) is not None:
        node = (await api.list(NODES))[0].metadata.name
        await api.create(JOBS, filling_job(f"{name}-filling", node), namespace)
        while not watched.bound:
            await asyncio.sleep(0.1)
        await _all(
            partial(api.create, JOBS, made(f"{name}-{number}", number, node), namespace)
            for number in range(pods)
        )
    else:
        await api.create(JOBS, job(name, pods, indexed=kind == "indexed"), namespace)


async def _all(calls: Iterable[Callable[[], Awaitable[object]]]) -> None:
    limit = asyncio.Semaphore(_CREATED_AT_ONCE)

    async def one(call: Callable[[], Awaitable[object]]) -> None:
        async with limit:
            await call()

    await asyncio.gather(*(one(call) for call in calls))


async def strangers(api: Api, namespace: str, tag: str, created: dict[str, tuple[float, float]]) -> None:
    """Create a Job of one pod every second until cancelled, and note when, and when that was answered."""
    async with asyncio.TaskGroup() as group:
        number = 0
        while True:
            group.create_task(_stranger(api, namespace, f"{tag}-{number}", created))
            number += 1
            await asyncio.sleep(1)


async def _stranger(api: Api, namespace: str, name: str, created: dict[str, tuple[float, float]]) -> None:
    body = job(name, 1, indexed=False)
    body["spec"]["template"]["metadata"]["annotations"]["fluxqueue.local/run-seconds"] = "2"
    body["spec"]["ttlSecondsAfterFinished"] = 0
    at = time.monotonic()
    try:
        await api.create(JOBS, body, namespace)
        created[name] = at, time.monotonic()
    except ApiError as error:
        print(f"stranger {name}: {error}", file=sys.stderr, flush=True)


def events(log: Path, offset: int) -> Iterator[dict[str, Any]]:
    """Yield what the queue logged since an offset."""
    with log.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def restarts(cluster: InProcessCluster) -> int:
    return sum(each.restarts for each in cluster.running() if each.name == "queue")


async def until_there(
    cluster: InProcessCluster, watched: Watched, place: Place, kind: str, pods: int, limit_s: float
) -> tuple[int, float | None]:
    """Wait for all pods; return how many are bound, or wait as rows, and after which time all were."""
    began, arrived = time.monotonic(), 0
    while time.monotonic() - began < limit_s:
        await asyncio.sleep(0.1)
        arrived = (
            await asyncio.to_thread(waiting, cluster.database_dsn, place.gang)
            if kind in WAITING
            else len(watched.bound)
        )
        if arrived >= pods:
            return arrived, time.monotonic() - began
    return arrived, None


async def measure(
    api: Api,
    cluster: InProcessCluster,
    watched: Watched,
    place: Place,
    kind: str,
    pods: int,
    arguments: argparse.Namespace,
) -> Outcome:
    queue = cluster.programs["queue"].process
    name, offset, before, restarted = (
        f"{'queued' if place.managed else 'plain'}-{kind}-{pods}",
        queue.log.stat().st_size,
        cpu_of_programs(cluster),
        restarts(cluster),
    )
    watched.bound.clear()
    created: dict[str, tuple[float, float]] = {}
    others = asyncio.create_task(strangers(api, place.stranger, name, created))
    began = time.monotonic()
    making = asyncio.create_task(create(api, watched, place.gang, kind, name, pods))
    arrived, bound_s = await until_there(cluster, watched, place, kind, pods, arguments.limit)
    await asyncio.gather(making, return_exceptions=True)
    used = {
        program: 1000 * (cpu - before.get(program, 0.0)) / pods
        for program, cpu in cpu_of_programs(cluster).items()
    }
    await asyncio.sleep(arguments.after)
    others.cancel()
    await asyncio.gather(others, return_exceptions=True)
    until = time.monotonic() + _STRANGERS_LEFT_S
    while time.monotonic() < until and not created.keys() <= watched.bound_at.keys():
        await asyncio.sleep(0.1)
    log = list(events(queue.log, offset))
    blocked = [each for each in log if each.get("event") == "loop.blocked"]
    return Outcome(
        managed=place.managed,
        kind=kind,
        pods=pods,
        bound_s=bound_s,
        bound=arrived,
        cpu_ms_of_pod=used,
        restarts=restarts(cluster) - restarted,
        leases_lost=sum(each.get("event") == "lease.lost" for each in log),
        released_s=[
            watched.released_at[each] - at for each, (at, _) in created.items() if each in watched.released_at
        ],
        strangers_bound_s=[
            watched.bound_at[each] - at for each, (at, _) in created.items() if each in watched.bound_at
        ],
        missed=len(created.keys() - watched.bound_at.keys()),
        blocks=[(each["seconds"], each["cpu_s"]) for each in blocked],
        longest_block=max(blocked, key=_cpu_s, default={"stack": ""})["stack"].rpartition(
            "in run_until_complete"
        )[2],
        steps=await asyncio.to_thread(
            strangers_steps, cluster.database_dsn, QUEUED.stranger, created, watched.released_at, began
        ),
    )


def waiting(dsn: str, namespace: str) -> int:
    """Return how many workloads have a row, but for the one that fills the node."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(_ROWS, (namespace,)).fetchone()
    return row[0] - 1 if row else 0


def _cpu_s(block: Mapping[str, Any]) -> float:
    return float(block["cpu_s"])


async def remove(api: Api, watched: Watched, namespace: str) -> None:
    for each in await api.list(STATEFULSETS, namespace):
        await api.delete(STATEFULSETS, each.metadata.name, namespace=namespace)
    await clean(api, ObjectCache(), namespace)
    async with asyncio.timeout(600):
        while watched.pods.list(namespace):
            # the API server ends the deletion of thousands after a minute
            with contextlib.suppress(ApiError):
                await api.request(
                    "DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0", timeout_s=120
                )
            await asyncio.sleep(0.5)


async def run(arguments: argparse.Namespace, cluster: InProcessCluster) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        places = (
            [QUEUED, PLAIN] if arguments.plain and not WAITING.keys() & set(arguments.kinds) else [QUEUED]
        )
        for place in places:
            labels = {names.MANAGED_LABEL: "true"} if place.managed else {}
            for namespace in (place.gang, place.stranger):
                await api.create(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
        watched = Watched(api)
        await watched.start()
        await asyncio.sleep(2)
        for pods, kind, place in itertools.product(arguments.sizes, arguments.kinds, places):
            outcome = await measure(api, cluster, watched, place, kind, pods, arguments)
            print(
                summary([outcome]),
                *outcome.steps[:_SLOWEST],
                outcome.longest_block,
                sep="\n",
                file=sys.stderr,
                flush=True,
            )
            outcomes.append(outcome)
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=2))
            if (pods, kind, place) != (arguments.sizes[-1], arguments.kinds[-1], places[-1]):
                await remove(api, watched, place.gang)
        watched.stop()
    return outcomes


def _sizes(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError("numbers with commas between them")
    return [int(each) for each in text.split(",")]


def _kinds(text: str) -> list[str]:
    if unknown := Counter(text.split(",")) - Counter(KINDS):
        raise argparse.ArgumentTypeError(f"not one of {', '.join(KINDS)}: {', '.join(unknown)}")
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=[100, 1_000, 10_000],
        help="pods of the gangs (default: 100,1000,10000)",
    )
    parser.add_argument(
        "--kinds", type=_kinds, default=list(GANGS), help=f"of {','.join(KINDS)} (default: {','.join(GANGS)})"
    )
    parser.add_argument("--plain", action="store_true", help="measure each gang again without the queue")
    parser.add_argument(
        "--apart",
        action="store_true",
        help="Kubernetes and the queue have cores of their own (Linux)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=900,
        help="seconds after which a gang is given up (default: %(default)s)",
    )
    parser.add_argument(
        "--after",
        type=float,
        default=70,
        help="seconds that strangers go on once the gang runs (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "growth.json")
    arguments = parser.parse_args()
    of_gangs = max(arguments.sizes) if set(arguments.kinds) - WAITING.keys() else 0
    nodes = -(-of_gangs // (_PODS_OF_NODE - 10)) + 2 + _NODES_OF_STRANGERS
    with tempfile.TemporaryDirectory(prefix="fluxqueue-growth-") as folder:
        Path(folder).chmod(0o711)
        options = ClusterOptions(
            nodes=nodes, node_pods=_PODS_OF_NODE, controller_manager_flags=_CONTROLLER_MANAGER_FLAGS
        )
        with InProcessCluster(
            Path(folder) / "cluster", options, report=partial(print, file=sys.stderr, flush=True)
        ) as cluster:
            if arguments.apart:
                set_apart(cluster)
            outcomes = asyncio.run(run(arguments, cluster))
    print(summary(outcomes))


if __name__ == "__main__":
    main()
