"""Large gangs on the local control plane, and a stranger's one-pod Job every second beside each.

For each kind and size a gang is created in one namespace. It is followed until all its pods are bound. Meanwhile another namespace gets a
Job of one pod every second, whose time from the call that creates it to its release (`spec.suspend` is false) is what counts: work of
others must not wait for a large gang. The report has the CPU time of the queue for each pod, its restarts, losses of its Lease, and the
blocks of its event loop with the CPU time of the blocks: on a busy machine a block takes longer than its CPU time. After the gang runs, a
full sweep of the queue is waited for (``--after``), because it also grows with the gang. The cluster has the nodes that the largest gang
fills.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from burst import clean, cpu_of_programs

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, ServerError
from fluxqueue.kube.kinds import JOBS, NAMESPACES, PODS, STATEFULSETS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.inprocess import ClusterOptions, InProcessCluster

GANG, STRANGER = "growth-gang", "growth-stranger"
KINDS = ("indexed", "nonindexed", "podgroup", "statefulset")
_PODS_OF_NODE = 110
_CREATED_AT_ONCE = 16
_STRANGERS_LEFT_S = 60
_COLUMNS = (
    "kind",
    "pods",
    "all bound s",
    "CPU ms/pod",
    "restarts",
    "lost",
    "p50 s",
    "p99 s",
    "max s",
    "missed",
    "blocks",
    "longest s",
    "CPU s",
)


@dataclass
class Outcome:
    """What one gang cost, and how long strangers waited meanwhile.

    Attributes
    ----------
    kind, pods
        The gang.
    bound_s
        Seconds until all its pods were bound; None if they were not in time.
    bound
        Its pods that were bound at the end.
    cpu_ms_of_pod
        CPU milliseconds of each program for each pod.
    restarts, leases_lost
        Of the queue.
    released_s
        From creation to release, of each stranger.
    missed
        Strangers that were not released at all.
    blocks
        Seconds, and CPU seconds, of the blocks of the queue's event loop that its log has: one in ten seconds at most.
    """

    kind: str
    pods: int
    bound_s: float | None
    bound: int
    cpu_ms_of_pod: Mapping[str, float]
    restarts: int
    leases_lost: int
    released_s: list[float] = field(default_factory=list)
    missed: int = 0
    blocks: list[tuple[float, float]] = field(default_factory=list)


class Watched:
    """The Jobs and pods of both namespaces, and when strangers were released."""

    def __init__(self, api: Api) -> None:
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.jobs: ObjectCache[Job] = ObjectCache()
        self.released_at: dict[str, float] = {}
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
        if job is not None and job.metadata.namespace == STRANGER and not job.spec.suspend:
            self.released_at.setdefault(job.metadata.name, time.monotonic())

    def _note_pod(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and pod.metadata.namespace == GANG and pod.spec.node_name:
            self.bound.add(pod.metadata.uid)


def pod_spec() -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]}


def template(**labels: str) -> dict[str, Any]:
    metadata = {"labels": labels, "annotations": {"fluxqueue.local/run-seconds": "100000"}}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", **pod_spec()}}


def job(name: str, pods: int, *, indexed: bool) -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed" if indexed else "NonIndexed", "template": template()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def stateful_set(name: str, pods: int) -> dict[str, Any]:
    of_gang = template(app=name)
    of_gang["metadata"]["annotations"][names.GANG_ANNOTATION] = "true"
    of_gang["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": pods, "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": name}}, "template": of_gang}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec | {"serviceName": name}}


def member(group: str, pods: int, number: int) -> dict[str, Any]:
    body = template(**{names.POD_GROUP_LABEL: group})
    body["metadata"]["annotations"][names.POD_GROUP_SIZE_ANNOTATION] = str(pods)
    body["metadata"]["name"] = f"{group}-{number}"
    return {"apiVersion": "v1", "kind": "Pod", **body}


async def create(api: Api, kind: str, name: str, pods: int) -> None:
    if kind == "statefulset":
        await api.create(STATEFULSETS, stateful_set(name, pods), GANG)
    elif kind == "podgroup":
        limit = asyncio.Semaphore(_CREATED_AT_ONCE)

        async def one(number: int) -> None:
            async with limit:
                await api.create(PODS, member(name, pods, number), GANG)

        await asyncio.gather(*(one(number) for number in range(pods)))
    else:
        await api.create(JOBS, job(name, pods, indexed=kind == "indexed"), GANG)


async def strangers(api: Api, tag: str, created: dict[str, float]) -> None:
    """Create a Job of one pod every second until cancelled, and note when."""
    async with asyncio.TaskGroup() as group:
        number = 0
        while True:
            group.create_task(_stranger(api, f"{tag}-{number}", created))
            number += 1
            await asyncio.sleep(1)


async def _stranger(api: Api, name: str, created: dict[str, float]) -> None:
    body = job(name, 1, indexed=False)
    body["spec"]["template"]["metadata"]["annotations"]["fluxqueue.local/run-seconds"] = "2"
    body["spec"]["ttlSecondsAfterFinished"] = 0
    at = time.monotonic()
    try:
        await api.create(JOBS, body, STRANGER)
        created[name] = at
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


async def measure(api: Api, cluster: InProcessCluster, watched: Watched, kind: str, pods: int, arguments: argparse.Namespace) -> Outcome:
    queue = cluster.programs["queue"].process
    name, offset, before, restarted = f"{kind}-{pods}", queue.log.stat().st_size, cpu_of_programs(cluster), restarts(cluster)
    watched.bound.clear()
    created: dict[str, float] = {}
    others = asyncio.create_task(strangers(api, name, created))
    began = time.monotonic()
    bound_s: float | None = None
    making = asyncio.create_task(create(api, kind, name, pods))
    while time.monotonic() - began < arguments.limit:
        await asyncio.sleep(0.1)
        if len(watched.bound) >= pods:
            bound_s = time.monotonic() - began
            break
    await asyncio.gather(making, return_exceptions=True)
    used = {program: 1000 * (cpu - before.get(program, 0.0)) / pods for program, cpu in cpu_of_programs(cluster).items()}
    await asyncio.sleep(arguments.after)
    others.cancel()
    await asyncio.gather(others, return_exceptions=True)
    until = time.monotonic() + _STRANGERS_LEFT_S
    while time.monotonic() < until and not created.keys() <= watched.released_at.keys():
        await asyncio.sleep(0.1)
    log = list(events(queue.log, offset))
    return Outcome(
        kind=kind,
        pods=pods,
        bound_s=bound_s,
        bound=len(watched.bound),
        cpu_ms_of_pod=used,
        restarts=restarts(cluster) - restarted,
        leases_lost=sum(each.get("event") == "lease.lost" for each in log),
        released_s=[watched.released_at[each] - at for each, at in created.items() if each in watched.released_at],
        missed=len(created.keys() - watched.released_at.keys()),
        blocks=[(each["seconds"], each["cpu_s"]) for each in log if each.get("event") == "loop.blocked"],
    )


async def remove(api: Api, watched: Watched) -> None:
    for each in await api.list(STATEFULSETS, GANG):
        await api.delete(STATEFULSETS, each.metadata.name, namespace=GANG)
    await clean(api, ObjectCache(), GANG)
    async with asyncio.timeout(600):
        while watched.pods.list(GANG):
            with contextlib.suppress(ServerError):  # it ends the deletion of thousands after a minute
                await api.request("DELETE", f"/api/v1/namespaces/{GANG}/pods?gracePeriodSeconds=0", timeout_s=120)
            await asyncio.sleep(0.5)


async def run(arguments: argparse.Namespace, cluster: InProcessCluster) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        for namespace in (GANG, STRANGER):
            await api.create(NAMESPACES, {"metadata": {"name": namespace, "labels": {names.MANAGED_LABEL: "true"}}})
        watched = Watched(api)
        await watched.start()
        await asyncio.sleep(2)
        for pods in arguments.sizes:
            for kind in arguments.kinds:
                outcome = await measure(api, cluster, watched, kind, pods, arguments)
                print(summary([outcome]), file=sys.stderr, flush=True)
                outcomes.append(outcome)
                if (pods, kind) != (arguments.sizes[-1], arguments.kinds[-1]):
                    await remove(api, watched)
        watched.stop()
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    lines = ["".join(f"{title:>12}" for title in _COLUMNS)]
    for each in outcomes:
        waits = sorted(each.released_s) or [float("nan")]
        figures = [
            each.kind,
            each.pods,
            f"{each.bound_s:.1f}" if each.bound_s is not None else f"{each.bound} only",
            f"{each.cpu_ms_of_pod['queue']:.2f}",
            each.restarts,
            each.leases_lost,
            f"{statistics.median(waits):.2f}",
            f"{waits[min(len(waits) - 1, int(len(waits) * 0.99))]:.2f}",
            f"{waits[-1]:.2f}",
            each.missed,
            len(each.blocks),
            f"{max((seconds for seconds, _ in each.blocks), default=0):.2f}",
            f"{max((cpu_s for _, cpu_s in each.blocks), default=0):.2f}",
        ]
        lines.append("".join(f"{figure:>12}" for figure in figures))
    return "\n".join(lines)


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
    parser.add_argument("--sizes", type=_sizes, default=[100, 1_000, 10_000], help="pods of the gangs (default: 100,1000,10000)")
    parser.add_argument("--kinds", type=_kinds, default=list(KINDS), help=f"kinds of gangs (default: {','.join(KINDS)})")
    parser.add_argument("--limit", type=float, default=900, help="seconds after which a gang is given up (default: %(default)s)")
    parser.add_argument("--after", type=float, default=70, help="seconds that strangers go on once the gang runs (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "growth.json")
    arguments = parser.parse_args()
    nodes = -(-max(arguments.sizes) // (_PODS_OF_NODE - 10)) + 2
    with tempfile.TemporaryDirectory(prefix="fluxqueue-growth-") as folder:
        Path(folder).chmod(0o711)
        options = ClusterOptions(nodes=nodes, node_pods=_PODS_OF_NODE)
        with InProcessCluster(Path(folder) / "cluster", options, report=partial(print, file=sys.stderr, flush=True)) as cluster:
            outcomes = asyncio.run(run(arguments, cluster))
    print(summary(outcomes))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=2))


if __name__ == "__main__":
    main()
