"""The blocks of commands in the pages that people type from, and who runs them.

A comment is above each block: ``<!-- run: FILE -->`` names the test that runs it,
``<!-- for sites: WHAT -->`` says what no test here has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "PageBlock", "blocks", "blocks_run_by"]

ROOT = Path(__file__).parents[2]
PAGES = ("incidents.md", "install.md", "local-nodes.md", "operations.md", "start.md", "troubleshooting.md")
_BLOCK = re.compile(
    r"(?:^<!-- (?P<who>run|for sites): (?P<what>[^\n]+?) -->\n(?:[^`\n][^\n]*\n|\n)*)?"
    r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class PageBlock:
    """A block of a page: its language, its text, the test that runs it, or what it is for."""

    language: str
    text: str
    run_by: str = ""
    site: str = ""


def blocks(page: str) -> list[PageBlock]:
    """Return all blocks of a page."""
    found = _BLOCK.finditer((ROOT / "docs" / page).read_text())
    return [
        PageBlock(
            match["info"],
            match["text"],
            match["what"] if match["who"] == "run" else "",
            match["what"] if match["who"] == "for sites" else "",
        )
        for match in found
    ]


def blocks_run_by(page: str, test: str) -> list[str]:
    """Return the text of the blocks that a test runs, in their order."""
    return [block.text for block in blocks(page) if block.run_by == test]
