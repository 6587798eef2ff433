"""Whose request this is: a session's cookie, or the headers of a trusted proxy.

A session is looked at again with each request: is it over, and does the API server still accept its token? A
request of the proxy gets a session of its own for the same person, because forms need one.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from fluxqueue.dashboard.access import AccessReviews, Visible
from fluxqueue.dashboard.people import NotKnown, Person, ProxyHeaders, TokenReviews
from fluxqueue.dashboard.sessions import LIFETIME_S, Session, Sessions
from fluxqueue.kube.callers import CallerApis
from fluxqueue.kube.errors import Forbidden
from fluxqueue.kube.transport import Api

__all__ = ["COOKIE", "Door", "NoApi", "Viewer", "not_in_his_name", "set_cookie"]

COOKIE = "__Host-fluxqueue"
"""The prefix makes browsers refuse it unless it is for this host alone, all of it, and over TLS."""


def not_in_his_name(error: Forbidden) -> str:
    """Return the sentence for a refusal that is not about the person, but about who may impersonate him;
    empty for any other.
    """
    if " cannot impersonate resource " not in error.message:
        return ""
    return (
        "the dashboard may not act in your name, with all of your groups: an administrator names you and "
        "each of them in the chart's value dashboard.proxy.impersonate"
    )


class NoApi(Exception):
    """The person was named by a proxy, and nothing may be done in his name; the message says so."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks, in which session.

    Attributes
    ----------
    cookie
        A cookie that is to be set; empty: it has one.
    proxied
        True if a proxy named him.
    """

    session: Session
    cookie: str = ""
    proxied: bool = False

    @property
    def person(self) -> Person:
        """Who it is."""
        return self.session.person


class Door:
    """Knows people by their requests, and makes clients that ask in their name.

    Parameters
    ----------
    sessions, reviews, access, callers
        Where sessions, tokens and rights are looked up, and what makes clients.
    proxy
        How a proxy in front names people; None: it does not.
    impersonate
        Whether what a person does whom a proxy names is sent by impersonation.
    """

    def __init__(
        self,
        sessions: Sessions,
        reviews: TokenReviews,
        access: AccessReviews,
        callers: CallerApis,
        *,
        proxy: ProxyHeaders | None = None,
        impersonate: bool = False,
    ) -> None:
        self.sessions = sessions
        self.reviews = reviews
        self.access = access
        self._callers = callers
        self._proxy = proxy
        self._impersonate = impersonate

    async def viewer(self, request: Request) -> Viewer | None:
        """Return who looks; None if nobody has signed in, or the token is not accepted any more."""
        session = self.sessions.find(request.cookies.get(COOKIE, ""))
        if (named := self._proxy.person(request.headers) if self._proxy is not None else None) is not None:
            if session is not None and session.person == named and not session.token:
                return Viewer(session, proxied=True)
            session, cookie = self.sessions.begin(named, "")
            return Viewer(session, cookie, proxied=True)
        if session is None or not session.token or not await self.holds(session):
            return None
        return Viewer(session)

    async def holds(self, session: Session) -> bool:
        """True while a session is not over and its token is accepted, as that of the same user in the same
        groups.

        Otherwise the session ends: rights are decided by the groups that it began with.
        """
        if not self.sessions.lives(session):
            return False
        if not session.token:
            return True
        try:
            person = await self.reviews.person(session.token, known=True)
        except NotKnown as error:
            # the API server does not answer: rights are not given either (`access`)
            if error.__cause__ is not None:
                return True
            self.sessions.end(session)
            return False
        same = (person.username, set(person.groups)) == (session.person.username, set(session.person.groups))
        if not same:
            self.sessions.end(session)
        return same

    async def sign_in(self, token: str, address: str = "") -> Viewer:
        """Begin a session with a token, which came from an address.

        Raises
        ------
        NotKnown
            It is not accepted.
        """
        person = await self.reviews.person(token, address=address)
        session, cookie = self.sessions.begin(person, token)
        return Viewer(session, cookie)

    async def visible(self, viewer: Viewer, namespaces: tuple[str, ...], chosen: str = "") -> Visible:
        """Return what somebody may see who looks at one namespace, or at all."""
        return await self.access.visible(viewer.person, namespaces, chosen)

    def api(self, viewer: Viewer) -> Api:
        """Return a client that asks the API server in the name of a viewer.

        Raises
        ------
        NoApi
            There is no token, and impersonation is off.
        """
        session = viewer.session
        if session.token:
            return self._callers.with_token(session.token)
        if self._impersonate:
            return self._callers.impersonating(session.person.username, session.person.groups)
        raise NoApi(
            "a proxy signed you in without a token, so nothing can be read or changed in your name here: "
            "use kubectl fluxqueue"
        )


def set_cookie(response: Response, viewer: Viewer) -> None:
    """Set the cookie of a session that has just begun."""
    if viewer.cookie:
        response.set_cookie(
            COOKIE,
            viewer.cookie,
            max_age=int(LIFETIME_S),
            path="/",
            secure=True,
            httponly=True,
            samesite="lax",
        )
