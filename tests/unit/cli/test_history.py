"""The table of the history, and the hint that there is more."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from fluxqueue.cli.exports import Export
from fluxqueue.cli.history import COLUMNS, HistoryRequest, history

NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
ENDED: dict[str, Any] = {
    "id": 7,
    "kind": "Job",
    "namespace": "science",
    "name": "lammps",
    "queue": "default",
    "account": "physics",
    "user": "alice",
    "state": "Failed",
    "outcome": "Failed",
    "reason": "",
    "pods": 4,
    "start_error_s": -125.4,
    "wait_s": 12.0,
    "run_s": 3_700.0,
    "finished_at": "2026-11-23T08:00:00Z",
}
WAITING = ENDED | {
    "name": "next",
    "state": "Pending",
    "outcome": "",
    "reason": "QueueLimit",
    "run_s": None,
    "start_error_s": None,
    "finished_at": None,
    "user": "",
}


class _Source:
    def __init__(self, *pages: tuple[list[dict[str, Any]], bool], currencies: Sequence[str | None]) -> None:
        self.pages = pages
        self.currencies = currencies
        self.asked: tuple[Any, ...] = ()

    def jobs(
        self, parameters: Any, limit: int, page: int, answer: dict[str, Any]
    ) -> Iterator[tuple[list[dict[str, Any]], bool]]:
        self.asked = (parameters, limit, page)
        for number, found in enumerate(self.pages):
            answer["currency"] = self.currencies[min(number, len(self.currencies) - 1)]
            yield found


def shown(
    request: HistoryRequest, *pages: tuple[list[dict[str, Any]], bool], currency: str | None = None
) -> tuple[list[str], str]:
    source: Any = _Source(*pages, currencies=[currency])
    out, hints = io.StringIO(), io.StringIO()
    assert history(source, request, out, lambda: NOW, hints) == 0
    assert source.asked == (request.parameters, request.limit, 1_000)
    return out.getvalue().splitlines(), hints.getvalue()


def test_a_row_says_what_became_of_work_and_for_how_long() -> None:
    lines, hints = shown(HistoryRequest(namespaces=True), ([WAITING, ENDED], False))
    assert [line.split() for line in lines] == [
        [
            "NAMESPACE",
            "OBJECT",
            "QUEUE",
            "ACCOUNT",
            "USER",
            "STATE",
            "OUTCOME",
            "PODS",
            "WAIT",
            "RUN",
            "OFF-BY",
            "ENDED",
        ],
        [
            "science",
            "job/next",
            "default",
            "physics",
            "-",
            "Pending",
            "QueueLimit",
            "4",
            "12s",
            "-",
            "-",
            "-",
        ],
        [
            "science",
            "job/lammps",
            "default",
            "physics",
            "alice",
            "Failed",
            "Failed",
            "4",
            "12s",
            "61m",
            "-2m5s",
            "08:00:00",
        ],
    ]
    assert hints == ""


def test_titles_and_namespaces_are_left_out_on_request() -> None:
    lines, _ = shown(HistoryRequest(titles=False), ([ENDED], False))
    assert lines[0].split()[:2] == ["job/lammps", "default"]


@pytest.mark.parametrize("width", [72, 100])
def test_on_a_terminal_no_line_wraps_and_empty_columns_vanish(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    by_controller = ENDED | {
        "user": "system:serviceaccount:kube-system:replicaset-controller",
        "name": "monitor-68f657b9fd-c97z7",
    }
    lines, _ = shown(HistoryRequest(), ([by_controller, ENDED | {"account": ""}], False))
    assert max(map(len, lines)) <= width
    assert {"OBJECT", "STATE", "WAIT", "RUN", "ENDED"} <= set(lines[0].split())
    assert all(line.endswith("08:00:00") for line in lines[1:])
    lines, _ = shown(HistoryRequest(), ([ENDED | {"account": ""}], False))
    assert "ACCOUNT" not in lines[0]


def test_what_is_piped_has_all_columns_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "system:serviceaccount:kube-system:replicaset-controller"
    lines, _ = shown(HistoryRequest(), ([ENDED | {"user": name, "account": ""}], False))
    assert name in lines[1]
    assert "ACCOUNT" in lines[0]


def test_who_gets_a_part_reads_that_there_is_more() -> None:
    _, hints = shown(HistoryRequest(limit=1), ([ENDED], True))
    assert hints == "There is more than 1: raise --limit, or name a shorter time with --since and --until.\n"


def test_nothing_found_is_said_and_prints_no_titles() -> None:
    assert shown(HistoryRequest(), ([], False)) == ([], "No work of this time was found.\n")
    assert shown(HistoryRequest({"name": "x", "kind": "pod"}), ([], False)) == (
        [],
        "No work named pod/x was found.\n",
    )


def test_an_export_has_every_column_of_every_page() -> None:
    lines, hints = shown(HistoryRequest(limit=2, export=Export("json")), ([WAITING], True), ([ENDED], True))
    rows = json.loads("\n".join(lines))
    assert [row["name"] for row in rows] == ["next", "lammps"]
    assert set(rows[0]) == {column.name for column in COLUMNS}
    assert "more than 2" in hints


def test_spans_are_those_between_the_shown_times() -> None:
    times = {
        "submitted_at": "2026-11-23T07:00:00.900Z",
        "started_at": "2026-11-23T07:00:12.100Z",
        "finished_at": "2026-11-23T07:00:33.050Z",
    }
    lines, _ = shown(
        HistoryRequest(titles=False), ([ENDED | times | {"wait_s": 11.2, "run_s": 20.95}], False)
    )
    assert {"12s", "21s"} <= set(lines[0].split())


def test_costs_are_shown_where_there_are_prices_and_rounded_in_tables_only() -> None:
    page = ([WAITING | {"cost": None}, ENDED | {"cost": "12.3456"}], False)
    lines, _ = shown(HistoryRequest(), page, currency="eur")
    assert [line.split()[-1] for line in lines] == ["COST-EUR", "-", "12.35"]
    lines, _ = shown(HistoryRequest(export=Export("csv")), page, currency="eur")
    assert [line.rpartition(",")[2] for line in lines] == ["cost", "", "12.3456"]
    assert "COST" not in shown(HistoryRequest(), page)[0][0]
    assert "cost" not in shown(HistoryRequest(export=Export("csv")), page)[0][0]


@pytest.mark.parametrize(
    ("first", "later", "ends"),
    [("EUR", None, ["COST-EUR", "1.50", "1.50"]), (None, "EUR", ["ENDED", "-", "08:00:00"])],
)
def test_a_table_has_the_columns_of_the_first_answer(
    first: str | None, later: str | None, ends: list[str]
) -> None:
    """While prices are introduced or removed, replicas of the queue with and without them answer."""
    pages = [([WAITING | {"cost": "1.5"}], True), ([ENDED | {"cost": "1.5"}], False)]
    source: Any = _Source(*pages, currencies=[first, later])
    out = io.StringIO()
    assert history(source, HistoryRequest(), out, lambda: NOW, io.StringIO()) == 0
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == ends
