"""`fluxqueue local demo`: shows the main use case on a local cluster, and checks it.

It does with kubectl what a person does: it labels a namespace, applies `examples/`, shows the queue and
deletes the examples. It also follows every object to its end in a table, and then checks each one
(`fluxqueue.local.verdicts`). One example has nodes reserved and another one is backfilled before it; both
must start as announced. After the examples are deleted, nothing of them may remain in Fluxion. Each
difference is printed, and the exit code is then 1.

On a terminal the table is updated in place; elsewhere (a log of CI) each change is a line.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.formatting import format_nodes
from fluxqueue.local.announced_starts import StartExpectations
from fluxqueue.local.demo_client import DemoClient, explain
from fluxqueue.local.demo_computing import RESULTS, compute, has_computing
from fluxqueue.local.demo_following import POLL_S, follow
from fluxqueue.local.for_people import FIRST_NAMESPACE, VALUES, dashboard_lines, where_results_are
from fluxqueue.local.kubectl import KubectlError
from fluxqueue.local.node_kinds import KINDS, PROCESSES, SIMULATED, can_make_namespaces, choose, note_on
from fluxqueue.local.screen import Screen
from fluxqueue.local.verdicts import (
    OWNING_KINDS,
    AppliedExample,
    Row,
    bound_by,
    bound_by_another,
    differences,
    leftovers,
    settled,
)

if TYPE_CHECKING:
    from fluxqueue.local.localcluster import LocalCluster

__all__ = ["AHEAD_ANNOTATION", "EXPECT_ANNOTATION", "RESERVED_ANNOTATION", "main"]

EXPECT_ANNOTATION = "fluxqueue.local/expect"
"""On an example: the reason with which it is expected to wait for ever (``Unsatisfiable``)."""
RESERVED_ANNOTATION = "fluxqueue.local/expect-reserved"
"""On an example: ``true`` if nodes are expected to be reserved for it while it waits."""
AHEAD_ANNOTATION = "fluxqueue.local/expect-ahead-of"
"""On an example: the Job, applied earlier, before which it is expected to start."""

_NAMESPACE = FIRST_NAMESPACE
_SCHEDULERS = {"stock": "default-scheduler", "fluxion": names.SCHEDULER_NAME}
_RUN_TIMEOUT_S = 180.0
_EMPTY_TIMEOUT_S = 60.0
_TERMINATED = 128 + signal.SIGTERM


class _DemoFailed(Exception):
    """The demo cannot continue; the message says why."""


def _apply(client: DemoClient, folder: Path) -> list[AppliedExample]:
    answer = msgspec.json.decode(client.kubectl("apply", "-n", _NAMESPACE, "-f", str(folder), "-o", "json"))
    applied = []
    for item in answer.get("items", [answer]):
        meta = item["metadata"]
        annotations = meta.get("annotations") or {}
        replicas = item.get("spec", {}).get("replicas", 1) if item["kind"] in OWNING_KINDS else 1
        expects, reserved, ahead_of = (
            annotations.get(key, "") for key in (EXPECT_ANNOTATION, RESERVED_ANNOTATION, AHEAD_ANNOTATION)
        )
        applied.append(
            AppliedExample(
                item["kind"], meta["name"], meta["uid"], replicas, expects, reserved == "true", ahead_of
            )
        )
    return applied


def _cross_check(client: DemoClient, rows: Sequence[Row]) -> list[str]:
    """Return the differences between the FluxJobs of live workloads and the resource graph, as sentences."""
    held = {job.jobid: {share.node for share in job.shares} for job in client.fluxion_jobs()}
    wrong = []
    for row in rows:
        if row.fluxjob is None or row.state not in (State.ALLOCATED, State.RUNNING):
            continue
        jobid = row.fluxjob.status.jobid
        if jobid is None or held.get(jobid) != set(row.hosts):
            wrong.append(
                f"{row.title}: its FluxJob has {format_nodes(row.hosts)}, Fluxion has "
                f"{format_nodes(sorted(held.get(jobid or 0, set())))}"
            )
    return wrong


@dataclass(frozen=True)
class _Others:
    """Workloads that existed before the demo, which it ignores."""

    jobids: frozenset[int]
    fluxjobs: frozenset[str]


def _clean(client: DemoClient, folder: Path, others: _Others) -> list[str]:
    """Delete the examples and wait until nothing of them is left;
    return what remains after the time limit.
    """
    client.kubectl("delete", "-n", _NAMESPACE, "-f", str(folder), "--wait=true", "--timeout=60s")
    deadline = time.monotonic() + _EMPTY_TIMEOUT_S
    while True:
        jobs = [job for job in client.fluxion_jobs() if job.jobid not in others.jobids]
        left = leftovers(
            jobs, [one for one in client.look().fluxjobs if one.metadata.uid not in others.fluxjobs]
        )
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_S)


def _examples_folder(given: Path | None) -> Path:
    folder = given or Path(__file__).resolve().parents[1] / "examples"
    if not folder.is_dir():
        raise _DemoFailed(
            f"there is no folder {folder}: run this in a clone of the repository, or give --examples FOLDER"
        )
    return folder


def _run(arguments: argparse.Namespace, screen: Screen) -> int:
    from fluxqueue.local.cluster_options import ClusterOptions
    from fluxqueue.local.localcluster import LocalCluster

    folder = _examples_folder(arguments.examples)
    began = time.monotonic()
    screen.step("A Kubernetes control plane, Postgres and fluxqueue on this machine")
    options = ClusterOptions(scheduler=arguments.scheduler or "stock", values=VALUES)
    cluster = LocalCluster(arguments.dir, options)
    if not cluster.running:
        kind = choose(arguments.nodes or "", cluster.kind_before, options.nodes)
        cluster = LocalCluster(arguments.dir, replace(options, processes=kind == PROCESSES))
    started = _bring_up(cluster)
    try:
        if (dashboard := cluster.dashboard_url) is not None:
            screen.console.out(f"  The dashboard: {dashboard}", highlight=False)
        if arguments.scheduler == "fluxion" and "scheduler" not in {
            process.name for process in cluster.state.processes
        }:
            raise _DemoFailed(
                f"our scheduler does not run in {cluster.folder}: "
                "end what runs there with `fluxqueue local down`, then try again"
            )
        if arguments.nodes not in (None, cluster.kind_of_nodes):
            raise _DemoFailed(
                f"the nodes in {cluster.folder} are others than {arguments.nodes}: "
                "end what runs there with `fluxqueue local down`,"
                " then try again"
            )
        client, kind = DemoClient(cluster), cluster.kind_of_nodes
        wrong, late_s = _show_and_check(client, screen, folder, arguments)
        computes = kind == PROCESSES and has_computing(folder) and can_make_namespaces()
        computed = compute(client, screen, folder, _NAMESPACE, keep=arguments.keep) if computes else []
        if computes and len(computed) < RESULTS:
            wrong.append(f"only {len(computed)} of {RESULTS} results were printed")
    finally:
        if started and not arguments.keep:
            cluster.down()
    for sentence in wrong:
        screen.console.print(
            f"[red]{sentence}[/red]" if screen.live else f"WRONG: {sentence}", soft_wrap=True
        )
    if arguments.keep:
        _show_commands(screen, dashboard)
    if computed:
        _show_results(screen, computed, dashboard, keep=arguments.keep)
    elif note := note_on(kind) if arguments.nodes != SIMULATED else "":
        screen.console.out(f"note: {note}", highlight=False)
    if not wrong:
        screen.console.print(
            "\n"
            "Every pod ran where Fluxion had put it, and every announced start came true"
            f"{f', {late_s:.0f} s late on this busy machine' if late_s else ''} "
            f"({time.monotonic() - began:.0f} s)."
        )
    return 1 if wrong else 0


def _bring_up(cluster: LocalCluster) -> bool:
    from fluxqueue.local.binaries import find_binaries
    from fluxqueue.local.display import Display
    from fluxqueue.local.toolchain import build_control_plane

    with Display() as display:
        build = functools.partial(build_control_plane, display=display)
        return cluster.up(report=display.step, find=lambda: find_binaries(build))


def _show_and_check(
    client: DemoClient, screen: Screen, folder: Path, arguments: argparse.Namespace
) -> tuple[list[str], float]:
    """Run the demo; return what went wrong, as sentences, and by how many seconds the latest start was
    late.
    """
    screen.step(f"Namespace {_NAMESPACE} is managed; the examples are applied")
    client.kubectl(
        "delete", "-n", _NAMESPACE, "-f", str(folder), "--ignore-not-found", "--wait=true", "--timeout=60s"
    )
    client.kubectl("label", "namespace", _NAMESPACE, f"{names.MANAGED_LABEL}=true", "--overwrite")
    others = _Others(
        frozenset(job.jobid for job in client.fluxion_jobs()),
        frozenset(one.metadata.uid for one in client.look().fluxjobs),
    )
    examples = _apply(client, folder)
    expectations = StartExpectations()
    rows = follow(client, screen, examples, expectations, arguments.timeout)
    group = max(
        (row for row in rows if row.fluxjob and row.hosts), key=lambda row: len(row.hosts), default=None
    )
    if group is not None:
        explain(client, screen, group)
    screen.step("What Fluxion chose and where the pods ran")
    screen.summary(rows)
    wrong = (
        [sentence for row in rows for sentence in differences(row)]
        + _cross_check(client, rows)
        + expectations.broken(rows)
    )
    if arguments.scheduler:
        wrong += [
            sentence for row in rows for sentence in bound_by_another(row, _SCHEDULERS[arguments.scheduler])
        ]
    for scheduler, pods in sorted(bound_by(rows).items()):
        screen.console.out(f"{pods} pods were bound by {scheduler}.", highlight=False)
    if not expectations.broken(rows):
        for sentence in expectations.kept(rows):
            screen.console.out(f"{sentence}.", highlight=False)
    if not settled(rows):
        wrong.insert(0, f"not everything settled within {arguments.timeout:g} s")
    if not arguments.keep:
        screen.step("The examples are deleted; nothing of them may be left")
        wrong += _clean(client, folder, others)
    return wrong, expectations.late_s(rows)


def _show_results(screen: Screen, computed: list[str], dashboard: str | None, *, keep: bool) -> None:
    screen.step("What was computed")
    seen = [where_results_are(dashboard, keep=keep)] if dashboard is not None else []
    for sentence in (*computed, *seen):
        screen.console.out(f"  {sentence}", highlight=False)


def _show_commands(screen: Screen, dashboard: str | None) -> None:
    binary = Path(sys.executable).parent / "fluxqueue"
    screen.step("The cluster keeps running")
    screen.console.out(
        f'  eval "$({binary} local env)"       # KUBECONFIG and PATH of this shell\n'
        "  kubectl fluxqueue jobs             # the queue\n"
        "  kubectl fluxqueue explain job/big  # one workload in words\n"
        f"  {binary} local logs queue          # the queue's log\n"
        f"  {binary} local down                # stop it",
        highlight=False,
    )
    if dashboard is not None:
        for line in dashboard_lines(dashboard):
            screen.console.out(f"  {line}", highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue local demo", description="Show the main job on a local control plane, and check it."
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        default=os.environ.get("KEEP", "") not in ("", "0"),
        help="leave it running (also KEEP=1)",
    )
    parser.add_argument(
        "--examples",
        type=Path,
        metavar="FOLDER",
        help="what to apply; the examples of the repository if not given",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=_RUN_TIMEOUT_S,
        metavar="SECONDS",
        help="how long the examples may take (%(default)g)",
    )
    parser.add_argument(
        "--scheduler",
        choices=sorted(_SCHEDULERS),
        help="what binds the pods: the project's scheduler (fluxion) or kube-scheduler (stock)",
    )
    parser.add_argument(
        "--nodes",
        choices=KINDS,
        help=(
            "what the nodes are: on processes, pods compute (default: as before, at first processes, "
            "if this machine allows it)"
        ),
    )
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="data folder of the cluster, as for `fluxqueue local up`"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo.

    Parameters
    ----------
    argv
        Arguments after `fluxqueue local demo`; by default those of the process.

    Returns
    -------
    int
        0 if every workload passed its checks and nothing remains, else 1.
    """
    arguments = _parser().parse_args(argv)
    from fluxqueue.local.binaries import BinariesError
    from fluxqueue.local.chart import ChartError
    from fluxqueue.local.localcluster import ClusterFailed, NotRunning
    from fluxqueue.local.postgres_binaries import PostgresError

    # like Ctrl-C: a started cluster is stopped
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        return _run(arguments, Screen())
    except (
        _DemoFailed,
        KubectlError,
        ClusterFailed,
        NotRunning,
        BinariesError,
        ChartError,
        PostgresError,
        subprocess.TimeoutExpired,
    ) as error:
        print(f"fluxqueue local demo: {error}", file=sys.stderr)
        return 1
