"""What a person may see and do: asked of the API server, as that person.

Each question is a SubjectAccessReview. Answers are kept for some seconds, so that a page costs no call while
it is looked at, and a right that was taken away is gone soon. Whoever may list FluxJobs in a namespace sees
its work. A person who may list them in all namespaces is asked about once; for others each namespace that has
work is a question, a limited number of them. Unanswered is refused, and a page says that there was no answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from fluxqueue.api.names import FLUXACCOUNTS, FLUXJOBS, FLUXQUEUES, FLUXRESERVATIONS, GROUP
from fluxqueue.dashboard.people import Person
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import ACCESS_REVIEWS
from fluxqueue.kube.transport import Api

__all__ = [
    "EVERYTHING",
    "MOST_NAMESPACES",
    "NODES_RIGHT",
    "AccessReviews",
    "Right",
    "Visible",
    "lists",
    "patches",
    "tokens_of",
]

_ALLOWED_S: Final = 15.0
_REFUSED_S: Final = 30.0
_MOST_KEPT: Final = 65_536
_SEEN_S: Final = 3.0
_MOST_SEEN: Final = 2_000
_AT_ONCE: Final = 16
MOST_NAMESPACES: Final = 500
"""About so many namespaces a person is asked, who may not list FluxJobs in all."""

log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a kind of objects, or on a part of them; ``namespace`` and ``name`` are empty for all."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """The ``resourceAttributes`` of a SubjectAccessReview."""
        parts = {field: getattr(self, field) for field in self.__slots__}
        return {name: text for name, text in parts.items() if text or name == "group"}


NODES_RIGHT: Final = Right("list", "", "nodes")


def lists(resource: str, namespace: str = "") -> Right:
    """Return the right to list objects of our own kinds."""
    return Right("list", GROUP, resource, namespace)


def tokens_of(account: str, namespace: str) -> Right:
    """Return the right to request tokens of a ServiceAccount, which opens the history or the doctor."""
    return Right("create", "", "serviceaccounts", namespace, account, "token")


def patches(namespace: str, name: str) -> Right:
    """Return the right to edit a FluxJob."""
    return Right("patch", GROUP, FLUXJOBS, namespace, name)


@dataclass(frozen=True, slots=True)
class Visible:
    """What a person may see.

    Attributes
    ----------
    namespaces
        Those whose work he sees; None: all.
    nodes, queues, accounts, reservations
        Whether he may list these.
    incomplete
        True if there are more namespaces with work than he was asked about.
    unanswered
        True if the API server did not answer, so that nothing is known.
    """

    namespaces: frozenset[str] | None = frozenset()
    nodes: bool = False
    queues: bool = False
    accounts: bool = False
    reservations: bool = False
    incomplete: bool = False
    unanswered: bool = False

    def shows(self, namespace: str) -> bool:
        """True if he sees the work of a namespace."""
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING: Final = Visible(None, nodes=True, queues=True, accounts=True, reservations=True)


class AccessReviews:
    """Asks the API server what people may do.

    Parameters
    ----------
    api
        A client that may create SubjectAccessReviews.
    clock
        Seconds that only increase.
    """

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._kept: OrderedDict[tuple[Person, Right], tuple[float, bool]] = OrderedDict()
        self._seen: OrderedDict[tuple[Person, str], tuple[float, tuple[str, ...], Visible]] = OrderedDict()
        self._asked: dict[tuple[Person, Right], asyncio.Future[bool | None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def may(self, person: Person, right: Right) -> bool:
        """True if a person has a right; false also if the API server does not answer."""
        return bool(await self._answer(person, right))

    async def lacks(self, person: Person, right: Right) -> bool:
        """True if the API server says that a person does not have a right;
        false also if it does not answer.
        """
        return await self._answer(person, right) is False

    async def _answer(self, person: Person, right: Right) -> bool | None:
        """Return whether a person has a right; None without an answer."""
        key = (person, right)
        if (kept := self._kept.get(key)) is not None and self._clock() < kept[0]:
            return kept[1]
        if (asked := self._asked.get(key)) is None:
            asked = asyncio.ensure_future(self._ask(key))
            self._asked[key] = asked
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(asked)

    async def visible(self, person: Person, namespaces: tuple[str, ...], chosen: str = "") -> Visible:
        """Return what a person may see; kept for some seconds, because many pages follow many changes.

        Parameters
        ----------
        person
            Who asks.
        namespaces
            Those that have work.
        chosen
            The one that he looks at, which is asked about however many there are.
        """
        key = (person, chosen if chosen in namespaces[MOST_NAMESPACES:] else "")
        kept = self._seen.get(key)
        if kept is not None and self._clock() < kept[0] and kept[1] is namespaces:
            return kept[2]
        until = self._clock() + _SEEN_S
        visible = await self._look(*key, namespaces)
        self._seen[key] = until, namespaces, visible
        self._seen.move_to_end(key)
        while len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return visible

    async def _look(self, person: Person, chosen: str, namespaces: tuple[str, ...]) -> Visible:
        rights = [
            NODES_RIGHT,
            *(lists(kind) for kind in (FLUXQUEUES, FLUXACCOUNTS, FLUXRESERVATIONS)),
            lists(FLUXJOBS),
        ]
        nodes, queues, accounts, reservations, everywhere = await asyncio.gather(
            *(self._answer(person, right) for right in rights)
        )
        if None in (nodes, queues, accounts, reservations, everywhere):
            return Visible(unanswered=True)
        seen: frozenset[str] | None = None
        incomplete = False
        if not everywhere:
            asked, incomplete = namespaces[:MOST_NAMESPACES], len(namespaces) > MOST_NAMESPACES
            asked += (chosen,) if chosen else ()
            answers = await asyncio.gather(*(self._answer(person, lists(FLUXJOBS, each)) for each in asked))
            if None in answers:
                return Visible(unanswered=True)
            seen = frozenset(name for name, allowed in zip(asked, answers, strict=True) if allowed)
        return Visible(seen, bool(nodes), bool(queues), bool(accounts), bool(reservations), incomplete)

    async def _ask(self, key: tuple[Person, Right]) -> bool | None:
        person, right = key
        spec: dict[str, Any] = {"resourceAttributes": right.attributes, **person.subject}
        try:
            async with self._slots:
                allowed = (await self._api.create(ACCESS_REVIEWS, {"spec": spec})).status.allowed
        except ApiError as error:
            log.warning("access.review_failed", error=str(error), consequence="refused for now")
            return None
        self._kept[key] = self._clock() + (_ALLOWED_S if allowed else _REFUSED_S), allowed
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return allowed
