"""What a leader does beside the way of a job: the webhook's certificate, and traces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

from fluxqueue.kube.transport import Api
from fluxqueue.queue.certificates import CertificateKeeper
from fluxqueue.queue.settings import ServiceSettings
from fluxqueue.queue.store import Store
from fluxqueue.queue.traces import TraceExport

__all__ = ["upkeep"]


def upkeep(
    settings: ServiceSettings, api: Api, store: Store, now: datetime
) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """Yield the name of each part, and what is to run for as long as the replica leads;
    `now` is the time of the tables.
    """
    if settings.webhook is not None:
        yield "CertificateKeeper", CertificateKeeper(api, settings.webhook, lambda: datetime.now(UTC)).run
    if settings.traces is not None:
        yield "TraceExport", TraceExport(store, settings.traces, now).run
