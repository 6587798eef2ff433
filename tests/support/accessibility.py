"""Whether a page is accessible, as axe sees it."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def is_accessible(page: Page) -> None:
    """Fail with the report of axe if it finds a violation."""
    found = Axe().run(page, options={"runOnly": _RULES})
    assert found.violations_count == 0, found.generate_report()
