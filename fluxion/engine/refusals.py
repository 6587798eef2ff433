"""The refusal of a change, which leaves the graph as it was."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(Exception):
    """A change cannot be made; nothing has changed. The message is one sentence."""
