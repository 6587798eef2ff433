"""The name of who submitted an object, as it is stored: one line of bounded length, or none."""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST_SUBMITTER", "readable_submitter"]

LONGEST_SUBMITTER: Final = 1_024
"""Bytes of a user name in UTF-8; a key of a table has it beside other texts.
A longer one is not recorded: a part of it could be the name of somebody else."""


def readable_submitter(name: str | None) -> str:
    """Return a user name; empty if it is missing, too long or not printable."""
    if not name or len(name) > LONGEST_SUBMITTER or not name.isprintable():
        return ""
    return name if len(name.encode()) <= LONGEST_SUBMITTER else ""
