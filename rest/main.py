"""`fluxqueue rest`: the REST service of one Flux instance, next to its leader.

It talks to the instance through `flux` only (``FLUX_URI`` selects it, ``FLUX_VIEW`` is the folder of its
programs). It needs no kubeconfig and no database.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluxqueue.serving.guarded_server import GuardedServer

__all__ = ["main"]

_REFUSED = 1
_GRACE_S = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    argv
        Arguments after `fluxqueue rest`; those of the process if None.

    Returns
    -------
    int
        0, or 1 if the address cannot be listened on.
    """
    arguments = _parser().parse_args(argv)

    from fluxqueue.api.logs import configure_logging
    from fluxqueue.rest.app import create_app
    from fluxqueue.rest.bounded import LIMITS
    from fluxqueue.rest.commands import Flux, environment_for, read_python_path, read_size
    from fluxqueue.serving.guarded_server import CannotListen, GuardedServer, listen

    configure_logging(arguments.log_level)
    size = read_size(arguments.settings) if arguments.settings else None
    python_path = read_python_path(arguments.settings) if arguments.settings else ""
    app = create_app(
        Flux(environment_for(os.environ, python_path), application=arguments.environment),
        arguments.token_file,
        size,
    )
    try:
        listening = listen(arguments.host, arguments.port)
    except CannotListen as error:
        print(f"fluxqueue rest: {error}", file=sys.stderr)  # noqa: T201  for who started it
        return _REFUSED
    asyncio.run(_serve(GuardedServer(app, listening, LIMITS, finish_s=_GRACE_S)))
    return 0


async def _serve(server: GuardedServer) -> None:
    from fluxqueue.api.loop_monitor import log_blocks

    log_blocks()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, setattr, server, "should_exit", True)
    await server.serve()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue rest", description="Submit, list, show and cancel jobs of a Flux instance over HTTP."
    )
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all)")  # noqa: S104  of a pod
    parser.add_argument("--port", type=int, default=5000, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--token-file", type=Path, required=True, help="file with the bearer token that requests must carry"
    )
    parser.add_argument("--settings", type=Path, help="settings.sh of the instance")
    parser.add_argument(
        "--environment",
        type=Path,
        help="environment of the leader's application, NUL-separated: that of submitted jobs",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="(default: %(default)s)",
    )
    return parser
