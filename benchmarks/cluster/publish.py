"""Publish the results of a comparison: ``python -m cluster.publish`` in the folder ``benchmarks``.

The raw data go to ``docs/cluster-benchmark.json``. Everything else is derived from that file: the first
table, the goals and the pictures of ``docs/benchmarks.md``, the tables of
``docs/reference/measurements-cluster.md``, and the speed table of the README. A unit test compares them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.pictures import pictures
from cluster.report import PICTURES, answers, goals, measurements, speed_table
from cluster.summary import Summary

__all__ = ["derived", "filled", "main", "one_line_each"]

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "benchmarks" / "results" / "cluster.json"
_RAW = Path("docs", "cluster-benchmark.json")
_PAGE, _README = Path("docs", "benchmarks.md"), Path("README.md")
_TABLES = Path("docs", "reference", "measurements-cluster.md")
_PICTURES = Path("docs", "pictures")
_NOTHING = "No comparison is published yet."


def main() -> int:
    """Publish; with ``--check`` write nothing and return 1 if a file differs from the published data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json", type=Path, default=_RESULTS, help="the results to publish (default: those of the last run)"
    )
    parser.add_argument("--check", action="store_true", help="compare the pages with the published data")
    arguments = parser.parse_args()
    if not arguments.check:
        (_ROOT / _RAW).write_text(one_line_each(json.loads(arguments.json.read_text())))
    differing = {
        path: text for path, text in derived(_ROOT).items() if not path.exists() or path.read_text() != text
    }
    for path, text in differing.items():
        if not arguments.check:
            path.write_text(text)
        state = (
            "differs from docs/cluster-benchmark.json: run python -m cluster.publish"
            if arguments.check
            else "written"
        )
        print(f"{path.relative_to(_ROOT)} {state}")
    return 1 if arguments.check and differing else 0


def one_line_each(document: Mapping[str, Any]) -> str:
    """Return the published data as JSON with one outcome in a line,
    so that a change shows which outcomes differ.
    """
    head = json.dumps({key: value for key, value in document.items() if key != "outcomes"})
    outcomes = ",\n".join(json.dumps(outcome) for outcome in document["outcomes"])
    return f'{head[:-1]}, "outcomes": [\n{outcomes}\n]}}\n'


def derived(root: Path) -> dict[Path, str]:
    """Return the files that follow from the published data, by path. Without such data the pages say so."""
    first = reached = tables = speed = _NOTHING
    charts: dict[str, str] = {}
    if (root / _RAW).exists():
        document = json.loads((root / _RAW).read_text())
        charts = pictures(Summary(document))
        shown = [f"![{title}](pictures/{name})" for name, title in PICTURES.items() if name in charts]
        first = "\n".join([answers(document), "", *shown])
        reached, tables, speed = goals(document), measurements(document), speed_table(document)
    page = filled((root / _PAGE).read_text(), "answers", first)
    return {
        root / _PAGE: filled(page, "goals", reached),
        root / _TABLES: filled((root / _TABLES).read_text(), "measurements", tables),
        root / _README: filled((root / _README).read_text(), "speed", speed),
    } | {root / _PICTURES / name: text for name, text in charts.items()}


def filled(page: str, name: str, content: str) -> str:
    """Return a page with a generated region filled.

    Raises
    ------
    ValueError
        The page has no such region.
    """
    region = f"<!-- generated: {name} -->"
    text, found = re.subn(
        f"{region}.*?<!-- end -->", lambda _: f"{region}\n{content}\n<!-- end -->", page, flags=re.DOTALL
    )
    if found != 1:
        raise ValueError(f"a page must have one region '{region} ... <!-- end -->', this one has {found}")
    return text


if __name__ == "__main__":
    sys.exit(main())
