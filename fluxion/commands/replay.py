"""`fluxqueue fluxion replay`: recorded cases against the engine, a service of our own, or any other service.

Over gRPC only Init, Match and Cancel are used, so that the same replay works with the Go service. Such a
service answers a match with the text of R, from which vertices, their order, size and exclusiveness are read.
It does not report the class of a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import orjson

from fluxqueue.fluxion.commands.recorded_cases import (
    LEVELS,
    Agreement,
    Answer,
    EngineTarget,
    Target,
    load_cases,
    replay,
)
from fluxqueue.fluxion.errors import FluxionError, InitError, UnknownJob
from fluxqueue.fluxion.match.writers import VertexRow
from fluxqueue.fluxion.rpc.client import Deadlines, FluxionClient
from fluxqueue.fluxion.rpc.failures import MatchFailed
from fluxqueue.fluxion.rpc.server import FluxionServerSettings, serve

__all__ = ["GrpcTarget", "run", "vertices_of"]

_FAILED = 1
_RESERVING = "allocate_orelse_reserve"


def vertices_of(allocation: str) -> tuple[VertexRow, ...]:
    """Return containment path, size and exclusiveness of each vertex of R, in its order."""
    metadata = (node["metadata"] for node in orjson.loads(allocation)["graph"]["nodes"])
    return tuple(
        (data["paths"]["containment"], data.get("size", 1), data.get("exclusive", False)) for data in metadata
    )


class GrpcTarget:
    """A service behind gRPC, used by the three calls that every such service has."""

    everything = False

    def __init__(self, client: FluxionClient) -> None:
        self._client = client

    def init(self, policy: str, jgf: str, prune_filters: str | None) -> Answer:
        """Load a graph; prune filters cannot be set over gRPC."""
        try:
            self._client.init(policy, jgf=jgf)
        except InitError:
            return Answer(False)
        return Answer(True)

    def match(self, jobspec: str, request: str) -> Answer:
        """Match; the class of a failure is unknown."""
        try:
            match = self._client.match(jobspec, reserve=request == _RESERVING)
        except MatchFailed:
            return Answer(False)
        vertices = vertices_of(match.allocation)
        return Answer(True, None, match.jobid, match.reserved, match.at, vertices, match.allocation)

    def cancel(self, jobid: int, noent_ok: bool) -> Answer:
        """Cancel; an old Go service calls an unknown job an error."""
        try:
            self._client.cancel(jobid)
        except UnknownJob:
            return Answer(False)
        return Answer(True)

    def info(self, jobid: int) -> Answer:
        """Not available over gRPC."""
        raise NotImplementedError("Info is none of the three calls")

    def set_status(self, path: str, up: bool) -> Answer:
        """Not available over gRPC."""
        raise NotImplementedError("SetStatus is none of the three calls")


def run(arguments: argparse.Namespace) -> int:
    """Replay and print how far the answers agree; return 0 only if all do."""
    started = time.monotonic()
    try:
        if arguments.target:
            agreement = _over_grpc(arguments.folder, arguments.target)
            where = arguments.target
        elif arguments.grpc:
            agreement = asyncio.run(_over_our_own(arguments.folder))
            where = "a service of our own"
        else:
            agreement = _replay(arguments.folder, EngineTarget())
            where = "the engine in process"
    except (OSError, KeyError, TypeError, ValueError) as error:
        print(
            f"{arguments.folder}: no folder of recorded cases: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return _FAILED
    except FluxionError as error:
        print(f"replay: {error}", file=sys.stderr)
        return _FAILED
    _print(agreement, where, time.monotonic() - started)
    return 0 if agreement.cases and agreement.complete else _FAILED


def _replay(folder: Path, target: Target) -> Agreement:
    return replay(load_cases(folder), target)


def _over_grpc(folder: Path, target: str) -> Agreement:
    with FluxionClient(target, deadlines=Deadlines(60, 60)) as client:
        client.wait_reachable(10)
        return _replay(folder, GrpcTarget(client))


async def _over_our_own(folder: Path) -> Agreement:
    async with serve(FluxionServerSettings(port=0)) as running:
        return await asyncio.to_thread(_over_grpc, folder, f"127.0.0.1:{running.port}")


def _print(agreement: Agreement, where: str, seconds: float) -> None:
    print(f"{agreement.cases} cases against {where} in {seconds:.1f} s")
    for level in LEVELS:
        agreed, compared = agreement.agreed[level], agreement.compared[level]
        print(
            f"  {level:<30}",
            f"{agreed:>5} of {compared:<5} {100 * agreed / compared:6.2f} %" if compared else "not asked",
        )
    for difference in agreement.differences:
        print(f"  - {difference}")
