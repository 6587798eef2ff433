"""`fluxqueue local demo`: the main job before one's eyes, and a proof that it holds.

It does what a person would do, with kubectl: opts a namespace in, applies `examples/`, looks at the queue, deletes the examples. What it
adds is the watching: a table that follows every object to its end, and then a verdict per object (`fluxqueue.local.verdicts`). One of the
examples has nodes reserved, one is backfilled ahead of it, and both must turn out as it was told. After the
examples are deleted nothing of them may be left in Fluxion. Whatever is not as it should be is named, and the exit code is 1.

On a terminal the table lives; elsewhere (a log of CI) there is a line for each change.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.objects import ObjectMeta, Part, Pod
from fluxqueue.local.verdicts import OWNING_KINDS, Applied, Promises, Row, Seen, differences, leftovers, moment, rows_of, settled, standing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fluxqueue.fluxion.messages import JobInfo
    from fluxqueue.local.plane import LocalPlane

__all__ = ["AHEAD_ANNOTATION", "EXPECT_ANNOTATION", "RESERVED_ANNOTATION", "main"]

T = TypeVar("T")

EXPECT_ANNOTATION = "fluxqueue.local/expect"
"""On an example: the reason it is expected to wait with for ever (``Unsatisfiable``)."""
RESERVED_ANNOTATION = "fluxqueue.local/expect-reserved"
"""On an example: ``true`` where nodes are expected to be reserved for it while it waits."""
AHEAD_ANNOTATION = "fluxqueue.local/expect-ahead-of"
"""On an example: the Job, applied before it, that it is expected to start before."""

_NAMESPACE = "default"
_POLL_S = 0.4
_RUN_TIMEOUT_S = 180.0
_EMPTY_TIMEOUT_S = 60.0
_PLAIN_WIDTH = 140
_TERMINATED = 128 + signal.SIGTERM


class _Owned(Part, frozen=True):
    """Any object, as far as ownership goes."""

    metadata: ObjectMeta = ObjectMeta()


def _wait_of(row: Row) -> str:
    if row.fluxjob is None:
        return ""
    status = row.fluxjob.status
    submitted, until = moment(status.submitted_at), moment(status.started_at) or datetime.now(UTC)
    return f"{max(0, round((until - submitted).total_seconds()))} s" if submitted else ""


class _Cluster:
    """The plane as the demo uses it: kubectl for what a person does, plain reads for watching."""

    def __init__(self, plane: LocalPlane) -> None:
        self._plane = plane
        folders = [str(Path(sys.executable).parent), str(plane.kubectl.parent)]
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig),
            "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]),
        }

    def kubectl(self, *arguments: str, timeout_s: float = 90) -> str:
        done = subprocess.run(
            [str(self._plane.kubectl), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise _DemoFailed(f"kubectl {' '.join(arguments)} ended with exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def look(self) -> Seen:
        where = f"namespaces/{_NAMESPACE}"
        fluxjobs = self._items(f"/apis/{names.API_VERSION}/{where}/{names.FLUXJOBS}", FluxJob)
        pods = self._items(f"/api/v1/{where}/pods", Pod)
        between = self._items(f"/apis/apps/v1/{where}/replicasets", _Owned) + self._items(f"/apis/batch/v1/{where}/jobs", _Owned)
        owners = {one.metadata.uid: one.metadata.controller.uid for one in between if one.metadata.controller}
        return Seen(tuple(fluxjobs), tuple(pods), owners)

    def fluxion_jobs(self) -> tuple[JobInfo, ...]:
        from fluxqueue.fluxion.client import FluxionClient
        from fluxqueue.fluxion.messages import Call

        with FluxionClient(self._plane.fluxion_target) as client:
            return client.list_jobs(call=Call(), with_shares=True)

    def _items(self, path: str, kind: type[T]) -> list[T]:
        return [msgspec.convert(item, kind) for item in self._plane.client.get(path)["items"]]


class _DemoFailed(Exception):
    """The demo cannot go on; says why."""


class _Screen:
    """What the person sees: a live table on a terminal, a line per change elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console: Console = Console(highlight=False) if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH, highlight=False)
        self.live = self.console.is_terminal
        self._said: dict[str, str] = {}

    def step(self, text: str) -> None:
        self.console.print(f"\n[bold]{text}[/bold]" if self.live else f"\n== {text}")

    def command(self, words: Sequence[str], output: str) -> None:
        self.console.print(f"\n[dim]$ kubectl {' '.join(words)}[/dim]" if self.live else f"\n$ kubectl {' '.join(words)}")
        self.console.out(output.rstrip("\n"), highlight=False)

    def changes(self, rows: Sequence[Row]) -> None:
        for row in rows:
            key = row.fluxjob.metadata.name if row.fluxjob else row.title
            said = standing(row) + (f" on {row.fluxjob.status.nodes}" if row.fluxjob and row.fluxjob.status.nodes else "")
            if row.fluxjob and self._said.get(key) != said:
                self._said[key] = said
                self.console.out(f"{datetime.now().astimezone():%H:%M:%S}  {row.title:<24}{said}", highlight=False)

    def table(self, rows: Sequence[Row]) -> Table:
        table = _table("OBJECT", "STATE", "WHY", "NODES CHOSEN", "PODS RUN ON", "WAIT")
        for row in rows:
            status = row.fluxjob.status if row.fluxjob else None
            running = hostlists.encode(row.ran_on)
            why, nodes = (status.reason, status.nodes) if status else ("", "")
            table.add_row(row.title, _coloured(row.state or "..."), why, nodes, running, _wait_of(row))
        return table

    def summary(self, rows: Sequence[Row]) -> None:
        table = _table("OBJECT", "FLUXJOB STATE", "NODES FLUXION CHOSE", "NODES THE PODS RAN ON", "WAIT", "")
        for row in rows:
            nodes = row.fluxjob.status.nodes if row.fluxjob else ""
            state = row.fluxjob.status.reason if row.fluxjob and row.example.expects else row.state
            right = "[green]as it should be[/green]" if not differences(row) else "[red]wrong[/red]"
            table.add_row(row.title, _coloured(state), nodes, hostlists.encode(row.ran_on), _wait_of(row), right)
        self.console.print(table)


