"""Where the API server spends its CPU time during a load: its own profiles, and the share of each area of its
code.

Go's ``pprof`` reads the profiles. A sample belongs to each area that one of its functions matches, so areas
overlap: the decoding of a webhook's answer counts as webhook and as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api
from fluxqueue.local.go_programs import find_go

__all__ = ["AREAS", "area_shares", "profiled", "read_traces", "stacks"]

_WINDOW_S = 5
AREAS: Mapping[str, str] = {
    "admission policies": r"admission/plugin/policy",
    "webhooks": r"admission/plugin/webhook",
    "custom resources": r"apiextensions-apiserver",
    "watches": r"WatchServer|cacher\.\(\*(cacheWatcher|watchCache)\)|cacher\.\(\*Cacher\)\.dispatch",
    "etcd's client": r"etcd\.io/etcd/client|google\.golang\.org/grpc",
    "garbage collection": r"runtime\.(gcBgMarkWorker|gcAssistAlloc|bgsweep)",
    "JSON and protobuf": r"runtime/serializer|encoding/json|sigs\.k8s\.io/json|protobuf",
    "authorisation": r"authorizer/rbac",
    "TLS and HTTP/2": r"crypto/tls|http2",
}
"""Areas of the API server by the functions in them."""
_STACK = re.compile(r"^-{5,}\+-{5,}$", re.MULTILINE)
_FIRST = re.compile(r"^\s*([\d.]+)ms\s+(\S.*)$")


@asynccontextmanager
async def profiled(api: Api, folder: Path) -> AsyncIterator[list[Path]]:
    """Take profiles of 5 s one after the other until the block ends; the list is complete then."""
    files: list[Path] = []
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    ended = asyncio.Event()

    async def take() -> None:
        while not ended.is_set():
            with contextlib.suppress(ApiError):
                query = {"seconds": str(_WINDOW_S)}
                taken = await api.request(
                    "GET", "/debug/pprof/profile", query=query, timeout_s=_WINDOW_S + 30.0
                )
                file = folder / f"{len(files)}.pb.gz"
                await asyncio.to_thread(file.write_bytes, taken)
                files.append(file)

    taking = asyncio.create_task(take())
    try:
        yield files
    finally:
        ended.set()
        await taking


def read_traces(files: Sequence[Path]) -> str:
    """Return the stacks of several profiles together, as ``pprof -traces`` prints them."""
    go = find_go(_Quiet(), (1, 21))
    command: list[str | Path] = [go, "tool", "pprof", "-traces", "-unit=ms", *files]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=True
    ).stdout


def stacks(traces: str) -> Iterator[tuple[float, list[str]]]:
    """Yield milliseconds and functions, innermost first, of each stack that ``pprof -traces`` printed."""
    for block in _STACK.split(traces)[1:]:
        lines = [line for line in block.splitlines() if line.strip()]
        if lines and (first := _FIRST.match(lines[0])):
            yield float(first[1]), [first[2].strip(), *map(str.strip, lines[1:])]


def area_shares(traces: str, areas: Mapping[str, str] = AREAS) -> dict[str, float]:
    """Return the part of the CPU time of each area, and ``seconds`` as the whole."""
    patterns = {name: re.compile(pattern) for name, pattern in areas.items()}
    times = dict.fromkeys(areas, 0.0)
    total_ms = 0.0
    for spent_ms, functions in stacks(traces):
        total_ms += spent_ms
        for name, pattern in patterns.items():
            if any(map(pattern.search, functions)):
                times[name] += spent_ms
    return {"seconds": total_ms / 1000} | {
        name: spent_ms / total_ms if total_ms else 0.0 for name, spent_ms in times.items()
    }


class _Quiet:
    def step(self, text: str, total: int | None = None) -> None:
        pass

    def advance(self, text: str, units: int = 1) -> None:
        pass
