"""Watches which FluxQueues exist and which of them, or of the namespaces, choose a scheduler, without ever
delaying the server.

Two lists are watched: the FluxQueues and, with a scheduler of ours, the namespaces that name a queue. No
response waits for them. Until they have been read, and while the API server is unreachable, the known choices
count, the installation's default applies to the rest, and no queue is said to be missing. So no error in here
may end the server, and its readiness does not depend on it: the API server needs the webhook to create the
very pods that may provide the connection to the API server.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.metadata import Namespace
from fluxqueue.kube.credentials import NoConfiguration
from fluxqueue.kube.kinds import FLUXQUEUES, NAMESPACES, T
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.webhook.choices import SchedulerChoices
from fluxqueue.webhook.known_queues import KnownQueues

__all__ = ["watch_queues"]

log = structlog.get_logger(__name__)

_RETRY_S = 10.0
_V = TypeVar("_V")


async def watch_queues(
    known: KnownQueues, choices: SchedulerChoices | None, kubeconfig: Path | None = None
) -> None:
    """Watch FluxQueues and namespaces until cancelled. Every failure is logged, and the watch is started
    again.

    Parameters
    ----------
    known
        The queues to be updated.
    choices
        The choices to be updated; None if no scheduler of ours is installed.
    kubeconfig
        None for the ServiceAccount of the pod, as in `fluxqueue.kube.credentials.Credentials.load`.
    """
    queues: ObjectCache[FluxQueue] = ObjectCache()
    namespaces: ObjectCache[Namespace] = ObjectCache()
    consequence, told = "nobody is told that a queue does not exist", ""
    if choices is not None:
        consequence = f"{choices.default} binds pods that choose no scheduler, and {consequence}"
        of_queues, of_namespaces = choices.queues, choices.namespaces
        queues.add_handler(lambda change: _write(of_queues, change, lambda queue: queue.spec.scheduler))
        namespaces.add_handler(
            lambda change: _write(
                of_namespaces, change, lambda namespace: namespace.metadata.label(names.QUEUE_LABEL)
            )
        )
    while True:
        try:
            async with (
                Api.connect(kubeconfig, user_agent="fluxqueue/webhook") as api,
                asyncio.TaskGroup() as group,
            ):
                reflector = Reflector(api, FLUXQUEUES, queues)
                known.listed = functools.partial(_names, queues, reflector)
                group.create_task(reflector.run())
                if choices is not None:
                    group.create_task(
                        Reflector(api, NAMESPACES, namespaces, label_selector=names.QUEUE_LABEL).run()
                    )
        except NoConfiguration as error:
            if told != (told := str(error)):  # a webhook without an API server goes on without one
                log.warning("queues.unknown", error=told, consequence=consequence)
        except Exception:
            log.exception("queues.unwatched")
        await asyncio.sleep(_RETRY_S)


def _names(queues: ObjectCache[FluxQueue], reflector: Reflector[FluxQueue]) -> frozenset[str] | None:
    """Return the names of all FluxQueues, also of those that cannot be read;
    None unless the watch is up to date.
    """
    if not reflector.healthy:
        return None
    return frozenset(
        (*(queue.metadata.name for queue in queues.list()), *(name for _, name in reflector.undecodable))
    )


def _write(known: dict[str, _V], change: Change[T], value_of: Callable[[T], _V | None]) -> None:
    value = None if change.kind is ChangeKind.DELETED else value_of(change.obj)
    if value is None:
        known.pop(change.obj.metadata.name, None)
    else:
        known[change.obj.metadata.name] = value
