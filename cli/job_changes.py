"""Changes of FluxJobs as the API server reports them, without a gap,
also after a watch ends or its version expires.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ServerUnreachable
from fluxqueue.cli.listing import Listed, collection, list_jobs

__all__ = ["job_changes"]

_GONE = 410
_PAUSE_S = 0.2
_LASTS_S = 300.0
"""After that a watch is opened again, since a connection that nothing comes from may be only apparently
open."""
_LATE_S = 10.0
_BREAKS = 5
_BREAK_S = 1.0
"""How often in a row a broken connection is replaced, and after which pause."""
_JOB = msgspec.json.Decoder(FluxJob)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ErrorStatus(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_EVENT = msgspec.json.Decoder(_Event)


def job_changes(
    client: ApiClient,
    namespace: str | None,
    version: str,
    until: float | None = None,
    known: Iterable[FluxJob] = (),
) -> Iterator[tuple[str, Listed]]:
    """Yield every change, as the type of the watch event and the FluxJob.

    Parameters
    ----------
    client
        The API server; its connection is used up by the watch.
    namespace
        Of the FluxJobs; None: all.
    version
        Changes after this version of the list. Where it has expired, all FluxJobs are yielded as they are.
    until
        The iterator ends at this time of `time.monotonic`; None: never.
    known
        FluxJobs whose deletion is yielded also if it happened while the version expired.

    Raises
    ------
    ClusterError
        The server refuses, or stays out of reach.
    """
    path = collection(names.FLUXJOBS, namespace)
    breaks = 0
    while True:
        params = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        left_s = None if until is None else until - time.monotonic()
        if left_s is not None and left_s <= 0:
            return
        lasts_s = _LASTS_S if left_s is None else min(left_s, _LASTS_S)
        params["timeoutSeconds"] = str(max(int(lasts_s + 0.999), 1))
        began = time.monotonic()
        try:
            for line in client.watch(path, params, timeout_s=lasts_s + _LATE_S):
                breaks = 0
                what, item = _read(line)
                version = item.job.metadata.resource_version or version
                if what != "BOOKMARK":
                    yield what, item
        except ApiRefused as error:
            if error.status != _GONE:
                raise
            listed, version = list_jobs(client, namespace, raw=True)
            there = {item.job.metadata.uid for item in listed}
            yield from (("DELETED", Listed(job, b"")) for job in known if job.metadata.uid not in there)
            yield from (("MODIFIED", item) for item in listed)
        except ServerUnreachable:
            breaks += 1
            if breaks > _BREAKS:
                raise
            time.sleep(_BREAK_S)
        if time.monotonic() - began < _PAUSE_S:
            # a server that ends watches at once is not asked again and again without a pause
            time.sleep(_PAUSE_S)


def _read(line: bytes) -> tuple[str, Listed]:
    event = _EVENT.decode(line)
    if event.type == "ERROR":
        status = msgspec.json.decode(event.object, type=_ErrorStatus)
        raise ApiRefused(status.code, status.reason, status.message)
    raw = bytes(event.object)
    return event.type, Listed(_JOB.decode(raw), raw)
