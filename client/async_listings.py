"""What the asynchronous client lists: work, queues, nodes, and the history."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fluxqueue.api.fluxjobs import State
from fluxqueue.client.arguments import check_texts, check_whole, many
from fluxqueue.client.errors import InvalidWork
from fluxqueue.client.listings import JobListing, QueueListing, listing_of, listing_of_kind, read_queues
from fluxqueue.client.queue_names import QueueNames
from fluxqueue.kube.kinds import FLUXJOBS

if TYPE_CHECKING:
    from fluxqueue.client.histories import HistoryListing
    from fluxqueue.client.nodes import NodeListing
    from fluxqueue.kube.transport import Api

__all__ = ["AsyncListings"]

_STATES = "['pending', 'running']"


class AsyncListings:
    """What a client lists.

    Attributes
    ----------
    api, namespace
        The API server, and the namespace of what names none.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self._queues = QueueNames(api)

    async def jobs(
        self,
        *,
        queue: str = "",
        states: Iterable[str] = (),
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> JobListing:
        """Return the work that runs, waits and has ended, in the order of ``kubectl fluxqueue jobs``.

        Parameters
        ----------
        queue
            Only what is in this queue.
        states
            Only these, such as ``["pending", "running"]``.
        namespace, all_namespaces
            By default the namespace of the client.

        Raises
        ------
        InvalidWork
            There is no such queue or state.
        NotInstalled
            The cluster has no FluxJobs.
        """
        wanted = _states_of(states)
        if queue:
            await self._queues.check(queue)
        with listing_of_kind("FluxJobs"):
            found = await self.api.list(FLUXJOBS, None if all_namespaces else namespace or self.namespace)
        return listing_of(found, _now(), queue=queue, states=wanted, namespaces=all_namespaces)

    async def queues(self) -> QueueListing:
        """Return the queues with what they use of their limits, as ``kubectl fluxqueue queues`` shows them.

        Raises
        ------
        NotInstalled
            The cluster has no FluxQueues.
        """
        return await read_queues(self.api, _now())

    async def nodes(self, *, selector: str = "", states: Iterable[str] = ()) -> NodeListing:
        """Return the nodes with what fluxqueue's work uses of them, as ``kubectl fluxqueue nodes --each``
        shows them.

        Parameters
        ----------
        selector
            Only nodes with these labels, such as ``gpu=true``.
        states
            Only these: ``idle``, ``mixed``, ``allocated``, ``draining``, ``drained``, ``down``.

        Raises
        ------
        InvalidWork
            There is no such state.
        NotPermitted
            You may not list nodes.
        """
        from fluxqueue.client.nodes import read_nodes

        return await read_nodes(
            self.api, self.namespace, selector, [states] if isinstance(states, str) else states
        )

    async def history(
        self,
        *,
        name: str | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        states: Iterable[str] = (),
        queue: str | None = None,
        account: str | None = None,
        user: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
        limit: int = 1000,
        system_namespace: str = "",
    ) -> HistoryListing:
        """Return the work that ended since a time, runs or waits, as ``kubectl fluxqueue history`` shows it:
        the newest end first.

        Parameters
        ----------
        name
            Only the work of this name, such as ``solver`` or ``job/solver``: all of it, whenever it ended.
        since, until
            A time with a zone, or a `timedelta`: so long ago. By default the last day.
        states, queue, account, user
            Only these; the empty text selects work without an account, or of an unknown user.
        namespace, all_namespaces
            By default the namespace of the client.
        limit
            At most so many; `HistoryListing.more` says if there are more.
        system_namespace
            Namespace of fluxqueue, if it is not the usual one.

        Raises
        ------
        InvalidWork
            A name, a time, a state or the limit is none.
        NotPermitted
            You may not read this history; the message says how to get the right.
        FluxQueueError
            The queue does not answer.
        """
        from fluxqueue.client.history_requests import of_name, read_history, times_of

        check_whole("limit", limit, least=1)
        given = {
            "queue": queue,
            "account": account,
            "user": user,
            "state": ",".join(_states_of(states)) or None,
        }
        parameters = {name: value for name, value in given.items() if value is not None} | times_of(
            since, until, _now()
        )
        parameters |= of_name(name) if name is not None else {}
        where = "" if all_namespaces else namespace or self.namespace
        return await read_history(self.api, where, parameters, limit=limit, system_namespace=system_namespace)


def _states_of(states: Iterable[str]) -> list[str]:
    """Return states of work as a list; raise `InvalidWork` for one that is none."""
    wanted = [states] if isinstance(states, str) else [*many("states", states, _STATES)]
    check_texts("states", wanted, _STATES)
    if unknown := [state for state in wanted if state.lower() not in {each.lower() for each in State}]:
        raise InvalidWork(
            f"states: {unknown[0]!r} is not a state: there are {', '.join(each.lower() for each in State)}"
        )
    return wanted


def _now() -> datetime:
    return datetime.now().astimezone()
