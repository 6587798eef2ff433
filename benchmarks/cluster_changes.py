"""How soon the graph shows a change of the cluster, and how soon a freed node is used again.

It runs on the local control plane with many nodes and Jobs running on some of them. Each time starts at the
call that changes an object (before it is sent) and ends at the first answer of Fluxion, polled every few
milliseconds, that shows the change. So the times include the API server, the watch, the queue, the matcher
and the polling of this program.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fluxqueue.fluxion.messages import CallContext, JobMode
from fluxqueue.fluxion.rpc.client import FluxionClient
from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.fake_nodes import node_name
from fluxqueue.local.inprocess import InProcessCluster

NAMESPACE = "changes"
_POLL_S = 0.005
_WITHIN_S = 30.0


def until(what: str, holds: Callable[[], bool], since: float) -> float:
    """Wait until a condition holds, and return the seconds since ``since``."""
    while not holds():
        if time.perf_counter() - since > _WITHIN_S:
            raise SystemExit(f"not within {_WITHIN_S:g} s: {what}")
        time.sleep(_POLL_S)
    return time.perf_counter() - since


def _some(ask: Callable[[int], list[str]], turn: int) -> bool:
    return bool(ask(turn))


def summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50_s": round(statistics.median(ordered), 3), "max_s": round(ordered[-1], 3), "n": len(ordered)}


def a_job(name: str, cpu: str, run: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    template = {
        "metadata": {"annotations": {"fluxqueue.local/run-seconds": run}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template},
    }


class Bench:
    """A local cluster, its matcher, and the measurements on them."""

    def __init__(self, cluster: InProcessCluster, fluxion: FluxionClient, nodes: int) -> None:
        self.client = cluster.control_plane.client
        self.control_plane = cluster.control_plane
        self.fluxion = fluxion
        self.nodes = nodes

    def allocated(self) -> int:
        """Return the number of jobs that hold nodes."""
        return sum(job.mode is JobMode.ALLOCATED for job in self.fluxion.list_jobs(call=CallContext()))

    def up(self, name: str) -> bool | None:
        """True if a node is up in the graph, None if the graph does not have it."""
        return next(
            (
                use.up
                for use in self.fluxion.stat(call=CallContext(), per_node=True).node_use
                if use.node == name
            ),
            None,
        )

    def _is(self, name: str, state: bool | None) -> bool:
        return self.up(name) is state

    def node_changes(self, rounds: int) -> dict[str, dict[str, float]]:
        """Cordon, uncordon, remove and add single nodes."""
        seconds_of: dict[str, list[float]] = {"cordoned": [], "uncordoned": [], "removed": [], "added": []}
        for number in range(self.nodes, self.nodes - rounds, -1):
            name = node_name(number)
            path = f"/api/v1/nodes/{name}"
            ask = partial(self.client.request, "PATCH", path)
            changes: list[tuple[str, Callable[[], object], bool | None]] = [
                ("cordoned", partial(ask, {"spec": {"unschedulable": True}}), False),
                ("uncordoned", partial(ask, {"spec": {"unschedulable": None}}), True),
                ("removed", partial(self.client.request, "DELETE", path), None),
                ("added", partial(self.control_plane.nodes.add, [number]), True),
            ]
            for what, send, state in changes:
                since = time.perf_counter()
                send()
                seconds_of[what].append(until(f"{name} is {what}", partial(self._is, name, state), since))
        return {what: summary(seconds) for what, seconds in seconds_of.items()}

    def foreign(self) -> int:
        """Return the number of foreign pods that the graph counts."""
        jobs = self.fluxion.list_jobs(call=CallContext(), with_shares=True)
        return sum(
            share.amounts.get("pods", 0) for job in jobs if job.mode is JobMode.SYSTEM for share in job.shares
        )

    def foreign_pods(self, pods: int, per_s: float) -> dict[str, float]:
        """Bind foreign pods at a rate, and wait until the graph counts each."""
        before = self.foreign()
        born: list[float] = []
        seen: list[float] = []
        began = time.perf_counter()
        spec = {
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}]
        }
        annotations = {"fluxqueue.local/run-seconds": "forever"}
        while len(seen) < pods:
            if len(born) < pods and time.perf_counter() >= began + len(born) / per_s:
                number = len(born)
                body = {
                    "metadata": {"name": f"foreign-{number}", "annotations": annotations},
                    "spec": {**spec, "nodeName": node_name(number % self.nodes + 1)},
                }
                born.append(time.perf_counter())
                self.client.request("POST", "/api/v1/namespaces/default/pods", body)
                continue
            counted = self.foreign() - before
            seen.extend([time.perf_counter()] * (counted - len(seen)))
        return {
            **summary([late - early for early, late in zip(born, seen, strict=True)]),
            "bound_per_s": round(pods / (born[-1] - born[0]), 1),
        }

    def next_releases(self, rounds: int) -> dict[str, float]:
        """End the last pod of a Job, and measure the time until the Job that waits for its node is
        released.
        """
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        # A node in the middle: running work is on the first ones, and the last ones are changed.
        selector = {"nodeSelector": {"kubernetes.io/hostname": node_name(self.nodes // 2)}}
        seconds_of: list[float] = []

        def submit(name: str) -> None:
            job = a_job(name, "8", "forever")
            job["spec"]["template"]["spec"] |= selector
            self.client.request("POST", path, job)

        def running(turn: int) -> list[str]:
            pods = self.client.get(
                f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"job-name=turn-{turn}"
            )["items"]
            return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]

        def released(turn: int) -> bool:
            return not self.client.get(f"{path}/turn-{turn}")["spec"].get("suspend")

        submit("turn-0")
        for turn in range(rounds):
            until(f"Job turn-{turn} runs", partial(_some, running, turn), time.perf_counter())
            submit(f"turn-{turn + 1}")
            time.sleep(0.5)
            (pod,) = running(turn)
            since = time.perf_counter()
            self.client.request(
                "PATCH",
                f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/status",
                {"status": {"phase": "Succeeded"}},
            )
            seconds_of.append(until(f"Job turn-{turn + 1} is released", partial(released, turn + 1), since))
        return summary(seconds_of)


@contextmanager
def a_bench(nodes: int) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="fluxqueue-bench-") as folder:
        Path(folder).chmod(0o711)
        cluster = InProcessCluster(Path(folder) / "cluster", ClusterOptions(nodes=nodes, durable=False))
        try:
            cluster.start(300)
            client = cluster.control_plane.client
            client.request(
                "POST",
                "/api/v1/namespaces",
                {"metadata": {"name": NAMESPACE, "labels": {"fluxqueue/managed": "true"}}},
            )
            account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
            until(
                "the default service account is there",
                lambda: client.find(account) is not None,
                time.perf_counter(),
            )
            with FluxionClient(f"127.0.0.1:{cluster.programs['fluxion'].port}") as fluxion:
                yield Bench(cluster, fluxion, nodes)
        finally:
            cluster.destroy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=100, help="running while nodes change")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pods", type=int, default=500)
    arguments = parser.parse_args()
    with a_bench(arguments.nodes) as bench:
        for number in range(arguments.jobs):
            try:
                bench.client.request(
                    "POST",
                    f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
                    a_job(f"runs-{number}", "1", "forever"),
                )
            except ApiServerError as error:
                raise SystemExit(f"Job runs-{number}: {error}") from None
        until("the Jobs have nodes", lambda: bench.allocated() >= arguments.jobs, time.perf_counter())
        result = {
            "nodes": arguments.nodes,
            "running": arguments.jobs,
            "last_pod_to_next_release": bench.next_releases(arguments.rounds * 2),
            "node_to_graph": bench.node_changes(arguments.rounds),
            "foreign_pod_to_graph": bench.foreign_pods(arguments.pods, 50.0),
        }
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
