"""What the options of `history` and `report` ask for."""

from __future__ import annotations

import argparse

import pytest

from fluxqueue.cli import history_options as options
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.exports import Export
from fluxqueue.cli.history_source import HistoryAddress
from fluxqueue.cli.usage_errors import UsageParser


def parsed(*words: str, report: bool = False) -> argparse.Namespace:
    parser = UsageParser(prog="kubectl fluxqueue history")
    (options.add_report_options if report else options.add_history_options)(parser)
    return parser.parse_args(words)


def test_only_what_is_given_is_asked_for() -> None:
    request = options.history_request(parsed(), "science")
    assert (request.parameters, request.limit, request.namespaces, request.export) == (
        {"namespace": "science"},
        1_000,
        False,
        None,
    )
    assert options.report_request(parsed(report=True), "").parameters == {}


def test_every_filter_is_sent() -> None:
    words = [
        "-q",
        "gpu",
        "--account=",
        "--user",
        "alice",
        "--since",
        "2025-11-01T08:30:00Z",
        "--until",
        "2025-11-02T08:30:00+02:00",
        "--state",
        "failed",
        "--limit",
        "5",
        "-o",
        "csv",
        "--file",
        "jobs.csv",
        "--no-headers",
    ]
    request = options.history_request(parsed(*words), "")
    times = {"since": "2025-11-01T08:30:00+00:00", "until": "2025-11-02T06:30:00+00:00"}
    assert request.parameters == {"queue": "gpu", "account": "", "user": "alice", **times, "state": "failed"}
    assert (request.limit, request.namespaces, request.export) == (
        5,
        True,
        Export("csv", "jobs.csv", titles=False),
    )
    assert options.report_request(parsed("--by", "day,user", report=True), "art").parameters == {
        "namespace": "art",
        "by": "day,user",
    }


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("lammps", {"name": "lammps"}),
        ("job/lammps", {"name": "lammps", "kind": "job"}),
        ("Jobs.batch/lammps", {"name": "lammps", "kind": "job"}),
        ("po/probe", {"name": "probe", "kind": "pod"}),
        ("pod-group/mesh", {"name": "mesh", "kind": "podgroup"}),
        ("minicluster/flux", {"name": "flux", "kind": "job"}),
    ],
)
def test_work_is_asked_for_by_the_name_that_people_know(typed: str, asked: dict[str, str]) -> None:
    assert options.history_request(parsed(typed), "science").parameters == {"namespace": "science", **asked}


@pytest.mark.parametrize("typed", ["", "job/", "/lammps", "a/b/c"])
def test_what_is_no_name_is_refused(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(typed)
    assert f"{typed!r} is no name of work: write lammps, or job/lammps" in capsys.readouterr().err


def test_the_queue_is_where_options_and_then_variables_say() -> None:
    assert options.address(parsed(), "science", {}) == HistoryAddress(namespace="science")
    environ = {"FLUXQUEUE_QUEUE_URL": "https://a:1", "FLUXQUEUE_QUEUE_CA": "ca.pem"}
    given = options.address(
        parsed("--queue-url", "https://b:2", "--service-account", "batch-fluxqueue-history"), "", environ
    )
    assert (given.url, given.ca, given.account) == ("https://b:2", "ca.pem", "batch-fluxqueue-history")


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1" * 400, "²"])
def test_a_limit_is_a_number_in_its_range(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--limit={limit}")
    assert "--limit is a whole number from 1 to 10000000" in capsys.readouterr().err


def test_a_file_for_a_table_is_refused() -> None:
    with pytest.raises(ClusterError, match="--file is for csv, json, parquet: choose one with -o"):
        options.history_request(parsed("--file", "jobs.txt"), "")
