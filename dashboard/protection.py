"""What protects pages in a browser: headers for each answer, and the check that a form was sent by our own
page.

Scripts and styles come only from files of this program, never from the page itself, so a name or message with
markup can run nothing even if it were not escaped. No other site may frame a page, and none learns its
address. A form is accepted if the browser says that it comes from this site, and if it has the secret of the
session.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fluxqueue.dashboard.sessions import Session

__all__ = ["CSRF_FIELD", "HEADERS", "ProtectedApp", "is_from_here", "is_meant"]

CSRF_FIELD: Final = "csrf"

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class ProtectedApp:
    """An application whose answers have these headers; an answer may set its own ``Cache-Control``.

    Parameters
    ----------
    app
        The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in HEADERS.items():
                    headers.setdefault(name, text)
            await send(message)

        await self._app(scope, receive, send_protected if scope["type"] == "http" else send)


def is_from_here(headers: Headers) -> bool:
    """True if the browser says that a request comes from a page of this site."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("origin")
    if origin is None:
        return site is not None
    return origin == f"https://{headers.get('host', '')}"


def is_meant(headers: Headers, session: Session, sent: object) -> bool:
    """True if a form comes from our own page in this session."""
    return (
        is_from_here(headers)
        and isinstance(sent, str)
        and compare_digest(sent.encode(errors="replace"), session.csrf.encode())
    )
