"""`fluxqueue local`: a local cluster on this machine, for the demo, development and tests.

``up`` returns when the cluster is ready and leaves it running. The other commands find it through its data
folder.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fluxqueue.local.binaries import Binaries, BinariesError, Tool, find_binaries
from fluxqueue.local.chart import ChartError
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.daemon import serve as serve_cluster
from fluxqueue.local.display import Display
from fluxqueue.local.for_people import VALUES, dashboard_lines
from fluxqueue.local.kubernetes_versions import DEFAULT_MINOR, VERSIONS
from fluxqueue.local.localcluster import ClusterFailed, LocalCluster, NotRunning
from fluxqueue.local.node_kinds import KINDS, PROCESSES, SIMULATED, choose, note_on
from fluxqueue.local.postgres_binaries import PostgresError
from fluxqueue.local.user_folders import state_folder
from fluxqueue.local.values import merged

__all__ = ["main", "serve"]

_FAILED = 1
_NODES = 8
_MOST_NODES = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of ``fluxqueue local``.

    Parameters
    ----------
    argv
        Arguments after ``fluxqueue local``; by default those of the process.

    Returns
    -------
    int
        0 for success; 1 for a failure (``status``: no cluster runs); 2 for an invalid command line.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["demo"]:
        from fluxqueue.local.demo import main as demo

        return demo(words[1:])
    if words[:1] == ["nodes"]:
        from fluxqueue.local.nodes.commands import main as nodes

        return nodes(words[1:])
    arguments = _parser().parse_args(words)
    try:
        return int(arguments.run(arguments))
    except (ClusterFailed, NotRunning, BinariesError, ChartError, PostgresError) as error:
        print(f"fluxqueue local: {error}", file=sys.stderr)
        return _FAILED


def serve() -> int:
    """Run the daemon (`daemon`); its only argument describes the cluster, as JSON."""
    request = json.loads(sys.argv[1])
    binaries = Binaries(
        {Tool[name]: Path(path) for name, path in request["binaries"].items()},
        kubernetes=request["kubernetes"],
    )
    return serve_cluster(Path(request["folder"]), ClusterOptions(**request["options"]), binaries, sys.stdout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue local",
        description="A Kubernetes control plane, Postgres and fluxqueue on this machine.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "--dir",
        type=Path,
        default=None,
        metavar="FOLDER",
        help=f"where its data is (default: {state_folder()})",
    )

    up = commands.add_parser("up", parents=[folder], help="start it, or find the one that runs")
    _add_cluster_options(up)
    up.set_defaults(run=_up)

    down = commands.add_parser("down", parents=[folder], help="stop it; its data is kept for the next start")
    down.add_argument("--delete", action="store_true", help="remove its data")
    down.set_defaults(run=_down)

    status = commands.add_parser(
        "status", parents=[folder], help="show its processes, their ports and memory"
    )
    status.set_defaults(run=_status)

    env = commands.add_parser(
        "env", parents=[folder], help='variables for a shell: eval "$(fluxqueue local env)"'
    )
    env.set_defaults(run=_env)

    logs = commands.add_parser("logs", parents=[folder], help="show the log of a program")
    logs.add_argument(
        "name",
        metavar="NAME",
        help="queue, webhook, fluxion, scheduler, ... as in `status`; daemon for the supervisor",
    )
    logs.add_argument("-f", "--follow", action="store_true", help="follow the log")
    logs.add_argument(
        "-n", "--lines", type=int, default=50, metavar="N", help="how many lines back (default: %(default)s)"
    )
    logs.set_defaults(run=_logs)

    binaries = commands.add_parser(
        "binaries", help="find or build the Kubernetes programs and print their paths"
    )
    binaries.add_argument("--kubernetes", choices=tuple(VERSIONS), default=None, help="as of `up`")
    binaries.add_argument("-q", "--quiet", action="store_true", help="print nothing if all exist")
    binaries.set_defaults(run=_binaries)
    commands.add_parser(
        "nodes", add_help=False, help="a cluster of real nodes, see `fluxqueue local nodes --help`"
    )
    commands.add_parser(
        "demo", add_help=False, help="show the main use case, see `fluxqueue local demo --help`"
    )
    return parser


def _add_cluster_options(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--nodes",
        type=_count_or_kind,
        action="append",
        default=[],
        metavar="N|KIND",
        help=(
            f"how many nodes (default: {_NODES}), or what they are: processes, "
            "whose pods run as processes of this machine, or simulated"
            " (default: as before, at first processes, if they are few and this machine allows it); "
            "once for each"
        ),
    )
    up.add_argument("--node-cpu", default="8", metavar="CPU", help="of each node (default: %(default)s)")
    up.add_argument(
        "--node-memory", default="32Gi", metavar="MEMORY", help="of each node (default: %(default)s)"
    )
    up.add_argument(
        "--node-gpus", type=int, default=0, metavar="N", help="of each node (default: %(default)s)"
    )
    up.add_argument(
        "--kubernetes",
        choices=tuple(VERSIONS),
        default=None,
        help=f"its minor version, built once (default: FLUXQUEUE_KUBERNETES, or {DEFAULT_MINOR})",
    )
    up.add_argument(
        "--queues", type=int, default=1, metavar="N", help="queue replicas; one leads (default: %(default)s)"
    )
    up.add_argument(
        "--scheduler",
        choices=("stock", "fluxion"),
        default="stock",
        help="kube-scheduler or the project's own (default: %(default)s)",
    )
    up.add_argument(
        "--schedulers",
        type=int,
        default=1,
        metavar="N",
        help="replicas of the project's scheduler (default: %(default)s)",
    )
    up.add_argument("--dsn", default=None, help="a Postgres to use instead of a private one")
    up.add_argument(
        "--values",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="additional helm values (repeatable)",
    )
    up.add_argument("--audit", action="store_true", help="write the API server's audit log")


def _count_or_kind(text: str) -> int | str:
    if text in KINDS:
        return text
    if text.isdecimal() and 0 < int(text) <= _MOST_NODES:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither a number from 1 to {_MOST_NODES} nor one of {', '.join(KINDS)}"
    )


def _find(display: Display, minor: str | None) -> Binaries:
    from fluxqueue.local.toolchain import build_control_plane

    return find_binaries(functools.partial(build_control_plane, display=display), minor)


def _up(arguments: argparse.Namespace) -> int:
    wanted = next((each for each in reversed(arguments.nodes) if isinstance(each, str)), "")
    nodes = next((each for each in reversed(arguments.nodes) if isinstance(each, int)), _NODES)
    found = LocalCluster(arguments.dir)
    kind = found.kind_before if found.running else choose(wanted, found.kind_before, nodes)
    cluster = LocalCluster(arguments.dir, _options(arguments, nodes, processes=kind == PROCESSES))
    with Display() as display:
        started = cluster.up(report=display.step, find=lambda: _find(display, arguments.kubernetes))
    how = "is up" if started else "runs already"
    prefix = "" if arguments.dir is None else f" --dir {shlex.quote(str(cluster.folder))}"
    kind, count = cluster.kind_of_nodes, nodes if started else cluster.node_count
    words = f"{count} {'nodes of processes' if kind == PROCESSES else 'simulated nodes'}"
    if wanted not in ("", kind) or (
        nodes != count and any(isinstance(each, int) for each in arguments.nodes)
    ):
        print(
            f"fluxqueue local: a cluster runs, with {words}: `fluxqueue local down{prefix}` first, "
            "for others",
            file=sys.stderr,
        )
        return _FAILED
    print(f"fluxqueue {how}: {cluster.state.server}, {words}, data in {cluster.folder}")
    print(f'  eval "$(fluxqueue local env{prefix})"   then kubectl and kubectl fluxqueue work in this shell')
    print(f"  fluxqueue local status{prefix}          what runs;   fluxqueue local down{prefix}   ends it")
    for line in dashboard_lines(cluster.dashboard_url) if cluster.dashboard_url is not None else ():
        print(f"  {line}")
    if started and wanted != SIMULATED and (note := note_on(kind, nodes)):
        print(f"note: {note}", file=sys.stderr)
    return 0


def _options(arguments: argparse.Namespace, nodes: int, *, processes: bool) -> ClusterOptions:
    values = dict(VALUES)
    for path in arguments.values:
        import yaml

        try:
            values = merged(values, yaml.safe_load(path.read_text()) or {})
        except (OSError, yaml.YAMLError) as error:
            raise ChartError(f"the values file {path} cannot be read: {error}") from error
    return ClusterOptions(
        nodes=nodes,
        processes=processes,
        node_cpu=arguments.node_cpu,
        node_memory=arguments.node_memory,
        node_gpus=arguments.node_gpus,
        queue_replicas=arguments.queues,
        scheduler=arguments.scheduler,
        scheduler_replicas=arguments.schedulers,
        dsn=arguments.dsn,
        values=values,
        audit=arguments.audit,
    )


def _down(arguments: argparse.Namespace) -> int:
    cluster = LocalCluster(arguments.dir)
    with Display() as display:
        if cluster.running:
            display.step(f"ending what runs in {cluster.folder}")
        ran = cluster.down(delete=arguments.delete)
    if not ran:
        print(f"nothing runs in {cluster.folder}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    cluster = LocalCluster(arguments.dir)
    state = cluster.state
    table = Table(box=None, pad_edge=False)
    for title in ("COMPONENT", "PID", "STATE", "PORT", "RSS MiB", "RESTARTS"):
        table.add_column(title, justify="left" if title in ("COMPONENT", "STATE") else "right")
    for process in state.processes:
        rss = _rss_mib(process.pid)
        pid, port = (str(number) if number is not None else "-" for number in (process.pid, process.port))
        table.add_row(
            process.name,
            pid,
            process.state if rss is not None or process.pid is None else "gone",
            port,
            rss or "-",
            str(process.restarts),
        )
    table.add_row("supervisor", str(state.pid), "running", "-", _rss_mib(state.pid) or "-", "-")
    Console().print(table)
    print(f"{state.server}, data in {cluster.folder}")
    if cluster.dashboard_url is not None:
        print(f"The dashboard: {cluster.dashboard_url}")
    return 0


def _rss_mib(pid: int | None) -> str | None:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return str(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20))


def _env(arguments: argparse.Namespace) -> int:
    state = LocalCluster(arguments.dir).state
    folders = [str(_bin_folder(arguments.dir, state.kubectl)), str(Path(sys.executable).parent)]
    print(f"export KUBECONFIG={shlex.quote(state.kubeconfig)}")
    print(f"export DATABASE_URL={shlex.quote(state.dsn)}")
    queue = next(
        (process for process in state.processes if process.name == "queue" and process.metrics_port), None
    )
    if queue is not None:
        print(f"export FLUXQUEUE_QUEUE_URL=https://127.0.0.1:{queue.metrics_port}")
        print(f"export FLUXQUEUE_QUEUE_CA={shlex.quote(str(LocalCluster(arguments.dir).write_queue_ca()))}")
    print(f"export PATH={shlex.quote(os.pathsep.join(folders))}:$PATH")
    return 0


def _bin_folder(folder: Path | None, kubectl: str) -> Path:
    """Return a folder that contains only a link to the cluster's kubectl, to be put in front of PATH."""
    bin_folder = LocalCluster(folder).folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    link = bin_folder / "kubectl"
    if not link.is_symlink() or str(link.readlink()) != kubectl:
        link.unlink(missing_ok=True)
        link.symlink_to(kubectl)
    return bin_folder


def _logs(arguments: argparse.Namespace) -> int:
    cluster = LocalCluster(arguments.dir)
    path = (
        cluster.folder / "daemon.log"
        if arguments.name == "daemon"
        else Path(cluster.process(arguments.name).log)
    )
    try:
        with path.open(errors="replace") as file:
            for line in file.readlines()[-arguments.lines :]:
                print(line, end="")
            while arguments.follow:
                if text := file.read():
                    print(text, end="", flush=True)
                else:
                    time.sleep(0.2)
    except FileNotFoundError:
        print(f"{arguments.name} has written nothing to {path} yet", file=sys.stderr)
        return _FAILED
    return 0


def _binaries(arguments: argparse.Namespace) -> int:
    with Display() as display:
        binaries = _find(display, arguments.kubernetes)
    if arguments.quiet:
        return 0
    for tool in Tool:
        print(f"{tool.common_name:<24} {binaries[tool]}")
    for sentence in binaries.rejected:
        print(sentence)
    return 0
