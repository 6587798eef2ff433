"""Text for terminals: aligned columns, short ages, colours.

Tables look like kubectl's, so that people and scripts can read them: three spaces between columns; an empty
cell is ``-``. A cell is coloured after the widths are known, and only if the caller requests it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TextIO

from fluxqueue.api.texts import with_times

__all__ = ["STYLES", "age", "clock", "columns", "in_zone", "instant", "paint", "printable", "wants_colour"]

_GAP = "   "
STYLES: Mapping[str, str] = {"good": "32", "busy": "36", "waits": "33", "bad": "31", "dim": "2", "bold": "1"}

_UNSEEN = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
"""Characters that command a terminal (C0, DEL, C1)."""
_TURNS = {code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that change the order of others on a line, or end it."""
_OF_LINES = _UNSEEN | _TURNS | {ord("\n"): "\n", ord("\t"): "\t"}
_OF_CELLS = _OF_LINES | dict.fromkeys(map(ord, "\n\r\t"), " ")


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text of the cluster, in which nothing commands the terminal of who reads it: what others wrote
    may contain anything.

    Parameters
    ----------
    text
        For example a message.
    lines
        Keep line feeds and tabs; else they are spaces.
    """
    return text if text.isprintable() else text.translate(_OF_LINES if lines else _OF_CELLS)


def columns(
    headers: Sequence[str] | None,
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str] | None = None,
    *,
    least: Sequence[int] = (),
) -> str:
    """Align cells.

    Parameters
    ----------
    headers
        Titles, or None for none.
    rows
        Cells; an empty one shows as ``-``.
    styles
        Cell text -> name of a style, for cells to colour; None for no colour.
    least
        Minimum widths of the columns, so that lines that are printed later are aligned with earlier ones.

    Returns
    -------
    str
        Lines, each with a newline and without trailing spaces.
    """
    body = [[printable(cell) or "-" for cell in row] for row in rows]
    lines = [list(headers), *body] if headers is not None else body
    if not lines:
        return ""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    widths = [max(width, least[at] if at < len(least) else 0) for at, width in enumerate(widths)]
    out = []
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=False)]
        if styles:
            cells = [paint(cell, styles.get(cell.rstrip(), "")) for cell in cells]
        last = paint(line[-1], styles.get(line[-1], "")) if styles else line[-1]
        out.append(_GAP.join([*cells, last]).rstrip())
    return "\n".join(out) + "\n"


def paint(text: str, style: str) -> str:
    """Return a text in a style of `STYLES`; unchanged if the style is empty or unknown."""
    code = STYLES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """True if the stream is a terminal that is not dumb, and ``NO_COLOR`` is not set."""
    env = os.environ if environ is None else environ
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def instant(text: str | None) -> datetime | None:
    """Parse an RFC 3339 time of the API server; None if it is missing or invalid."""
    if not text:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def clock(time: datetime, now: datetime) -> str:
    """Format a time in the zone of ``now``: the time of day, with the date if it is another day."""
    local = time.astimezone(now.tzinfo)
    return local.strftime("%H:%M:%S" if local.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def in_zone(text: str, now: datetime) -> str:
    """Return a message of the queue with its times in the zone of ``now``, as all other times beside it."""
    return with_times(text, lambda at: clock(at, now))


def age(seconds: float) -> str:
    """Format a duration in at most two units, as kubectl does.

    Returns
    -------
    str
        For example ``0s``, ``95s``, ``3m10s``, ``2h5m``, ``3d4h`` or ``40d``. A negative duration (clocks
        differ) is ``0s``.
    """
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 600:
        return _two(whole, 60, "m", 1, "s")
    if whole < 3 * 3_600:
        return f"{whole // 60}m"
    if whole < 8 * 3_600:
        return _two(whole, 3_600, "h", 60, "m")
    if whole < 48 * 3_600:
        return f"{whole // 3_600}h"
    if whole < 8 * 86_400:
        return _two(whole, 86_400, "d", 3_600, "h")
    return f"{whole // 86_400}d"


def _two(whole: int, large: int, large_name: str, small: int, small_name: str) -> str:
    many, rest = divmod(whole, large)
    return f"{many}{large_name}{rest // small}{small_name}" if rest // small else f"{many}{large_name}"
