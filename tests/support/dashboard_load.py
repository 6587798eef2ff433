"""A busy cluster for the dashboard: racks of nodes, and the work of a day in three queues,
as the queue would write it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
from support.dashboard_site import Stage, node

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob, fluxjob_name
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of

ZONE: Final = "topology.kubernetes.io/zone"
RACK: Final = "topology.kubernetes.io/rack"
CORES: Final = 16
QUEUES: Final = {"batch": 5, "gpu": 4, "night": 1}
ACCOUNTS: Final = {
    "physics": "blue",
    "climate": "green",
    "biology": "red",
    "materials": "violet",
    "teaching": "grey",
}
USERS: Final = ("alice", "bohr", "curie", "dirac", "euler", "fermi", "gauss")
_WHY: Final = "KubeletNotReady", "container runtime is down"
_REASONS: Final = ("WaitingForNodes", "BlockedByReservation", "QueueLimit", "Held", "WaitingForDependency")
_NAMES: Final = (
    "lammps",
    "gromacs",
    "wrf",
    "namd",
    "openfoam",
    "vasp",
    "cp2k",
    "bert-train",
    "blast",
    "relion",
    "icon",
    "siesta",
)


def busy_cluster(
    stage: Stage, now: datetime, *, nodes: int = 64, waiting: int = 120, ended: int = 179
) -> None:
    """Fill a stage: most nodes have work, some are free, three are not usable;
    the day before was less and more busy. As it stands it has 312 jobs.
    """
    chance = random.Random(7)
    for number in range(nodes):
        labels: dict[str, Any] = {
            ZONE: f"zone-{'ab'[number * 2 // nodes]}",
            RACK: f"rack-{number * 8 // nodes + 1}",
        }
        broken = number in (nodes // 3, nodes // 3 + 1)
        down = number == nodes - 5
        stage.state.nodes.apply(
            node(f"node-{number + 1:03}", cpu=CORES, cordoned=broken, ready=not down, why=_WHY, **labels)
        )
    stage.state.reservations.apply(_maintenance(now, nodes))
    for name, weight in QUEUES.items():
        status = {
            "pending": waiting * weight // 10,
            "running": nodes // 4 * weight // 10,
            "nodesInUse": nodes * weight // 12,
        }
        spec = {
            "limits": {"running": nodes, "nodes": nodes},
            "policy": "easy" if name != "night" else "conservative",
        }
        stage.state.queues.apply(
            msgspec.convert(
                {"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}, FluxQueue
            )
        )
    limits = {"running": nodes, "nodes": nodes}
    whole = {
        "spec": {"limits": limits},
        "status": {"pending": waiting, "running": nodes // 5, "nodesInUse": nodes * 4 // 5},
    }
    stage.state.accounts.apply(
        msgspec.convert({"metadata": {"name": "science", "uid": "science"}, **whole}, FluxAccount)
    )
    for number, (name, namespace) in enumerate(ACCOUNTS.items()):
        share = {"share": 0.2, "use": 4_000_000 // (number + 1), "factor": (number + 1) / 6}
        counts = {
            "pending": waiting // 5,
            "running": nodes // 16 - number // 2,
            "nodesInUse": nodes // (number + 4),
            "fairShare": share,
        }
        most = {"running": nodes // 4, "nodes": nodes // 2}
        account = {"parent": "science", "namespaces": [namespace], "shares": 2, "limits": most}
        made = {"metadata": {"name": name, "uid": name}, "spec": account, "status": counts}
        stage.state.accounts.apply(msgspec.convert(made, FluxAccount))
    for job in _work(chance, now, nodes, waiting, ended):
        stage.show(job)


def _maintenance(now: datetime, nodes: int) -> FluxReservation:
    """Return that of the two nodes that are cordoned."""
    hosts = f"node-[{nodes // 3 + 1:03}-{nodes // 3 + 2:03}]"
    begin, end = now - timedelta(minutes=50), now + timedelta(minutes=130)
    status = {"state": "Active", "nodes": hosts, "nodeCount": 2, "start": _text(begin), "end": _text(end)}
    meta = {"name": "new-memory", "uid": "new-memory"}
    spec = {"maintenance": True, "atStart": "drain"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, FluxReservation)


def busy_history(now: datetime) -> dict[str, Mapping[str, Any]]:
    """Return what the queue's port answers about the month before."""
    chance = random.Random(11)
    days: list[dict[str, Any]] = []
    for day in range(30):
        week = 0.55 if (now - timedelta(days=day)).weekday() > 4 else 1.0
        for number, account in enumerate(ACCOUNTS):
            hours = 4_600 / (number + 1.6) * week * chance.uniform(0.6, 1.15)
            row = {"day": _text(now - timedelta(days=day))[:10], "account": account}
            days.append({**row, "cpu_s": 3_600 * hours, "gpu_s": 3_600 * hours / (30 if number < 2 else 90)})
    jobs = []
    for number in range(900):
        queue = chance.choices(list(QUEUES), list(QUEUES.values()))[0]
        mean = {"batch": 1_100, "gpu": 4_000, "night": 15_000}[queue]
        wait = chance.lognormvariate(0, 1.6) * mean / 4
        end = now - timedelta(minutes=11 * number + 3)
        name = f"{chance.choice(_NAMES)}-{4000 - number}"
        failed = chance.random() < 0.06
        jobs.append(
            {
                "namespace": chance.choice(list(ACCOUNTS.values())),
                "kind": "Job",
                "name": name,
                "uid": f"gone-{number}",
                "queue": queue,
                "user": USERS[number % len(USERS)],
                "state": "Failed" if failed else "Completed",
                "outcome": "Failed" if failed else "Succeeded",
                "wait_s": wait,
                "run_s": chance.choice((300, 1_800, 7_200, 14_400)) * chance.uniform(0.5, 1.0),
                "submitted_at": _text(end - timedelta(hours=5)),
                "finished_at": _text(end),
            }
        )
    return {"/history": {"jobs": jobs, "next": None}, "/report": {"rows": days}}


