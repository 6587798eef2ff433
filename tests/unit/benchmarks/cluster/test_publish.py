from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster.publish import derived, filled, one_line_each
from cluster.report import speed_table
from support.cluster_results import comparison, outcome

ROOT = Path(__file__).parents[4]


def site(folder: Path) -> Path:
    (folder / "docs" / "pictures").mkdir(parents=True)
    (folder / "docs" / "reference").mkdir()
    regions = [
        f"<!-- generated: {name} -->\nold\n<!-- end -->\n" for name in ("answers", "goals", "measurements")
    ]
    (folder / "docs" / "benchmarks.md").write_text(f"# B\n\n{regions[0]}\nmiddle\n\n{regions[1]}\nrest\n")
    (folder / "docs" / "reference" / "measurements-cluster.md").write_text(f"# M\n\n{regions[2]}")
    (folder / "README.md").write_text("# R\n\n<!-- generated: speed -->\n<!-- end -->\n")
    return folder


def test_pages_and_pictures_follow_from_the_published_data(tmp_path: Path) -> None:
    root = site(tmp_path)
    document = comparison(outcome("burst-600", "plain", figures={"jobs_per_s": 87.0}))
    (root / "docs" / "cluster-benchmark.json").write_text(json.dumps(document))
    files = derived(root)
    assert (
        files[root / "README.md"]
        == f"# R\n\n<!-- generated: speed -->\n{speed_table(document)}\n<!-- end -->\n"
    )
    page = files[root / "docs" / "benchmarks.md"]
    assert page.startswith("# B\n\n<!-- generated: answers -->\nMeasured on")
    assert ")\n<!-- end -->\n\nmiddle\n" in page
    assert page.endswith(
        "<!-- generated: goals -->\n"
        "| goal | must | aim | measured | reached |\n"
        "|---|---|---|---|---|\n"
        "<!-- end -->\n\n"
        "rest\n"
    )
    tables = files[root / "docs" / "reference" / "measurements-cluster.md"]
    assert tables.startswith(
        "# M\n\n<!-- generated: measurements -->\n**A burst of 600 Jobs** (`burst-600`, one round"
    )
    assert {path.name for path in files if path.suffix == ".svg"} == {
        "cluster-rates.svg",
        "cluster-waits.svg",
        "cluster-cpu.svg",
    }


def test_published_data_have_one_line_for_each_outcome() -> None:
    document = comparison(outcome("burst-600", "plain"), outcome("burst-600", "fluxqueue"))
    text = one_line_each(document)
    assert json.loads(text) == document
    assert len(text.splitlines()) == 2 + len(document["outcomes"])


def test_pages_say_that_nothing_is_published(tmp_path: Path) -> None:
    files = derived(site(tmp_path))
    assert [text.count("No comparison is published yet.") for text in files.values()] == [2, 1, 1]


def test_a_page_without_its_region_is_refused() -> None:
    with pytest.raises(ValueError, match="one region '<!-- generated: speed -->"):
        filled("# R\n", "speed", "table")


def test_the_pages_of_this_repository_are_those_of_its_published_data() -> None:
    assert [
        path.name for path, text in derived(ROOT).items() if not path.exists() or path.read_text() != text
    ] == []
