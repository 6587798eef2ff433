"""What a person set by editing the spec of a FluxJob."""

from __future__ import annotations

import msgspec

__all__ = ["NO_OVERRIDES", "ReadSpec", "SpecOverrides"]


class ReadSpec(msgspec.Struct, frozen=True):
    """The spec of a FluxJob when an edit in it was stored, and the acknowledgement beside it,
    both as text.
    """

    spec: str
    acknowledged: str


class SpecOverrides(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person set by editing the FluxJob; None: nothing, so the user's object decides.

    Attributes
    ----------
    hold
        Do not start it. The queue also holds workloads after repeated failures to start.
    cancel
        End it.
    queue, priority, duration_s
        Values that override those of the object.
    read
        Where the last edit was read. Until it is acknowledged there, the next edit is what differs from this.
    """

    hold: bool = False
    cancel: bool = False
    queue: str | None = None
    priority: int | None = None
    duration_s: int | None = None
    read: ReadSpec | None = None


NO_OVERRIDES = SpecOverrides()
"""The value of nearly every workload."""
