"""Who asks: a person whom the API server knows by a token, or whom a trusted proxy names.

A token is shown to the API server (TokenReview), which says whose it is. The answer is kept for a minute, so
that a token that was revoked opens nothing for long. Signing in costs a call or a session each time, so the
number per second is limited, for each source address and for all together. Nothing keeps a token longer than
its session.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Final

from fluxqueue.api.budgets import Budgets, Rate
from fluxqueue.api.turns import party_of
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import TOKEN_REVIEWS
from fluxqueue.kube.transport import Api

__all__ = ["NotKnown", "Person", "ProxyHeaders", "TokenReviews"]

_KEPT_S: Final = 60.0
_MOST_KEPT: Final = 1_024
_EACH: Final = Rate(per_s=5.0, burst=20.0)
_TOGETHER: Final = Rate(per_s=20.0, burst=80.0)
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_MOST_GROUPS: Final = 64
_RESERVED: Final = "system:"


class NotKnown(Exception):
    """It is not known who asks; the message says what helps."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user as the API server knows him."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def party(self) -> str:
        """Who counts as one where what is limited is shared."""
        return party_of(self.username)

    @property
    def subject(self) -> dict[str, Any]:
        """The user in the spec of a SubjectAccessReview."""
        extra = {name: list(values) for name, values in self.extra}
        return {"user": self.username, "uid": self.uid, "groups": list(self.groups), "extra": extra}


class TokenReviews:
    """Asks the API server whose a token is.

    Parameters
    ----------
    api
        A client that may create TokenReviews.
    clock
        Seconds that only increase.
    """

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, Person]] = OrderedDict()
        self._budgets = Budgets(_EACH, _TOGETHER, clock())

    async def person(self, token: str, *, address: str = "", known: bool = False) -> Person:
        """Return the person whose token it is.

        Parameters
        ----------
        token
            Of the API server: what ``kubectl create token`` prints, or that of a kubeconfig.
        address
            Where it came from.
        known
            True if a session began with the token, so that it is reviewed also while many people sign in.

        Raises
        ------
        NotKnown
            It is not valid, or that cannot be decided now.
        """
        if not _TOKEN.fullmatch(token):
            raise NotKnown("this is not a token: paste the whole token, without spaces or quotes")
        key = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        if not known and not self._budgets.spend(address, now):
            raise NotKnown("too many people sign in at this moment: try again in a second")
        if (kept := self._kept.get(key)) is not None and now < kept[0]:
            return kept[1]
        try:
            status = (await self._api.create(TOKEN_REVIEWS, {"spec": {"token": token}})).status
        except ApiError as error:
            raise NotKnown(
                f"the API server cannot be asked who you are ({error.reason or 'no answer'}): try again"
            ) from error
        if not status.authenticated or not status.user.username:
            self._kept.pop(key, None)
            raise NotKnown(
                "the API server does not accept this token: get a new one, "
                "for example with kubectl create token"
            )
        user = status.user
        extra = tuple(sorted((name, tuple(values)) for name, values in (user.extra or {}).items()))
        person = Person(user.username, user.uid, tuple(user.groups or ()), extra)
        self._kept[key] = self._clock() + _KEPT_S, person
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return person


@dataclass(frozen=True, slots=True)
class ProxyHeaders:
    """The headers by which a proxy in front names the person, and the secret that proves that it was the
    proxy.

    Users and groups that begin with ``system:`` are never taken from a header: no proxy hands out the
    cluster's own identities.
    """

    secret: str
    secret_header: str = "fluxqueue-proxy-secret"  # noqa: S105  # the name of a header
    user_header: str = "x-forwarded-user"
    groups_header: str = "x-forwarded-groups"

    def person(self, headers: Mapping[str, str]) -> Person | None:
        """Return who asks; None if the request is not from the proxy, or names nobody."""
        given = _text(headers, self.secret_header)
        if not self.secret or not compare_digest(given.encode(errors="replace"), self.secret.encode()):
            return None
        username = _text(headers, self.user_header).strip()
        if not _NAME.fullmatch(username) or username.startswith(_RESERVED):
            return None
        named = (group.strip() for group in _text(headers, self.groups_header).split(","))
        groups = [group for group in named if _NAME.fullmatch(group) and not group.startswith(_RESERVED)]
        return Person(username, groups=(*groups[:_MOST_GROUPS], "system:authenticated"))


def _text(headers: Mapping[str, str], name: str) -> str:
    """Return a header that a proxy wrote in UTF-8; servers read headers as Latin-1.
    Empty if it is not UTF-8.
    """
    try:
        return headers.get(name, "").encode("latin-1").decode()
    except UnicodeError:
        return ""
