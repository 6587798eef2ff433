"""Time from release to binding, of pods and of gangs, with kube-scheduler and with ours, in one run.

It has its own control plane and no queue: pods are released here as the queue releases them for either
scheduler.

* ``ungated``: pods exist, gated. One patch takes the gate off; for the stock scheduler it adds the node
  affinity of one node, for ours the annotations with allocation, node and, in a gang, its size.
* ``created``: pods of a released Job. They are created as the webhook leaves them: with that affinity, or
  with those annotations.

A time runs from the return of the write that releases the pod to the watch event that shows its node, both in
this process. For one pod a second time runs from the sending of that write, since a quick scheduler may have
bound it before the API server answers. A gang has three times: from the sending of its first release to the
last pod bound, which is what a user waits for; from the return of the last release; and of each pod from its
own release. Our scheduler binds no pod of a gang before the last one is released, so the last two show when a
pod is bound and not how quickly. Both ways take turns, the first one changing, so that both see the same
machine. ``--foreign N`` also creates N pods per second, which the stock scheduler places.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scheduler_process import SchedulerProcess, cpu_s, released

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import NAMESPACES, PODS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.local.components import Component
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.fake_nodes import node_name

STOCK, FLUXION = "stock", "fluxion"
UNGATED, CREATED = "ungated", "created"
NAMESPACE, FOREIGN = "latency", "foreign"
AT_ONCE = 32
"""Releases in flight at the same time."""


class Bindings:
    """The time when the watch first showed each pod on a node, by name."""

    def __init__(self, store: ObjectCache[Pod]) -> None:
        self.at: dict[str, float] = {}
        self._changed = asyncio.Event()
        store.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        pod = change.new
        if (
            pod is not None
            and pod.spec.node_name
            and pod.metadata.namespace == NAMESPACE
            and pod.metadata.name not in self.at
        ):
            self.at[pod.metadata.name] = time.monotonic()
            self._changed.set()

    async def until(self, pods: Sequence[str], timeout_s: float = 60) -> None:
        """Wait until all of these pods are bound."""
        try:
            async with asyncio.timeout(timeout_s):
                while any(name not in self.at for name in pods):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            missing = [name for name in pods if name not in self.at]
            raise SystemExit(
                f"{len(missing)} of {len(pods)} pods are not bound after {timeout_s:g} s: "
                f"{', '.join(missing[:5])}"
            ) from None


@dataclass(frozen=True)
class Times:
    """Return the seconds of each pod from response and sending of its release,
    and of all from the first and from the last release.
    """

    from_return: list[float]
    from_sending: list[float]
    from_first: float
    from_last: float


@dataclass
class Bench:
    """A control plane, the observed pods, and the numbers used so far."""

    api: Api
    pods: ObjectCache[Pod]
    bindings: Bindings
    allocations: itertools.count[int]

    async def measure(self, way: str, born: str, size: int) -> Times:
        """Release ``size`` pods as one allocation, wait until they are bound, and delete them."""
        allocation = next(self.allocations)
        pods = {f"{way}-{allocation}-{rank}": node_name(rank + 1) for rank in range(size)}
        if born == UNGATED:
            await self._each(pods, lambda name: self.api.create(PODS, manifest(name, way), NAMESPACE))
            await asyncio.sleep(0.1)  # by then both schedulers have seen them
        sent: dict[str, float] = {}
        returned: dict[str, float] = {}

        async def release(name: str) -> None:
            sent[name] = time.monotonic()
            patch = released(way, allocation, pods[name], size)
            if born == UNGATED:
                gates = [{"name": names.GATE, "$patch": "delete"}]
                body = {**patch, "spec": {**patch.get("spec", {}), "schedulingGates": gates}}
                await self.api.patch(PODS, name, body, namespace=NAMESPACE, patch_type=PatchType.STRATEGIC)
            else:
                await self.api.create(PODS, merged(manifest(name, way, gated=False), patch), NAMESPACE)
            returned[name] = time.monotonic()

        await self._each(pods, release)
        await self.bindings.until([*pods])
        bound = {name: self.bindings.at[name] for name in pods}
        wrong = [
            name
            for name, node in pods.items()
            if (pod := self.pods.get(NAMESPACE, name)) is not None and pod.spec.node_name != node
        ]
        if wrong:
            raise SystemExit(f"bound to another node than the released one: {', '.join(wrong[:5])}")
        await self._remove([*pods])
        done = max(bound.values())
        return Times(
            from_return=[bound[name] - returned[name] for name in pods],
            from_sending=[bound[name] - sent[name] for name in pods],
            from_first=done - min(sent.values()),
            from_last=done - max(returned.values()),
        )

    async def _each(self, pods: Any, effect: Callable[[str], Coroutine[Any, Any, object]]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with limit:
                await effect(name)

        await asyncio.gather(*(one(name) for name in pods))

    async def _remove(self, pods: list[str]) -> None:
        path = PODS.path(NAMESPACE)
        await self._each(
            pods, lambda name: self.api.request("DELETE", f"{path}/{name}", body={"gracePeriodSeconds": 0})
        )
        async with asyncio.timeout(60):
            while any(self.pods.get(NAMESPACE, name) is not None for name in pods):
                await asyncio.sleep(0.02)


def manifest(name: str, way: str, *, gated: bool = True, cpu: str = "1") -> dict[str, Any]:
    """A pod before its release."""
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    if way == FLUXION:
        spec["schedulerName"] = names.SCHEDULER_NAME
    if gated:
        spec["schedulingGates"] = [{"name": names.GATE}]
    return {
        "metadata": {"name": name, "annotations": {"fluxqueue.local/run-seconds": "forever"}},
        "spec": spec,
    }


def merged(pod: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return a pod created with what a release patch would add."""
    meta = {**pod["metadata"], **patch["metadata"]}
    meta["annotations"] = {**pod["metadata"]["annotations"], **patch["metadata"].get("annotations", {})}
    return {"metadata": meta, "spec": {**pod["spec"], **patch.get("spec", {})}}


