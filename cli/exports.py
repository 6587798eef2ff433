"""Rows as CSV, JSON and Parquet, for spreadsheets and programs.

CSV and JSON need nothing. Parquet needs pyarrow, which is large, so it is an extra:
``pip install 'fluxqueue-hpc[parquet]'``. Rows come in pages, and each page is written before the next one is
asked for: a year of work fits into any memory.
"""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, TextIO

from fluxqueue.cli.api_client import ClusterError

__all__ = ["FORMATS", "Column", "Export", "write_rows"]

FORMATS: Final = ("csv", "json", "parquet")
_TYPES: Final = {
    "text": "string",
    "whole": "int64",
    "number": "float64",
    "flag": "bool_",
    "time": "timestamp",
}
_NO_PYARROW: Final = (
    "error: -o parquet needs pyarrow, which is not installed: pip install 'fluxqueue-hpc[parquet]', "
    "or choose -o csv"
)

Page = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Column:
    """Name of a value in a row, and what it is: ``text``, ``whole``, ``number``,
    ``flag`` or ``time`` (RFC 3339).
    """

    name: str
    kind: str = "text"


@dataclass(frozen=True)
class Export:
    """Where rows go, and in which form.

    Attributes
    ----------
    form
        One of `FORMATS`.
    file
        A file; empty: standard output.
    titles
        False: CSV without the line of titles.
    """

    form: str
    file: str = ""
    titles: bool = True


def write_rows(pages: Iterable[Page], columns: Sequence[Column], export: Export, out: TextIO) -> None:
    """Write rows.

    Parameters
    ----------
    pages
        Rows by name; values that are no column are left out.
    columns
        What is written, in this order.
    export
        Form and file.
    out
        Standard output.

    Raises
    ------
    ClusterError
        The file cannot be written, or pyarrow is missing; the message is complete.
    """
    if export.form == "parquet":
        _write_parquet(pages, columns, export, out)
        return
    try:
        with ExitStack() as stack:
            target = (
                stack.enter_context(Path(export.file).open("w", encoding="utf-8", newline=""))
                if export.file
                else out
            )
            if export.form == "csv":
                _write_csv(pages, columns, target, titles=export.titles)
            else:
                _write_json(pages, columns, target)
    except OSError as error:
        raise _unwritable(export.file, error) from None


def _write_csv(pages: Iterable[Page], columns: Sequence[Column], target: IO[str], *, titles: bool) -> None:
    writer = csv.writer(target, lineterminator="\n")
    if titles:
        writer.writerow([column.name for column in columns])
    for page in pages:
        writer.writerows([_cell(row.get(column.name)) for column in columns] for row in page)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def _write_json(pages: Iterable[Page], columns: Sequence[Column], target: IO[str]) -> None:
    names = [column.name for column in columns]
    first = True
    target.write("[")
    for page in pages:
        for row in page:
            target.write("\n" if first else ",\n")
            json.dump({name: row.get(name) for name in names}, target)
            first = False
    target.write("\n]\n")


def _write_parquet(pages: Iterable[Page], columns: Sequence[Column], export: Export, out: TextIO) -> None:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ClusterError(_NO_PYARROW) from None
    if not export.file and out.isatty():
        raise ClusterError(
            "error: Parquet is not for a terminal: name a file with --file, or redirect the output"
        )
    schema = arrow.schema([(column.name, _arrow_type(arrow, column)) for column in columns])
    try:
        with ExitStack() as stack:
            target = (
                stack.enter_context(Path(export.file).open("wb"))
                if export.file
                else getattr(out, "buffer", sys.stdout.buffer)
            )
            with parquet.ParquetWriter(target, schema) as writer:
                for page in pages:
                    rows = [
                        {column.name: _value(row.get(column.name), column) for column in columns}
                        for row in page
                    ]
                    writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
    except OSError as error:
        raise _unwritable(export.file, error) from None


def _arrow_type(arrow: Any, column: Column) -> Any:
    return arrow.timestamp("us", tz="UTC") if column.kind == "time" else getattr(arrow, _TYPES[column.kind])()


def _value(value: Any, column: Column) -> Any:
    if isinstance(value, str) and column.kind in ("time", "number"):
        return datetime.fromisoformat(value) if column.kind == "time" else float(value)
    return value


def _unwritable(file: str, error: OSError) -> ClusterError:
    if isinstance(error, BrokenPipeError):
        raise error
    return ClusterError(
        f"error: {file or 'standard output'} cannot be written ({error.strerror}): name another file"
    )
