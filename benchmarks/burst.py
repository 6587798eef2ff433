"""A burst of single-pod Jobs on the local control plane, with fluxqueue and without, in turn.

Each round creates the same Jobs in a namespace that the queue manages and in one that it does not, in
alternating order. It follows every Job from the call that creates it to the watch event that shows its pod
bound to a node. ``--scheduler`` selects the scheduler of the managed pods: the stock scheduler, ours, or both
in turn, by a label of the Jobs. Plain Jobs are always bound by the stock scheduler. Writes are counted by the
API server itself (``apiserver_request_total``), ours by the metrics of the queue and of our scheduler. CPU is
that of each program from the first creation to the last Binding. The local control plane raises the client
limits of kube-scheduler and the controller manager in all cases. On a cluster with their defaults all columns
are lower.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scheduler_process import cpu_s

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import JOBS, NAMESPACES, PODS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

STOCK, FLUXION = "stock", "fluxion"
PLAIN = "plain"
MANAGED = {STOCK: "fluxqueue", FLUXION: "fluxqueue, ours"}
"""The names of the columns, by the scheduler that binds."""
NAMESPACE = {PLAIN: "burst-plain", **{each: f"burst-{who}" for who, each in MANAGED.items()}}
_WRITES = {"POST", "PUT", "PATCH", "DELETE", "APPLY"}
_SERIES = re.compile(r"apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_OURS = re.compile(r"fluxqueue_api_calls_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
RUN_S = 600
"""Longer than a round."""


@dataclass
class Round:
    """One burst in one namespace: times in seconds, and CPU milliseconds per Job by program."""

    column: str
    jobs: int
    jobs_per_s: float
    p50_s: float
    p99_s: float
    writes_per_job: float
    events_per_job: float
    ours_per_job: float
    cpu_ms_per_job: dict[str, float]


def manifest(name: str, column: str, run_s: int) -> dict[str, Any]:
    binder = next((who for who, each in MANAGED.items() if each == column), None)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {names.SCHEDULER_LABEL: binder} if binder else {}},
        "spec": {
            "template": {
                "metadata": {"annotations": {"fluxqueue.local/run-seconds": str(run_s)}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox",
                            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                        }
                    ],
                },
            }
        },
    }


class Bound:
    """The time when the pod of each Job was first seen on a node."""

    def __init__(self, store: ObjectCache[Pod]) -> None:
        self.at: dict[tuple[str, str], float] = {}
        self._changed = asyncio.Event()
        store.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and pod.spec.node_name:
            owner = pod.metadata.controller
            if owner is not None:
                self.at.setdefault((pod.metadata.namespace, owner.name), time.monotonic())
                self._changed.set()

    async def until(self, keys: set[tuple[str, str]], timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while not keys <= self.at.keys():
                self._changed.clear()
                await self._changed.wait()


async def api_writes(api: Api) -> tuple[Counter[str], Counter[str]]:
    """Return the number of writes so far, by resource: to objects, and of Events."""
    objects: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for found in _SERIES.finditer((await api.request("GET", "/metrics")).decode()):
        labels = dict(_LABEL.findall(found["labels"]))
        if (
            labels.get("verb") in _WRITES
            and labels.get("code", "").startswith("2")
            and labels.get("resource")
            not in ("leases", "nodes", "tokenreviews", "subjectaccessreviews", "serviceaccounts")
        ):
            (events if labels["resource"] == "events" else objects)[labels["resource"]] += int(
                float(found["value"])
            )
    return objects, events


def our_writes(cluster: InProcessCluster) -> int:
    """Return the number of writes so far of the queue and, if there is one, of our scheduler."""
    total = 0
    for program in (cluster.programs[name] for name in ("queue", "scheduler") if name in cluster.programs):
        assert program.metrics_port is not None
        text = cluster.operators.metrics(program.metrics_port).decode()
        for found in _OURS.finditer(text):
            labels = dict(_LABEL.findall(found["labels"]))
            if labels["verb"].upper() in _WRITES or labels["verb"] in ("create", "patch", "update", "delete"):
                total += int(float(found["value"]))
    return total


def cpu_of_programs(cluster: InProcessCluster) -> dict[str, float]:
    """Return the CPU seconds so far of each program of the cluster except Postgres,
    which is many processes.
    """
    running = {component.value: process for component, process in cluster.control_plane.processes.items()}
    running |= {name: program.process for name, program in cluster.programs.items()}
    return {name: cpu_s(process) for name, process in running.items()}


async def burst(
    api: Api, bound: Bound, cluster: InProcessCluster, column: str, tag: str, arguments: argparse.Namespace
) -> Round:
    jobs, namespace = arguments.jobs, NAMESPACE[column]
    before, before_events = await api_writes(api)
    ours = our_writes(cluster)
    cpu = cpu_of_programs(cluster)
    limit = asyncio.Semaphore(arguments.clients)
    created: dict[str, float] = {}

    async def create(name: str) -> None:
        async with limit:
            created[name] = time.monotonic()
            await api.create(JOBS, manifest(name, column, RUN_S), namespace)

    tags = [f"{tag}-{number}" for number in range(jobs)]
    began = time.monotonic()
    await asyncio.gather(*(create(name) for name in tags))
    await bound.until({(namespace, name) for name in tags}, 300)
    ended = max(bound.at[namespace, name] for name in tags)
    after_cpu = cpu_of_programs(cluster)
    after, after_events = await api_writes(api)
    waits = sorted(bound.at[namespace, name] - created[name] for name in tags)
    return Round(
        column=column,
        jobs=jobs,
        jobs_per_s=jobs / (ended - began),
        p50_s=statistics.median(waits),
        p99_s=waits[min(len(waits) - 1, int(len(waits) * 0.99))],
        writes_per_job=(after - before).total() / jobs,
        events_per_job=(after_events - before_events).total() / jobs,
        ours_per_job=(our_writes(cluster) - ours) / jobs,
        cpu_ms_per_job={name: 1000 * (used - cpu[name]) / jobs for name, used in after_cpu.items()},
    )


async def clean(api: Api, pods: ObjectCache[Pod], namespace: str) -> None:
    for job in await api.list(JOBS, namespace):
        await api.delete(JOBS, job.metadata.name, namespace=namespace)
    async with asyncio.timeout(300):
        while pods.list(namespace):
            await asyncio.sleep(0.2)


async def singles(api: Api, bound: Bound, column: str, tag: str, count: int) -> list[float]:
    waits = []
    namespace = NAMESPACE[column]
    for number in range(count):
        name = f"{tag}-{number}"
        began = time.monotonic()
        await api.create(JOBS, manifest(name, column, RUN_S), namespace)
        await bound.until({(namespace, name)}, 60)
        waits.append(bound.at[namespace, name] - began)
        await asyncio.sleep(0.3)
    return waits


async def run(arguments: argparse.Namespace, cluster: InProcessCluster, columns: list[str]) -> dict[str, Any]:
    pods: ObjectCache[Pod] = ObjectCache()
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        for column in columns:
            labels = {} if column == PLAIN else {names.MANAGED_LABEL: "true"}
            await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE[column], "labels": labels}})
        bound = Bound(pods)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        await asyncio.sleep(2)
        idle = {
            each: await singles(api, bound, each, "warm", 5) and await singles(api, bound, each, "one", 20)
            for each in columns
        }
        for column in columns:
            await clean(api, pods, NAMESPACE[column])
        rounds: list[Round] = []
        for number in range(arguments.rounds):
            for column in columns if number % 2 == 0 else reversed(columns):
                result = await burst(api, bound, cluster, column, f"r{number}", arguments)
                print(
                    f"round {number + 1}/{arguments.rounds} {column}: {result.jobs_per_s:.1f} Jobs/s",
                    file=sys.stderr,
                    flush=True,
                )
                rounds.append(result)
                await clean(api, pods, NAMESPACE[column])
                await asyncio.sleep(2)
        watching.cancel()
    return {"idle_s": idle, "rounds": [asdict(item) for item in rounds]}


def summary(results: dict[str, Any], columns: list[str]) -> str:
    lines = [
        (
            f"{'':16}{'Jobs/s':>8}{'p50 s':>8}{'p99 s':>8}{'writes':>8}{'+Events':>8}{'ours':>6}"
            f"{'idle p50 ms':>13}"
        )
    ]
    keys = ("jobs_per_s", "p50_s", "p99_s", "writes_per_job", "events_per_job", "ours_per_job")
    figures: dict[str, dict[str, float]] = {}
    cpu: dict[str, dict[str, float]] = {}
    for column in columns:
        rounds = [item for item in results["rounds"] if item["column"] == column]
        middle = figures[column] = {key: statistics.median(item[key] for item in rounds) for key in keys}
        programs = rounds[0]["cpu_ms_per_job"]
        cpu[column] = {
            program: statistics.median(item["cpu_ms_per_job"][program] for item in rounds)
            for program in programs
        }
        lines.append(
            f"{column:16}{middle['jobs_per_s']:8.1f}{middle['p50_s']:8.2f}{middle['p99_s']:8.2f}"
            f"{middle['writes_per_job']:8.1f}"
            f"{middle['events_per_job']:8.1f}{middle['ours_per_job']:6.1f}"
            f"{1000 * statistics.median(results['idle_s'][column]):13.0f}"
        )
    lines += ["", f"{'CPU ms per Job':26}" + "".join(f"{column:>17}" for column in columns)]
    for program in cpu[columns[0]]:
        lines.append(f"{program:26}" + "".join(f"{cpu[column][program]:17.2f}" for column in columns))
    lines.append(f"{'all':26}" + "".join(f"{sum(cpu[column].values()):17.2f}" for column in columns))
    for column in columns[1:]:
        ratio = figures[column]["jobs_per_s"] / figures[PLAIN]["jobs_per_s"]
        lines.append(f"{column}: {ratio:.2f} x plain (medians of {len(rounds)} rounds each)")
    if len(columns) == 3:
        ours, stock = (figures[MANAGED[who]]["jobs_per_s"] for who in (FLUXION, STOCK))
        lines.append(f"bound by ours {ours / stock:.2f} x bound by the stock scheduler")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--scheduler",
        choices=(STOCK, FLUXION, "both"),
        default=STOCK,
        help="who binds (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "burst.json")
    arguments = parser.parse_args()
    who = [STOCK, FLUXION] if arguments.scheduler == "both" else [arguments.scheduler]
    columns = [PLAIN, *(MANAGED[each] for each in who)]
    with tempfile.TemporaryDirectory(prefix="fluxqueue-burst-") as folder:
        Path(folder).chmod(0o711)
        options = ClusterOptions(nodes=8, values={"scheduler": {"enabled": FLUXION in who}})
        with InProcessCluster(
            Path(folder) / "cluster", options, report=partial(print, file=sys.stderr, flush=True)
        ) as cluster:
            results = asyncio.run(run(arguments, cluster, columns))
    print(summary(results, columns))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