@contextlib.asynccontextmanager
async def foreign_pods(api: Api, rate_per_s: float) -> AsyncIterator[None]:
    """Create foreign pods, which kube-scheduler places anywhere; each lives for about two seconds."""

    async def come_and_go(number: int) -> None:
        name = f"foreign-{number}"
        await api.create(PODS, manifest(name, STOCK, gated=False, cpu="10m"), FOREIGN)
        await asyncio.sleep(2)
        await api.request("DELETE", PODS.path(FOREIGN, name), body={"gracePeriodSeconds": 0})

    async def keep_coming() -> None:
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                group.create_task(come_and_go(number))
                await asyncio.sleep(1 / rate_per_s)

    task = asyncio.create_task(keep_coming()) if rate_per_s else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


@dataclass
class Samples:
    """Seconds by measurement and way; CPU seconds and pods by way."""

    times: dict[str, dict[str, list[float]]]
    cpu: dict[str, float]
    bound: dict[str, int]


async def run(
    arguments: argparse.Namespace, cluster: ControlPlane, ways: dict[str, Callable[[], float]]
) -> Samples:
    """Run all rounds; ``ways`` has the CPU seconds that each scheduler has used so far."""
    pods: ObjectCache[Pod] = ObjectCache()
    collected = Samples(defaultdict(lambda: defaultdict(list)), defaultdict(float), defaultdict(int))
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        for name in (NAMESPACE, FOREIGN):
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        bindings = Bindings(pods)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        await asyncio.sleep(2)
        bench = Bench(api, pods, bindings, itertools.count(1))
        # warm-up: connections are open, and the code has run once
        for way, born in itertools.product(ways, (UNGATED, CREATED)):
            for size in (1, 1, 1, arguments.gang):
                await bench.measure(way, born, size)
        gc.collect()
        gc.disable()
        async with foreign_pods(api, arguments.foreign):
            for number in range(arguments.rounds):
                order = list(ways) if number % 2 == 0 else list(reversed(ways))
                for born, (size, times) in itertools.product(
                    (UNGATED, CREATED), ((1, arguments.singles), (arguments.gang, arguments.gangs))
                ):
                    for _, way in itertools.product(range(times), order):
                        before = ways[way]()
                        measured = await bench.measure(way, born, size)
                        collected.cpu[way] += ways[way]() - before
                        collected.bound[way] += size
                        what = f"{born}, {'one pod' if size == 1 else f'gang of {size}'}"
                        if size == 1:
                            collected.times[what][way] += measured.from_return
                            collected.times[f"{what}, from its sending"][way] += measured.from_sending
                        else:
                            collected.times[f"{what}, first release on"][way].append(measured.from_first)
                            collected.times[f"{what}, last release on"][way].append(measured.from_last)
                            collected.times[f"{what}, each pod"][way] += measured.from_return
                print(f"round {number + 1}/{arguments.rounds}", file=sys.stderr, flush=True)
        watching.cancel()
    return collected


