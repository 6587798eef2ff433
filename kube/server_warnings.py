"""Warnings that the API server sends beside an answer:
its own, and those of admission, such as a label that nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["warnings_in"]

_WARNING = re.compile(r'299 \S+ "(?P<text>(?:[^"\\]|\\.)*)"(?: "[^"]*")?')
"""RFC 7234, as the API server writes it."""


def warnings_in(headers: Iterable[str]) -> Iterator[str]:
    """Yield the texts of headers named ``Warning``, without what quotes them."""
    for header in headers:
        if (match := _WARNING.fullmatch(header)) is not None:
            yield re.sub(r"\\(.)", r"\1", match["text"])
