"""Templates, and how they write times, words and links. All that is not markup of a template is escaped."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from fluxqueue.api.texts import with_times
from fluxqueue.cli.tables import age, instant

__all__ = [
    "ENDED_PARAMETER",
    "STATIC",
    "asset",
    "assets",
    "colour",
    "environment",
    "job_link",
    "moment",
    "told",
    "utc",
]

_FOLDER: Final = Path(__file__).parent
STATIC: Final = _FOLDER / "static"
ENDED_PARAMETER: Final = "ended"
"""Of the address of a job's page."""
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
    made.filters.update(moment=moment, age=age, colour=colour, told=told, utc=utc, epoch=epoch)
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
        ``at``: a time. ``hour``: its hour and minute. ``since``, ``ago``: how long ago. ``until``, ``end``:
        how long until then; an end may have passed.
    """
    at = text if isinstance(text, datetime) else instant(text)
    if at is None:
        return _NO_TIME
    written = utc(at)
    return Markup('<time datetime="{}" data-kind="{}">{} UTC</time>').format(
        written, kind, written[:-1].replace("T", " ")
    )


def utc(at: datetime) -> str:
    """Return a time as RFC 3339, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(seconds: int) -> Markup:
    """Return the ``<time>`` of seconds of the epoch, with the hour alone."""
    return moment(datetime.fromtimestamp(seconds, UTC), "hour")


def told(text: str) -> Markup:
    """Return a message, escaped, with its times as `moment` writes them."""
    return Markup(with_times(str(escape(text)), moment))  # noqa: S704 - escaped first, and a time has nothing to escape


@lru_cache(16_384)
def colour(text: str) -> str:
    """Return the colour for a name, always the same:
    one of 1,080 that are all light enough for dark letters on them.
    """
    number = int(hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8], 16)
    return f"oklch({(0.72, 0.78, 0.84)[number // 360 % 3]} 0.12 {number % 360})"
