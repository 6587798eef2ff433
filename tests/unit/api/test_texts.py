"""Control characters become their pictures, and long messages lose their middle."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluxqueue.queue.main
from fluxqueue.api.texts import brief, did_you_mean, pictured, without_controls


def in_go(text: str) -> bytes:
    r"""Encode as the API server does: with ``\u003c`` for ``<``."""
    return json.dumps(text, ensure_ascii=False).replace("<", "\\u003c").encode()


@given(st.text(st.characters(codec="utf-8")))
def test_json_without_controls_is_the_text_with_pictures(text: str) -> None:
    assert json.loads(without_controls(in_go(text))) == pictured(text)


@given(st.lists(st.sampled_from(["\\", "u0000", '"', "\0", "b", "\b", "<"])).map("".join))
def test_only_escapes_of_controls_are_replaced(text: str) -> None:
    assert json.loads(without_controls(in_go(text))) == text.replace("\0", "\u2400").replace("\b", "\u2408")


def test_text_without_controls_is_the_same_object() -> None:
    data = in_go("a < b && c\n\t\\d")
    assert without_controls(data) is data


def test_texts_that_differ_in_a_control_character_still_differ() -> None:
    assert len({pictured(f"a{chr(code)}") for code in range(0x20)}) == 0x20


def test_halves_of_surrogate_pairs_can_be_encoded_afterwards() -> None:
    assert pictured("a\ud800").encode() == "a\ufffd".encode()


@pytest.mark.parametrize("length", [10, 2_000, 2_001, 300_000])
def test_a_long_message_keeps_its_beginning_and_its_end(length: int) -> None:
    shown = brief("what" + "x" * (length - 7) + "why")
    assert len(shown) == min(length, 2_000)
    assert (shown[:4], shown[-3:]) == ("what", "why")


def test_no_message_of_the_queue_writes_a_time_in_another_form() -> None:
    """Who shows a message finds its times by their form (`fluxqueue.api.texts.with_times`)."""
    folder = Path(fluxqueue.queue.main.__file__).parent
    others = re.compile(r"%H:%M(?!:%S(?:\.%f)?Z)")
    found = [
        file.name
        for file in folder.rglob("*.py")
        if "simulator" not in file.parts and others.search(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(("text", "said"), [("Nihgt", "did you mean night? "), ("x" * 100_000, ""), ("", "")])
def test_a_word_that_is_close_is_offered(text: str, said: str) -> None:
    assert did_you_mean(text, ["default", "night"]) == said
