"""Who may ask what of a replica: decided by the API server, for each token and path.

A caller sends a token. The API server says whose it is (TokenReview) and whether that user may send this verb to this path
(SubjectAccessReview of a non-resource URL, or of the objects that the answer is about), so an administrator grants these rights with roles,
like all others. Answers are kept
for a few seconds, in a table of bounded size; its keys are digests, so no token stays in memory. New tokens cost calls to the API server,
so their number per second is limited: a caller with wrong tokens can delay other new callers, and neither known ones nor the queue itself.
If the API server does not answer, nobody is let in.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fluxqueue.api.names import FLUXJOBS, GROUP, OPERATOR_AUDIENCE
from fluxqueue.api.reviews import TokenUser
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import ACCESS_REVIEWS, TOKEN_REVIEWS
from fluxqueue.kube.transport import Api

__all__ = ["AccessReviews", "ListsFluxJobs", "Permission", "Right", "Verdict"]

_ALLOWED_S: Final = 30.0
_REFUSED_S: Final = 5.0
_MOST_KEPT: Final = 256
_LONGEST_TOKEN: Final = 8_192
_REVIEWS_PER_S: Final = 10.0
_BURST: Final = 20.0


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
        The audience for which the token must have been issued. Empty: that of the API server, as in the tokens that pods mount.
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
            f"{user} may not {self.verb} {self.path}: bind it to a ClusterRole with the verb {self.verb} on the nonResourceURL {self.path}"
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
        return {"resourceAttributes": {"verb": "list", "group": GROUP, "resource": FLUXJOBS, "namespace": self.namespace}}

    def refusal(self, user: str) -> str:
        """Return the sentence for a user without the right."""
        if self.namespace:
            return f"{user} may not list FluxJobs in the namespace {self.namespace}: bind it to the ClusterRole view there"
        return f"{user} may not list FluxJobs in all namespaces: name one that it may see, or bind it to the ClusterRole view in all"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: an HTTP status, 200 if the request may be answered, and otherwise a sentence."""

    status: int
    sentence: str = ""


_ALLOWED: Final = Verdict(200)


class AccessReviews:
    """Asks the API server, and keeps its answers for some seconds.

    Parameters
    ----------
    api
        A client with a short time limit and few calls at once.
    clock
        Seconds that only increase.
    """

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, Verdict]] = OrderedDict()
        self._budget = _BURST
        self._counted_at = clock()

    async def check(self, token: str, right: Right) -> Verdict:
        """Decide whether the holder of a token may do something.

        Returns
        -------
        Verdict
            200; 401 without a valid token; 403 if the user lacks the right; 429 or 503 if this cannot be decided now.
        """
        if not token:
            return Verdict(401, f"{right.path} needs the token of a ServiceAccount: send it as Authorization: Bearer")
        if len(token) > _LONGEST_TOKEN:
            return Verdict(401, f"the token is longer than {_LONGEST_TOKEN} characters")
        key = hashlib.sha256(f"{right!r} {token}".encode()).digest()
        now = self._clock()
        if (kept := self._kept.get(key)) is not None and now < kept[0]:
            return kept[1]
        if not self._spend(now):
            return Verdict(429, "too many tokens to review at this moment: ask again in a second")
        try:
            verdict = await self._review(token, right)
        except ApiError as error:
            return Verdict(503, f"the API server cannot be asked who you are ({error}): ask again")
        self._keep(key, self._clock() + (_ALLOWED_S if verdict.status == _ALLOWED.status else _REFUSED_S), verdict)
        return verdict

    def _spend(self, now: float) -> bool:
        self._budget = min(_BURST, self._budget + (now - self._counted_at) * _REVIEWS_PER_S)
        self._counted_at = now
        if self._budget < 1:
            return False
        self._budget -= 1
        return True

    def _keep(self, key: bytes, until: float, verdict: Verdict) -> None:
        self._kept[key] = until, verdict
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    async def _review(self, token: str, right: Right) -> Verdict:
        audience = right.audience
        spec: dict[str, Any] = {"token": token, **({"audiences": [audience]} if audience else {})}
        status = (await self._api.create(TOKEN_REVIEWS, {"spec": spec})).status
        if not status.authenticated or (audience and audience not in (status.audiences or ())):
            wanted = f' with the audience "{audience}"' if audience else ""
            return Verdict(401, f"the token is not valid here: send a new token of a ServiceAccount{wanted}")
        user = status.user
        if (await self._api.create(ACCESS_REVIEWS, {"spec": {**right.attributes, **_subject(user)}})).status.allowed:
            return _ALLOWED
        return Verdict(403, right.refusal(user.username))


def _subject(user: TokenUser) -> dict[str, Any]:
    return {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
