"""Rows in files: what each form looks like, and what is said when one cannot be written."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.exports import Column, Export, write_rows

COLUMNS = (
    Column("name"),
    Column("pods", "whole"),
    Column("run_s", "number"),
    Column("resumed", "flag"),
    Column("at", "time"),
)
PAGES: list[list[dict[str, Any]]] = [
    [{"name": "a,b", "pods": 2, "run_s": 1.5, "resumed": False, "at": "2026-11-23T08:00:00.5Z", "other": 1}],
    [],
    [{"name": "c", "pods": 1, "run_s": None, "resumed": True, "at": None}],
]


def written(form: str, *, titles: bool = True) -> str:
    out = io.StringIO()
    write_rows(PAGES, COLUMNS, Export(form, titles=titles), out)
    return out.getvalue()


def test_csv_quotes_and_leaves_missing_values_empty() -> None:
    assert (
        written("csv") == 'name,pods,run_s,resumed,at\n"a,b",2,1.5,false,2026-11-23T08:00:00.5Z\nc,1,,true,\n'
    )
    assert written("csv", titles=False).startswith('"a,b"')


def test_json_is_one_array_of_the_columns() -> None:
    rows = json.loads(written("json"))
    assert rows[0] == {
        "name": "a,b",
        "pods": 2,
        "run_s": 1.5,
        "resumed": False,
        "at": "2026-11-23T08:00:00.5Z",
    }
    assert [row["name"] for row in rows] == ["a,b", "c"]


def test_nothing_is_an_empty_array() -> None:
    out = io.StringIO()
    write_rows([], COLUMNS, Export("json"), out)
    assert json.loads(out.getvalue()) == []


def test_a_page_is_written_before_the_next_one_is_asked_for(tmp_path: Path) -> None:
    out = io.StringIO()
    seen: list[int] = []

    def pages() -> Iterator[list[dict[str, Any]]]:
        for page in PAGES:
            seen.append(out.getvalue().count("\n"))
            yield page

    write_rows(pages(), COLUMNS, Export("csv"), out)
    assert seen == [1, 2, 2]


def test_a_file_is_written_and_one_that_cannot_be_is_named(tmp_path: Path) -> None:
    write_rows(PAGES, COLUMNS, Export("csv", str(tmp_path / "jobs.csv")), io.StringIO())
    assert (tmp_path / "jobs.csv").read_text().startswith("name,pods")
    with pytest.raises(
        ClusterError,
        match=r"error: .*/no/jobs\.csv cannot be written \(No such file or directory\): name another file",
    ):
        write_rows(PAGES, COLUMNS, Export("csv", str(tmp_path / "no" / "jobs.csv")), io.StringIO())


def test_without_pyarrow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> ModuleType:
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ClusterError) as refused:
        write_rows(PAGES, COLUMNS, Export("parquet", str(tmp_path / "jobs.parquet")), io.StringIO())
    assert str(refused.value) == (
        "error: -o parquet needs pyarrow, which is not installed: pip install 'fluxqueue-hpc[parquet]', "
        "or choose -o csv"
    )
    assert not (tmp_path / "jobs.parquet").exists()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_parquet_has_typed_columns_and_is_not_for_terminals(tmp_path: Path) -> None:
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="pyarrow is not installed: pip install 'fluxqueue-hpc[parquet]'"
    )
    with pytest.raises(ClusterError, match="name a file with --file, or redirect the output"):
        write_rows(PAGES, COLUMNS, Export("parquet"), _Terminal())
    file = tmp_path / "jobs.parquet"
    write_rows(PAGES, COLUMNS, Export("parquet", str(file)), io.StringIO())
    table = parquet.read_table(file)
    assert [str(field.type) for field in table.schema] == [
        "string",
        "int64",
        "double",
        "bool",
        "timestamp[us, tz=UTC]",
    ]
    assert table.column("name").to_pylist() == ["a,b", "c"]
    assert table.column("at").to_pylist()[0].isoformat() == "2026-11-23T08:00:00.500000+00:00"
