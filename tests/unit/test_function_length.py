"""A function is read at once: it has at most 60 lines, also in tests and benchmarks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 60
"""From the line of its name to its last one, with the docstring."""
FOLDERS = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in ("build", "fluxqueue")
)


def functions_in(code: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_is_longer_than_sixty_lines(folder: str) -> None:
    modules = [path for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name]
    long = [
        f"{module.relative_to(ROOT)}: {name} has {lines} lines: split it into named steps"
        for module in modules
        for name, lines in functions_in(module.read_text())
        if lines > MOST_LINES
    ]
    assert long == []


def test_lines_are_counted_with_signature_and_docstring() -> None:
    code = 'def one(\n    a: int,\n) -> int:\n    """Say it."""\n    return a\n\n\nasync def two(): ...\n'
    assert list(functions_in(code)) == [("one", 5), ("two", 1)]
    assert "queue" in FOLDERS
