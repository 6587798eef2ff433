"""Every command of ours that a page shows is one that its program takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.shown_commands import problem, shown_commands

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_shown_command_is_taken_by_its_program(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [said for command in shown_commands(page) if (said := problem(command))]
    assert found == [], capsys.readouterr().err


def test_commands_are_shown() -> None:
    assert sum(1 for page in PAGES for _ in shown_commands(page)) > 60
