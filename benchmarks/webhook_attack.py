"""What a legitimate caller sees, and what the webhook holds, while clients of the cluster attack it.

The real program with a real certificate. One process is the API server: 50 reviews a second on connections
that it keeps, and a review that gets 429 is sent again after ``Retry-After``, as the API server does. Another
process is the attack, from other loopback addresses, or with ``--same-address`` from the one of the API
server, as behind an address translation. Its clients connect again a second after they are cut off.

    python benchmarks/webhook_attack.py [--clients 200] [--seconds 20] [--attack bodies ...] [--output FILE]

Attacks: ``none`` (for comparison), ``handshakes`` (connect and say nothing), ``heads`` (a byte of a head a
second), ``bodies`` (3 MB that are never completed), ``idle`` (connections that send nothing), ``deep`` (3 MB
of nested lists, complete), ``flood`` (small reviews as fast as they are answered). The goals hold for the
attacks by slow clients, from handshakes to idle.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from webhook_reviews import resident_mib, reviews, webhook

RESULTS = Path(__file__).parent / "results"
GOALS = {"resident_mib": 200, "p99_ms": 50.0, "failed": 0}
SLOW = ("handshakes", "heads", "bodies", "idle")
ATTACKS = ("none", *SLOW, "deep", "flood")
PER_S = 50
_BODY = 3_000_000
_AGAIN_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--attack", choices=ATTACKS, nargs="+", default=list(ATTACKS))
    parser.add_argument("--same-address", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "webhook_attack.json")
    parser.add_argument("--generate", nargs=2, metavar=("PORT", "AUTHORITY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        port, authority = arguments.generate
        context = ssl.create_default_context(cafile=authority)
        if arguments.attack == list(ATTACKS):
            print(json.dumps(asyncio.run(legitimate(int(port), context, arguments.seconds))))
        else:
            asyncio.run(
                attack(int(port), context, arguments.attack[0], arguments.clients, arguments.same_address)
            )
        return 0
    results: dict[str, Any] = {
        "benchmark": "webhook_attack",
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "clients": arguments.clients,
        "same_address": arguments.same_address,
        "load_before": os.getloadavg()[0],
        "goals": GOALS,
        "attacks": {each: measure(each, arguments) for each in arguments.attack},
    }
    results["goals_met"] = all(
        result[goal] <= GOALS[goal]
        for name, result in results["attacks"].items()
        if name in SLOW
        for goal in GOALS
    )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if results["goals_met"] else 1


def measure(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Start the program, attack it, and return what the API server saw and what the program held."""
    with tempfile.TemporaryDirectory() as folder, webhook(Path(folder)) as (pid, port, _):
        base = [
            sys.executable,
            __file__,
            "--generate",
            str(port),
            str(Path(folder) / "authority.pem"),
            "--seconds",
            str(arguments.seconds),
        ]
        options = [
            "--clients",
            str(arguments.clients),
            *(["--same-address"] if arguments.same_address else []),
        ]
        idle = resident_mib(pid)
        with subprocess.Popen([*base, "--attack", kind, *options]) as attackers:
            try:
                time.sleep(3)
                with subprocess.Popen(base, stdout=subprocess.PIPE, text=True) as caller:
                    largest = idle
                    while caller.poll() is None:
                        largest = max(largest, resident_mib(pid))
                        time.sleep(0.02)
                    assert caller.stdout is not None
                    seen = json.loads(caller.stdout.read())
                resident = resident_mib(pid)
            finally:
                attackers.kill()
        time.sleep(1)
        return {
            **seen,
            "idle_mib": idle,
            "resident_mib": largest,
            "at_end_mib": resident,
            "after_mib": resident_mib(pid),
        }


class _Failed(Exception):
    """A review was not answered as the API server needs it."""


def _request(body: bytes) -> bytes:
    head = (
        "POST /mutate HTTP/1.1\r\n"
        "Host: localhost\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "\r\n"
    )
    return head.encode() + body


async def legitimate(port: int, context: ssl.SSLContext, seconds: float) -> dict[str, Any]:
    """Send reviews at a steady rate; return how long they took, the repetitions included."""
    pool: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    requests = [_request(body) for body in reviews()]
    taken: list[float] = []
    failed: list[str] = []
    repeated = 0

    async def once(request: bytes) -> int:
        stream = (
            pool.pop()
            if pool
            else await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        )
        reader, writer = stream
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        if b"connection: close" in head:
            writer.close()
        else:
            pool.append(stream)
        return int(head[9:12])

    async def admit(request: bytes, due: float) -> None:
        nonlocal repeated
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        try:
            async with asyncio.timeout(5):
                while (status := await once(request)) == 429:
                    repeated += 1
                    await asyncio.sleep(1)
            if status != 200:
                raise _Failed(f"status {status}")
        except (OSError, EOFError, TimeoutError, _Failed) as error:
            failed.append(repr(error))
        taken.append(time.perf_counter() - due)

    begun = time.perf_counter()
    await asyncio.gather(
        *(admit(requests[turn % len(requests)], begun + turn / PER_S) for turn in range(int(seconds * PER_S)))
    )
    taken.sort()
    return {
        "reviews": len(taken),
        "failed": len(failed),
        "failures": sorted(set(failed)),
        "repeated": repeated,
        "p50_ms": round(taken[len(taken) // 2] * 1e3, 2),
        "p99_ms": round(taken[int(len(taken) * 0.99)] * 1e3, 2),
        "max_ms": round(taken[-1] * 1e3, 2),
    }


async def attack(port: int, context: ssl.SSLContext, kind: str, clients: int, same_address: bool) -> None:
    """Attack until killed."""
    body = reviews()[0]
    deep = (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":'
        + b"[" * _BODY
    )

    def head(length: int) -> bytes:
        return f"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()

    async def client(number: int) -> None:
        if kind == "none":
            await asyncio.sleep(3_600)
        source = None if same_address else (f"127.0.1.{number % 250 + 1}", 0)
        while True:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                if kind == "handshakes":
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source)
                else:
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", port, ssl=context, server_hostname="localhost", local_addr=source
                    )
                try:
                    await act(reader, writer)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(_AGAIN_S)

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if kind in ("none", "handshakes", "idle"):
            await reader.read(1)
        elif kind == "heads":
            writer.write(b"POST /mutate HTTP/1.1\r\nHost: ")
            while not reader.at_eof():
                writer.write(b"x")
                await asyncio.sleep(1)
        elif kind == "bodies":
            writer.write(head(_BODY) + b" " * (_BODY - 1_000))
            await writer.drain()
            while not reader.at_eof():
                writer.write(b" ")
                await asyncio.sleep(1)
        else:
            sent = head(len(deep)) + deep if kind == "deep" else head(len(body)) + body
            while True:
                writer.write(sent)
                await reader.readuntil(b"\r\n\r\n")
                await reader.read(65_536)

    await asyncio.gather(*(client(number) for number in range(clients)))


if __name__ == "__main__":
    sys.exit(main())
