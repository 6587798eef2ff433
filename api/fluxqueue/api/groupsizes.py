"""Sizes of pod groups as people write them: the number of pods that start together."""

from __future__ import annotations

import re

__all__ = ["MAX_GROUP_SIZE", "InvalidGroupSize", "parse_group_size"]

MAX_GROUP_SIZE = 100_000
"""More pods than a cluster of the supported sizes runs at the same time."""

_FORM = re.compile(r"[0-9]{1,6}")


class InvalidGroupSize(ValueError):
    """The text is not a valid group size."""


def parse_group_size(text: str) -> int:
    """Parse the annotation ``fluxqueue/pod-group-size``.

    Parameters
    ----------
    text
        For example ``4``.

    Returns
    -------
    int
        Number of pods, 1 to 100,000.

    Raises
    ------
    InvalidGroupSize
        With the text and the accepted form.
    """
    if not _FORM.fullmatch(text) or not 1 <= (size := int(text)) <= MAX_GROUP_SIZE:
        raise InvalidGroupSize(f"{text!r:.40} is not the size of a group: write a whole number from 1 to {MAX_GROUP_SIZE}")
    return size
