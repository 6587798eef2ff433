"""`fluxqueue dashboard`: parse the command line and run the service until a signal stops it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop

from fluxqueue.api.logs import configure_logging
from fluxqueue.api.loop_monitor import log_blocks
from fluxqueue.api.termination import leaf_errors, run_until_terminated
from fluxqueue.dashboard.people import ProxyHeaders
from fluxqueue.dashboard.service import DashboardService
from fluxqueue.dashboard.settings import DashboardSettings, QueueAddress
from fluxqueue.kube.credentials import NoConfiguration
from fluxqueue.serving.guarded_server import CannotListen

__all__ = ["main"]

log = structlog.get_logger()

_SHORTEST_SECRET = 16


class _Unusable(Exception):
    """The command line cannot be used; the message says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the dashboard.

    Returns
    -------
    int
        0 after a clean stop, 2 for an unusable command line.
    """
    arguments = _parser().parse_args(argv)
    try:
        configure_logging(arguments.log_level)
        settings = _settings(arguments)
    except (ValueError, _Unusable) as error:
        return _refuse(error)
    try:
        uvloop.run(_run(DashboardService(settings)))
    except (NoConfiguration, CannotListen) as error:
        return _refuse(error)
    except BaseExceptionGroup as ended:
        known, unknown = ended.split((NoConfiguration, CannotListen))
        if unknown is not None:
            raise unknown from None
        return _refuse(leaf_errors(known)[0])
    return 0


async def _run(service: DashboardService) -> None:
    log_blocks()
    await run_until_terminated(service.run())
    log.info("dashboard.stopped")


def _settings(arguments: argparse.Namespace) -> DashboardSettings:
    if arguments.impersonate and arguments.proxy_secret_file is None:
        raise _Unusable("--impersonate is for people whom a proxy names: give --proxy-secret-file too")
    return DashboardSettings(
        host=arguments.host,
        port=arguments.port,
        health_port=arguments.health_port,
        certificate_directory=arguments.tls_dir,
        queue=QueueAddress(arguments.queue_url, arguments.queue_ca, arguments.release, arguments.namespace),
        levels=tuple(label for label in arguments.level if label),
        proxy=_proxy(arguments),
        impersonate=arguments.impersonate,
        kubeconfig=arguments.kubeconfig,
    )


def _proxy(arguments: argparse.Namespace) -> ProxyHeaders | None:
    file: Path | None = arguments.proxy_secret_file
    if file is None:
        return None
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _Unusable(f"--proxy-secret-file: {file} cannot be read: {error}") from None
    if len(secret) < _SHORTEST_SECRET:
        raise _Unusable(
            f"--proxy-secret-file: the secret in {file} is shorter than {_SHORTEST_SECRET} characters: "
            "whoever guesses it is anybody"
        )
    return ProxyHeaders(
        secret,
        user_header=arguments.proxy_user_header.lower(),
        groups_header=arguments.proxy_groups_header.lower(),
    )


def _refuse(error: BaseException) -> int:
    print(f"fluxqueue dashboard: {error}", file=sys.stderr)  # noqa: T201  # before there is a log
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue dashboard", description="Show the queue in a browser, with the rights of who looks."
    )
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: %(default)s)")  # noqa: S104  # a Service leads here
    parser.add_argument(
        "--port", type=int, default=8445, help="port to listen on, HTTPS (default: %(default)s)"
    )
    parser.add_argument(
        "--health-port",
        type=int,
        metavar="PORT",
        help=(
            "port of liveness for the kubelet, plain HTTP, answered by a thread of its own (default: "
            "not served)"
        ),
    )
    parser.add_argument(
        "--tls-dir",
        type=Path,
        default=Path("/etc/fluxqueue-tls"),
        metavar="DIR",
        help=(
            "folder with tls.crt and tls.key; missing files are waited for, "
            "changed files are read again (default: %(default)s)"
        ),
    )
    parser.add_argument(
        "--queue-url", default="", metavar="URL", help="the queue's port for metrics, for history and doctor"
    )
    parser.add_argument(
        "--queue-ca",
        type=Path,
        metavar="FILE",
        help="the authority that signs its certificate (default: the system's)",
    )
    parser.add_argument(
        "--namespace", default="fluxqueue-system", help="the release namespace (default: %(default)s)"
    )
    parser.add_argument(
        "--release",
        default="fluxqueue",
        metavar="NAME",
        help="what the chart's objects are called (default: %(default)s)",
    )
    parser.add_argument(
        "--level",
        action="append",
        default=[],
        metavar="LABEL",
        help="node label of a level of the topology, from the top down",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, then ~/.kube/config, then in-cluster"
    )
    _add_proxy(parser)
    parser.add_argument(
        "--log-level", default="info", help="debug, info, warning or error (default: %(default)s)"
    )
    return parser


def _add_proxy(parser: argparse.ArgumentParser) -> None:
    proxy = parser.add_argument_group("a proxy in front that signs people in (off by default)")
    proxy.add_argument(
        "--proxy-secret-file",
        type=Path,
        metavar="FILE",
        help="what the proxy sends in the header Fluxqueue-Proxy-Secret, so that it is known",
    )
    proxy.add_argument(
        "--proxy-user-header",
        default="X-Forwarded-User",
        metavar="NAME",
        help="who it is (default: %(default)s)",
    )
    proxy.add_argument(
        "--proxy-groups-header",
        default="X-Forwarded-Groups",
        metavar="NAME",
        help="his groups (default: %(default)s)",
    )
    proxy.add_argument(
        "--impersonate",
        action="store_true",
        help="send what such people do by impersonation, as far as RBAC allows it",
    )