_COLOURS = {"Pending": "yellow", "Allocated": "cyan", "Running": "green", "Completed": "green", "Failed": "red", "Unsatisfiable": "magenta"}


def _coloured(state: str) -> str:
    return f"[{_COLOURS[state]}]{state}[/]" if state in _COLOURS else state


def _table(*titles: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _apply(cluster: _Cluster, folder: Path) -> list[Applied]:
    answer = msgspec.json.decode(cluster.kubectl("apply", "-n", _NAMESPACE, "-f", str(folder), "-o", "json"))
    applied = []
    for item in answer.get("items", [answer]):
        meta = item["metadata"]
        notes = meta.get("annotations") or {}
        replicas = item.get("spec", {}).get("replicas", 1) if item["kind"] in OWNING_KINDS else 1
        expects, reserved, ahead_of = (notes.get(key, "") for key in (EXPECT_ANNOTATION, RESERVED_ANNOTATION, AHEAD_ANNOTATION))
        applied.append(Applied(item["kind"], meta["name"], meta["uid"], replicas, expects, reserved == "true", ahead_of))
    return applied


def _follow(cluster: _Cluster, screen: _Screen, examples: Sequence[Applied], promises: Promises, timeout_s: float) -> list[Row]:
    """Watch until all has settled or time is up; shows the queue once, when it is known when what waits will start."""
    deadline = time.monotonic() + timeout_s

    def enough(rows: Sequence[Row]) -> bool:
        promises.note(rows)
        return settled(rows) or _telling(rows) is not None

    rows = _watch(cluster, screen, examples, enough, deadline)
    if (telling := _telling(rows)) is not None:
        _show(cluster, screen, "jobs", "-n", _NAMESPACE)
        for waiting in telling:
            _show(cluster, screen, "explain", waiting.example.title, "-n", _NAMESPACE)
        screen.step("Until everything has settled")
        rows = _watch(cluster, screen, examples, settled, deadline)
    return rows


def _watch(
    cluster: _Cluster, screen: _Screen, examples: Sequence[Applied], enough: Callable[[Sequence[Row]], bool], deadline: float
) -> list[Row]:
    from rich.live import Live

    rows = rows_of(examples, cluster.look())
    with Live(screen.table(rows), console=screen.console, refresh_per_second=4, transient=True) if screen.live else nullcontext() as live:
        while True:
            if live is None:
                screen.changes(rows)
            else:
                live.update(screen.table(rows))
            if enough(rows) or time.monotonic() > deadline:
                return rows
            time.sleep(_POLL_S)
            rows = rows_of(examples, cluster.look())


def _telling(rows: Sequence[Row]) -> list[Row] | None:
    """Those that wait, once the one with a reservation was told when it starts: the moment to look at the queue."""
    waiting = [row for row in rows if row.fluxjob and row.state == State.PENDING and row.fluxjob.status.reason and not row.example.expects]
    promised = [row for row in waiting if row.example.reserved and row.fluxjob and row.fluxjob.status.reserved_at]
    return [*promised, *(row for row in waiting if row not in promised)] if promised else None


def _show(cluster: _Cluster, screen: _Screen, *words: str) -> None:
    screen.command(["fluxqueue", *words], cluster.kubectl("fluxqueue", *words))


def _cross_check(cluster: _Cluster, rows: Sequence[Row]) -> list[str]:
    """Where Fluxion itself says something else than a live workload's FluxJob."""
    held = {job.jobid: {share.node for share in job.shares} for job in cluster.fluxion_jobs()}
    found = []
    for row in rows:
        if row.fluxjob is None or row.state not in (State.ALLOCATED, State.RUNNING):
            continue
        jobid = row.fluxjob.status.jobid
        if jobid is None or held.get(jobid) != set(row.hosts):
            found.append(f"{row.title}: its FluxJob says {row.fluxjob.status.nodes}, Fluxion has {sorted(held.get(jobid or 0, set()))}")
    return found


@dataclass(frozen=True)
class _Others:
    """What was there before us and is none of our business."""

    jobids: frozenset[int]
    fluxjobs: frozenset[str]


def _clean(cluster: _Cluster, folder: Path, others: _Others) -> list[str]:
    """Delete the examples and wait until nothing of them is left; what is left after all."""
    cluster.kubectl("delete", "-n", _NAMESPACE, "-f", str(folder), "--wait=true", "--timeout=60s")
    deadline = time.monotonic() + _EMPTY_TIMEOUT_S
    while True:
        jobs = [job for job in cluster.fluxion_jobs() if job.jobid not in others.jobids]
        left = leftovers(jobs, [one for one in cluster.look().fluxjobs if one.metadata.uid not in others.fluxjobs])
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_S)


