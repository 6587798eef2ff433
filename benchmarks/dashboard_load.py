"""The dashboard with 10,000 workloads: first paint, the server's CPU time of an update, and 50 people who
look.

A control plane of this machine has the FluxJobs, as the queue would write them; the program runs as the chart
runs it. Its CPU time is that of its process (``/proc``). Without a Chromium the first paint is left out.

Usage: ``PYTHONPATH=tests python benchmarks/dashboard_load.py [--jobs N] [--nodes N] [--viewers N]
[--updates N]``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
from support.browsers import chromium
from support.dashboard_stage import Browserless, RunningDashboard, change, make_person, prepare, run_dashboard
from support.dashboard_work import many_jobs

from fluxqueue.local.controlplane import ControlPlane

NAMESPACE = "crowd"
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    line = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")
    )
    return int(line.split()[1]) / 1024


def signed_in(dashboard: RunningDashboard, token: str) -> Browserless:
    """Sign somebody in; many at once are asked to wait."""
    client = Browserless(dashboard.port)
    for _ in range(100):
        if client.sign_in(token).status == 303:
            return client
        time.sleep(0.3)
    raise AssertionError("nobody can sign in")


def pages(dashboard: RunningDashboard, client: Browserless, paths: list[str]) -> dict[str, dict[str, float]]:
    """Ask for each page once while nobody else has, and 20 times more; returns the first time, the median of
    the others and the mean of their CPU time, all in milliseconds, and KiB.
    """
    answers: dict[str, dict[str, float]] = {}
    for path in paths:
        times: list[float] = []
        began = time.perf_counter()
        text = client.get(path).text
        first = time.perf_counter() - began
        before = cpu_s(dashboard.process.pid)
        for _ in range(20):
            began = time.perf_counter()
            text = client.get(path).text
            times.append(time.perf_counter() - began)
        cpu = (cpu_s(dashboard.process.pid) - before) / 20
        answers[path] = {
            "first_ms": first * 1e3,
            "ms": statistics.median(times) * 1e3,
            "cpu_ms": cpu * 1e3,
            "kib": len(text.encode()) / 1024,
        }
    return answers


def first_paint(dashboard: RunningDashboard, token: str, rounds: int) -> list[float]:
    """Load the queue in a new browser context each time;
    returns milliseconds to the first contentful paint.
    """
    from playwright.sync_api import sync_playwright

    program = chromium()
    if program is None:
        return []
    paints: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for _ in range(rounds):
            context = browser.new_context(base_url=dashboard.url, ignore_https_errors=True)
            page = context.new_page()
            page.goto("/queue")
            page.get_by_label("Token of the API server").fill(token)
            page.keyboard.press("Enter")
            page.wait_for_url(lambda url: "/sign-in" not in url)
            while not (
                found := page.evaluate(
                    "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"
                )
            ):
                page.wait_for_timeout(20)
            paints.append(found[0])
            context.close()
        browser.close()
    return paints


async def followed(
    dashboard: RunningDashboard,
    clients: list[Browserless],
    paths: list[str],
    updates: int,
    act: Callable[[int], None],
) -> dict[str, float]:
    """Let each client follow a page while something changes once in two seconds;
    returns what one update cost.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    received = 0
    open_streams = 0

    async def follow(session: aiohttp.ClientSession, client: Browserless, path: str) -> None:
        nonlocal received, open_streams
        cookies = "; ".join(f"{name}={text}" for name, text in client.cookies.items())
        async with session.get(
            f"{dashboard.url}{path}", headers={"cookie": cookies}, ssl=context
        ) as response:
            response.raise_for_status()
            open_streams += 1
            async for line in response.content:
                received += line.startswith(b"data: ")

    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 22) as session:
        tasks = [
            asyncio.create_task(follow(session, client, path))
            for client, path in zip(clients, paths, strict=True)
        ]
        await asyncio.sleep(5)
        assert open_streams == len(clients), f"{open_streams} streams of {len(clients)}"
        before = cpu_s(dashboard.process.pid)
        await asyncio.sleep(10)
        idle = (cpu_s(dashboard.process.pid) - before) / 10
        before, count, began = cpu_s(dashboard.process.pid), received, time.monotonic()
        for number in range(updates):
            await asyncio.to_thread(act, number)
            await asyncio.sleep(2)
        cpu = cpu_s(dashboard.process.pid) - before - idle * (time.monotonic() - began)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "cpu_ms": 1e3 * cpu / updates,
        "idle_cpu_ms_per_s": 1e3 * idle,
        "events_per_update": (received - count) / updates,
    }


def measure(
    cluster: ControlPlane, dashboard: RunningDashboard, options: argparse.Namespace, names: list[str]
) -> dict[str, Any]:
    """Return all figures."""
    operator = make_person(cluster, "operator", {"": "cluster-admin"})
    clients = [
        signed_in(dashboard, make_person(cluster, f"viewer-{number}", {"": "view"}))
        for number in range(options.viewers)
    ]

    counter = itertools.count(1)

    def one_changes(_number: int) -> None:
        number = next(counter)
        change(cluster, NAMESPACE, names[number % 100], status={"message": f"needs 2 cpu, {number} are free"})

    def many_change(_number: int) -> None:
        number = next(counter)
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda name: change(cluster, NAMESPACE, name, status={"message": f"{number} are free"}),
                    names[:1_000],
                )
            )

    everybody = ["/live/queue?version=x"] * options.viewers
    own = [
        f"/live/queue?version=x&page={number // 5 + 1}&sort={_SORTS[number % 5]}"
        for number in range(options.viewers)
    ]
    filtered = [f"/live/queue?version=x&q=crowd-{number:03}" for number in range(options.viewers)]
    paints = first_paint(dashboard, operator, 7)
    return {
        "jobs": options.jobs,
        "nodes": options.nodes,
        "viewers": options.viewers,
        "first_paint_ms": sorted(paints),
        "pages": pages(
            dashboard,
            signed_in(dashboard, operator),
            [*_PAGES, f"/jobs/{NAMESPACE}/{names[0]}"],
        ),
        "same_page": asyncio.run(followed(dashboard, clients, everybody, options.updates, one_changes)),
        "other_pages_and_sorts": asyncio.run(followed(dashboard, clients, own, options.updates, one_changes)),
        "own_filters": asyncio.run(followed(dashboard, clients, filtered, options.updates, one_changes)),
        "a_thousand_change": asyncio.run(followed(dashboard, clients, everybody, 2, many_change)),
        "memory_mib": memory_mib(dashboard.process.pid),
    }


_PAGES = [
    "/",
    "/queue",
    "/queue?q=crowd-0999&sort=priority",
    "/nodes",
    "/plan",
    "/plan?by=work",
    "/limits",
    "/submit",
]
_SORTS = ["order", "position", "priority", "job", "submitted"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--updates", type=int, default=10)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fluxqueue-dashboard-") as folder,
        ControlPlane(Path(folder) / "plane", nodes=options.nodes) as cluster,
    ):
        prepare(cluster)
        names = many_jobs(cluster, NAMESPACE, options.jobs)
        with run_dashboard(cluster, Path(folder) / "dashboard") as dashboard:
            print(json.dumps(measure(cluster, dashboard, options, names), indent=2))


if __name__ == "__main__":
    main()
