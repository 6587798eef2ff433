"""`fluxqueue fluxion`: the service, and commands for graphs and recorded cases.

Without a subcommand it serves until SIGTERM or SIGINT, and then finishes the calls under way. It logs one
JSON object per line to standard error. The address flags are those of the Go service. It listens on the
loopback address by default, because without certificates anybody who reaches the port may change the graph.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fluxqueue.api.logs import configure_logging
from fluxqueue.api.termination import on_termination

if TYPE_CHECKING:
    from fluxqueue.fluxion.rpc.server import FluxionServerSettings

__all__ = ["main"]

_LEVELS = ("debug", "info", "warning", "error")
_REFUSED = 1
_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the service or one of its commands.

    Parameters
    ----------
    argv
        Words after `fluxqueue fluxion`; those of the process if None.

    Returns
    -------
    int
        0, or 1 after a failure, or 2 if the command line cannot be read.
    """
    arguments = _parser().parse_args(argv)
    if arguments.command == "replay":
        from fluxqueue.fluxion.commands import replay

        configure_logging("warning")
        return replay.run(arguments)
    if arguments.command == "graph":
        from fluxqueue.fluxion.commands import graph

        return graph.run(arguments)
    return _serve(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue fluxion",
        description="The resource graph and matcher behind gRPC. Without a command it serves.",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s; 0.0.0.0 for all)"
    )
    parser.add_argument(
        "--port", type=_port, default=4242, help="port to listen on, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--metrics-port", type=_port, help="serve Prometheus metrics on this port (default: none are served)"
    )
    parser.add_argument("--metrics-host", help="address to serve metrics on (default: that of --host)")
    parser.add_argument(
        "--health-port",
        type=_port,
        help="serve health alone on this port, for a kubelet's probes (default: none)",
    )
    parser.add_argument("--health-host", help="address to serve health on (default: that of --host)")
    parser.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="least level to log (default: %(default)s)"
    )
    parser.add_argument(
        "--grace", type=float, default=10.0, metavar="SECONDS", help="time for calls under way at shutdown"
    )
    tls = parser.add_argument_group(
        "encryption", "With --tls-client-ca, clients need a certificate signed by it."
    )
    tls.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="certificate chain of the service, PEM; read again when it changes",
    )
    tls.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, PEM")
    tls.add_argument(
        "--tls-client-ca",
        type=Path,
        metavar="FILE",
        help="certificates that may have signed the clients', PEM",
    )
    _add_commands(parser)
    return parser


def _add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    replay = commands.add_parser("replay", help="replay recorded cases and print where the answers agree")
    replay.add_argument("folder", type=Path, metavar="DIR", help="folder of recorded cases (*.json)")
    replay.add_argument(
        "--grpc", action="store_true", help="over gRPC, against a server of our own unless --target names one"
    )
    replay.add_argument(
        "--target",
        metavar="HOST:PORT",
        help="any server of the three calls, also the Go one (implies --grpc)",
    )

    graph = commands.add_parser("graph", help="print, check or make resource graphs")
    actions = graph.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print a JGF as a tree")
    show.add_argument("file", metavar="FILE", help="JGF, - for standard input")
    show.add_argument(
        "--all",
        action="store_true",
        help="print every vertex; otherwise leaves are counted and long lists of nodes are cut",
    )
    check = actions.add_parser("check", help="print the problems of a JGF")
    check.add_argument("file", metavar="FILE", help="JGF, - for standard input")
    nodes = actions.add_parser("from-nodes", help="make a JGF of `kubectl get nodes -o json`")
    nodes.add_argument("file", metavar="FILE", help="the list of nodes as JSON, - for standard input")
    nodes.add_argument(
        "--levels",
        default="zone=topology.kubernetes.io/zone",
        metavar="TYPE=LABEL,...",
        help="levels above nodes, by label",
    )
    nodes.add_argument(
        "--cpu-vertex",
        type=_cpu_vertex,
        default=10,
        metavar="MILLICORES",
        help="size of a cpu vertex, 1 to 1000",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return int(text)


def _cpu_vertex(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of a cpu vertex: 1 to 1000 millicores")
    return int(text)


def _serve(arguments: argparse.Namespace) -> int:
    import uvloop

    from fluxqueue.fluxion.rpc.server import CannotServe, FluxionServerSettings, ServerTls

    if (arguments.tls_cert is None) != (arguments.tls_key is None) or (
        arguments.tls_client_ca and not arguments.tls_cert
    ):
        print("fluxqueue fluxion: encryption needs both --tls-cert and --tls-key", file=sys.stderr)  # noqa: T201  before there is a log
        return _USAGE
    tls = (
        ServerTls(arguments.tls_cert, arguments.tls_key, arguments.tls_client_ca)
        if arguments.tls_cert
        else None
    )
    settings = FluxionServerSettings(
        arguments.host,
        arguments.port,
        arguments.metrics_port,
        arguments.metrics_host,
        tls,
        arguments.grace,
        arguments.health_port,
        arguments.health_host,
    )
    configure_logging(arguments.log_level)
    try:
        uvloop.run(_serve_until_terminated(settings))
    except CannotServe as error:
        print(f"fluxqueue fluxion: {error}", file=sys.stderr)  # noqa: T201  for the person who started it
        return _REFUSED
    return 0


async def _serve_until_terminated(settings: FluxionServerSettings) -> None:
    from fluxqueue.fluxion.rpc.server import serve

    terminated = asyncio.Event()
    on_termination(terminated.set)
    async with serve(settings):
        await terminated.wait()


if __name__ == "__main__":
    sys.exit(main())
