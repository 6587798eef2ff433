"""The table of docs/install.md: on which versions of Kubernetes the end-to-end tests passed,
from `kubernetes-versions.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluxqueue.local.kubernetes_versions import DEFAULT_MINOR, VERSIONS

__all__ = ["versions_table"]

_ROOT = Path(__file__).resolve().parents[1]


def versions_table(records: Mapping[str, Any] | None = None, files: int | None = None) -> list[str]:
    """Return the lines of the table.

    Parameters
    ----------
    records
        What `tests/e2e/on_versions.py` recorded; by default what is in the file.
    files
        How many files of end-to-end tests there are; by default those of this checkout.
    """
    if records is None:
        records = json.loads((_ROOT / "docs" / "kubernetes-versions.json").read_text())
    if files is None:
        files = len(list((_ROOT / "tests" / "e2e").glob("test_*.py")))
    lines = ["| Kubernetes | tried with | what passed |", "|---|---|---|"]
    for minor, version in sorted(VERSIONS.items(), reverse=True):
        if minor == DEFAULT_MINOR:
            lines.append(f"| {minor} | {version[1:]} | every tier of tests |")
        else:
            found = records.get(minor, {})
            tried = found.get("files", {}) if found.get("version") == version else {}
            lines.append(f"| {minor} | {version[1:]} | {_said(tried, files)} |")
    return lines


def _said(tried: Mapping[str, Mapping[str, Any]], files: int) -> str:
    passed = {name: counts for name, counts in tried.items() if counts["passed"] and not counts["failed"]}
    tests = sum(counts["passed"] for counts in passed.values())
    text = "nothing yet"
    if passed:
        text = (
            f"end-to-end tests: {len(passed)} of {files} files, {tests} tests, "
            f"{max(counts['on'] for counts in passed.values())}"
        )
    failed = sorted(name for name, counts in tried.items() if counts["failed"])
    return f"{text}; not {', '.join(f'`{name}`' for name in failed)}" if failed else text
