"""Hostlists as Flux writes them (RFC 29): ``node[1-3,7],login``.

Order and repetition carry meaning here: entry *i* is the node of rank *i*, and a node that holds two ranks stands twice. So nothing
is sorted and nothing is merged that does not follow directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["InvalidHostlist", "decode", "encode"]

_TRAILING_NUMBER = re.compile(r"(.*?)([0-9]{1,18})")
_MAX_HOSTS = 1_000_000
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class InvalidHostlist(ValueError):
    """The text is not an RFC 29 hostlist."""


def encode(hosts: Iterable[str]) -> str:
    """Write hosts in their order.

    Parameters
    ----------
    hosts
        Host names; consecutive ones that differ by one in a trailing number of equal width become a range.

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
        out.append(f"{prefix}{parts[0]}" if len(parts) == 1 and "-" not in parts[0] else f"{prefix}[{','.join(parts)}]")

    for host in hosts:
        match = _TRAILING_NUMBER.fullmatch(host)
        if not match:
            flush()
            prefix, ranges = None, []
            out.append(host)
            continue
        stem, text, number = match[1], match[2], int(match[2])
        if stem != prefix:
            flush()
            prefix, ranges = stem, [(text, number, number)]
            continue
        first_text, first, last = ranges[-1]
        follows = number == last + 1 and len(text) == len(f"{number:0{len(first_text)}d}") and text == f"{number:0{len(first_text)}d}"
        if follows:
            ranges[-1] = (first_text, first, number)
        else:
            ranges.append((text, number, number))
    flush()
    return ",".join(out)


def decode(text: str) -> list[str]:
    """Read a hostlist.

    Parameters
    ----------
    text
        For example ``n[1-3],n3,gpu07``; empty means no hosts.

    Returns
    -------
    list of str
        Hosts in order, repetitions kept.

    Raises
    ------
    InvalidHostlist
        Unbalanced brackets, an empty entry, a range that runs backwards, or more than a million hosts.
    """
    hosts: list[str] = []
    for entry in _split(text):
        opening = entry.find("[")
        if opening < 0:
            if "]" in entry:
                raise InvalidHostlist(f"hostlist {text!r}: ']' without '['")
            hosts.append(entry)
            continue
        closing = entry.find("]", opening)
        if closing < 0 or "[" in entry[closing:]:
            raise InvalidHostlist(f"hostlist {text!r}: one [ ] group per entry is understood")
        stem, suffix = entry[:opening], entry[closing + 1 :]
        for first, last, width in _ranges(entry[opening + 1 : closing], text):
            if len(hosts) + last - first >= _MAX_HOSTS:
                raise InvalidHostlist(f"a hostlist of more than {_MAX_HOSTS} hosts is not believable")
            hosts += [f"{stem}{number:0{width}d}{suffix}" for number in range(first, last + 1)]
    return hosts


def _split(text: str) -> Sequence[str]:
    if not text:
        return []
    entries, start, depth = [], 0, 0
    for at, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            entries.append(text[start:at])
            start = at + 1
    entries.append(text[start:])
    if any(not entry for entry in entries):
        raise InvalidHostlist(f"hostlist {text!r} has an empty entry")
    return entries


def _ranges(group: str, text: str) -> Iterable[tuple[int, int, int]]:
    """First, last and width of each range."""
    for part in group.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise InvalidHostlist(f"hostlist {text!r}: {part!r} is not a number or a range like 3-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MAX_HOSTS:
            raise InvalidHostlist(f"hostlist {text!r}: the range {part!r} runs backwards or is not believable")
        yield first, last, len(match[1])
