"""The site builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {page.replace("README.html", "index.html") for page in pages} - made == set()
    assert {"repository/contributing.html", "repository/chart.html"} <= made


def test_pictures_are_drawn_and_tables_are_tables(site: Path) -> None:
    concepts = (site / "concepts.html").read_text()
    assert '<pre class="mermaid">' in concepts
    assert "<table>" in (site / "reference" / "cli.html").read_text()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["'](https?://[^"']+)""")
    found = {address for path in site.rglob("*.html") for address in loaded.findall(path.read_text())}
    assert found == set()
