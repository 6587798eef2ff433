"""TokenReview and SubjectAccessReview: the questions by which a program asks the API server who a caller is
and what they may do.

Both are created and never stored: the response has the answer in its status. The structs are partial, like
those of `fluxqueue.api.metadata`.
"""

from __future__ import annotations

from fluxqueue.api.metadata import ObjectMeta, PartialObject

__all__ = ["AccessStatus", "SubjectAccessReview", "TokenReview", "TokenStatus", "TokenUser"]


class TokenUser(PartialObject, frozen=True):
    """The user to whom a token belongs."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class TokenStatus(PartialObject, frozen=True):
    """Whether the token is valid, for which of the requested audiences, and whose it is."""

    authenticated: bool = False
    user: TokenUser = TokenUser()
    audiences: list[str] | None = None
    error: str = ""


class TokenReview(PartialObject, frozen=True):
    """The answer to: whose token is this?"""

    metadata: ObjectMeta = ObjectMeta()
    status: TokenStatus = TokenStatus()


class AccessStatus(PartialObject, frozen=True):
    """Whether the user may do it, and why."""

    allowed: bool = False
    reason: str = ""


class SubjectAccessReview(PartialObject, frozen=True):
    """The answer to: may this user do that?"""

    metadata: ObjectMeta = ObjectMeta()
    status: AccessStatus = AccessStatus()
