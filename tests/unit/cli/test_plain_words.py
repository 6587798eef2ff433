"""What people read has words of Kubernetes and of queues, and none of the matcher."""

from __future__ import annotations

import re

import pytest

from fluxqueue.api.reasons import REASONS
from fluxqueue.cli import plugin

_OF_THE_MATCHER = re.compile(r"\b(slots?|vertex|vertices|match(ed|es|er|ing)?|jobspec|allocations?)\b")
_KNOWN = {"matchPolicy", "--match-policy"}


def texts_of(verb: str) -> list[str]:
    parser = plugin.verb_parser(verb)
    return [parser.description or "", *(action.help or "" for action in parser._actions)]


def plain(text: str) -> bool:
    for known in _KNOWN:
        text = text.replace(known, "")
    return _OF_THE_MATCHER.search(text) is None


@pytest.mark.parametrize("verb", sorted(plugin.VERBS))
def test_helps_are_in_plain_words(verb: str) -> None:
    assert [text for text in texts_of(verb) if not plain(text)] == []


def test_reasons_and_what_helps_are_in_plain_words() -> None:
    assert [text for facts in REASONS.values() for text in (facts.why, facts.helps) if not plain(text)] == []
