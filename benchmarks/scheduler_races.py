"""Gangs of random size and foreign pods that race for the same nodes, bound by kube-scheduler and by ours in
turn.

It has one small cluster and one queue. In blocks that alternate between both ways, Indexed Jobs of random
size go through the queue, while pods outside the queue keep arriving. kube-scheduler places those wherever it
finds room, also on nodes where a gang has just been matched. Each block has the same gangs and the same
foreign pods in both ways, drawn from the seed. Counted, in the order of one watch of all pods:

* *partial start*: for more than two seconds some pods of a gang were on nodes, and others were not;
* *double booking*: after the Binding of a pod of a gang, the pods bound to its node request more than it has,
  although the foreign Binding that had taken the room was answered long enough before ours arrived that we
  could have known it: longer than 99 of 100 watch events of the run took to this process, its *lag*;
* *collision*: any other Binding that overbooks a node. Two programs that bind cannot see each other's
  Bindings before the watch shows them. The *gap*, from the API server's audit log, is the time from the
  response to the first Binding to the arrival of the last one. Below 0, both were in flight at once.
  kube-scheduler sends a Binding some time after its decision, so the gap of a foreign pod that comes last may
  be long, and only kube-scheduler could have prevented it.

The foreign load is a share of the cluster. If all gangs finish, nothing was lost on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from binding_log import binding_times

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import NotFound
from fluxqueue.kube.kinds import JOBS, NAMESPACES, NODES, PODS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

STOCK, FLUXION = "stock", "fluxion"
GANGS, FOREIGN = "races", "races-foreign"
RUN_SECONDS = "fluxqueue.local/run-seconds"
PARTIAL_S = 2.0
_ALLOCATIONS = """
SELECT count(*) - count(DISTINCT a.workload)
  FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
 WHERE w.namespace = %s AND w.name LIKE %s
