r"""Text that other programs and people wrote: no control characters, and no more of it than somebody reads.

The API server accepts any character in most texts: in annotations, in messages of Events and of statuses, in
values of a pod's environment. Postgres stores no NUL, and a terminal obeys others. So each text is cleaned
once, where the JSON of the API server becomes our structs (`fluxqueue.kube.decoding`). JSON holds a control
character only as an escape, and the escape of ``\x00`` becomes that of ``␀``, the picture that Unicode has
for it (U+2400). The other 31 have pictures too, but for the line feed and the tab, which stay.

Each character gets another picture, so two names that differ still differ, and a name with a picture is that
of no object: the API server accepts only ASCII in names and uids of objects. What is copied into other
objects, such as a command of a MiniCluster, must not be changed silently and is not cleaned; see
`MiniCluster`. A half of a surrogate pair never arrives: the API server replaces it, and our decoder refuses
it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

__all__ = [
    "LONGEST_MESSAGE",
    "brief",
    "did_you_mean",
    "has_controls",
    "pictured",
    "time_text",
    "with_times",
    "without_controls",
]

LONGEST_MESSAGE: Final = 2_000
"""Characters of a message that is stored or shown.
Those of Kubernetes have at most 1,024, and ours quote one of them."""

_COMPARED: Final = 80
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_ANY = re.compile(rb"\\(?:u00[01]|[bfr])")
_ESCAPE = re.compile(rb"\\(?:u00([01][0-9a-fA-F])|.)", re.DOTALL)
_SHORT: Final = {rb"\b": rb"\u2408", rb"\f": rb"\u240c", rb"\r": rb"\u240d"}
_KEPT: Final = (0x09, 0x0A)
_PICTURES: Final = {code: 0x2400 + code for code in range(0x20) if code not in _KEPT} | dict.fromkeys(
    range(0xD800, 0xE000), 0xFFFD
)


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return "did you mean NAME? " for a word that is none of the known ones; empty if none is close."""
    close = difflib.get_close_matches(text[:_COMPARED].lower(), list(known), n=1)
    return f"did you mean {close[0]}? " if close else ""


def has_controls(data: bytes) -> bool:
    """True if a JSON text has control characters."""
    return _ANY.search(data) is not None


def without_controls(data: bytes) -> bytes:
    """Return a JSON text in which control characters are replaced by their pictures; the same object if there
    are none.

    Parameters
    ----------
    data
        JSON, in which control characters are escaped.
    """
    return _ESCAPE.sub(_pictured_escape, data) if has_controls(data) else data


def pictured(text: str) -> str:
    """Return a text in which control characters are replaced by their pictures,
    and halves of surrogate pairs by U+FFFD.
    """
    return text if text.isprintable() else text.translate(_PICTURES)


def brief(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return a text of at most so many characters: a longer one loses its middle,
    as its beginning and its end say what and why.
    """
    if len(text) <= most:
        return text
    kept = most - len(" ... ")
    return f"{text[: kept - kept // 3]} ... {text[-(kept // 3) :]}"


def time_text(at: datetime) -> str:
    """Return a time as all messages write it: RFC 3339 in UTC.
    Who shows a message writes it in the reader's zone (`with_times`).
    """
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def with_times(text: str, written: Callable[[datetime], str]) -> str:
    """Return a message with each of its times (`time_text`) as another text."""

    def replaced(found: re.Match[str]) -> str:
        try:
            return written(datetime.fromisoformat(found[0]))
        except ValueError:
            return found[0]

    return _TIME.sub(replaced, text)


def _pictured_escape(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code is None:
        return _SHORT.get(escape[0], escape[0])
    return escape[0] if int(code, 16) in _KEPT else rb"\u24" + code
