"""The name of who submitted an object, as it is stored: one line of bounded length, or none."""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST_SUBMITTER", "readable_submitter"]

LONGEST_SUBMITTER: Final = 1_024
"""Characters of a user name.
A longer one is not recorded: a part of it could be the name of somebody else."""


def readable_submitter(name: str | None) -> str:
    """Return a user name; empty if it is missing, too long or not printable."""
    return name if name and len(name) <= LONGEST_SUBMITTER and name.isprintable() else ""
