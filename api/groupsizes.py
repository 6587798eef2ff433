"""Sizes of pod groups as people write them: the number of pods that start together."""

from __future__ import annotations

import re

from fluxqueue.api.bounds import max_pods

__all__ = ["InvalidGroupSize", "parse_group_size"]

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
        Number of pods, from 1 to `max_pods`.

    Raises
    ------
    InvalidGroupSize
        With the text and the accepted form.
    """
    if not _FORM.fullmatch(text) or not 1 <= (size := int(text)) <= max_pods():
        raise InvalidGroupSize(
            f"{text!r:.40} is not the size of a group: write a whole number from 1 to {max_pods()}"
        )
    return size
