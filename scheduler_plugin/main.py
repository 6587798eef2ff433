"""`fluxqueue scheduler`: parse the command line and run the service until a signal stops it."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop

from fluxqueue.api.logs import configure_logging
from fluxqueue.api.loop_monitor import log_blocks
from fluxqueue.api.termination import leaf_errors, run_until_terminated
from fluxqueue.kube.credentials import NoConfiguration
from fluxqueue.kube.lease import LeaseLost
from fluxqueue.queue.admin.server import AdminAddress
from fluxqueue.scheduler_plugin.extender.server import CannotListen, ExtenderSettings
from fluxqueue.scheduler_plugin.metrics import LOOP_BLOCKED_SECONDS
from fluxqueue.scheduler_plugin.service import SchedulerService, SchedulerSettings

__all__ = ["main"]

log = structlog.get_logger()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the scheduler service.

    Returns
    -------
    int
        0 after a clean stop, 1 if the process has to be started again, 2 for an unusable command line.
    """
    arguments = _parser().parse_args(argv)
    try:
        configure_logging(arguments.log_level)
        extender = _extender(arguments)
    except ValueError as error:
        return _refuse(error)
    settings = SchedulerSettings(
        namespace=arguments.namespace,
        lease=arguments.lease,
        replica=arguments.replica or os.environ.get("POD_NAME") or socket.gethostname(),
        host=arguments.host,
        health_port=arguments.health_port,
        admin=AdminAddress(arguments.host, arguments.metrics_port, arguments.tls_dir),
        kubeconfig=arguments.kubeconfig,
        extender=extender,
    )
    try:
        uvloop.run(_run(SchedulerService(settings)))
    except CannotListen as error:
        return _refuse(error)
    except BaseExceptionGroup as ended:
        known, unknown = ended.split((LeaseLost, NoConfiguration, CannotListen))
        if unknown is not None:
            raise unknown from None
        cause = leaf_errors(known)[0]
        if isinstance(cause, (NoConfiguration, CannotListen)):
            return _refuse(cause)
        log.error("scheduler.ended", error=str(cause), remedy="start it again")
        return 1
    return 0


def _extender(arguments: argparse.Namespace) -> ExtenderSettings | None:
    if arguments.extender_port is None:
        return None
    if arguments.extender_client_ca is None:
        raise ValueError(
            "--extender-port needs --extender-client-ca: whoever reaches the extender can have pods bound, "
            "so give it the authority that has signed kube-scheduler's certificate (chart value "
            "scheduler.extender.clientCASecret)"
        )
    return ExtenderSettings(
        host=arguments.host,
        port=arguments.extender_port,
        certificate_directory=arguments.extender_cert_dir,
        client_ca=arguments.extender_client_ca,
    )


async def _run(service: SchedulerService) -> None:
    log_blocks(LOOP_BLOCKED_SECONDS.observe)
    await run_until_terminated(service.run())
    log.info("scheduler.stopped")


def _refuse(error: BaseException) -> int:
    print(f"fluxqueue scheduler: {error}", file=sys.stderr)  # noqa: T201  # before there is a log
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue scheduler",
        description="Bind released pods of FluxionScheduler to exactly the nodes that the queue chose.",
    )
    parser.add_argument(
        "--namespace", default="fluxqueue-system", help="the release namespace (default: %(default)s)"
    )
    parser.add_argument(
        "--lease",
        default="fluxqueue-scheduler",
        metavar="NAME",
        help="the Lease in that namespace whose holder binds (default: %(default)s)",
    )
    parser.add_argument(
        "--replica",
        default="",
        metavar="NAME",
        help="name of this replica (default: $POD_NAME, else the host name)",
    )
    parser.add_argument("--host", default="0.0.0.0", help="address of both (default: %(default)s)")  # noqa: S104  # probes come from the node
    parser.add_argument(
        "--health-port",
        type=int,
        default=8080,
        help="port of liveness and readiness, plain HTTP (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=8443,
        help="port of metrics and status, HTTPS (default: %(default)s)",
    )
    parser.add_argument(
        "--tls-dir",
        type=Path,
        default=Path("/etc/fluxqueue-tls"),
        metavar="DIR",
        help=(
            "folder with its tls.crt and tls.key; missing files are waited for, "
            "changed files are read again (default: %(default)s)"
        ),
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, then ~/.kube/config, then in-cluster"
    )
    _add_extender(parser)
    parser.add_argument(
        "--log-level", default="info", help="debug, info, warning or error (default: %(default)s)"
    )
    return parser


def _add_extender(parser: argparse.ArgumentParser) -> None:
    extender = parser.add_argument_group("kube-scheduler's extender, served by every replica over TLS")
    extender.add_argument(
        "--extender-port",
        type=int,
        metavar="PORT",
        help="port to serve it on, 0 for a free one (default: not served)",
    )
    extender.add_argument(
        "--extender-cert-dir",
        type=Path,
        default=Path("/etc/fluxqueue/extender-tls"),
        metavar="DIR",
        help=(
            "folder with tls.crt and tls.key; missing files are waited for, "
            "changed files are read again (default: %(default)s)"
        ),
    )
    extender.add_argument(
        "--extender-client-ca",
        type=Path,
        metavar="FILE",
        help=(
            "authorities that sign kube-scheduler's certificate, PEM; nobody else is served; "
            "needed with --extender-port"
        ),
    )
