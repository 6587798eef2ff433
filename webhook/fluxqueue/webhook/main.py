"""`fluxqueue webhook`: the admission server as a program.

It needs a folder with a certificate, and nothing else: no kubeconfig, no database. It logs one JSON object a line to standard error.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from fluxqueue.api import names

__all__ = ["main"]

_LEVELS = ("debug", "info", "warning", "error")
_REFUSED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    argv
        Words after `fluxqueue webhook`; those of the process if None.

    Returns
    -------
    int
        0, or 1 when the address cannot be listened on.
    """
    arguments = _parser().parse_args(argv)

    import uvloop

    from fluxqueue.api.logs import configure_logging
    from fluxqueue.webhook.decisions import Settings
    from fluxqueue.webhook.server import CannotListen, ServerSettings, serve

    configure_logging(arguments.log_level)
    admission = Settings(
        job_controllers=frozenset(arguments.job_controllers or names.JOB_CONTROLLERS),
        daemonset_controllers=frozenset(arguments.daemonset_controllers or names.DAEMONSET_CONTROLLERS),
        exempt_namespaces=frozenset((*names.SYSTEM_NAMESPACES, *arguments.exempt_namespaces)),
    )
    settings = ServerSettings(arguments.host, arguments.port, arguments.cert_dir, arguments.drain_seconds, arguments.look_seconds)
    gc.freeze()  # what is loaded by now lives as long as the process: the collector need not look at it again
    try:
        uvloop.run(serve(settings, admission, lambda: dt.datetime.now(dt.UTC)))
    except CannotListen as error:
        print(f"fluxqueue webhook: {error}", file=sys.stderr)  # noqa: T201  for the person who started it
        return _REFUSED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue webhook", description="HTTPS admission server: suspends Jobs, gates pods, and pins those that have an allocation."
    )
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: %(default)s)")  # noqa: S104  a pod's own address
    parser.add_argument("--port", type=_port, default=9443, help="port to listen on, 0 for a free one (default: %(default)s)")
    parser.add_argument(
        "--cert-dir",
        type=Path,
        default=Path("/etc/fluxqueue/tls"),
        metavar="DIR",
        help="folder with tls.crt and tls.key, waited for and read again when they change (default: %(default)s)",
    )
    parser.add_argument(
        "--job-controller",
        action="append",
        dest="job_controllers",
        metavar="USER",
        help=f"user that may create pods carrying an allocation; repeat (default: {', '.join(names.JOB_CONTROLLERS)})",
    )
    parser.add_argument(
        "--daemonset-controller",
        action="append",
        dest="daemonset_controllers",
        metavar="USER",
        help=f"user whose DaemonSet pods are left alone; repeat (default: {', '.join(names.DAEMONSET_CONTROLLERS)})",
    )
    parser.add_argument(
        "--exempt-namespace",
        action="append",
        default=[],
        dest="exempt_namespaces",
        metavar="NAMESPACE",
        help=f"where nothing is touched, such as our own; repeat ({', '.join(names.SYSTEM_NAMESPACES)} always are)",
    )
    parser.add_argument(
        "--drain-seconds", type=_seconds, default=15.0, metavar="S", help="how long to go on answering after SIGTERM (default: %(default)s)"
    )
    parser.add_argument(
        "--look-seconds", type=_seconds, default=2.0, metavar="S", help="time between two looks at the certificate (default: %(default)s)"
    )
    parser.add_argument("--log-level", choices=_LEVELS, default="info", help="least level to log (default: %(default)s)")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds: 0 to 3600")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
