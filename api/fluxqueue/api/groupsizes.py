"""Sizes of pod groups as people write them: how many pods belong together."""

from __future__ import annotations

import re

__all__ = ["MAX_GROUP_SIZE", "InvalidGroupSize", "parse_group_size"]

MAX_GROUP_SIZE = 100_000
"""More pods than any cluster of the sizes we are made for runs at once."""

_FORM = re.compile(r"[0-9]{1,6}")


class InvalidGroupSize(ValueError):
    """The text is not the size of a group."""


def parse_group_size(text: str) -> int:
    """Read the annotation ``fluxqueue/pod-group-size``.

    Parameters
    ----------
    text
        ``4``.

    Returns
    -------
    int
        Pods, 1 to 100,000.

    Raises
    ------
    InvalidGroupSize
        With the text and what would have been understood.
    """
    if not _FORM.fullmatch(text) or not 1 <= (size := int(text)) <= MAX_GROUP_SIZE:
        raise InvalidGroupSize(f"{text!r:.40} is not the size of a group: write a whole number from 1 to {MAX_GROUP_SIZE}")
    return size
