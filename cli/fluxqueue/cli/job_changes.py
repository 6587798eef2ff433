"""Changes of FluxJobs as the API server reports them, without a gap, also after a watch ends or its version expires."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.api_client import ApiClient, ApiRefused
from fluxqueue.cli.listing import Listed, collection, list_jobs

__all__ = ["job_changes"]

_GONE = 410
_PAUSE_S = 0.2
_JOB = msgspec.json.Decoder(FluxJob)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ErrorStatus(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_EVENT = msgspec.json.Decoder(_Event)


def job_changes(client: ApiClient, namespace: str | None, version: str, until: float | None = None) -> Iterator[tuple[str, Listed]]:
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
    """
    path = collection(names.FLUXJOBS, namespace)
    while True:
        params = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        left_s = None if until is None else until - time.monotonic()
        if left_s is not None:
            if left_s <= 0:
                return
            params["timeoutSeconds"] = str(max(int(left_s + 0.999), 1))
        began = time.monotonic()
        try:
            for line in client.watch(path, params, timeout_s=None if left_s is None else left_s + 10):
                event = _EVENT.decode(line)
                if event.type == "ERROR":
                    status = msgspec.json.decode(event.object, type=_ErrorStatus)
                    raise ApiRefused(status.code, status.reason, status.message)
                raw = bytes(event.object)
                job = _JOB.decode(raw)
                version = job.metadata.resource_version or version
                if event.type != "BOOKMARK":
                    yield event.type, Listed(job, raw)
        except ApiRefused as error:
            if error.status != _GONE:
                raise
            listed, version = list_jobs(client, namespace, raw=True)
            for item in listed:
                yield "MODIFIED", item
        if time.monotonic() - began < _PAUSE_S:
            time.sleep(_PAUSE_S)  # a server that ends watches at once is not asked again and again without a pause