def _work(chance: random.Random, now: datetime, nodes: int, waiting: int, ended: int) -> Iterator[FluxJob]:
    idle = (nodes // 3, nodes // 3 + 1, nodes - 5)
    free = [number for number in range(nodes) if number % 11 and number not in idle]
    number = 0
    while free:
        count = min(chance.choice((1, 1, 2, 2, 4, 8)), len(free))
        hosts, free = free[:count], free[count:]
        limit = chance.choice((1, 2, 4, 8, 12, 24)) * 3_600
        began = now - timedelta(seconds=chance.uniform(0.05, 1.04) * limit)
        times = {
            "submittedAt": began - timedelta(minutes=chance.randrange(90)),
            "allocatedAt": began,
            "startedAt": began,
        }
        status = {
            "state": "Running",
            "nodes": ",".join(f"node-{host + 1:03}" for host in hosts),
            "jobid": number + 1,
        }
        yield _job(chance, number, count, chance.choice((8, 12, 16, 16)), limit, {**status, **times})
        number += 1
    for place in range(waiting):
        start = now + timedelta(seconds=60 + 3_000 * (place // 5) ** 0.7 + 40 * place)
        status = {
            "state": "Pending",
            "position": place + 1,
            "submittedAt": now - timedelta(minutes=400 - 3 * min(place, 130)),
        }
        reason = chance.choices(_REASONS, (50, 30, 12, 4, 4))[0]
        status |= {"reason": reason, "message": "needs 4 nodes with 16 cpu each, 3 are free"}
        if reason not in ("Held", "WaitingForDependency"):
            status |= {"eta": start} | ({"reservedAt": start} if place < 3 else {})
        yield _job(
            chance, number, chance.choice((1, 2, 4, 8)), 16, chance.choice((1, 2, 6, 12)) * 3_600, status
        )
        number += 1
    for place in range(ended):
        end = now - timedelta(seconds=86_000 * ((place + chance.random()) / ended) ** 0.9 + 30)
        ran = chance.choice((300, 1_800, 7_200, 14_400, 28_800)) * chance.uniform(0.5, 1.0)
        outcome, state = chance.choices(
            (("Succeeded", "Completed"), ("Failed", "Failed"), ("TimeLimit", "Failed")), (93, 5, 2)
        )[0]
        begin = end - timedelta(seconds=ran)
        status = {
            "state": state,
            "outcome": outcome,
            "nodes": "node-001",
            "finishedAt": end,
            "allocatedAt": begin,
            "startedAt": begin,
        }
        status |= {
            "submittedAt": begin - timedelta(minutes=20),
            "etaFirst": begin - timedelta(minutes=chance.randrange(-9, 30)),
        }
        status |= {"message": "exit code 1 of rank 0" if outcome == "Failed" else ""}
        yield _job(chance, number, chance.choice((1, 1, 2, 4, 8)), 12, 28_800, status)
        number += 1


def _job(
    chance: random.Random, number: int, pods: int, cpu: int, limit: int, status: dict[str, Any]
) -> FluxJob:
    account, namespace = chance.choices(list(ACCOUNTS.items()), (30, 25, 20, 15, 10))[0]
    queue = chance.choices(list(QUEUES), list(QUEUES.values()))[0]
    name, uid = f"{chance.choice(_NAMES)}-{number + 1}", f"uid-{number}"
    amounts = {"cpu": Decimal(cpu), "memory": Decimal(cpu * 3 << 28)} | (
        {"nvidia.com/gpu": Decimal(2)} if queue == "gpu" else {}
    )
    spec = {
        "objectRef": {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid},
        "queue": queue,
        "pods": pods,
        "priority": chance.choice((0, 0, 0, 10, 50)),
        "durationSeconds": limit,
        "jobspec": jobspec_of(f"{namespace}/{name}", [SizedPods(amounts, pods)], duration_s=limit),
    }
    status = {"submittedBy": USERS[number * 3 % len(USERS)], **status}
    times = {
        key: _text(value) if isinstance(value, datetime) else value
        for key, value in {"account": account, **status}.items()
    }
    meta = {
        "name": fluxjob_name("Job", name, uid),
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": times["submittedAt"],
    }
    return msgspec.convert({"metadata": meta, "spec": spec, "status": times}, FluxJob)


def _text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
