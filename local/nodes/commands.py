"""``fluxqueue local nodes``: a cluster of real nodes on this computer.

``up`` returns when every node is Ready and leaves the cluster running; ``down`` ends it. ``programs`` and
``images`` build what they need, once.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.binaries import BinariesError, Tool
from fluxqueue.local.display import Display
from fluxqueue.local.nodes.buildah import ImageError
from fluxqueue.local.nodes.cluster import NodeCluster
from fluxqueue.local.nodes.configuration import NodeSize
from fluxqueue.local.nodes.images import built_images, chart_values
from fluxqueue.local.nodes.layout import NodeLayout
from fluxqueue.local.nodes.machines import MachineError
from fluxqueue.local.nodes.memory import container_memory
from fluxqueue.local.nodes.programs import built_programs
from fluxqueue.local.nodes.requirements import CannotRunNodes, node_obstacle
from fluxqueue.local.processes import ProcessError

__all__ = ["main"]

_FAILED = 1


def main(argv: Sequence[str]) -> int:
    """Run one command of ``fluxqueue local nodes``.

    Returns
    -------
    int
        0 for success; 1 for a failure (``status``: no cluster runs); 2 for an invalid command line.
    """
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (CannotRunNodes, BinariesError, ImageError, MachineError, ProcessError, ApiServerError) as error:
        print(f"fluxqueue local nodes: {error}", file=sys.stderr)
        return _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue local nodes",
        description="A cluster of real nodes on this computer: kubelets, containers, a network. Needs root.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "--dir",
        type=Path,
        default=None,
        metavar="FOLDER",
        help=f"where its data is (default: {NodeLayout().folder})",
    )
    up = commands.add_parser("up", parents=[folder], help="start it, or find the one that runs")
    _add_size(up)
    up.set_defaults(run=_up)
    down = commands.add_parser("down", parents=[folder], help="end it; its data is kept for the next start")
    down.add_argument("--delete", action="store_true", help="remove its data")
    down.set_defaults(run=_down)
    status = commands.add_parser(
        "status", parents=[folder], help="show its nodes, and the containers with their memory"
    )
    status.set_defaults(run=_status)
    env = commands.add_parser(
        "env", parents=[folder], help='variables for a shell: eval "$(fluxqueue local nodes env)"'
    )
    env.set_defaults(run=_env)
    load = commands.add_parser(
        "load", parents=[folder], help="import image archives (OCI or Docker) into every node"
    )
    load.add_argument(
        "archives",
        nargs="*",
        type=Path,
        metavar="ARCHIVE",
        help="by default the project's images, built if they are missing",
    )
    load.set_defaults(run=_load)
    commands.add_parser(
        "programs", help="build kubelet, containerd and the other programs if they are missing"
    ).set_defaults(run=_programs)
    commands.add_parser("images", help="build the project's images if they are missing").set_defaults(
        run=_images
    )
    values = commands.add_parser(
        "values", help="print the chart's values that select the built images, as JSON"
    )
    values.set_defaults(run=_values)
    return parser


def _add_size(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "nodes",
        nargs="?",
        type=_count,
        default=2,
        metavar="N",
        help="how many nodes, 1 to 9 (default: %(default)s)",
    )
    up.add_argument(
        "--memory",
        type=int,
        default=8192,
        metavar="MiB",
        help="memory that each node offers (default: %(default)s)",
    )


def _count(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 9:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes from 1 to 9")


def _cluster(arguments: argparse.Namespace, size: NodeSize | None = None) -> NodeCluster:
    return NodeCluster(NodeLayout() if arguments.dir is None else NodeLayout(arguments.dir.absolute()), size)


def _running(arguments: argparse.Namespace) -> NodeCluster:
    cluster = _cluster(arguments)
    if not cluster.running:
        raise MachineError(
            f"no real nodes run in {cluster.layout.folder}: start them with `fluxqueue local nodes up`"
        )
    return cluster


def _up(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments, NodeSize(memory_mib=arguments.memory))
    if not cluster.running and (obstacle := node_obstacle()):
        raise CannotRunNodes(obstacle)
    with Display() as display:
        programs = built_programs(display)
        assert programs is not None
        started = cluster.up(arguments.nodes, programs, display.step)
    prefix = "" if arguments.dir is None else f" --dir {shlex.quote(str(cluster.layout.folder))}"
    print(
        f"{len(cluster.running)} real nodes {'are up' if started else 'run already'}, "
        f"data in {cluster.layout.folder}"
    )
    print(
        f'  eval "$(fluxqueue local nodes env{prefix})"   then kubectl, '
        "helm and kubectl fluxqueue work in this shell"
    )
    print(
        f"  fluxqueue local nodes load{prefix}            the project's images;   "
        f"fluxqueue local nodes down{prefix}   ends it"
    )
    return 0


def _down(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    if not cluster.down(delete=arguments.delete):
        print(f"no real nodes run in {cluster.layout.folder}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    cluster = _running(arguments)
    memory = container_memory()
    print(f"{'NODE':<8} {'NAMESPACE':<20} {'POD':<44} {'CONTAINER':<14} {'PSS MiB':>8}")
    for pod in sorted(
        cluster.client.get("/api/v1/pods")["items"],
        key=lambda one: (one["spec"].get("nodeName", ""), one["metadata"]["name"]),
    ):
        for status in pod["status"].get("containerStatuses", []):
            used = memory.get(status.get("containerID", "").rpartition("/")[2])
            size = f"{used.pss_mib:.0f}" if used else "-"
            where, name = pod["spec"].get("nodeName", "-"), pod["metadata"]["name"]
            print(f"{where:<8} {pod['metadata']['namespace']:<20} {name:<44} {status['name']:<14} {size:>8}")
    return 0


def _env(arguments: argparse.Namespace) -> int:
    cluster = _running(arguments)
    folder = cluster.layout.folder / "bin"
    folder.mkdir(exist_ok=True)
    for tool in (Tool.KUBECTL, Tool.HELM):
        link = folder / tool.value
        link.unlink(missing_ok=True)
        link.symlink_to(cluster.binaries[tool])
    print(f"export KUBECONFIG={shlex.quote(str(cluster.layout.kubeconfig))}")
    print(
        f"export PATH={shlex.quote(os.pathsep.join([str(folder), str(Path(sys.executable).parent)]))}:$PATH"
    )
    return 0


def _load(arguments: argparse.Namespace) -> int:
    cluster = _running(arguments)
    archives = arguments.archives
    with Display() as display:
        if not archives:
            images = built_images(display)
            assert images is not None
            archives = [archive.path for archive in images.values()]
        if missing := [str(path) for path in archives if not path.is_file()]:
            raise ImageError(f"there is no archive {', '.join(missing)}")
        display.step("importing images into every node")
        cluster.load(path.absolute() for path in archives)
    return 0


def _programs(_: argparse.Namespace) -> int:
    with Display() as display:
        print(built_programs(display))
    return 0


def _images(_: argparse.Namespace) -> int:
    with Display() as display:
        images = built_images(display)
    assert images is not None
    for archive in images.values():
        print(f"{archive.name:<40} {archive.path.stat().st_size / 2**20:6.0f} MiB  {archive.path}")
    return 0


def _values(_: argparse.Namespace) -> int:
    images = built_images(build=False)
    if images is None:
        raise ImageError("images are missing: build them with `fluxqueue local nodes images`")
    print(json.dumps(chart_values(images), indent=1))
    return 0
