"""Hostlists in Flux's notation (RFC 29): ``node[1-3,7],login``.

Order and repetition have a meaning: entry *i* is the node of rank *i*, and a node with two ranks is listed
twice. So hosts are never sorted, and only hosts that follow each other directly are merged into a range.

A text is parsed without being expanded. ``a[1-1000000]`` costs as much as ``a[1-2]`` and can be counted at
once; a caller that needs all hosts expands it. So a text from an untrusted source is safe to parse, and the
caller states how many hosts it accepts.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["MAX_HOSTS", "MAX_HOST_LENGTH", "Hostlist", "InvalidHostlist", "decode", "encode", "parse"]

MAX_HOSTS = 100_000
"""More nodes than any cluster has, and more pods than an Indexed Job may run at the same time."""

MAX_HOST_LENGTH = 253
"""Maximum length of a host name: that of a DNS name."""

_DIGITS = "0123456789"
_LONGEST_NUMBER = 18
_ENTRY = re.compile(r"([^,\[\]]*)(?:\[([^\[\]]*)\]([^,\[\]]*))?(?:,|\Z)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_QUOTED = 80
"""How many characters of a text a message quotes."""


class InvalidHostlist(ValueError):
    """The text is not an RFC 29 hostlist."""


class _Run(NamedTuple):
    """Consecutive hosts that differ in one number, or one host if ``width`` is 0."""

    stem: str
    suffix: str = ""
    first: int = 0
    size: int = 1
    width: int = 0

    def host(self, offset: int) -> str:
        return f"{self.stem}{self.first + offset:0{self.width}d}{self.suffix}" if self.width else self.stem


class Hostlist:
    """The hosts of a text, in order. Each name is built when it is accessed.

    Parameters
    ----------
    runs
        As `parse` reads them.
    """

    __slots__ = ("_ends", "_runs")

    def __init__(self, runs: Iterable[_Run]) -> None:
        self._runs = tuple(runs)
        self._ends = tuple(itertools.accumulate(run.size for run in self._runs))

    def __len__(self) -> int:
        """Return the number of hosts."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> str:
        """Return the host at an index, counted from 0.

        Raises
        ------
        IndexError
            The index is negative, or not less than the number of hosts.
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        run = bisect_right(self._ends, index)
        return self._runs[run].host(index - (self._ends[run - 1] if run else 0))

    def __iter__(self) -> Iterator[str]:
        """Iterate over all hosts."""
        for run in self._runs:
            yield from map(run.host, range(run.size))


def encode(hosts: Iterable[str]) -> str:
    """Encode hosts in their order.

    Parameters
    ----------
    hosts
        Host names. Consecutive names become a range if they end in a number of equal width that increases by
        one.

    Returns
    -------
    str
        An RFC 29 hostlist that `decode` turns back into exactly these hosts.
    """
    out: list[str] = []
    prefix: str | None = None
    ranges: list[tuple[str, int, int]] = []

    def flush() -> None:
        if prefix is None:
            return
        parts = [text if first == last else f"{text}-{last:0{len(text)}d}" for text, first, last in ranges]
        out.append(
            f"{prefix}{parts[0]}"
            if len(parts) == 1 and "-" not in parts[0]
            else f"{prefix}[{','.join(parts)}]"
        )

    for host in hosts:
        stem = host[: max(len(host.rstrip(_DIGITS)), len(host) - _LONGEST_NUMBER)]
        text = host[len(stem) :]
        if not text:
            flush()
            prefix, ranges = None, []
            out.append(host)
            continue
        number = int(text)
        if stem != prefix:
            flush()
            prefix, ranges = stem, [(text, number, number)]
            continue
        first_text, first, last = ranges[-1]
        wider = len(text) - len(first_text)
        follows = number == last + 1 and (wider == 0 or (wider > 0 and text[0] != "0"))
        if follows:
            ranges[-1] = (first_text, first, number)
        else:
            ranges.append((text, number, number))
    flush()
    return ",".join(out)


def parse(text: str, *, at_most: int = MAX_HOSTS) -> Hostlist:
    """Parse a hostlist without expanding it.

    Parameters
    ----------
    text
        For example ``n[1-3],n3,gpu07``. An empty text has no hosts.
    at_most
        How many hosts are accepted.

    Returns
    -------
    Hostlist
        The hosts in order, with repetitions.

    Raises
    ------
    InvalidHostlist
        Unbalanced brackets, an empty entry, a descending range, a name that is too long, or too many hosts.
    """
    # Each comma separates two hosts, so this check bounds the work below.
    if text.count(",") >= at_most:
        raise _too_many(text, at_most)
    runs = (
        _bracketed(text) if "[" in text or "]" in text else [_Run(host) for host in text.split(",") if text]
    )
    if sum(run.size for run in runs) > at_most:
        raise _too_many(text, at_most)
    for run in runs:
        if len(run.stem) + len(run.suffix) + run.width > MAX_HOST_LENGTH:
            raise InvalidHostlist(
                f"hostlist {_quoted(text)}: {_quoted(run.host(0))} is longer than {MAX_HOST_LENGTH} "
                "characters"
            )
        if not run.stem and not run.width:
            raise InvalidHostlist(f"hostlist {_quoted(text)} has an empty entry")
    return Hostlist(runs)


def decode(text: str, *, at_most: int = MAX_HOSTS) -> list[str]:
    """Return all hosts of a hostlist; parameters and errors are those of `parse`."""
    return list(parse(text, at_most=at_most))


def _bracketed(text: str) -> list[_Run]:
    runs: list[_Run] = []
    at = 0
    while at <= len(text):
        entry = _ENTRY.match(text, at)
        if entry is None:
            broken = text[at:].partition(",")[0]
            problem = "']' without '['" if "[" not in broken else "one [ ] group per entry is understood"
            raise InvalidHostlist(f"hostlist {_quoted(text)}: {problem}")
        stem, group, suffix = entry.groups()
        runs += [_Run(stem)] if group is None else _numbered(stem, group, suffix, text)
        at = entry.end() if text[entry.end() - 1] == "," and entry.end() > at else len(text) + 1
    return runs


def _numbered(stem: str, group: str, suffix: str, text: str) -> Iterator[_Run]:
    for part in group.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise InvalidHostlist(
                f"hostlist {_quoted(text)}: {_quoted(part)} is not a number or a range like 3-7"
            )
        written, end = match.groups()
        first = int(written)
        size = int(end) - first + 1 if end else 1
        if size < 1:
            raise InvalidHostlist(f"hostlist {_quoted(text)}: the range {part!r} runs backwards")
        yield _Run(stem, suffix, first, size, len(written))


def _too_many(text: str, at_most: int) -> InvalidHostlist:
    return InvalidHostlist(f"hostlist {_quoted(text)} names more than {at_most} hosts")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}...")