def _examples_folder(given: Path | None) -> Path:
    folder = given or Path(__file__).resolve().parents[3] / "examples"
    if not folder.is_dir():
        raise _DemoFailed(f"there is no folder {folder}: run this in a clone of the repository, or give --examples FOLDER")
    return folder


def _run(arguments: argparse.Namespace, screen: _Screen) -> int:
    from fluxqueue.local.plane import LocalPlane

    folder = _examples_folder(arguments.examples)
    began = time.monotonic()
    screen.step("A Kubernetes control plane, Postgres and fluxqueue on this machine")
    plane = LocalPlane(arguments.dir)
    started = _bring_up(plane)
    try:
        wrong = _show_and_judge(_Cluster(plane), screen, folder, arguments)
    finally:
        if started and not arguments.keep:
            plane.down()
    for sentence in wrong:
        screen.console.print(f"[red]{sentence}[/red]" if screen.live else f"WRONG: {sentence}", soft_wrap=True)
    if arguments.keep:
        _say_how_to_go_on(screen)
    if not wrong:
        screen.console.print(
            f"\nEvery pod ran where Fluxion had put it, and what was promised came true ({time.monotonic() - began:.0f} s)."
        )
    return 1 if wrong else 0


def _bring_up(plane: LocalPlane) -> bool:
    from fluxqueue.local.binaries import find_binaries
    from fluxqueue.local.display import Display
    from fluxqueue.local.toolchain import build_tools

    with Display() as display:
        return plane.up(report=display.step, find=lambda: find_binaries(lambda folder: build_tools(folder, display)))


