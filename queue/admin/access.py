"""Who may ask what of a replica: decided by the API server, for each token and path.

A caller sends a token. The API server says whose it is (TokenReview) and whether that user may send this verb
to this path (SubjectAccessReview of a non-resource URL, or of the objects that the answer is about), so an
administrator grants these rights with roles, like all others. Answers are kept for a few seconds, in tables
of bounded size; their keys are digests, so no token stays in memory.

Questions cost calls to the API server, so their number is limited. A token that was let in within the last
minutes is *known* and has a budget of its own. All others are *strangers*: each source address has a budget,
all together have one, and only some are asked about at the same time. So wrong tokens delay neither known
callers nor strangers of other addresses, and refusals push no allowed answer out of memory. If the API server
does not answer, nobody is let in.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from fluxqueue.api.budgets import Budgets, Rate
from fluxqueue.api.names import FLUXJOBS, GROUP, OPERATOR_AUDIENCE
from fluxqueue.api.reviews import TokenUser
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import ACCESS_REVIEWS, TOKEN_REVIEWS
from fluxqueue.kube.transport import Api

__all__ = ["REVIEWS_AT_ONCE", "AccessReviews", "ListsFluxJobs", "Permission", "Right", "Verdict"]

REVIEWS_AT_ONCE: Final = 8
"""Calls that a client for `AccessReviews` may have in flight."""
_ALLOWED_S: Final = 30.0
_REFUSED_S: Final = 5.0
_KNOWN_S: Final = 600.0
"""Seconds for which a token is known after it was let in; longer than a scraper pauses."""
_MOST_KEPT: Final = 256
_LONGEST_TOKEN: Final = 8_192
_EACH: Final = Rate(per_s=5.0, burst=20.0)
_STRANGERS: Final = Rate(per_s=40.0, burst=80.0)
_STRANGERS_AT_ONCE: Final = REVIEWS_AT_ONCE // 2


class Right(Protocol):
    """What a caller must be allowed to do."""

    @property
    def path(self) -> str:
        """The path that is asked for."""
        ...

    @property
    def audience(self) -> str:
        """The audience for which the token must have been issued; empty: that of the API server."""
        ...

    @property
    def attributes(self) -> dict[str, Any]:
        """What of a SubjectAccessReview's spec names the right."""
        ...

    def refusal(self, user: str) -> str:
        """Return the sentence for a user without the right."""
        ...


@dataclass(frozen=True, slots=True)
class Permission:
    """What a caller must be allowed to do.

    Attributes
    ----------
    verb, path
        The non-resource URL and its verb (``get``, ``post``), as in a ClusterRole.
    audience
        The audience for which the token must have been issued. Empty: that of the API server, as in the
        tokens that pods mount.
    """

    verb: str
    path: str
    audience: str = ""

    @property
    def attributes(self) -> dict[str, Any]:
        """What of a SubjectAccessReview's spec names the right."""
        return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}

    def refusal(self, user: str) -> str:
        """Return the sentence for a user without the right."""
        return (
            f"{user} may not {self.verb} {self.path}: bind it to a ClusterRole with the verb {self.verb} on "
            f"the nonResourceURL {self.path}"
        )


