"""Work in every state for the pages of the dashboard, as the queue would write it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.dashboard_stage import at, change, create, fluxjob, make_namespace

from fluxqueue.api import names
from fluxqueue.local.controlplane import ControlPlane

HOSTILE = '<script>document.title="owned"</script>"\'><img src=x onerror=\'document.title="owned"\'>'


def some_work(cluster: ControlPlane) -> None:
    """Create queues, accounts, a reservation, and jobs of two tenants."""
    for namespace in ("blue", "red"):
        make_namespace(cluster, namespace)
    cluster.apply(
        _ours("FluxQueue", "default", {"limits": {"running": 6, "nodes": 8}}),
        _ours("FluxQueue", "night", {"policy": "conservative", "state": "held"}),
        _ours("FluxAccount", "science", {"limits": {"nodes": 8}}),
        _ours(
            "FluxAccount",
            "physics",
            {"parent": "science", "namespaces": ["blue"], "shares": 3, "limits": {"running": 4}},
        ),
        _ours(
            "FluxReservation",
            "maintenance",
            {"start": at(3_000), "duration": "40m", "nodes": {"names": ["node-8"]}, "maintenance": True},
        ),
    )
    _status(cluster, "fluxqueues", "default", {"pending": 4, "running": 3, "nodesInUse": 5})
    _status(
        cluster,
        "fluxaccounts",
        "physics",
        {
            "pending": 3,
            "running": 2,
            "nodesInUse": 4,
            "fairShare": {"share": 0.75, "use": 52_000, "factor": 0.5},
        },
    )
    _status(
        cluster,
        "fluxreservations",
        "maintenance",
        {"state": "Planned", "nodes": "node-8", "nodeCount": 1, "start": at(3_000), "end": at(5_400)},
    )
    # What the chart makes for rbac.historyIn.
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "fluxqueue-history"}},
        namespace="blue",
    )
    for job in _jobs():
        create(cluster, job)


def _runs(name: str, nodes: str, pods: int, since: float, **more: Any) -> dict[str, Any]:
    times = {"submittedAt": at(-since - 200), "allocatedAt": at(-since), "startedAt": at(-since + 2)}
    spec = {"pods": pods, "durationSeconds": more.pop("duration", 3_600)}
    return fluxjob(
        name,
        more.pop("namespace", "blue"),
        spec=spec,
        state="Running",
        nodes=nodes,
        jobid=hash(name) % 1_000,
        **times,
        **more,
    )


def _waits(name: str, reason: str, message: str, position: int | None = None, **more: Any) -> dict[str, Any]:
    spec = {"pods": more.pop("pods", 2), "durationSeconds": 2_400, "priority": more.pop("priority", 0)}
    place: dict[str, Any] = {} if position is None else {"position": position}
    return fluxjob(
        name,
        more.pop("namespace", "blue"),
        spec=spec,
        reason=reason,
        message=message,
        submittedAt=at(-900),
        **place,
        **more,
    )


def _jobs() -> list[dict[str, Any]]:
    return [
        _runs("lammps", "node-[1-2]", 2, 900),
        _runs("gromacs", "node-[3,3,4]", 3, 2_400, etaFirst=at(-2_500)),
        _runs("overrun", "node-5", 1, 5_000, duration=3_600, etaFirst=at(-4_000)),
        _runs("other-tenant", "node-6", 2, 600, namespace="red"),
        _waits(
            "wrf",
            "WaitingForNodes",
            "needs 4 nodes with 2 cpu each, 3 are free",
            1,
            pods=4,
            reservedAt=at(1_700),
            eta=at(1_700),
        ),
        _waits(
            "namd",
            "BlockedByReservation",
            "what is free is reserved for job/wrf",
            2,
            eta=at(2_900),
            priority=50,
        ),
        _waits("held-one", "Held", "held by alice"),
        _waits("too-large", "Unsatisfiable", "no node has 512 cpu"),
        _waits("hostile", "WaitingForNodes", HOSTILE, namespace="red"),
        fluxjob(
            "done",
            "blue",
            state="Completed",
            outcome="Succeeded",
            nodes="node-7",
            startedAt=at(-4_000),
            allocatedAt=at(-4_001),
            finishedAt=at(-3_000),
        ),
        fluxjob(
            "broken",
            "blue",
            state="Failed",
            outcome="Failed",
            message="exit code 1",
            startedAt=at(-2_000),
            finishedAt=at(-1_900),
        ),
    ]


def many_jobs(cluster: ControlPlane, namespace: str, count: int) -> list[str]:
    """Create so many waiting jobs in a namespace; returns the names of their FluxJobs in the order of the
    queue.
    """
    make_namespace(cluster, namespace)
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            fluxjob(
                f"crowd-{number:05}",
                namespace,
                reason="WaitingForNodes",
                message="needs 2 cpu, 0 are free",
                position=number + 1,
            )
            for number in range(count)
        ]
        return list(pool.map(lambda job: create(cluster, job), jobs))


def finish(cluster: ControlPlane, namespace: str, name: str) -> None:
    """Let a job run to its end, as the queue would write it."""
    change(
        cluster, namespace, name, status={"state": "Completed", "outcome": "Succeeded", "finishedAt": at(0)}
    )


def _ours(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _status(cluster: ControlPlane, plural: str, name: str, status: dict[str, Any]) -> None:
    cluster.client.request("PATCH", f"/apis/{names.API_VERSION}/{plural}/{name}/status", {"status": status})
