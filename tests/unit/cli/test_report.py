"""The table of what was used: hours for people, seconds for programs."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.plugin_server import PluginServer

from fluxqueue.api import names
from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.cli.api_client import ApiRefused
from fluxqueue.cli.exports import Export
from fluxqueue.cli.report import ReportRequest, report, visible_accounts

ROW: dict[str, Any] = {
    "day": "2026-11-22",
    "user": "",
    "jobs": 3,
    "node_s": 7_200.0,
    "cpu_s": 5_400.0,
    "memory_gib_s": 0.0,
    "gpu_s": None,
}
ROW |= {"estimated": 2, "start_error_s": 75.0}


class _Source:
    def report(self, parameters: Any) -> dict[str, Any]:
        assert parameters == {"by": "day,user"}
        return {
            "since": "2026-11-01T00:00:00Z",
            "until": "2026-11-23T08:00:00Z",
            "by": ["day", "user"],
            "rows": [ROW],
        }


def shown(**request: Any) -> str:
    source: Any = _Source()
    out = io.StringIO()
    assert report(source, ReportRequest(parameters={"by": "day,user"}, **request), out) == 0
    return out.getvalue()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, ""),
        (
            500,
            (
                "What is left of budgets is not shown, since the accounts could not be read: "
                "Error from server (Why): no\n"
            ),
        ),
    ],
)
def test_budgets_that_cannot_be_read_are_named_unless_the_person_may_not_see_them(
    status: int, said: str
) -> None:
    path, hints = f"/apis/{names.API_VERSION}/{names.FLUXACCOUNTS}", io.StringIO()
    server = PluginServer().has(path)
    server.refusals[f"GET {path}"] = ApiRefused(status, "Why", "no")
    assert visible_accounts(server.client, hints) == []
    assert hints.getvalue() == said


def test_people_read_hours_and_from_when_to_when() -> None:
    first, titles, row = shown().splitlines()
    ends = [datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 23, 8, tzinfo=UTC)]
    assert first == "Use from {:%Y-%m-%d %H:%M %Z} to {:%Y-%m-%d %H:%M %Z}".format(
        *(end.astimezone() for end in ends)
    ), "in the reader's zone"
    assert titles.split() == ["DAY", "USER", "JOBS", "CPU-H", "GIB-H", "GPU-H", "ESTIMATED", "OFF-BY"]
    assert row.split() == ["2026-11-22", "-", "3", "1.5", "0.0", "0.0", "2", "75s"]
    assert shown(titles=False).split() == row.split()


def test_programs_read_seconds() -> None:
    assert shown(export=Export("csv")) == (
        "day,user,jobs,node_s,cpu_s,memory_gib_s,gpu_s,estimated,start_error_s\n"
        "2026-11-22,,3,7200.0,5400.0,0.0,,2,75.0\n"
    )


def test_costs_are_shown_where_there_are_prices_and_rounded_in_tables_only() -> None:
    class Source:
        def report(self, _parameters: Any) -> dict[str, Any]:
            times = {"since": "2026-11-01T00:00:00Z", "until": "2026-11-23T08:00:00Z"}
            return {**times, "by": ["day"], "rows": [ROW | {"cost": "7.005"}], "currency": "EUR"}

    def lines(request: ReportRequest) -> list[str]:
        source: Any = Source()
        out = io.StringIO()
        assert report(source, request, out) == 0
        return out.getvalue().splitlines()

    assert [line.split()[-1] for line in lines(ReportRequest())[1:]] == ["COST-EUR", "7.01"]
    csv = [line.rpartition(",")[2] for line in lines(ReportRequest(export=Export("csv")))]
    assert csv == ["cost", "7.005"]


def test_a_report_by_account_ends_with_what_is_left_of_their_budgets() -> None:
    amounts = [{"name": "nodes", "hours": 2000, "used": 700, "promised": 50, "left": 1250}]
    status = {"budget": {"end": "2026-12-01T00:00:00Z", "amounts": amounts}}
    documents = [{"metadata": {"name": name}, "status": status} for name in ("physics", "elsewhere")]
    rows = [ROW | {"account": "physics"}]

    class Source:
        def report(self, _parameters: Any) -> dict[str, Any]:
            return {
                "since": "2026-11-01T00:00:00Z",
                "until": "2026-11-23T08:00:00Z",
                "by": ["account"],
                "rows": rows,
            }

    source: Any = Source()
    out = io.StringIO()
    assert report(source, ReportRequest(), out, lambda: msgspec.convert(documents, list[FluxAccount])) == 0
    _, text = out.getvalue().split("\nBudgets of the present period, in hours\n")
    titles, row = text.splitlines()
    assert titles.split() == ["ACCOUNT", "BUDGET", "UNTIL", "HOURS", "USED", "RUNNING", "LEFT"]
    assert row.split() == ["physics", "nodes", "2026-12-01", "2,000", "700", "50", "1,250"]
