import pytest
from starlette.datastructures import Headers

from fluxqueue.dashboard.people import Person
from fluxqueue.dashboard.protection import HEADERS, is_from_here, is_meant
from fluxqueue.dashboard.sessions import Session

SESSION = Session("key", Person("alice"), "token", "c0ffee", 0.0)
HERE = {"host": "dash.example:8445", "origin": "https://dash.example:8445", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (HERE, True),
        ({"host": "dash.example", "sec-fetch-site": "same-origin"}, True),
        ({"host": "dash.example", "origin": "https://dash.example"}, True),
        ({"host": "dash.example"}, False),
        ({**HERE, "sec-fetch-site": "cross-site"}, False),
        ({**HERE, "sec-fetch-site": "same-site"}, False),
        ({**HERE, "sec-fetch-site": "none"}, False),
        ({**HERE, "origin": "https://evil.example"}, False),
        ({**HERE, "origin": "null"}, False),
        ({**HERE, "origin": "http://["}, False),
        ({"host": "dash.example", "origin": "http://dash.example"}, False),
        ({**HERE, "origin": "https://dash.example:8445.evil.example"}, False),
    ],
)
def test_a_form_comes_from_a_page_of_this_site(headers: dict[str, str], expected: bool) -> None:
    assert is_from_here(Headers(headers)) is expected


@pytest.mark.parametrize(
    ("sent", "expected"), [("c0ffee", True), ("c0ffeé", False), ("", False), (None, False)]
)
def test_a_form_has_the_secret_of_its_session(sent: object, expected: bool) -> None:
    assert is_meant(Headers(HERE), SESSION, sent) is expected
    assert not is_meant(Headers({"host": "dash.example"}), SESSION, sent)


def test_scripts_come_only_from_files_of_the_program() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