"""


@dataclass(frozen=True)
class Shape:
    """A gang as drawn."""

    size: int
    cpu: int
    run_s: float


@dataclass
class Gang:
    """A gang in progress and its observations; monotonic seconds."""

    shape: Shape
    created: float
    bound: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    finished: float | None = None

    def partial(self, now: float) -> bool:
        """Return True if it was partly on nodes for too long."""
        if not self.bound:
            return False
        last = max(self.bound.values()) if len(self.bound) >= self.shape.size else now
        return last - min(self.bound.values()) > PARTIAL_S

    def times(self, since: float) -> str:
        """Return when its indexes were bound."""
        return ", ".join(f"{index} at {at - since:.1f} s" for index, at in self.bound.items())


@dataclass(frozen=True)
class Overbooking:
    """A Binding that overbooked its node: the pod, and the pods already there, latest first."""

    node: str
    pod: str
    standing: tuple[str, ...]
    way: str


@dataclass
class Outcome:
    """The results of one way; a *rematch* is an allocation beyond the first one of a gang.
    The gaps of collisions are in ms.
    """

    gangs: int = 0
    pods: int = 0
    finished: int = 0
    partial_starts: int = 0
    double_bookings: int = 0
    gang_came_last: list[float] = field(default_factory=list)
    foreign_came_last: list[float] = field(default_factory=list)
    bindings_of_foreign_pods: int = 0
    rematches: int = 0
    seconds: float = 0
    waits_s: list[float] = field(default_factory=list)
    spreads_s: list[float] = field(default_factory=list)


class BookingObserver:
    """Follows all pods and sums up each node after every change, in the order of the watch."""

    def __init__(self, offered: dict[str, Decimal]) -> None:
        self.gangs: dict[str, Gang] = {}
        self.overbookings: list[Overbooking] = []
        self.changed = asyncio.Event()
        self.way = ""
        self.foreign_bound = 0
        self.seen: dict[str, datetime] = {}
        self._offered = offered
        self._standing: dict[str, dict[str, tuple[str, Decimal]]] = defaultdict(dict)
        self._node_of: dict[str, str] = {}

    def note(self, change: Change[Pod]) -> None:
        """Handle a change of the cache of pods."""
        pod, uid = change.obj, change.obj.metadata.uid
        stood = self._node_of.pop(uid, None)
        entry = self._standing[stood].pop(uid) if stood is not None else None
        if pod.metadata.namespace == GANGS:
            self._follow(change)
        if change.new is None or pod.terminal or not pod.spec.node_name:
            return
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        node = self._node_of[uid] = pod.spec.node_name
        self._standing[node][uid] = entry or (name, _cpu(pod))
        if entry is None:
            self.seen[name] = datetime.now(UTC)
            self.foreign_bound += pod.metadata.namespace == FOREIGN
            there = self._standing[node].values()
            if sum(cpu for _, cpu in there) > self._offered.get(node, 0):
                others = tuple(reversed([other for other, _ in there if other != name]))
                self.overbookings.append(Overbooking(node, name, others, self.way))

    def _follow(self, change: Change[Pod]) -> None:
        pod = change.new
        owner = pod.metadata.controller if pod is not None else None
        gang = self.gangs.get(owner.name) if owner is not None else None
        if pod is None or gang is None:
            return
        index = pod.metadata.annotation(names.COMPLETION_INDEX_ANNOTATION) or ""
        if pod.spec.node_name:
            gang.bound.setdefault(index, time.monotonic())
        if pod.status.phase == "Succeeded":
            gang.ended.add(index)
            if len(gang.ended) >= gang.shape.size and gang.finished is None:
                gang.finished = time.monotonic()
                self.changed.set()


def draw(drawing: random.Random, largest: int) -> Shape:
    """Return a gang of random size."""
    return Shape(drawing.randint(2, largest), drawing.randint(1, 2), drawing.choice((0.2, 0.5, 1)))


def _cpu(pod: Pod) -> Decimal:
    return sum(
        (Decimal(str((each.resources.requests or {}).get("cpu", 0))) for each in pod.spec.containers),
        Decimal(0),
    )


def gang_manifest(name: str, shape: Shape, way: str) -> dict[str, Any]:
    """Return an Indexed Job whose pods all run together."""
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": str(shape.cpu), "memory": "64Mi"}},
    }
    return {
        "metadata": {
            "name": name,
            "labels": {names.SCHEDULER_LABEL: way},
            "annotations": {names.DURATION_ANNOTATION: "10s"},
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": shape.size,
            "parallelism": shape.size,
            "template": {
                "metadata": {"annotations": {RUN_SECONDS: str(shape.run_s)}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def foreign_manifest(name: str, cpu: int, run_s: float) -> dict[str, Any]:
    """Return a pod that the queue does not manage."""
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": str(cpu), "memory": "64Mi"}},
    }
    meta = {"name": name, "annotations": {RUN_SECONDS: f"{run_s:.2f}"}}
    return {
        "metadata": meta,
        "spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0},
    }


@contextlib.asynccontextmanager
async def foreign_pods(api: Api, seed: int, way: str, rate_per_s: float) -> AsyncIterator[None]:
    """Create pods until the block ends, then delete the remaining ones."""
    drawing = random.Random(f"foreign {seed}")

    async def one(name: str, cpu: int, run_s: float) -> None:
        await api.create(PODS, foreign_manifest(name, cpu, run_s), FOREIGN)
        await asyncio.sleep(run_s + 3)  # it may have waited for a node
        with contextlib.suppress(NotFound):
            await api.request("DELETE", PODS.path(FOREIGN, name), body={"gracePeriodSeconds": 0})

    async def keep_coming() -> None:
        number = 0
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(drawing.expovariate(rate_per_s))
                number += 1
                group.create_task(
                    one(f"foreign-{way}-{seed}-{number}", drawing.randint(1, 2), drawing.uniform(0.3, 3))
                )

    task = asyncio.create_task(keep_coming())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        await api.request("DELETE", PODS.path(FOREIGN), body={"gracePeriodSeconds": 0})


async def block(
    api: Api,
    observer: BookingObserver,
    way: str,
    number: int,
    arguments: argparse.Namespace,
    outcome: Outcome,
) -> None:
    """Run one block of gangs to its end, with a limited number in progress."""
    seed = arguments.seed * 1000 + number
    drawing = random.Random(f"gangs {seed}")
    observer.way = way
    shapes = [
        Shape(drawing.randint(2, arguments.largest), drawing.randint(1, 2), drawing.choice((0.2, 0.5, 1)))
        for _ in range(arguments.block)
    ]
    observer.gangs = {}
    limit = asyncio.Semaphore(arguments.at_once)
    overbooked, foreign, began = len(observer.overbookings), observer.foreign_bound, time.monotonic()

    async def one(name: str, shape: Shape) -> None:
        async with limit:
            gang = observer.gangs[name] = Gang(shape, time.monotonic())
            await api.create(JOBS, gang_manifest(name, shape, way), GANGS)
            while gang.finished is None:
                observer.changed.clear()
                await observer.changed.wait()
            await api.delete(JOBS, name, namespace=GANGS)

    async with foreign_pods(api, seed, way, arguments.foreign):
        try:
            async with asyncio.timeout(arguments.stuck_seconds):
                await asyncio.gather(
                    *(one(f"{way}-{number}-{index}", shape) for index, shape in enumerate(shapes))
                )
        except TimeoutError:
            print(
                f"block {number}, {way}: not all finished within {arguments.stuck_seconds:g} s",
                file=sys.stderr,
                flush=True,
            )
    now = time.monotonic()
    for name, gang in observer.gangs.items():
        if gang.partial(now):
            print(f"{name} of {gang.shape.size}: bound {gang.times(began)}", file=sys.stderr, flush=True)
        outcome.gangs += 1
        outcome.pods += gang.shape.size
        outcome.finished += gang.finished is not None
        outcome.partial_starts += gang.partial(now)
        if len(gang.bound) == gang.shape.size:
            outcome.waits_s.append(max(gang.bound.values()) - gang.created)
            outcome.spreads_s.append(max(gang.bound.values()) - min(gang.bound.values()))
    outcome.seconds += now - began
    outcome.bindings_of_foreign_pods += observer.foreign_bound - foreign
    await api.request("DELETE", JOBS.path(GANGS), query={"propagationPolicy": "Background"})
    summary = (
        f"{outcome.finished}/{outcome.gangs} gangs, {outcome.partial_starts} partial, "
        f"{len(observer.overbookings) - overbooked} overbooked"
    )
    print(f"block {number}, {way}: {summary}, {now - began:.0f} s", file=sys.stderr, flush=True)


async def run(
    arguments: argparse.Namespace, cluster: InProcessCluster
) -> tuple[dict[str, Outcome], BookingObserver]:
    """Run all blocks, both ways in turn."""
    ways = [STOCK, FLUXION] if arguments.ways == "both" else [arguments.ways]
    outcomes = {way: Outcome() for way in ways}
    pods: ObjectCache[Pod] = ObjectCache()
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        for name, labels in ((GANGS, {names.MANAGED_LABEL: "true"}), (FOREIGN, {})):
            await api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        offered = {
            node.metadata.name: Decimal(str((node.status.allocatable or {})["cpu"]))
            for node in await api.list(NODES)
        }
        observer = BookingObserver(offered)
        pods.add_handler(observer.note)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        for number in range(-(-arguments.gangs // arguments.block)):
            for way in ways if number % 2 == 0 else reversed(ways):
                await block(api, observer, way, number, arguments, outcomes[way])
                async with asyncio.timeout(120):
                    while pods.list(GANGS) or pods.list(FOREIGN):
                        await asyncio.sleep(0.2)
        watching.cancel()
    return outcomes, observer


def gap_ms(overbooking: Overbooking, bindings: dict[str, tuple[datetime, datetime]]) -> float:
    """Return the milliseconds from the response to the previous Binding to the arrival of this one;
    below 0 both were in flight.
    """
    mine = bindings.get(overbooking.pod)
    others = [times for name in overbooking.standing if (times := bindings.get(name)) is not None]
    if mine is None or not others:
        return float("inf")
    return min(1000 * (mine[0] - answered).total_seconds() for _, answered in others)


def settle(outcomes: dict[str, Outcome], observer: BookingObserver, cluster: InProcessCluster) -> list[float]:
    """Separate double bookings from collisions, and count rematches;
    return the lags of the watch in ms, sorted.
    """
    bindings = binding_times(cluster.control_plane.folder / "audit.log")
    lags = sorted(
        1000 * (at - bindings[name][1]).total_seconds()
        for name, at in observer.seen.items()
        if name in bindings
    )
    window_ms = lags[int(len(lags) * 0.99)] if lags else 0.0
    for each in observer.overbookings:
        gap = gap_ms(each, bindings)
        outcome = outcomes[each.way]
        if not each.pod.startswith(f"{GANGS}/"):
            outcome.foreign_came_last.append(round(gap, 1))
        elif gap <= window_ms:
            outcome.gang_came_last.append(round(gap, 1))
        else:
            outcome.double_bookings += 1
            print(
                f"{each.way}: {each.node} overbooked by {each.pod}, gap {gap:.1f} ms, "
                f"beside {', '.join(each.standing)}",
                file=sys.stderr,
            )
    with psycopg.connect(cluster.database_dsn, autocommit=True) as connection:
        for way, outcome in outcomes.items():
            row = connection.execute(_ALLOCATIONS, (GANGS, f"{way}-%")).fetchone()
            outcome.rematches = int(row[0]) if row else 0
    return lags


def table(outcomes: dict[str, Outcome]) -> str:
    """Print the table."""
    rows: list[tuple[str, list[str]]] = [("", list(outcomes))]
    each = outcomes.values()
    rows.append(("gangs finished", [f"{one.finished}/{one.gangs}" for one in each]))
    rows.append(("partial starts (> 2 s)", [str(one.partial_starts) for one in each]))
    rows.append(("double bookings", [str(one.double_bookings) for one in each]))
    rows.append(("collisions, gang last", [str(len(one.gang_came_last)) for one in each]))
    rows.append(("collisions, foreign pod last", [str(len(one.foreign_came_last)) for one in each]))
    gaps = [sorted(one.gang_came_last + one.foreign_came_last) for one in each]
    rows.append(
        (
            "gap of a collision, ms, p50; max",
            [f"{statistics.median(gap):.0f}; {gap[-1]:.0f}" if gap else "-" for gap in gaps],
        )
    )
    rows.append(
        ("pods of gangs / foreign pods bound", [f"{one.pods}/{one.bindings_of_foreign_pods}" for one in each])
    )
    rows.append(("matched again", [str(one.rematches) for one in each]))
    rows.append(("seconds", [f"{one.seconds:.0f}" for one in each]))
    for title, key in (
        ("created to last pod bound, s", "waits_s"),
        ("first to last pod bound, s", "spreads_s"),
    ):
        for share, label in ((0.5, "p50"), (0.99, "p99"), (1.0, "max")):
            values = [sorted(getattr(one, key)) for one in each]
            rows.append(
                (
                    f"{title}, {label}",
                    [f"{v[min(len(v) - 1, int(len(v) * share))]:.2f}" if v else "-" for v in values],
                )
            )
    return "\n".join(f"{title:38}" + "".join(f"{value:>14}" for value in values) for title, values in rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gangs", type=int, default=1000, help="of each way (default: %(default)s)")
    parser.add_argument(
        "--block", type=int, default=100, help="gangs until the other way has its turn (default: %(default)s)"
    )
    parser.add_argument(
        "--at-once", type=int, default=30, help="gangs under way at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--largest", type=int, default=8, help="pods of the largest gang (default: %(default)s)"
    )
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument(
        "--foreign", type=float, default=8, help="foreign pods a second (default: %(default)s)"
    )
    parser.add_argument(
        "--stuck-seconds",
        type=float,
        default=400,
        help="after which a block is given up (default: %(default)s)",
    )
    parser.add_argument("--ways", choices=("both", STOCK, FLUXION), default="both")
    parser.add_argument(
        "--logs", type=Path, help="keep the logs of all programs, and the audit log, in this folder"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results" / "scheduler_races.json"
    )
    return parser


def main() -> None:
    """Run it."""
    arguments = _parser().parse_args()
    values = {"scheduler": {"enabled": arguments.ways != STOCK}}
    options = ClusterOptions(
        nodes=arguments.nodes, node_cpu="4", node_memory="16Gi", durable=False, audit=True, values=values
    )
    with tempfile.TemporaryDirectory(prefix="fluxqueue-races-") as folder:
        Path(folder).chmod(0o711)
        with InProcessCluster(
            Path(folder) / "cluster", options, report=partial(print, file=sys.stderr, flush=True)
        ) as cluster:
            outcomes, observer = asyncio.run(run(arguments, cluster))
            lags = settle(outcomes, observer, cluster)
            if arguments.logs:
                shutil.copytree(cluster.folder / "logs", arguments.logs, dirs_exist_ok=True)
                shutil.copy(cluster.control_plane.folder / "audit.log", arguments.logs)
    print(table(outcomes))
    lag_ms = (
        {share: round(lags[min(len(lags) - 1, int(len(lags) * share))], 1) for share in (0.5, 0.99, 1)}
        if lags
        else {}
    )
    print(f"lag of the watch, ms, p50, p99, max: {', '.join(map(str, lag_ms.values()))}")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    results = {
        "seed": arguments.seed,
        "watch_lag_ms": lag_ms,
        "load_average": os.getloadavg(),
        **{way: asdict(each) for way, each in outcomes.items()},
    }
    arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
