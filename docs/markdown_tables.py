"""Tables of the generated pages: what text has to become to stand in a cell of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = ["cell", "code", "table"]


def cell(text: str) -> str:
    """Return text as one line of a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """Return text as code in a cell; nothing stays nothing."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|") if text.strip() else ""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, whose cells are Markdown already."""
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
