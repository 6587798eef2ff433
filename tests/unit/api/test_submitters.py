"""Which user names are recorded."""

from __future__ import annotations

import pytest

from fluxqueue.api.submitters import LONGEST_SUBMITTER, readable_submitter


@pytest.mark.parametrize(
    "name",
    [
        "alice",
        "oidc:alice@example.com",
        "system:serviceaccount:ci:robot",
        "a" * LONGEST_SUBMITTER,
        "é" * (LONGEST_SUBMITTER // 2),
    ],
)
def test_a_user_name_is_kept_as_it_is(name: str) -> None:
    assert readable_submitter(name) == name


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "a" * (LONGEST_SUBMITTER + 1),
        "é" * (LONGEST_SUBMITTER // 2) + "a",
        "\N{CJK UNIFIED IDEOGRAPH-9FFF}" * 400,
        "a\nb",
        "a\x00",
        "a\ud800",
    ],
)
def test_what_is_no_line_of_bounded_length_is_not(name: str | None) -> None:
    assert readable_submitter(name) == ""
