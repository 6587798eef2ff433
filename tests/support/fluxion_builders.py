"""Builders of graphs and jobspecs, and checks of an engine's state."""

from __future__ import annotations

import json
from typing import Any

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.graph.pools import bits
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    JobMode,
    Level,
    MatchResult,
    Pool,
)

NOW = CallContext(now=1_000)


def node(
    name: str, zone: str = "", down: bool = False, labels: tuple[str, ...] = (), **pools: Any
) -> GraphNodeSpec:
    """A node. Cpu comes in vertices of 100, memory in vertices of 256,
    every other resource in vertices of one.
    """
    sizes = {"cpu": 100, "memory": 256}
    made = tuple(Pool(kind, total, sizes.get(kind, 1)) for kind, total in pools.items())
    return GraphNodeSpec(name, made, (Level("zone", zone),) if zone else (), dict.fromkeys(labels, ""), down)


def slot(count: Any, label: Any = "w", **needs: Any) -> dict[str, Any]:
    return {
        "type": "slot",
        "count": count,
        "label": label,
        "with": [{"type": kind, "count": amount} for kind, amount in needs.items()],
    }


def nodes(count: Any, *inside: dict[str, Any], exclusive: bool = False) -> dict[str, Any]:
    level: dict[str, Any] = {"type": "node", "count": count}
    if inside:
        level["with"] = list(inside)
    if exclusive:
        level["exclusive"] = True
    return level


def jobspec(
    *levels: dict[str, Any], duration: float = 60, constraints: Any = None, reservation: str = ""
) -> str:
    system: dict[str, Any] = {"duration": duration}
    if reservation:
        system["reservation"] = reservation
    if constraints is not None:
        system["constraints"] = constraints
    task = {"command": ["app"], "slot": "w", "count": {"per_slot": 1}}
    return json.dumps(
        {"version": 9999, "resources": list(levels), "tasks": [task], "attributes": {"system": system}}
    )


def engine(*specs: GraphNodeSpec, policy: str = "lonode", call: CallContext = NOW) -> Engine:
    made = Engine()
    made.init(policy, nodes=specs, call=call)
    return made


def ask(made: Engine, text: str, jobid: int = 0, call: CallContext = NOW, **options: Any) -> MatchResult:
    """One request of a batch, with an explanation."""
    return made.match_batch([JobMatchRequest(text, jobid, explain=True, **options)], call).results[0]


def flat_jgf(count: int, cores: int = 4, memory: int = 2, per_rack: int = 0) -> str:
    """A JGF cluster of nodes with cores and memory, in racks if requested."""
    vertices: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []

    def add(kind: str, number: int, parent: tuple[str, str] | None) -> tuple[str, str]:
        path = f"{parent[1] if parent else ''}/{kind}{number}"
        ident = str(len(vertices))
        vertices.append(
            {"id": ident, "metadata": {"type": kind, "id": number, "paths": {"containment": path}}}
        )
        if parent:
            edges.append({"source": parent[0], "target": ident})
        return ident, path

    root = add("cluster", 0, None)
    rack = root
    for number in range(count):
        if per_rack and number % per_rack == 0:
            rack = add("rack", number // per_rack, root)
        host = add("node", number, rack)
        for index in range(cores):
            add("core", index, host)
        for index in range(memory):
            add("memory", index, host)
    return json.dumps({"graph": {"nodes": vertices, "edges": edges}})


def state_of(made: Engine) -> GraphState:
    session = made._session
    assert session is not None
    return session.state


def holdings(made: Engine) -> dict[str, Any]:
    """Return everything that is booked, vertex by vertex, with the vectors that are derived from it."""
    state = state_of(made)
    held: dict[str, Any] = {}
    for path, vertex in state.graph.by_path.items():
        held[path] = (
            sorted(job.jobid for job in vertex.shared),
            sorted(job.jobid for job in vertex.exclusive),
            vertex.up,
            vertex.closed,
            dict(vertex.properties),
            {
                kind: (
                    run.busy,
                    run.full,
                    *(
                        {job.jobid: mask for job, mask in own.items()}
                        for own in (run.allocated, run.reserved, run.shared)
                    ),
                )
                for kind, run in vertex.runs.items()
            },
        )
    table = state.table
    for row, vertex in enumerate(table.nodes):
        if table.present[row]:
            free = {kind: int(vector[row]) for kind, vector in table.free.items() if kind in vertex.runs}
            held["row " + vertex.name] = (
                bool(table.usable[row]),
                int(table.jobs[row]),
                int(table.reservations[row]),
                free,
            )
    return held


def check_books(made: Engine) -> None:
    """Check that no leaf and no vertex is held by two jobs at once, and that sums are right."""
    state = state_of(made)
    for vertex in state.graph.by_path.values():
        holders = [job for job in vertex.exclusive if job.mode is not JobMode.ADVANCE]
        for position, job in enumerate(holders):
            for other in holders[position + 1 :]:
                assert job.end <= other.start or other.end <= job.start, (
                    f"{vertex.path}: {job.jobid} and {other.jobid}"
                )
        for kind, run in vertex.runs.items():
            own = [*run.allocated.items(), *run.reserved.items()]
            for position, (job, mask) in enumerate(own):
                for other, theirs in own[position + 1 :]:
                    if mask & theirs:
                        assert job.end <= other.start or other.end <= job.start, (
                            f"{vertex.path}/{kind}: {job.jobid} and {other.jobid}"
                        )
            busy = 0
            for mask in run.allocated.values():
                busy |= mask
            assert busy == run.busy
            assert all(run.size_of(index) > 0 for index in bits(busy))
    before = holdings(made)
    state.table.rebuild()
    assert holdings(made) == before, "the node table had drifted from the graph"
