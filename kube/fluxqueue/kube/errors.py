"""What the API server refuses, as narrow exceptions.

The server answers a refused call with a ``Status`` object: a machine-readable reason, a sentence, and for invalid objects the causes
by field. The HTTP code alone is not enough: 409 is both "somebody was faster" (read again) and "there already is one" (done). Each
message starts with what we tried and on which object, because the server's own sentence often leaves that out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Cause",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "NotFound",
    "NotLeading",
    "ServerError",
    "Silent",
    "TooManyRequests",
    "Unauthorized",
    "Undecodable",
    "Unreachable",
    "decode_error",
    "retry_after_s",
]


class Cause(msgspec.Struct, frozen=True):
    """One field that is wrong, and why."""

    field: str = ""
    message: str = ""
    reason: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[Cause] | None = None
    retry_after_seconds: float = 0


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class ApiError(Exception):
    """The API server did not do what was asked.

    Parameters
    ----------
    status
        HTTP status; 0 when there was no answer.
    reason
        The Status object's word for it, for example ``NotFound``.
    message
        Verb, object and the server's sentence.
    causes
        For 422: the fields and what is wrong with each.
    retry_after_s
        Seconds the server asks us to wait, or None.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, causes: tuple[Cause, ...] = (), retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after_s = retry_after_s


class NotFound(ApiError):
    """404: no such object, or no such kind (is the CRD installed?)."""


class AlreadyExists(ApiError):
    """409 on create: an object of that name is there already."""


class Conflict(ApiError):
    """409: the object changed since it was read, or is another one (uid, resourceVersion). Read again."""


class Invalid(ApiError):
    """422: the server understood and refuses; ``causes`` names the fields."""


class Unauthorized(ApiError):
    """401: the credentials are not accepted, also after they were read again."""


class Forbidden(ApiError):
    """403: RBAC, a policy, a quota or a namespace being deleted says no."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is older than the server remembers. List again."""


class TooManyRequests(ApiError):
    """429, still after the permitted number of tries."""


class ServerError(ApiError):
    """5xx: the server, a webhook or etcd behind it failed. For a write the outcome is unknown."""


class Unreachable(ApiError):
    """No HTTP answer: refused, reset, timed out.

    ``sent`` tells whether the request may have reached the server: if so, the outcome of a write is unknown and must be read back.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(0, "Unreachable", message)
        self.sent = sent


class Silent(Unreachable):
    """A watch on which nothing came for longer than bookmarks are apart."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True)


class NotLeading(ApiError):
    """A write was not sent, because this process holds no lease that allows it."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "NotLeading", message)


class Undecodable(ApiError):
    """The server said yes, but its answer is not what we understand: another version, or something between us that is no API server."""

    def __init__(self, doing: str, what: str) -> None:
        super().__init__(200, "Undecodable", f"{doing}: the answer does not fit: {what}")


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}
_BY_REASON: Mapping[str, type[ApiError]] = {"AlreadyExists": AlreadyExists, "Expired": Expired, "Gone": Expired}


def retry_after_s(header: str | None) -> float | None:
    """The seconds of a ``Retry-After`` header, or None; the API server never sends the date form (RFC 9110, 10.2.3)."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def decode_error(status: int, body: bytes, *, doing: str, retry_after: str | None = None) -> ApiError:
    """Turn a refusal into the exception for it.

    Parameters
    ----------
    status
        HTTP status; 0 for a Status inside a watch, whose own ``code`` then counts.
    body
        A Status object in JSON; anything else (a proxy's HTML page, a webhook's text) is quoted in the message, shortened.
    doing
        Verb and object, for example ``patch Job default/lammps``.
    retry_after
        The header, if there was one.

    Returns
    -------
    ApiError
        The narrowest class that fits.
    """
    answer = _Status()
    with contextlib.suppress(msgspec.MsgspecError):
        answer = msgspec.json.decode(body, type=_Status)
    status = status or answer.code
    details = answer.details or _Details()
    said = answer.message or " ".join(body.decode(errors="replace").split())[:200] or "no reason given"
    kind = _BY_REASON.get(answer.reason) or _BY_STATUS.get(status) or (ServerError if status >= 500 else ApiError)
    return kind(
        status,
        answer.reason,
        f"{doing}: {status} {answer.reason}: {said}" if answer.reason else f"{doing}: {status}: {said}",
        causes=tuple(details.causes or ()),
        retry_after_s=retry_after_s(retry_after) if retry_after else details.retry_after_seconds or None,
    )
