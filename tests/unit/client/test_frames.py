from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.client.frames import (
    MAX_MESSAGE,
    Damaged,
    TooLarge,
    from_log,
    lines_of,
    log_lines,
    opened,
    sealed,
)

KEY = b"k" * 32


@given(st.binary(max_size=50_000))
def test_every_result_survives_the_message_and_the_log(payload: bytes) -> None:
    text = sealed(payload, KEY, "t.0")
    assert opened(text, KEY, "t.0", len(payload) + 1) == payload
    lines = ["noise", *log_lines(text, "t.0"), "fluxqueue-result t.1 1/1 other"]
    assert from_log(lines, "t.0") == text
    assert len(log_lines(text, "t.0")) <= lines_of(len(payload))


def test_small_results_fit_into_a_termination_message() -> None:
    assert len(sealed(os.urandom(3_000), KEY, "t.0")) <= MAX_MESSAGE


@pytest.mark.parametrize(
    ("key", "task"),
    [pytest.param(b"x" * 32, "t.0", id="another executor"), pytest.param(KEY, "t.1", id="another task")],
)
def test_a_result_of_somebody_else_is_not_opened(key: bytes, task: str) -> None:
    with pytest.raises(Damaged, match="signature"):
        opened(sealed(b"result", key, task), KEY, "t.0", 100)


@pytest.mark.parametrize("text", ["", "not base64!", "AAAA", "x" * 100])
def test_what_is_no_result_is_not_opened(text: str) -> None:
    with pytest.raises(Damaged):
        opened(text, KEY, "t.0", 100)


def test_a_result_that_grows_when_it_is_unpacked_is_bounded() -> None:
    assert len(zlib.compress(bytes(10_000_000))) < 10_000_0
    with pytest.raises(TooLarge, match="more than 1000 bytes"):
        opened(sealed(bytes(10_000_000), KEY, "t.0"), KEY, "t.0", 1_000)


def test_an_incomplete_result_in_a_log_is_noticed() -> None:
    lines = log_lines(sealed(os.urandom(30_000), KEY, "t.0"), "t.0")
    assert len(lines) > 3
    for damaged in (lines[1:], lines[:-1], [*lines[:1], *lines[2:]], []):
        with pytest.raises(Damaged, match="no complete result"):
            from_log(damaged, "t.0")


@pytest.mark.parametrize("total", ["99999999999", "9" * 5_000])
def test_a_log_that_claims_any_number_of_lines_is_no_result(total: str) -> None:
    with pytest.raises(Damaged, match="no complete result"):
        from_log([f"fluxqueue-result t.0 1/{total} AAAA"], "t.0")


def test_the_last_of_several_results_counts() -> None:
    first, second = sealed(b"first", KEY, "t.0"), sealed(os.urandom(20_000), KEY, "t.0")
    assert from_log([*log_lines(second, "t.0")[:2], *log_lines(first, "t.0")], "t.0") == first
