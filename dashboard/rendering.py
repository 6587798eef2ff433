"""Templates, and how they write times, words and links. All that is not markup of a template is escaped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from fluxqueue.api.texts import with_times
from fluxqueue.cli.tables import instant

__all__ = [
    "ENDED_PARAMETER",
    "STATIC",
    "asset",
    "assets",
    "colours",
    "environment",
    "how_long",
    "job_link",
    "moment",
    "told",
    "utc",
]

_FOLDER: Final = Path(__file__).parent
STATIC: Final = _FOLDER / "static"
ENDED_PARAMETER: Final = "ended"
"""Of the address of a job's page."""
_HOURS: Final = ((3_600, "h"), (60, "m"))
_DAYS: Final = ((86_400, "d"), (3_600, "h"))
_APART: Final = tuple(
    f"oklch({light} {strong} {hue})"
    for hue in range(10, 370, 30)
    for light, strong in ((0.71, 0.14), (0.86, 0.09))
)
_NO_TIME: Final = Markup('<span class="none">-</span>')


@cache
def environment() -> Environment:
    """Return the environment of all templates; everything is escaped, and an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(moment=moment, how_long=how_long, told=told, utc=utc, epoch=epoch)
    made.filters["thousands"] = "{:,}".format
    made.globals.update(asset=asset, job_link=job_link)
    return made


@cache
def assets() -> frozenset[str]:
    """Return the names of all static files, with the folders that they are in."""
    return frozenset(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())


@cache
def asset(name: str) -> str:
    """Return the address of a static file; it changes with the content, so a browser may keep it for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{digest}/{name}"


def job_link(namespace: str, name: str, ended: str | None = None) -> str:
    """Return the path of the page of a FluxJob; with the time of its end also of one that is gone."""
    path = f"/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}"
    at = instant(ended)
    return path if at is None else f"{path}?{urlencode({ENDED_PARAMETER: utc(at)})}"


def moment(text: str | datetime | None, kind: str = "at") -> Markup:
    """Return a ``<time>``; the script of the page writes it in the browser's zone.

    Parameters
    ----------
    text
        RFC 3339. What is no time is written as nothing.
    kind
        ``at``: a time. ``hour``: its hour and minute. ``since``, ``ago``: how long ago. ``until``: how long
        until then. ``end``: when work ends by its limit, which may have passed.
    """
    at = text if isinstance(text, datetime) else instant(text)
    if at is None:
        return _NO_TIME
    written = utc(at)
    return Markup('<time datetime="{}" data-kind="{}">{}{} UTC</time>').format(
        written, kind, "limit " if kind == "end" else "", written[:-1].replace("T", " ")
    )


def how_long(seconds: float) -> str:
    """Return a length of time in at most two units: ``95s``, ``47m``, ``1h40m``, ``2h``. An hour is written
    as hours, so that a part of a limit and the limit have the same units.
    """
    whole = max(0, int(seconds))
    if whole < 120 and whole != 60:
        return f"{whole}s"
    if whole < 3_600:
        rest = whole % 60 if whole < 600 else 0
        return f"{whole // 60}m{f'{rest}s' if rest else ''}"
    (large, name), (small, rest_name) = _HOURS if whole < 172_800 else _DAYS
    rest = whole % large // small
    return f"{whole // large}{name}{f'{rest}{rest_name}' if rest else ''}"


def utc(at: datetime) -> str:
    """Return a time as RFC 3339, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(seconds: int) -> Markup:
    """Return the ``<time>`` of seconds of the epoch, with the hour alone."""
    return moment(datetime.fromtimestamp(seconds, UTC), "hour")


def told(text: str) -> Markup:
    """Return a message, escaped, with its times as `moment` writes them."""
    return Markup(with_times(str(escape(text)), moment))  # noqa: S704 - escaped first, and a time has nothing to escape


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each of some names, all light enough for dark letters on them.

    No two of the first 24 have the same, and those are well apart. A name has the colour that follows from
    it, unless one before it has that; beyond 24 colours may be alike.
    """
    found: dict[str, str] = {}
    free = list(_APART)
    for name in dict.fromkeys(names):
        number = _number(name)
        wanted = _APART[number % len(_APART)]
        if free:
            found[name] = free.pop(free.index(wanted) if wanted in free else number % len(free))
        else:
            found[name] = f"oklch({(0.72, 0.78, 0.84)[number // 360 % 3]} 0.12 {number % 360})"
    return found


@lru_cache(16_384)
def _number(name: str) -> int:
    return int(hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8], 16)
