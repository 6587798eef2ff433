"""The requests that were read, so that the text of each is read once while work of it waits.

Equal requests are one `Jobspec`. All that is computed for a request (its plan, whether it could ever fit, why
it does not fit now) is kept by weak references to that object, and the nodes that it accepts by a weak
reference to its constraint. So what this cache forgets is forgotten everywhere. It forgets what nobody has
asked for in ten minutes, since work that waits is asked for again and again, and the least recently used
requests when their texts come to more than 160 MiB: 10,000 of the greatest length.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from fluxqueue.fluxion.match.jobspec import Jobspec, read_jobspec

__all__ = ["RequestCache"]

_IDLE_S: Final = 600
_MOST_CHARACTERS: Final = 160 * 2**20
_SHORT: Final = 1_024
_ENTRY: Final = 1_024
"""What a short text counts for: the objects that it is read into take more than the text."""


@dataclass(slots=True)
class _Entry:
    jobspec: Jobspec
    size: int
    used_at: int


class RequestCache:
    """Requests by their text.

    Parameters
    ----------
    most_characters
        Of all texts together.
    idle_s
        For how long a request is kept that nobody asks for.
    """

    def __init__(self, most_characters: int = _MOST_CHARACTERS, idle_s: int = _IDLE_S) -> None:
        self._most = most_characters
        self._idle_s = idle_s
        self._entries: OrderedDict[str | bytes, _Entry] = OrderedDict()
        self._alike: WeakValueDictionary[tuple[object, ...], Jobspec] = WeakValueDictionary()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, text: str, now: int) -> Jobspec:
        """Read a jobspec, or return what it was read into before; `InvalidJobspec` if it cannot be read."""
        key = text if len(text) <= _SHORT else hashlib.sha256(text.encode()).digest()
        entry = self._entries.get(key)
        if entry is None:
            jobspec = read_jobspec(text)
            entry = _Entry(self._alike.setdefault(_identity(jobspec), jobspec), max(len(text), _ENTRY), now)
            self._entries[key] = entry
            self._size += entry.size
            while self._size > self._most and len(self._entries) > 1:
                self._forget_oldest()
        else:
            entry.used_at = now
            self._entries.move_to_end(key)
        return entry.jobspec

    def forget_idle(self, now: int) -> int:
        """Forget what nobody has asked for lately; return for how many characters that counts."""
        before = self._size
        while self._entries and next(iter(self._entries.values())).used_at < now - self._idle_s:
            self._forget_oldest()
        return before - self._size

    def _forget_oldest(self) -> None:
        _, entry = self._entries.popitem(last=False)
        self._size -= entry.size


def _identity(jobspec: Jobspec) -> tuple[object, ...]:
    """Return the key under which equal requests are one."""
    return (
        jobspec.resources,
        jobspec.constraint,
        jobspec.domains,
        jobspec.duration_s,
        jobspec.reservation,
        jobspec.flavors,
    )
