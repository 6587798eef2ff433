"""What the kubelet and Prometheus see of each port while one pod holds silent connections to it, or sends
wrong tokens.

Each server runs in a process of its own that begins with the usual soft limit of 1,024 open files. The attack
is a process too. It comes from another loopback address than who is measured, as another pod does, and
connects again a tenth of a second after it is cut off:

- **silence**: connections that say nothing, not even a TLS handshake. Meanwhile a caller asks on new
  connections, four times a second.
- **wrong tokens**: 20 different ones a second to the metrics port. Thirty Prometheus, each with a token of
  its own, scrape every 31 s, when the answer about their token has expired, so each scrape needs a new
  review.

Prints a table in Markdown: median, 99th percentile and longest time of an answer, and how many failed within
10 s.

    python benchmarks/attacks.py [--seconds 10] [--output benchmarks/results/attacks.json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import itertools
import json
import os
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attacked_server import HOST, KNOWN
from webhook_reviews import resident_mib

from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair
from fluxqueue.local.pki import Authority

RESULTS = Path(__file__).parent / "results"
CONNECTIONS = (0, 1_000, 1_200)
SOFT_LIMIT = 1_024
_ATTACKER = ("127.0.1.1", 0)
_AGAIN_S = 0.1
_EVERY_S = 0.25
_LIMIT_S = 10.0
_SCRAPERS = 30
_SCRAPE_S = 31.0
_ROUNDS = 4
_WRONG_PER_S = 20


@dataclass(frozen=True)
class Asked:
    """What is measured while a port is attacked: a path of the same or of another port of the process."""

    program: str
    attacked: str
    port: str
    path: str
    tls: bool = True


MEASURED = (
    Asked("webhook", "webhook", "webhook", "/healthz"),
    Asked("queue", "metrics", "health", "/healthz", tls=False),
    Asked("queue", "metrics", "metrics", "/metrics"),
    Asked("queue", "health", "health", "/healthz", tls=False),
    Asked("extender", "extender", "extender", "/healthz"),
    Asked("dashboard", "dashboard", "dashboard", "/healthz"),
)


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description="Answers of each port during attacks by silence and by wrong tokens."
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="length of each part (default: %(default)s)"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "attacks.json", help="JSON file (default: %(default)s)"
    )
    parser.add_argument(
        "--silent", nargs=2, type=int, metavar=("PORT", "CONNECTIONS"), help=argparse.SUPPRESS
    )
    parser.add_argument("--guess", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.silent:
        asyncio.run(stay_silent(*arguments.silent))
    elif arguments.guess:
        asyncio.run(send_wrong_tokens(arguments.guess))
    else:
        write(measure(arguments.seconds), arguments.output)
    return 0


def measure(seconds: float) -> dict[str, Any]:
    """Run every attack; return what callers saw."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificates(folder)
        silence = [
            {
                "attacked": each.attacked,
                "asked": f"{each.path} of {each.port}",
                "connections": number,
                **silent(each, number, folder, seconds),
            }
            for each, number in itertools.product(MEASURED, CONNECTIONS)
        ]
        tokens = wrong_tokens(folder)
    return {
        "benchmark": "attacks",
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "silence": silence,
        "wrong_tokens": tokens,
    }


def write(results: dict[str, Any], output: Path) -> None:
    """Write the results, and print them as a table."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2) + "\n")
    print(
        f"{results['cores']} cores, load average {results['load_before']} before and "
        f"{results['load_after']} after\n"
    )
    print(
        "| attacked | asked | silent connections | p50 ms | p99 ms | max ms | failed | resident MiB |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for row in results["silence"]:
        times = f"{row['p50_ms']} | {row['p99_ms']} | {row['max_ms']}"
        failed = f"{row['failed']} of {row['asks']}"
        print(
            f"| {row['attacked']} | `{row['asked']}` | {row['connections']:,} | {times} | {failed} | "
            f"{row['resident_mib']} |"
        )
    tokens = results["wrong_tokens"]
    print(
        "\n"
        f"{_WRONG_PER_S} wrong tokens a second: {tokens['served']} of {tokens['scrapes']} scrapes served, "
        f"p99 {tokens['p99_ms']} ms"
    )


def make_certificates(folder: Path) -> None:
    """Make what the servers serve with, and the authority of the extender's clients."""
    now = dt.datetime.now(dt.UTC)
    names = ServingNames(dns=("localhost",), addresses=(HOST,))
    write_pair(folder / "tls", issue_leaf(make_authority("benchmark", now), names, now), now)
    Authority(folder / "clients", now).issue_client("client", "system:kube-scheduler")


