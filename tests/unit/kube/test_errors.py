import msgspec
import pytest

from fluxqueue.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    decode_error,
    retry_after_s,
)


def status(code: int, reason: str, message: str = "", **details: object) -> bytes:
    return msgspec.json.encode(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    )


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Expired),
        (410, "Gone", Expired),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (504, "Timeout", ServerError),
        (415, "UnsupportedMediaType", ApiError),
    ],
)
def test_each_refusal_becomes_its_own_exception(code: int, reason: str, error: type[ApiError]) -> None:
    decoded = decode_error(code, status(code, reason), action="patch Job default/lammps")
    assert type(decoded) is error
    assert (decoded.status, decoded.reason) == (code, reason)


@pytest.mark.parametrize(
    ("code", "message", "refuses"),
    [
        (400, "", True),
        (401, "", False),
        (403, "", True),
        (408, "", False),
        (409, "", True),
        (413, "", True),
        (422, "", True),
        (429, "", False),
        (500, "", False),
        (500, "etcdserver: request is too large", True),
        (500, "rpc error: trying to send message larger than max (2097200 vs. 2097152)", True),
        (503, "", False),
    ],
)
def test_a_refusal_is_what_would_be_refused_again(code: int, message: str, refuses: bool) -> None:
    assert decode_error(code, status(code, "", message), action="patch Job default/a").is_refusal is refuses


def test_the_message_names_verb_object_and_the_servers_message() -> None:
    error = decode_error(
        409, status(409, "Conflict", "the object has been modified"), action="patch Job default/lammps"
    )
    assert str(error) == "patch Job default/lammps: 409 Conflict: the object has been modified"


def test_an_invalid_object_carries_its_causes_by_field() -> None:
    causes = [{"field": "spec.template", "message": "field is immutable", "reason": "FieldValueInvalid"}]
    error = decode_error(422, status(422, "Invalid", causes=causes), action="patch Job default/lammps")
    assert [(cause.field, cause.message) for cause in error.causes] == [
        ("spec.template", "field is immutable")
    ]


def test_a_page_from_a_proxy_is_quoted_instead_of_decoded() -> None:
    error = decode_error(
        502, b"<html>\n<h1>Bad Gateway</h1></html>" + b"x" * 1_000, action="get Pod default/a"
    )
    assert isinstance(error, ServerError)
    assert "Bad Gateway" in str(error)
    assert len(str(error)) < 300


def test_a_status_inside_a_watch_brings_its_own_code() -> None:
    error = decode_error(0, status(410, "Expired", "too old resource version: 1 (99)"), action="watch pods")
    assert isinstance(error, Expired)
    assert error.status == 410


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("1", 1.0),
        ("0", 0.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", None),
        ("-1", None),
        (None, None),
        ("inf", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_not_at_all(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header) == seconds


def test_the_pause_asked_for_comes_from_the_header_or_the_details() -> None:
    assert decode_error(429, b"", action="get", retry_after="3").retry_after_s == 3
    assert (
        decode_error(429, status(429, "TooManyRequests", retryAfterSeconds=7), action="get").retry_after_s
        == 7
    )
    assert decode_error(429, b"", action="get").retry_after_s is None
