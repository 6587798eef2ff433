"""Priorities as people write them: a whole number; larger ones start first."""

from __future__ import annotations

import re

__all__ = ["MAX_PRIORITY", "InvalidPriority", "parse_priority"]

MAX_PRIORITY = 1_000_000_000
"""The largest value that a PriorityClass of a user may have.
The annotation accepts the same range, also below zero."""

_FORM = re.compile(r"[+-]?[0-9]{1,10}")


class InvalidPriority(ValueError):
    """The text is not a priority."""


def parse_priority(text: str) -> int:
    """Parse the annotation ``fluxqueue/priority``.

    Parameters
    ----------
    text
        For example ``100``, ``-5`` or ``0``.

    Returns
    -------
    int
        Between -1,000,000,000 and 1,000,000,000.

    Raises
    ------
    InvalidPriority
        With the text and the accepted form.
    """
    if not _FORM.fullmatch(text) or abs(value := int(text)) > MAX_PRIORITY:
        raise InvalidPriority(
            f"{text!r} is not a priority: write a whole number between -{MAX_PRIORITY} and {MAX_PRIORITY}"
        )
    return value
