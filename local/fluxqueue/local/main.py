"""`fluxqueue local`: a whole fluxqueue on this machine, for the demo, development and tests.

``up`` returns when everything is ready and leaves it running; the other commands find it through its data folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fluxqueue.local.binaries import Binaries, BinariesError, Tool, find_binaries
from fluxqueue.local.chart import ChartError
from fluxqueue.local.daemon import serve as serve_plane
from fluxqueue.local.display import Display
from fluxqueue.local.inprocess import PlaneOptions
from fluxqueue.local.plane import LocalPlane, NotRunning, PlaneFailed, state_folder
from fluxqueue.local.postgres import PostgresError

__all__ = ["main", "serve"]

_FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of ``fluxqueue local``.

    Parameters
    ----------
    argv
        Words after ``fluxqueue local``; those of the process if None.

    Returns
    -------
    int
        0, or 1 for what failed (``status``: nothing runs); 2 for a command line that is not understood.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["demo"]:
        from fluxqueue.local.demo import main as demo

        return demo(words[1:])
    arguments = _parser().parse_args(words)
    try:
        return int(arguments.run(arguments))
    except (PlaneFailed, NotRunning, BinariesError, ChartError, PostgresError) as error:
        print(f"fluxqueue local: {error}", file=sys.stderr)
        return _FAILED


def serve() -> int:
    """The daemon's entry point (`plane`): its one argument is what to run, as JSON."""
    request = json.loads(sys.argv[1])
    binaries = Binaries({Tool[name]: Path(path) for name, path in request["binaries"].items()})
    return serve_plane(Path(request["folder"]), PlaneOptions(**request["options"]), binaries, sys.stdout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue local", description="A Kubernetes control plane, Postgres and fluxqueue on this machine."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--dir", type=Path, default=None, metavar="FOLDER", help=f"where its data is (default: {state_folder()})")

    up = commands.add_parser("up", parents=[folder], help="start it, or find the one that runs")
    up.add_argument("--nodes", type=int, default=8, metavar="N", help="how many nodes (default: %(default)s)")
    up.add_argument("--node-cpu", default="8", metavar="CPU", help="of each node (default: %(default)s)")
    up.add_argument("--node-memory", default="32Gi", metavar="MEMORY", help="of each node (default: %(default)s)")
    up.add_argument("--node-gpus", type=int, default=0, metavar="N", help="of each node (default: %(default)s)")
    up.add_argument("--queues", type=int, default=1, metavar="N", help="queue replicas; one leads (default: %(default)s)")
    up.add_argument("--dsn", default=None, help="a Postgres to use instead of a private one")
    up.add_argument("--values", type=Path, action="append", default=[], metavar="FILE", help="helm values over ours (repeatable)")
    up.add_argument("--audit", action="store_true", help="keep the API server's audit log")
    up.set_defaults(run=_up)

    down = commands.add_parser("down", parents=[folder], help="end it; its data stays for the next time")
    down.add_argument("--delete", action="store_true", help="remove its data")
    down.set_defaults(run=_down)

    status = commands.add_parser("status", parents=[folder], help="what runs, where, and what it takes")
    status.set_defaults(run=_status)

    env = commands.add_parser("env", parents=[folder], help='variables for a shell: eval "$(fluxqueue local env)"')
    env.set_defaults(run=_env)

    logs = commands.add_parser("logs", parents=[folder], help="what a program wrote")
    logs.add_argument("name", metavar="NAME", help="queue, webhook, fluxion, kube-apiserver, ... as in `status`; daemon for the supervisor")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as it writes")
    logs.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="how many lines back (default: %(default)s)")
    logs.set_defaults(run=_logs)

    binaries = commands.add_parser("binaries", help="find or build the Kubernetes programs and say where they are")
    binaries.add_argument("-q", "--quiet", action="store_true", help="say nothing if all are there")
    binaries.set_defaults(run=_binaries)
    commands.add_parser("demo", add_help=False, help="show the main job, see `fluxqueue local demo --help`")
    return parser


def _find(display: Display) -> Binaries:
    def build(folder: Path) -> None:
        from fluxqueue.local.toolchain import build_tools

        build_tools(folder, display)

    return find_binaries(build)


