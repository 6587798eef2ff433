"""How the client asks the queue for its history.

The way to the queue, the token and the sentences of who may not are those of ``kubectl fluxqueue history``
(`fluxqueue.cli.history_source`), which asks one request after the other. So it runs in a thread, and its
requests on the event loop, with the connections of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from fluxqueue.api.names import FLUXJOBS
from fluxqueue.cli.api_client import (
    ApiClient,
    ApiRefused,
    ClusterError,
    NoSuchResource,
    ObjectNotFound,
    ServerUnreachable,
)
from fluxqueue.cli.history_options import named
from fluxqueue.cli.history_source import HistoryAddress, MayNotRead, NoReplica, find_history
from fluxqueue.cli.listing import NOT_INSTALLED
from fluxqueue.cli.queue_endpoint import CA_VARIABLE, NAMESPACE, URL_VARIABLE
from fluxqueue.client.errors import (
    FluxQueueError,
    InvalidWork,
    NoCluster,
    NotInstalled,
    NotPermitted,
    Refused,
)
from fluxqueue.client.histories import HistoryListing
from fluxqueue.kube.errors import ApiError, NotFound, Unreachable

if TYPE_CHECKING:
    from fluxqueue.kube.transport import Api

__all__ = ["of_name", "read_history", "times_of"]

_PAGE = 1_000


def of_name(name: Any) -> dict[str, str]:
    """Return the parameters of the work of one name.

    Raises
    ------
    InvalidWork
        It is no name.
    """
    try:
        return named(name)
    except (argparse.ArgumentTypeError, AttributeError):
        raise InvalidWork(
            f"name: {name!r:.60} is no name of work: write name='lammps', or name='job/lammps'"
        ) from None


def times_of(
    since: datetime | timedelta | None, until: datetime | timedelta | None, now: datetime
) -> dict[str, str]:
    """Return the parameters of a span of time.

    Raises
    ------
    InvalidWork
        One is no time, or has no zone.
    """
    return {
        name: _time(name, time, now)
        for name, time in (("since", since), ("until", until))
        if time is not None
    }


def _time(name: str, time: Any, now: datetime) -> str:
    if isinstance(time, timedelta):
        time = now - time
    if not isinstance(time, datetime):
        raise InvalidWork(
            f"{name}: {time!r} is neither a datetime nor a timedelta: write timedelta(days=7), "
            "which is so long ago"
        )
    if time.tzinfo is None:
        raise InvalidWork(f"{name}: {time!r} has no time zone: write {name}=...astimezone()")
    return time.isoformat()


async def read_history(
    api: Api, namespace: str, parameters: Mapping[str, str], *, limit: int, system_namespace: str = ""
) -> HistoryListing:
    """Ask the queue for the history of a namespace; the empty one: of all.

    Raises
    ------
    NotPermitted, NotInstalled, NoCluster, Refused
        With the sentence of ``kubectl fluxqueue history``.
    """
    address = HistoryAddress(
        namespace=namespace,
        url=os.environ.get(URL_VARIABLE, ""),
        ca=os.environ.get(CA_VARIABLE, ""),
        system_namespace=system_namespace or NAMESPACE,
    )
    loop = asyncio.get_running_loop()
    asked = {**parameters, **({"namespace": namespace} if namespace else {})}

    def ask() -> tuple[list[dict[str, Any]], bool]:
        rows, more = [], False
        with find_history(
            address, lambda timeout_s: cast("ApiClient", _Requests(api, loop, timeout_s))
        ) as source:
            for page, more in source.jobs(asked, limit, _PAGE):  # noqa: B007  the last one counts
                rows += page
        return rows, more

    try:
        rows, more = await asyncio.to_thread(ask)
    except ClusterError as error:
        raise _translated(error) from None
    return HistoryListing(rows, datetime.now().astimezone(), namespaces=not namespace, more=more, asked=asked)


class _Requests:
    """What `find_history` needs of an `ApiClient`, with the connections of an `Api`."""

    def __init__(self, api: Api, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._api = api
        self._loop = loop
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(
        self, path: str, params: Mapping[str, str] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> bytes:
        return self._answer(
            self._api.request(
                "GET", path, query=dict(params or {}), headers=headers, timeout_s=self._timeout_s
            )
        )

    def post(self, path: str, body: Any = None) -> bytes:
        return self._answer(self._api.request("POST", path, body=body, timeout_s=self._timeout_s))

    def _answer(self, request: Coroutine[Any, Any, bytes]) -> bytes:
        try:
            return asyncio.run_coroutine_threadsafe(request, self._loop).result()
        except Unreachable as error:
            raise ServerUnreachable(str(error)) from None
        except NotFound as error:
            kind = (
                ObjectNotFound
                if error.reason == "NotFound" and "not found" in error.message
                else NoSuchResource
            )
            raise kind(error.status, error.reason, error.message) from None
        except ApiError as error:
            _, brace, rest = error.message.partition("{")
            raise ApiRefused(error.status, error.reason, error.message, f"{brace}{rest}".encode()) from None


def _translated(error: ClusterError) -> FluxQueueError:
    sentence = str(error).removeprefix("error: ")
    if isinstance(error, MayNotRead):
        return NotPermitted(sentence)
    if isinstance(error, NoReplica | ServerUnreachable):
        return NoCluster(sentence)
    return NotInstalled(sentence) if str(error) == NOT_INSTALLED.format(FLUXJOBS) else Refused(sentence)
