"""`fluxqueue queue`: reads the command line and runs the service until it is terminated."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop

from fluxqueue.api.logs import configure_logging
from fluxqueue.api.loop_monitor import log_blocks
from fluxqueue.api.termination import leaf_errors, run_until_terminated
from fluxqueue.kube.lease import LeaseLost
from fluxqueue.queue.admin.server import AdminAddress
from fluxqueue.queue.certificates import WebhookNames
from fluxqueue.queue.config import InvalidConfig, QueueConfig, read_config
from fluxqueue.queue.metrics import LOOP_BLOCKED_SECONDS
from fluxqueue.queue.service import QueueService
from fluxqueue.queue.settings import ServiceSettings
from fluxqueue.queue.store import DatabaseUnavailable, SchemaRefused, StaleLeader
from fluxqueue.queue.tasks.control_tasks import WorkersEnded
from fluxqueue.queue.traces import make_sender
from fluxqueue.serving.guarded_server import CannotListen

__all__ = ["main"]

log = structlog.get_logger()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the queue service.

    Returns
    -------
    int
        0 after a clean stop, 1 when the process should be started again, 2 for a command line or
        configuration that cannot work.
    """
    arguments = _parser().parse_args(argv)
    try:
        config = read_config(arguments.config)
        configure_logging(arguments.log_level or config.log_level)
        settings = _settings(
            arguments, config, os.environ.get("DATABASE_URL", ""), os.environ.get("DATABASE_DIRECT_URL", "")
        )
    except (InvalidConfig, ValueError) as error:
        print(f"fluxqueue queue: {error}", file=sys.stderr)  # noqa: T201  # before there is a log
        return 2
    try:
        uvloop.run(_run(QueueService(settings)))
    except CannotListen as error:
        log.error(
            "queue.ended",
            error=str(error),
            remedy="give it another address, or end the program that has this one",
        )
        return 1
    except BaseExceptionGroup as ended:
        known, unknown = ended.split(
            (
                StaleLeader,
                LeaseLost,
                DatabaseUnavailable,
                WorkersEnded,
                SchemaRefused,
                CannotListen,
            )
        )
        if unknown is not None:
            raise unknown from None
        for cause in leaf_errors(known):
            lost = isinstance(cause, (StaleLeader, LeaseLost))
            log.error(
                "leader.lost" if lost else "queue.ended", error=str(cause), remedy="it is to be started again"
            )
        return 1
    return 0


async def _run(service: QueueService) -> None:
    log_blocks(LOOP_BLOCKED_SECONDS.observe)
    await run_until_terminated(service.run())
    log.info("queue.stopped")


def _settings(
    arguments: argparse.Namespace, config: QueueConfig, database_url: str, direct_url: str
) -> ServiceSettings:
    if not database_url:
        raise ValueError(
            "DATABASE_URL is not set: set it to the Postgres of the queue, for example "
            "postgresql://user@host/fluxqueue"
        )
    named = (arguments.webhook_secret, arguments.webhook_configuration, arguments.webhook_service)
    if any(named) and not all(named):
        raise ValueError(
            "--webhook-secret, --webhook-configuration and --webhook-service belong together: set all or none"
        )
    return ServiceSettings(
        database_url=database_url,
        direct_url=direct_url,
        fluxion=arguments.fluxion,
        config=config,
        namespace=arguments.namespace,
        lease=arguments.lease,
        host=arguments.host,
        health_port=arguments.health_port,
        admin=AdminAddress(arguments.host, arguments.metrics_port, arguments.tls_dir),
        webhook=WebhookNames(
            namespace=arguments.namespace,
            secret=arguments.webhook_secret,
            configuration=arguments.webhook_configuration,
            service=arguments.webhook_service,
            other_services=tuple(arguments.certificate_services),
        )
        if all(named)
        else None,
        kubeconfig=arguments.kubeconfig,
        traces=make_sender(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue queue", description="Watch the cluster, keep the queue, release work onto its nodes."
    )
    parser.add_argument(
        "--fluxion",
        default="127.0.0.1:4242",
        metavar="HOST:PORT",
        help="the Fluxion service (default: %(default)s)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as YAML; omitted settings have defaults"
    )
    parser.add_argument(
        "--namespace", default="fluxqueue-system", help="the release namespace (default: %(default)s)"
    )
    parser.add_argument("--host", default="0.0.0.0", help="where both are served (default: %(default)s)")  # noqa: S104  # probes come from the node
    parser.add_argument(
        "--lease",
        default="fluxqueue-queue",
        metavar="NAME",
        help="the Lease in that namespace whose holder leads (default: %(default)s)",
    )
    _add_ports(parser)
    parser.add_argument(
        "--webhook-secret", default="", metavar="NAME", help="Secret for the webhook's certificate"
    )
    parser.add_argument(
        "--webhook-configuration",
        default="",
        metavar="NAME",
        help="webhook configurations whose CA bundle to maintain",
    )
    parser.add_argument("--webhook-service", default="", metavar="NAME", help="the webhook's Service")
    parser.add_argument(
        "--certificate-service",
        action="append",
        default=[],
        dest="certificate_services",
        metavar="NAME",
        help="another Service whose certificate to keep, in the Secret NAME-tls; may be repeated",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, then ~/.kube/config, then in-cluster"
    )
    parser.add_argument(
        "--log-level", default="", help="debug, info, warning or error (default: the configuration's)"
    )
    return parser


def _add_ports(parser: argparse.ArgumentParser) -> None:
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
