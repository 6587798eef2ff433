"""`fluxqueue queue`: reads the command line and runs the service until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop

from fluxqueue.api.logs import configure_logging
from fluxqueue.kube.lease import LeaseLost
from fluxqueue.queue.config import InvalidConfig, QueueConfig, read_config
from fluxqueue.queue.controllers.certificates import WebhookPlace
from fluxqueue.queue.service import QueueService, ServiceSettings
from fluxqueue.queue.store import DatabaseUnavailable, MigrationChanged, SchemaTooNew, StaleLeader
from fluxqueue.queue.tasks import WorkersEnded

__all__ = ["main"]

log = structlog.get_logger()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the queue service.

    Returns
    -------
    int
        0 after a clean stop, 1 when the process should be started again, 2 for a command line or configuration that cannot work.
    """
    arguments = _parser().parse_args(argv)
    try:
        config = read_config(arguments.config)
        configure_logging(arguments.log_level or config.log_level)
        settings = _settings(arguments, config, os.environ.get("DATABASE_URL", ""))
    except (InvalidConfig, ValueError) as error:
        print(f"fluxqueue queue: {error}", file=sys.stderr)  # noqa: T201  # before there is a log
        return 2
    try:
        uvloop.run(_until_told(QueueService(settings)))
    except BaseExceptionGroup as ended:
        known, unknown = ended.split((StaleLeader, LeaseLost, DatabaseUnavailable, WorkersEnded, MigrationChanged, SchemaTooNew))
        if unknown is not None:
            raise unknown from None
        for cause in _leaves(known):
            log.error("the queue ends and is to be started again", error=str(cause))
        return 1
    return 0


async def _until_told(service: QueueService) -> None:
    running = asyncio.create_task(service.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    log.info("stopped")


def _leaves(group: BaseExceptionGroup[BaseException] | None) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions if group else ():
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


def _settings(arguments: argparse.Namespace, config: QueueConfig, database_url: str) -> ServiceSettings:
    if not database_url:
        raise ValueError("DATABASE_URL is not set: give it the Postgres to keep the queue in, for example postgresql://user@host/fluxqueue")
    named = (arguments.webhook_secret, arguments.webhook_configuration, arguments.webhook_service)
    if any(named) and not all(named):
        raise ValueError("--webhook-secret, --webhook-configuration and --webhook-service belong together: give all or none")
    return ServiceSettings(
        database_url=database_url,
        fluxion=arguments.fluxion,
        config=config,
        namespace=arguments.namespace,
        lease=arguments.lease,
        host=arguments.host,
        metrics_port=arguments.metrics_port,
        webhook=WebhookPlace(
            namespace=arguments.namespace,
            secret=arguments.webhook_secret,
            configuration=arguments.webhook_configuration,
            service=arguments.webhook_service,
        )
        if all(named)
        else None,
        kubeconfig=arguments.kubeconfig,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fluxqueue queue", description="Watch the cluster, keep the queue, release work onto its nodes.")
    parser.add_argument("--fluxion", default="127.0.0.1:4242", metavar="HOST:PORT", help="the Fluxion service (default: %(default)s)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as YAML; defaults where it says nothing")
    parser.add_argument("--namespace", default="fluxqueue-system", help="the release namespace (default: %(default)s)")
    parser.add_argument("--host", default="0.0.0.0", help="where health and metrics are served (default: %(default)s)")  # noqa: S104  # probes come from the node
    parser.add_argument(
        "--lease", default="fluxqueue-queue", metavar="NAME", help="the Lease in that namespace whose holder leads (default: %(default)s)"
    )
    parser.add_argument("--metrics-port", type=int, default=8080, help="port of health and metrics (default: %(default)s)")
    parser.add_argument("--webhook-secret", default="", metavar="NAME", help="Secret to keep the webhook's certificate in")
    parser.add_argument("--webhook-configuration", default="", metavar="NAME", help="webhook configurations whose CA bundle to keep")
    parser.add_argument("--webhook-service", default="", metavar="NAME", help="the webhook's Service")
    parser.add_argument("--kubeconfig", type=Path, help="default: $KUBECONFIG, then ~/.kube/config, then in-cluster")
    parser.add_argument("--log-level", default="", help="debug, info, warning or error (default: the configuration's)")
    return parser