def _up(arguments: argparse.Namespace) -> int:
    plane = LocalPlane(arguments.dir, _options(arguments))
    with Display() as display:
        started = plane.up(report=display.step, find=lambda: _find(display))
    how = "is up" if started else "runs already"
    prefix = "" if arguments.dir is None else f" --dir {shlex.quote(str(plane.folder))}"
    print(f"fluxqueue {how}: {plane.state.server}, {plane.options.nodes if started else 'its'} nodes, data in {plane.folder}")
    print(f'  eval "$(fluxqueue local env{prefix})"   then kubectl and kubectl fluxqueue work in this shell')
    print(f"  fluxqueue local status{prefix}          what runs;   fluxqueue local down{prefix}   ends it")
    return 0


def _options(arguments: argparse.Namespace) -> PlaneOptions:
    from fluxqueue.local.inprocess import merged

    values: dict[str, object] = {}
    for path in arguments.values:
        import yaml

        try:
            values = merged(values, yaml.safe_load(path.read_text()) or {})
        except (OSError, yaml.YAMLError) as error:
            raise ChartError(f"the values file {path} cannot be read: {error}") from error
    return PlaneOptions(
        nodes=arguments.nodes,
        node_cpu=arguments.node_cpu,
        node_memory=arguments.node_memory,
        node_gpus=arguments.node_gpus,
        queue_replicas=arguments.queues,
        dsn=arguments.dsn,
        values=values,
        audit=arguments.audit,
    )


def _down(arguments: argparse.Namespace) -> int:
    plane = LocalPlane(arguments.dir)
    with Display() as display:
        if plane.running:
            display.step(f"ending what runs in {plane.folder}")
        ran = plane.down(delete=arguments.delete)
    if not ran:
        print(f"nothing runs in {plane.folder}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    plane = LocalPlane(arguments.dir)
    state = plane.state
    table = Table(box=None, pad_edge=False)
    for title in ("COMPONENT", "PID", "STATE", "PORT", "RSS MiB", "RESTARTS"):
        table.add_column(title, justify="left" if title in ("COMPONENT", "STATE") else "right")
    for process in state.processes:
        rss = _rss_mib(process.pid)
        pid, port = (str(number) if number is not None else "-" for number in (process.pid, process.port))
        table.add_row(
            process.name, pid, process.state if rss is not None or process.pid is None else "gone", port, rss or "-", str(process.restarts)
        )
    table.add_row("supervisor", str(state.pid), "running", "-", _rss_mib(state.pid) or "-", "-")
    Console().print(table)
    print(f"{state.server}, data in {plane.folder}")
    return 0


def _rss_mib(pid: int | None) -> str | None:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return str(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20))


def _env(arguments: argparse.Namespace) -> int:
    state = LocalPlane(arguments.dir).state
    folders = [str(_bin_folder(arguments.dir, state.kubectl)), str(Path(sys.executable).parent)]
    print(f"export KUBECONFIG={shlex.quote(state.kubeconfig)}")
    print(f"export DATABASE_URL={shlex.quote(state.dsn)}")
    queue = next((process for process in state.processes if process.name == "queue" and process.port), None)
    if queue is not None:
        print(f"export FLUXQUEUE_QUEUE_URL=http://127.0.0.1:{queue.port}")
    print(f"export PATH={shlex.quote(os.pathsep.join(folders))}:$PATH")
    return 0


def _bin_folder(folder: Path | None, kubectl: str) -> Path:
    """A folder that holds nothing but the kubectl that fits, to be put in front of PATH."""
    place = LocalPlane(folder).folder / "bin"
    place.mkdir(exist_ok=True)
    link = place / "kubectl"
    if not link.is_symlink() or str(link.readlink()) != kubectl:
        link.unlink(missing_ok=True)
        link.symlink_to(kubectl)
    return place


def _logs(arguments: argparse.Namespace) -> int:
    plane = LocalPlane(arguments.dir)
    path = plane.folder / "daemon.log" if arguments.name == "daemon" else Path(plane.process(arguments.name).log)
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
        found = _find(display)
    if arguments.quiet:
        return 0
    for tool in Tool:
        print(f"{tool.common_name:<24} {found[tool]}")
    for sentence in found.passed_over:
        print(sentence)
    return 0
