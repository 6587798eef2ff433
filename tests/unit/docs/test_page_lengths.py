"""A page that is read from its beginning to its end is short; what is looked up is in docs/reference."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_WORDS = 2_500
LONGER = frozenset({"docs/status.md"})
"""Pages that are still to be split; no other one may become longer."""
LOOKED_UP = (ROOT / "docs" / "reference", ROOT / "docs" / "decisions", ROOT / "CHANGELOG.md")
PAGES = {
    page.relative_to(ROOT).as_posix(): len(page.read_text().split())
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if not {page, *page.parents} & set(LOOKED_UP)
}
"""Each page with the number of its words."""


@pytest.mark.parametrize("page", sorted(PAGES.keys() - LONGER))
def test_a_page_to_read_is_short(page: str) -> None:
    assert PAGES[page] <= MOST_WORDS, (
        f"{page} has {PAGES[page]} words: move what is looked up to docs/reference, or split the page"
    )


def test_an_exception_that_is_short_by_now_is_none() -> None:
    assert {page for page in LONGER if PAGES.get(page, 0) <= MOST_WORDS} == set()
