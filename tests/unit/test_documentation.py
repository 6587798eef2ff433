"""Pages agree with each other and with the code that cites them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import PAGES, blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS = sorted(path.name for path in (ROOT / "fluxqueue").iterdir())


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            yield target


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name
)
def test_every_link_between_pages_leads_to_a_file(page: Path) -> None:
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "name",
    [
        "CHANGELOG.md",
        "docs/index.md",
        "docs/slurm.md",
        "docs/flux.md",
        "docs/benchmarks.md",
        "docs/troubleshooting.md",
    ],
)
def test_what_people_look_things_up_in_has_no_wall_of_text(name: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=[-*|] )|\n(?=\d+\. )", text)]
    assert [part for part in parts if len(part) > 700 and not part.startswith("|")] == []


def test_the_landing_page_has_one_sentence_one_picture_and_three_doors() -> None:
    before, _ = (DOCS / "index.md").read_text().split("\n## All pages")
    assert len(re.findall(r"^!\[", before, re.MULTILINE)) == 1
    assert len(re.findall(r"^\*\*[^|]*?\*\*$", before, re.MULTILINE | re.DOTALL)) == 1
    assert re.findall(r"^\| \*\*(.+?)\*\*", before, re.MULTILINE) == [
        "run work",
        "run a cluster",
        "know how it works, or change it",
    ]


def test_every_page_is_in_the_index() -> None:
    listed = {target for target in links(DOCS / "index.md") if target.endswith(".md")}
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    assert {page for page in pages if not page.startswith("decisions/0")} == listed


def test_every_page_is_in_the_navigation_and_every_record_in_the_table_of_its_folder() -> None:
    tree = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    records = {page for page in pages if page.startswith("decisions/0")}
    shown = re.findall(r"^      - [^:]+: (\S+\.md)$", tree, re.MULTILINE)
    assert sorted(shown) == sorted(pages - records)
    assert {f"decisions/{target}" for target in links(DOCS / "decisions" / "README.md")} >= records


def test_the_code_cites_only_sections_that_the_architecture_has() -> None:
    sections = set(re.findall(r"^## ([0-9]+)\. ", (DOCS / "architecture.md").read_text(), re.MULTILINE))
    cited = {
        number
        for room in ROOMS
        for module in (ROOT / room).rglob("*.py")
        for number in re.findall(r"architecture,?\s+section\s+([0-9]+)", module.read_text())
    }
    assert cited
    assert cited <= sections


def test_every_function_that_the_table_of_decisions_names_is_in_its_file() -> None:
    table = (DOCS / "reference/rooms.md").read_text().partition("## Where it is decided")[2]
    named = [
        (name.rpartition(".")[2], file)
        for names, file in re.findall(r"((?:`[A-Za-z_.]+`(?:, )?)+) in `([a-z_/]+/[a-z_]+\.py)`", table)
        for name in re.findall(r"[A-Za-z_.]+", names)
    ]
    assert len(named) > 15
    assert [
        (name, file)
        for name, file in named
        if not re.search(rf"(?:def|class) {name}\b", (ROOT / file).read_text())
    ] == []


def test_every_file_that_a_page_names_exists() -> None:
    files = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if not {".venv", "build"} & set(path.parts)
    ]
    named = {
        (page.name, name)
        for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
        for name in re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", page.read_text())
    }
    assert named
    assert [
        each
        for each in sorted(named)
        if not any(file == each[1] or file.endswith(f"/{each[1]}") for file in files)
    ] == []


def test_generated_pages_and_pictures_are_those_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_command_to_type_is_run_by_a_test_or_is_for_sites(page: str) -> None:
    found = blocks(page)
    assert found
    assert [block.text for block in found if block.language != "sh" or not (block.run_by or block.site)] == []
    assert [block.run_by for block in found if block.run_by and not (ROOT / block.run_by).is_file()] == []


def test_pictures_are_small_and_each_one_is_shown() -> None:
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *DOCS.rglob("*.md")])
    pictures = [path for path in (DOCS / "pictures").iterdir() if path.suffix in (".png", ".webp")]
    assert pictures
    assert [
        path.name
        for path in pictures
        if path.stat().st_size > (600_000 if path.stem.endswith("-moves") else 100_000)
        or f"pictures/{path.name}" not in pages
    ] == []


def test_every_alert_of_the_chart_has_a_section() -> None:
    rules = "".join(
        path.read_text() for path in (ROOT / "charts").rglob("*.yaml") if "PrometheusRule" in path.read_text()
    )
    alerts = set(re.findall(r'"name" "(Fluxqueue[A-Za-z]+)"', rules))
    sections = set(re.findall(r"^### (\S+)$", (DOCS / "incidents.md").read_text(), re.MULTILINE))
    assert alerts <= sections