def _show_and_judge(cluster: _Cluster, screen: _Screen, folder: Path, arguments: argparse.Namespace) -> list[str]:
    """The story itself; what went wrong in it, in sentences."""
    screen.step(f"Namespace {_NAMESPACE} is managed; the examples are applied")
    cluster.kubectl("delete", "-n", _NAMESPACE, "-f", str(folder), "--ignore-not-found", "--wait=true", "--timeout=60s")
    cluster.kubectl("label", "namespace", _NAMESPACE, f"{names.MANAGED_LABEL}=true", "--overwrite")
    others = _Others(frozenset(job.jobid for job in cluster.fluxion_jobs()), frozenset(one.metadata.uid for one in cluster.look().fluxjobs))
    examples = _apply(cluster, folder)
    promises = Promises()
    rows = _follow(cluster, screen, examples, promises, arguments.timeout)
    group = max((row for row in rows if row.fluxjob and row.hosts), key=lambda row: len(row.hosts), default=None)
    if group is not None:
        _show(cluster, screen, "explain", group.example.title, "-n", _NAMESPACE)
    screen.step("What Fluxion chose and where the pods ran")
    screen.summary(rows)
    wrong = [sentence for row in rows for sentence in differences(row)] + _cross_check(cluster, rows) + promises.broken(rows)
    if not promises.broken(rows):
        for sentence in promises.kept(rows):
            screen.console.out(f"{sentence}.", highlight=False)
    if not settled(rows):
        wrong.insert(0, f"not everything settled within {arguments.timeout:g} s")
    if not arguments.keep:
        screen.step("The examples are deleted; nothing of them may be left")
        wrong += _clean(cluster, folder, others)
    return wrong


def _say_how_to_go_on(screen: _Screen) -> None:
    binary = Path(sys.executable).parent / "fluxqueue"
    screen.step("It goes on running")
    screen.console.out(
        f'  eval "$({binary} local env)"       # KUBECONFIG and PATH of this shell\n'
        "  kubectl fluxqueue jobs             # the queue\n"
        "  kubectl fluxqueue explain job/big  # one workload in words\n"
        f"  {binary} local logs queue          # what the queue says\n"
        f"  {binary} local down                # the end",
        highlight=False,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo.

    Parameters
    ----------
    argv
        Words after `fluxqueue local demo`; those of the process if None.

    Returns
    -------
    int
        0 if every workload did what it should and nothing is left, else 1.
    """
    parser = argparse.ArgumentParser(prog="fluxqueue local demo", description="Show the main job on a local control plane, and check it.")
    parser.add_argument(
        "--keep", action="store_true", default=os.environ.get("KEEP", "") not in ("", "0"), help="leave it running (also KEEP=1)"
    )
    parser.add_argument("--examples", type=Path, metavar="FOLDER", help="what to apply; the examples of the repository if not given")
    parser.add_argument(
        "--timeout", type=float, default=_RUN_TIMEOUT_S, metavar="SECONDS", help="how long the examples may take (%(default)g)"
    )
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="data folder of the plane, as for `fluxqueue local up`")
    arguments = parser.parse_args(argv)
    from fluxqueue.local.binaries import BinariesError
    from fluxqueue.local.chart import ChartError
    from fluxqueue.local.plane import NotRunning, PlaneFailed
    from fluxqueue.local.postgres import PostgresError

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # as Ctrl-C: what was started is ended
    try:
        return _run(arguments, _Screen())
    except (_DemoFailed, PlaneFailed, NotRunning, BinariesError, ChartError, PostgresError, subprocess.TimeoutExpired) as error:
        print(f"fluxqueue local demo: {error}", file=sys.stderr)
        return 1