def percentile(times: list[float], share: float) -> float:
    """Return the quantile of sorted or unsorted times."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def figures(collected: Samples) -> dict[str, Any]:
    """Return milliseconds by measurement and way, and the ratios."""
    rows: dict[str, Any] = {}
    for what, by_way in collected.times.items():
        rows[what] = {
            way: {
                "samples": len(times),
                "p50_ms": 1000 * statistics.median(times),
                "p90_ms": 1000 * percentile(times, 0.9),
                "p99_ms": 1000 * percentile(times, 0.99),
                "max_ms": 1000 * max(times),
            }
            for way, times in by_way.items()
        }
        if STOCK in by_way and FLUXION in by_way:
            rows[what]["ratio"] = {
                key: rows[what][FLUXION][key] / rows[what][STOCK][key]
                for key in ("p50_ms", "p90_ms", "p99_ms")
            }
    cpu = {way: 1000 * collected.cpu[way] / collected.bound[way] for way in collected.bound}
    return {"times": rows, "cpu_ms_per_pod": cpu}


def table(results: dict[str, Any]) -> str:
    """Print the table."""
    lines = [f"{'released to bound, ms':42}{'':>9}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}{'samples':>9}"]
    for what, by_way in results["times"].items():
        for way, row in by_way.items():
            if way == "ratio":
                lines.append(
                    f"{'':42}{'ratio':>9}{row['p50_ms']:9.2f}{row['p90_ms']:9.2f}{row['p99_ms']:9.2f}"
                )
            else:
                values = "".join(f"{row[key]:9.1f}" for key in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))
                lines.append(f"{what:42}{way:>9}{values}{row['samples']:9}")
    cpu = ", ".join(f"{way} {value:.1f} ms" for way, value in results["cpu_ms_per_pod"].items())
    lines.append(f"CPU of the scheduler per pod bound: {cpu}")
    return "\n".join(lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--singles",
        type=int,
        default=20,
        help="single pods of each way and birth in a round (default: %(default)s)",
    )
    parser.add_argument(
        "--gangs", type=int, default=3, help="gangs of each way and birth in a round (default: %(default)s)"
    )
    parser.add_argument(
        "--gang", type=int, default=100, help="pods of a gang, one a node (default: %(default)s)"
    )
    parser.add_argument(
        "--foreign",
        type=float,
        default=0,
        help="pods a second that the stock scheduler places besides (default: none)",
    )
    parser.add_argument("--ways", choices=("both", STOCK, FLUXION), default="both")
    parser.add_argument("--profile", type=Path, help="write a cProfile of our scheduler here")
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results" / "scheduler_latency.json"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluxqueue-latency-") as folder:
        Path(folder).chmod(0o711)
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(ControlPlane(Path(folder) / "cluster", nodes=arguments.gang))
            ways: dict[str, Callable[[], float]] = {}
            if arguments.ways in ("both", STOCK):
                ways[STOCK] = partial(cpu_s, cluster.processes[Component.SCHEDULER])
            if arguments.ways in ("both", FLUXION):
                ours = stack.enter_context(SchedulerProcess(Path(folder), cluster, profile=arguments.profile))
                ways[FLUXION] = partial(cpu_s, ours.process)
            results = figures(asyncio.run(run(arguments, cluster, ways)))
    results["load_average"] = os.getloadavg()
    print(table(results))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