@dataclass(frozen=True, slots=True)
class ListsFluxJobs:
    """The right to list FluxJobs: who may see the work of a namespace may see its history.

    Attributes
    ----------
    path
        What is asked for.
    namespace
        Empty: of all namespaces.
    """

    path: str
    namespace: str
    audience: str = OPERATOR_AUDIENCE

    @property
    def attributes(self) -> dict[str, Any]:
        """What of a SubjectAccessReview's spec names the right."""
        return {
            "resourceAttributes": {
                "verb": "list",
                "group": GROUP,
                "resource": FLUXJOBS,
                "namespace": self.namespace,
            }
        }

    def refusal(self, user: str) -> str:
        """Return the sentence for a user without the right."""
        if self.namespace:
            return (
                f"{user} may not list FluxJobs in the namespace {self.namespace}: "
                "bind it to the ClusterRole view there"
            )
        return (
            f"{user} may not list FluxJobs in all namespaces: name one that it may see, "
            "or bind it to the ClusterRole view in all"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: an HTTP status, 200 if the request may be answered, and otherwise a sentence; of a request
    that may be answered, the name of the user who asks.
    """

    status: int
    sentence: str = ""
    user: str = field(default="", compare=False)


T = TypeVar("T")


class AccessReviews:
    """Asks the API server, and keeps its answers for some seconds.

    Parameters
    ----------
    api
        A client with a short time limit, and `REVIEWS_AT_ONCE` calls at once.
    clock
        Seconds that only increase.
    """

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._allowed = _Kept[Verdict](clock)
        self._refused = _Kept[Verdict](clock)
        self._known = _Kept[bool](clock)
        self._known_budgets = Budgets(_EACH, None, clock())
        self._stranger_budgets = Budgets(_EACH, _STRANGERS, clock())
        self._strangers = 0

    async def check(self, token: str, right: Right, address: str = "") -> Verdict:
        """Decide whether the holder of a token may do something.

        Returns
        -------
        Verdict
            200; 401 without a valid token; 403 if the user lacks the right; 429 or 503 if this cannot be
            decided now.
        """
        if not token:
            return Verdict(
                401, f"{right.path} needs the token of a ServiceAccount: send it as Authorization: Bearer"
            )
        if len(token) > _LONGEST_TOKEN:
            return Verdict(401, f"the token is longer than {_LONGEST_TOKEN} characters")
        key = hashlib.sha256(f"{right!r} {token}".encode()).digest()
        if (kept := self._allowed.get(key) or self._refused.get(key)) is not None:
            return kept
        holder = hashlib.sha256(token.encode()).digest()
        stranger = self._known.get(holder) is None
        if not self._may_ask(holder, address, stranger=stranger):
            return Verdict(429, "too many tokens to review at this moment: ask again in a second")
        self._strangers += stranger
        try:
            verdict = await self._review(token, right)
        except ApiError as error:
            return Verdict(503, f"the API server cannot be asked who you are ({error}): ask again")
        finally:
            self._strangers -= stranger
        if verdict.status == 200:
            self._known.keep(holder, _KNOWN_S, True)
            self._allowed.keep(key, _ALLOWED_S, verdict)
        else:
            self._refused.keep(key, _REFUSED_S, verdict)
        return verdict

    def _may_ask(self, holder: bytes, address: str, *, stranger: bool) -> bool:
        if not stranger:
            return self._known_budgets.spend(holder, self._clock())
        return self._strangers < _STRANGERS_AT_ONCE and self._stranger_budgets.spend(address, self._clock())

    async def _review(self, token: str, right: Right) -> Verdict:
        audience = right.audience
        spec: dict[str, Any] = {"token": token, **({"audiences": [audience]} if audience else {})}
        status = (await self._api.create(TOKEN_REVIEWS, {"spec": spec})).status
        if not status.authenticated or (audience and audience not in (status.audiences or ())):
            wanted = f' with the audience "{audience}"' if audience else ""
            return Verdict(401, f"the token is not valid here: send a new token of a ServiceAccount{wanted}")
        user = status.user
        if (
            await self._api.create(ACCESS_REVIEWS, {"spec": {**right.attributes, **_subject(user)}})
        ).status.allowed:
            return Verdict(200, user=user.username)
        return Verdict(403, right.refusal(user.username))


class _Kept(Generic[T]):
    """What is remembered by digests, for some seconds each, the last `_MOST_KEPT` of them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> T | None:
        entry = self._entries.get(key)
        return entry[1] if entry is not None and self._clock() < entry[0] else None

    def keep(self, key: bytes, seconds: float, value: T) -> None:
        self._entries[key] = self._clock() + seconds, value
        self._entries.move_to_end(key)
        while len(self._entries) > _MOST_KEPT:
            self._entries.popitem(last=False)


def _subject(user: TokenUser) -> dict[str, Any]:
    return {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
