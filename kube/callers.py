"""Clients that send requests as somebody else: with their token, or by impersonation.

A program that serves people must not do for them what they may not do. With the token of a person, the API
server itself decides, and its audit log names the person. Such requests use connections of their own, without
a client certificate: the server looks at certificates first, and would take the request for one of the
program. Where there is no token, the program impersonates the person with its own identity, which needs the
right ``impersonate`` for each user and group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fluxqueue.kube.credentials import Credentials
from fluxqueue.kube.transport import Api
from fluxqueue.kube.wire import Wire

__all__ = ["CallerApis"]

_TIMEOUT_S: Final = 10.0
_IN_FLIGHT: Final = 8


class CallerApis:
    """Makes clients for callers; created by :meth:`open`."""

    def __init__(self, bare: Wire, own: Wire) -> None:
        self._bare = bare
        self._own = own

    @classmethod
    @asynccontextmanager
    async def open(cls, kubeconfig: Path | None = None, *, user_agent: str) -> AsyncIterator[CallerApis]:
        """Open the connections; for the parameters see :meth:`fluxqueue.kube.transport.Api.connect`."""
        credentials = await Credentials.load(kubeconfig)
        bare = await credentials.without_identity()
        async with (
            Wire.open(bare, user_agent=user_agent, timeout_s=_TIMEOUT_S, max_in_flight=_IN_FLIGHT) as wire,
            Wire.open(
                credentials, user_agent=user_agent, timeout_s=_TIMEOUT_S, max_in_flight=_IN_FLIGHT
            ) as own,
        ):
            yield cls(wire, own)

    def with_token(self, token: str) -> Api:
        """Return a client whose requests have the token of a person, and nothing of this program."""
        return _api(self._bare, [("Authorization", f"Bearer {token}")])

    def impersonating(self, username: str, groups: Sequence[str]) -> Api:
        """Return a client whose requests are those of a user with these groups,
        as far as RBAC lets this program impersonate them.
        """
        return _api(
            self._own, [("Impersonate-User", username), *(("Impersonate-Group", group) for group in groups)]
        )


def _api(wire: Wire, headers: Sequence[tuple[str, str]]) -> Api:
    return Api(wire.with_headers(headers, timeout_s=_TIMEOUT_S, max_in_flight=_IN_FLIGHT))
