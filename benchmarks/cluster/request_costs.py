"""CPU time of the API server for one request of each kind that a Job costs:
``python -m cluster.request_costs`` in ``benchmarks/``.

Controllers, kubelets and the queue are stopped, so nothing but the requests runs. The requests of one kind
follow one another on one connection, in rounds: each round has a part of every kind, and the figure is the
median of the rounds. What the API server uses without requests is measured first and taken off. The figures
are CPU time, so they do not depend on who else runs; but on a busy machine all of them are larger, and only
those of one run can be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.templatepins import node_affinity
from fluxqueue.kube.kinds import FLUXJOBS, JOBS, NAMESPACES, PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.components import Component
from fluxqueue.local.inprocess import NAMESPACE, InProcessCluster

_MANAGED, _OTHER = "costs-managed", "costs-plain"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_IDLE_S = 10.0
_WARM_UP = 20
_NODE = "node-1"
_STATUS = {
    "state": "Running",
    "jobid": 4711,
    "nodes": "node-[1-4]",
    "submittedAt": "2026-01-01T00:00:00Z",
    "allocatedAt": "2026-01-01T00:00:01Z",
    "startedAt": "2026-01-01T00:00:02Z",
}
_ALLOCATION = {
    names.ALLOCATION_ANNOTATION: "4711",
    names.NODES_ANNOTATION: _NODE,
    names.PIN_UNTIL_ANNOTATION: "2100-01-01T00:00:00Z",
    names.SCHEDULER_LABEL: "stock",
}
_JOBID = {names.JOBID_LABEL: "4711"}
_HELD = {**_JOBID, names.PINNED_LABEL: names.PINNED_VALUE}
_HELD_ALLOCATION = {key: value for key, value in _ALLOCATION.items() if key != names.PIN_UNTIL_ANNOTATION}
"""Of a template that holds the node of its pods."""

Request = Callable[[int], Awaitable[object]]


def main() -> None:
    """Measure, print a table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--requests", type=int, default=100, help="of each kind in each round (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parents[1] / "results" / "request_costs.json"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluxqueue-costs-") as folder:
        Path(folder).chmod(0o711)
        with InProcessCluster(Path(folder) / "cluster", ClusterOptions(nodes=1, durable=False)) as cluster:
            costs = asyncio.run(_measure(cluster, arguments.requests, arguments.rounds))
    for name, cost_ms in costs.items():
        print(f"{name:56}{cost_ms:8.2f} ms")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(costs, indent=2))


async def _measure(cluster: InProcessCluster, count: int, rounds: int) -> dict[str, float]:
    plane = cluster.control_plane
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark") as admin:
        for namespace, labels in ((_MANAGED, {names.MANAGED_LABEL: "true"}), (_OTHER, {})):
            await admin.create(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
            await _default_account(admin, namespace)
        job_controller = plane.service_account_kubeconfig("kube-system", "job-controller")
        cluster.programs["queue"].stop(graceful=False)
        for component in (Component.CONTROLLER_MANAGER, Component.SCHEDULER, Component.KWOK):
            plane.stop_component(component, graceful=False)
        queue_kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "fluxqueue-queue")
        async with (
            Api.connect(queue_kubeconfig, user_agent="fluxqueue/benchmark") as queue,
            Api.connect(job_controller, user_agent="fluxqueue/benchmark") as controller,
        ):
            return await _costs(cluster, _requests(admin, queue, controller), count, rounds)


async def _costs(
    cluster: InProcessCluster, requests: Mapping[str, Request], count: int, rounds: int
) -> dict[str, float]:
    for request in requests.values():
        for number in range(_WARM_UP):
            await request(number)
    pid = cluster.control_plane.processes[Component.API_SERVER].pid
    assert pid is not None
    before_s = _cpu_s(pid)
    await asyncio.sleep(_IDLE_S)
    idle = (_cpu_s(pid) - before_s) / _IDLE_S
    found: dict[str, list[float]] = {name: [] for name in requests}
    for part in range(rounds):
        first = _WARM_UP + part * count
        for name, request in requests.items():
            before_s, started_s = _cpu_s(pid), time.monotonic()
            for number in range(first, first + count):
                await request(number)
            found[name].append(
                1000 * (_cpu_s(pid) - before_s - idle * (time.monotonic() - started_s)) / count
            )
    return {name: statistics.median(each) for name, each in found.items()}


def _cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


