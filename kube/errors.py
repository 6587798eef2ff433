"""Exceptions for requests that the API server refuses.

The server answers a refused request with a ``Status`` object: a machine-readable reason, a message, and the
causes by field if an object is invalid. The HTTP code alone is not enough: 409 is both Conflict (read again)
and AlreadyExists (nothing to do). Each message starts with the action and its object, which the server's own
message often omits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec

from fluxqueue.api.texts import brief, pictured, without_controls

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "NotFound",
    "NotLeading",
    "ServerError",
    "StatusCause",
    "TooLong",
    "TooManyRequests",
    "Unauthorized",
    "Undecodable",
    "Unreachable",
    "WatchTimeout",
    "decode_error",
    "failure_in",
    "retry_after_s",
]


class StatusCause(msgspec.Struct, frozen=True):
    """An invalid field, and why it is invalid (metav1.StatusCause)."""

    field: str = ""
    message: str = ""
    reason: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[StatusCause] | None = None
    retry_after_seconds: float = 0


class _Status(msgspec.Struct, frozen=True):
    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_PASSING = (401, 408, 429)
"""Of the 4xx, those that say nothing about the request itself."""
_TOO_LARGE = ("request is too large", "message larger than max")
"""What etcd, and its client in the API server, say of an object that has too many bytes; a 500."""


class ApiError(Exception):
    """A request to the API server failed.

    Parameters
    ----------
    status
        HTTP status; 0 if there was no response.
    reason
        Reason of the Status object, for example ``NotFound``.
    message
        Action, object and the server's message.
    causes
        For 422: the invalid fields.
    retry_after_s
        Seconds after which the server asks for a retry, or None.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: tuple[StatusCause, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after_s = retry_after_s

    @property
    def is_refusal(self) -> bool:
        """True if the server would refuse the same request again as long as nobody changes anything."""
        if self.status == 500:
            return any(text in self.message for text in _TOO_LARGE)
        return 400 <= self.status < 500 and self.status not in _PASSING


class NotFound(ApiError):
    """404: no such object, or no such kind (is the CRD installed?)."""


class AlreadyExists(ApiError):
    """409 on create: an object with this name exists."""


class Conflict(ApiError):
    """409: the object has changed since it was read, or is another one (uid, resourceVersion).
    Read it again.
    """


class Invalid(ApiError):
    """422: the object is invalid; ``causes`` names the fields."""


class Unauthorized(ApiError):
    """401: the credentials are not accepted, even after they were read again."""


class TooLong(ApiError):
    """The response has more bytes than the caller takes."""


class Forbidden(ApiError):
    """403: refused by RBAC, a policy, a quota, or because the namespace is being deleted."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is older than the server's history. List again."""


class TooManyRequests(ApiError):
    """429, after all retries."""


class ServerError(ApiError):
    """5xx: the server failed, or a webhook or etcd behind it. The outcome of a write is unknown."""


class Unreachable(ApiError):
    """No HTTP response: the connection was refused or reset, or timed out.

    ``sent`` is true if the request may have reached the server. Then the outcome of a write is unknown and
    must be read.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(0, "Unreachable", message)
        self.sent = sent


class WatchTimeout(Unreachable):
    """A watch received nothing for longer than the interval of bookmarks."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True)


class NotLeading(ApiError):
    """A write was not sent, because this process does not hold the lease that it requires."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "NotLeading", message)


class Undecodable(ApiError):
    """The request succeeded, but the response has an unexpected form:
    another API version, or not an API server.
    """

    def __init__(self, action: str, problem: str) -> None:
        super().__init__(200, "Undecodable", f"{action}: the answer does not fit: {problem}")


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}
_BY_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Expired,
    "Gone": Expired,
}


def retry_after_s(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, or None.
    The API server never sends the date form (RFC 9110, 10.2.3).
    """
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def decode_error(status: int, body: bytes, *, action: str, retry_after: str | None = None) -> ApiError:
    """Return the exception for an error response.

    Parameters
    ----------
    status
        HTTP status; 0 for a Status object in a watch, which has its own ``code``.
    body
        A Status object in JSON. Anything else, such as a proxy's HTML page, is quoted in the message,
        shortened.
    action
        Verb and object, for example ``patch Job default/lammps``.
    retry_after
        The header ``Retry-After``, if there is one.
    """
    answer = _Status()
    with contextlib.suppress(msgspec.MsgspecError):
        answer = msgspec.json.decode(without_controls(body), type=_Status)
    status = status or answer.code
    details = answer.details or _Details()
    message = (
        brief(answer.message)
        or pictured(" ".join(body.decode(errors="replace").split()))[:200]
        or "no reason given"
    )
    kind = (
        _BY_REASON.get(answer.reason)
        or _BY_STATUS.get(status)
        or (ServerError if status >= 500 else ApiError)
    )
    return kind(
        status,
        answer.reason,
        f"{action}: {status} {answer.reason}: {message}"
        if answer.reason
        else f"{action}: {status}: {message}",
        causes=tuple(details.causes or ()),
        retry_after_s=retry_after_s(retry_after) if retry_after else details.retry_after_seconds or None,
    )


def failure_in(body: bytes, *, action: str) -> ApiError | None:
    """Return the exception for a Status object that says ``Failure``, which some calls answer with HTTP 201;
    None for any other body.
    """
    with contextlib.suppress(msgspec.MsgspecError):
        if msgspec.json.decode(without_controls(body), type=_Status).status == "Failure":
            return decode_error(0, body, action=action)
    return None