@contextlib.contextmanager
def program(kind: str, folder: Path) -> Iterator[tuple[int, dict[str, int]]]:
    """Run a server with the usual soft limit of open files; yields its pid and its ports."""
    command = [sys.executable, str(Path(__file__).with_name("attacked_server.py")), kind, str(folder)]
    if kind == "webhook":
        options = ["--host", HOST, "--port", "0", "--cert-dir", str(folder / "tls"), "--drain-seconds", "0"]
        command = [sys.executable, "-m", "fluxqueue.webhook.main", *options]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT_LIMIT, hard))

    pipes = (
        {"stderr": subprocess.PIPE}
        if kind == "webhook"
        else {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    )
    with subprocess.Popen(command, text=True, preexec_fn=limit, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process.pid, ports_of(process, kind)
        finally:
            process.kill()


def ports_of(process: subprocess.Popen[str], kind: str) -> dict[str, int]:
    """Wait until a server listens."""
    for line in process.stderr or process.stdout or ():
        said: dict[str, Any] = json.loads(line)
        if kind != "webhook":
            return said
        if said["event"] == "webhook.listening":
            return {"webhook": said["port"]}
    raise RuntimeError(f"the {kind} ended before it listened")


def silent(asked: Asked, connections: int, folder: Path, seconds: float) -> dict[str, Any]:
    """Attack a port with silent connections; return what a caller saw."""
    with (
        program(asked.program, folder) as (pid, ports),
        attacking("--silent", ports[asked.attacked], connections),
    ):
        context = client_context(folder) if asked.tls else None
        times = asyncio.run(ask_repeatedly(ports[asked.port], asked.path, context, seconds))
        return {**summary(times), "resident_mib": resident_mib(pid)}


def wrong_tokens(folder: Path) -> dict[str, Any]:
    """Attack the metrics port with wrong tokens; return what Prometheus saw."""
    with program("queue", folder) as (_, ports):
        context = client_context(folder)
        asyncio.run(scrape(ports["metrics"], context, rounds=1))  # they are known before the attack begins
        with attacking("--guess", ports["metrics"]):
            times = asyncio.run(scrape(ports["metrics"], context, rounds=_ROUNDS))
    answered = summary(times)
    return {
        "wrong_per_s": _WRONG_PER_S,
        "scrapes": len(times),
        "served": len(times) - answered["failed"],
        **answered,
    }


@contextlib.contextmanager
def attacking(*options: object) -> Iterator[None]:
    """Run an attack; it has begun fully when the block begins."""
    with subprocess.Popen(
        [sys.executable, __file__, *map(str, options)], stdout=subprocess.PIPE, text=True
    ) as attackers:
        assert attackers.stdout is not None
        attackers.stdout.readline()
        try:
            yield
        finally:
            attackers.kill()


async def stay_silent(port: int, connections: int) -> None:
    """Hold connections that say nothing until killed."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begun = asyncio.Semaphore(0)

    async def client() -> None:
        first = True
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(HOST, port, local_addr=_ATTACKER)
                if first:
                    begun.release()
                    first = False
                try:
                    await reader.read(1)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(_AGAIN_S)

    clients = [asyncio.create_task(client()) for _ in range(connections)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LIMIT_S):
            for _ in clients:
                await begun.acquire()
    print("attacking", flush=True)
    await asyncio.Event().wait()


async def send_wrong_tokens(port: int) -> None:
    """Send different wrong tokens at a steady rate until killed."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    print("attacking", flush=True)
    running: set[asyncio.Task[bool]] = set()
    for number in itertools.count():
        task = asyncio.create_task(ask(port, "/metrics", context, f"wrong-{number}", _ATTACKER))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(1 / _WRONG_PER_S)


async def ask_repeatedly(
    port: int, path: str, context: ssl.SSLContext | None, seconds: float
) -> list[float | None]:
    """Ask on new connections at a steady rate; return the seconds of each answer,
    None for one that failed.
    """
    begun = time.perf_counter()
    return list(
        await asyncio.gather(
            *(
                timed(begun + number * _EVERY_S, port, path, context, f"{KNOWN}-caller")
                for number in range(int(seconds / _EVERY_S))
            )
        )
    )


async def scrape(port: int, context: ssl.SSLContext, *, rounds: int) -> list[float | None]:
    """Let each Prometheus scrape, spread over the period;
    return the seconds of each scrape, None for one that was not served.
    """
    begun, apart = time.perf_counter(), _SCRAPE_S / _SCRAPERS
    return list(
        await asyncio.gather(
            *(
                timed(
                    begun + turn * _SCRAPE_S + number * apart, port, "/metrics", context, f"{KNOWN}-{number}"
                )
                for turn, number in itertools.product(range(rounds), range(_SCRAPERS))
            )
        )
    )


async def timed(due: float, port: int, path: str, context: ssl.SSLContext | None, token: str) -> float | None:
    """Ask when it is due; return the seconds until the answer, or None if there was no good one."""
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    begun = time.perf_counter()
    return time.perf_counter() - begun if await ask(port, path, context, token) else None


async def ask(
    port: int, path: str, context: ssl.SSLContext | None, token: str, source: tuple[str, int] | None = None
) -> bool:
    """Send one request on a connection of its own; return whether it was answered with 200 in time."""
    request = (
        f"GET {path} HTTP/1.1\r\n"
        "Host: localhost\r\n"
        f"Authorization: Bearer {token}\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            reader, writer = await asyncio.open_connection(HOST, port, ssl=context, local_addr=source)
            try:
                writer.write(request.encode())
                return (await reader.read()).startswith(b"HTTP/1.1 200")
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False


def client_context(folder: Path) -> ssl.SSLContext:
    """Return a context with a client certificate, which does not verify the server, like a probe."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folder / "clients" / "client.crt", folder / "clients" / "client.key")
    return context


def summary(times: list[float | None]) -> dict[str, Any]:
    """Return how long answers took, and how many failed."""
    answered = sorted(each for each in times if each is not None)
    if not answered:
        return {"asks": len(times), "failed": len(times), "p50_ms": None, "p99_ms": None, "max_ms": None}
    at = {"p50_ms": len(answered) // 2, "p99_ms": int(len(answered) * 0.99), "max_ms": -1}
    return {
        "asks": len(times),
        "failed": len(times) - len(answered),
        **{name: round(answered[n] * 1e3, 1) for name, n in at.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