async def _default_account(api: Api, namespace: str) -> None:
    async with asyncio.timeout(60):
        while True:
            accounts = json.loads(await api.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts"))
            if accounts["items"]:
                return
            await asyncio.sleep(0.1)


def _requests(admin: Api, queue: Api, controller: Api) -> dict[str, Request]:
    """Return what is measured, in an order in which each finds its objects."""
    merge = PatchType.MERGE

    def status(api: Api, kind: Any, prefix: str, namespace: str, change: dict[str, Any]) -> Request:
        return lambda number: api.patch(
            kind,
            f"{prefix}-{number}",
            {"status": change},
            namespace=namespace,
            patch_type=merge,
            subresource="status",
        )

    async def fluxjob_status(number: int) -> None:
        patch = [{"op": "add", "path": "/status", "value": {**_STATUS, "state": "Completed"}}]
        await queue.patch(FLUXJOBS, f"job-{number}", patch, namespace=_MANAGED, patch_type=PatchType.JSON)

    return {
        "Job: create, not managed": lambda number: admin.create(JOBS, _job(f"job-{number}"), _OTHER),
        "Job: create, managed (webhook)": lambda number: admin.create(JOBS, _job(f"job-{number}"), _MANAGED),
        "FluxJob: create, with its status": lambda number: queue.create(
            FLUXJOBS, _fluxjob(f"job-{number}"), _MANAGED
        ),
        "Job: release (strategic merge patch)": lambda number: queue.patch(
            JOBS, f"job-{number}", _release(), namespace=_MANAGED, patch_type=PatchType.STRATEGIC
        ),
        "Pod of a Job: create, not managed": lambda number: controller.create(
            PODS, _pod_of_job(f"pod-{number}"), _OTHER
        ),
        "Pod of a released Job: create, managed (webhook)": lambda number: controller.create(
            PODS, _pod_of_job(f"pod-{number}", released=True), _MANAGED
        ),
        "Pod of a released Job: create, managed, its template holds the node": lambda number: (
            controller.create(PODS, _pod_of_job(f"held-by-template-{number}", in_template=True), _MANAGED)
        ),
        "Pod: bind, not managed": lambda number: admin.request(
            "POST", PODS.path(_OTHER, f"pod-{number}", "binding"), body=_binding(f"pod-{number}")
        ),
        "Pod: bind, managed": lambda number: admin.request(
            "POST", PODS.path(_MANAGED, f"pod-{number}", "binding"), body=_binding(f"pod-{number}")
        ),
        "Pod: status, not managed": status(admin, PODS, "pod", _OTHER, {"phase": "Running"}),
        "Pod: status, managed": status(admin, PODS, "pod", _MANAGED, {"phase": "Running"}),
        "Job: status, not managed": status(admin, JOBS, "job", _OTHER, {"active": 1}),
        "Job: status, managed and released": status(admin, JOBS, "job", _MANAGED, {"active": 1}),
        "FluxJob: status (JSON patch)": fluxjob_status,
        "Pod: create, held by a gate (webhook)": lambda number: admin.create(
            PODS, _pod(f"held-{number}"), _MANAGED
        ),
        "Pod: release from its gate (strategic merge patch)": lambda number: queue.patch(
            PODS, f"held-{number}", _pod_release(), namespace=_MANAGED, patch_type=PatchType.STRATEGIC
        ),
        "Event: create": lambda number: controller.request(
            "POST", f"/api/v1/namespaces/{_MANAGED}/events", body=_event(f"job-{number}")
        ),
    }


def _template() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {"restartPolicy": "Never", "containers": [container]}


def _job(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"template": {"spec": _template()}}}


def _pod_of_job(name: str, *, released: bool = False, in_template: bool = False) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": _uid(name), "controller": True}
    labels = {
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": _uid(name),
        "job-name": name,
    }
    metadata: dict[str, Any] = {"name": name, "ownerReferences": [owner], "labels": labels}
    if in_template:
        metadata |= {"labels": labels | _HELD, "annotations": _HELD_ALLOCATION}
        return {"metadata": metadata, "spec": {**_template(), "affinity": node_affinity(_NODE)}}
    if not released:
        return {"metadata": metadata, "spec": _template()}
    metadata |= {"labels": labels | _JOBID, "annotations": _ALLOCATION}
    return {"metadata": metadata, "spec": {**_template(), "schedulingGates": [{"name": names.GATE}]}}


def _release() -> dict[str, Any]:
    """Return the patch that releases a Job of one pod, as `fluxqueue.queue.release.patches` builds it."""
    template = {
        "metadata": {"labels": _HELD, "annotations": _HELD_ALLOCATION},
        "spec": {"affinity": node_affinity(_NODE)},
    }
    return {
        "metadata": {"labels": _JOBID, "annotations": {names.SUSPENDED_BY_ANNOTATION: None}},
        "spec": {"suspend": False, "template": template},
    }


def _pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": _template()}


def _pod_release() -> dict[str, Any]:
    """Return the patch that releases a pod, as `fluxqueue.queue.release.patches` builds it."""
    annotations = {names.ALLOCATION_ANNOTATION: "4711", names.NODES_ANNOTATION: _NODE}
    gates = [{"name": names.GATE, "$patch": "delete"}]
    spec = {"schedulingGates": gates, "affinity": node_affinity(_NODE)}
    return {"metadata": {"labels": _JOBID, "annotations": annotations}, "spec": spec}


def _event(name: str) -> dict[str, Any]:
    subject = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "namespace": _MANAGED,
        "uid": _uid(name),
    }
    return {
        "metadata": {"generateName": f"{name}.", "namespace": _MANAGED},
        "involvedObject": subject,
        "reason": "Suspended",
        "message": "Job suspended",
        "type": "Normal",
        "source": {"component": "job-controller"},
    }


def _binding(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": _NODE},
    }


def _fluxjob(name: str) -> dict[str, Any]:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": _uid(name)}
    jobspec = json.dumps(
        {
            "version": 9999,
            "resources": [
                {"type": "slot", "count": 1, "label": "pod", "with": [{"type": "core", "count": 1}]}
            ],
        }
    )
    return {
        "metadata": {
            "name": name,
            "ownerReferences": [{**reference, "controller": False}],
            "labels": {names.QUEUE_LABEL: "default"},
            "annotations": {names.ACKNOWLEDGED_ANNOTATION: "{}"},
        },
        "spec": {"objectRef": reference, "queue": "default", "pods": 1, "jobspec": jobspec},
        "status": _STATUS,
    }


def _uid(name: str) -> str:
    return f"00000000-0000-0000-0000-{abs(hash(name)) % 10**12:012d}"


if __name__ == "__main__":
    main()
