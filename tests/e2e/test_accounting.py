"""History and reports on a real control plane: what people see of their work, who may,
and what is said to others.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.end_to_end import Stage

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.inprocess import NAMESPACE, RELEASE
from fluxqueue.local.operator_requests import write_queue_authority

RUN_SECONDS = "fluxqueue.local/run-seconds"
ACCOUNT = "fluxqueue-history"
KEY = "fluxqueue/submitted-by"


def job(name: str) -> JobBuilder:
    return make_job(name).cpu("2").pod_annotation(RUN_SECONDS, "0.5")


class Reader:
    """``kubectl fluxqueue history`` and ``report`` of the stage's namespace,
    at the address of the local queue.
    """

    def __init__(self, stage: Stage, authority: Path) -> None:
        self._stage = stage
        cluster = stage.cluster
        self._environment = {
            **os.environ,
            "FLUXQUEUE_QUEUE_URL": f"https://127.0.0.1:{cluster.programs['queue'].metrics_port}",
            "FLUXQUEUE_QUEUE_CA": str(authority),
        }

    def run(self, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("kubectl-fluxqueue")
        command = [
            str(program),
            *words,
            "-n",
            self._stage.namespace,
            "--kubeconfig",
            str(kubeconfig or self._stage.cluster.kubeconfig),
        ]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=self._environment
        )

    def rows(self, *words: str) -> list[dict[str, Any]]:
        done = self.run(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture
def reader(stage: Stage, tmp_path: Path) -> Reader:
    return Reader(
        stage, write_queue_authority(stage.cluster.control_plane.client, tmp_path / "ca.crt", RELEASE)
    )


@pytest.fixture
def opened(stage: Stage, reader: Reader) -> Iterator[Reader]:
    """The namespace has an account for its history, as its administrator makes it."""
    stage.kubectl("create", "serviceaccount", ACCOUNT)
    stage.kubectl(
        "create",
        "rolebinding",
        ACCOUNT,
        f"--clusterrole={ACCOUNT}",
        f"--serviceaccount={stage.namespace}:{ACCOUNT}",
    )
    stage.until(
        "the account may read",
        lambda: reader.run("history").returncode == 0,
        60,
        lambda: reader.run("history").stderr,
    )
    yield reader
    stage.kubectl("delete", "serviceaccount,rolebinding", ACCOUNT)


def test_ended_work_is_in_history_and_reports_with_who_submitted_it(stage: Stage, opened: Reader) -> None:
    stage.apply(job("first").build(), make_pod("second").cpu("1").annotation(RUN_SECONDS, "0.5").build())
    for name in ("first", "second"):
        stage.until_state(name, State.COMPLETED)
    who = stage.job("first").metadata.annotation(KEY)
    fluxjob = stage.row("first").fluxjob
    assert fluxjob is not None
    assert fluxjob.status.submitted_by == who
    assert who
    found = {row["name"]: row for row in stage.until("both ends", lambda: _ended(opened, 2))}
    assert {(row["user"], row["state"], row["namespace"]) for row in found.values()} == {
        (who, "Completed", stage.namespace)
    }
    assert found["first"]["run_s"] > 0
    (use,) = opened.rows("report", "--by", "user,namespace")
    assert (use["user"], use["namespace"], use["jobs"]) == (who, stage.namespace, 2)
    assert use["cpu_s"] > 0
    assert [row["name"] for row in opened.rows("history", "--limit", "1")] != []
    assert opened.rows("history", "--user", "nobody-of-this-name") == []
    assert [row["name"] for row in opened.rows("history", "first")] == ["first"]
    assert [row["name"] for row in opened.rows("history", "pod/second", "--state", "completed")] == ["second"]
    assert "No work named pod/first was found" in opened.run("history", "pod/first").stderr
    table = opened.run("history", "--no-headers").stdout
    assert "job/first" in table
    assert "pod/second" in table
    lines = list(csv.reader(io.StringIO(opened.run("report", "--by", "queue", "-o", "csv").stdout)))
    assert lines[0] == [
        "queue",
        "jobs",
        "node_s",
        "cpu_s",
        "memory_gib_s",
        "gpu_s",
        "estimated",
        "start_error_s",
        "cost",
    ]


def _ended(reader: Reader, count: int) -> list[dict[str, Any]]:
    rows = reader.rows("history", "--state", "completed")
    return rows if len(rows) == count else []


def test_a_job_costs_what_its_cores_and_nodes_cost_for_its_time(stage: Stage, opened: Reader) -> None:
    stage.apply(job("billed").build())
    stage.until_state("billed", State.COMPLETED)
    (row,) = stage.until("its end", lambda: _ended(opened, 1))
    (use,) = opened.rows("report", "--by", "account,user,queue")
    assert float(use["cost"]) == pytest.approx(use["cpu_s"] + 2 * use["node_s"]), (
        "a core 1, a node 2 a second"
    )
    assert row["cost"] == use["cost"]
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        times = connection.execute(
            "SELECT granted_at, freed_at FROM fluxqueue.allocations WHERE workload = %s", [row["id"]]
        ).fetchone()
    assert times is not None
    held_us = (times[1] - times[0]) // timedelta(microseconds=1)
    assert Decimal(row["cost"]) == Decimal(held_us * (2 * 1 + 2)) / 1_000_000
    for verb in ("report", "history"):
        titles, line = (each.split() for each in opened.run(verb).stdout.splitlines()[-2:])
        assert (titles[-1], line[-1]) == ("COST-EUR", f"{Decimal(row['cost']):.2f}")


def test_a_manifest_does_not_say_who_submits(stage: Stage) -> None:
    stage.apply(job("forged").annotation(KEY, "mallory").build())
    assert stage.job("forged").metadata.annotation(KEY) not in (None, "", "mallory")
    changed = stage.kubectl("annotate", "job", "forged", "--overwrite", f"{KEY}=mallory", check=False)
    assert "fluxqueue/submitted-by names who created the object" in changed.stderr
    stage.until_state("forged", State.COMPLETED)


def test_a_namespace_without_the_account_says_how_to_make_it(stage: Stage, reader: Reader) -> None:
    refused = reader.run("history")
    assert refused.returncode == 1
    assert f"kubectl -n {stage.namespace} create serviceaccount {ACCOUNT}" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_the_account_of_one_namespace_opens_no_other(stage: Stage, opened: Reader) -> None:
    stage.kubectl("create", "serviceaccount", "viewer")
    person = stage.cluster.control_plane.service_account_kubeconfig(stage.namespace, "viewer")
    refused = opened.run("history", kubeconfig=person)
    assert f"create rolebinding NAME --clusterrole={ACCOUNT}-reader --user=YOU" in refused.stderr
    stage.kubectl(
        "create",
        "rolebinding",
        "viewer",
        f"--clusterrole={ACCOUNT}-reader",
        f"--serviceaccount={stage.namespace}:viewer",
    )
    stage.until("the person may read", lambda: opened.run("history", kubeconfig=person).returncode == 0, 60)
    everywhere = opened.run("history", "-A", kubeconfig=person)
    assert f"kubectl -n {NAMESPACE} create rolebinding NAME" in everywhere.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("history", "--since", "soon"),
            "--since is a time such as 2026-11-23T08:00:00Z, or how long ago, such as 12h: 'soon' is none",
        ),
        (
            ("history", "--since", "9999-01-01"),
            "error: since lies in the future: name a time that has passed, or how long ago: 12h, 7d",
        ),
        (("history", "--state", "done"), "state='done' is no state"),
        (("history", "--since", "1h", "--until", "2h"), "since is not before until"),
        (
            ("report", "--by", "week"),
            "by='week' is no group: name some of namespace, account, queue, user, day",
        ),
    ],
    ids=["a time", "a time to come", "a state", "an order", "a group"],
)
def test_bad_input_gets_one_sentence(opened: Reader, words: tuple[str, ...], sentence: str) -> None:
    refused = opened.run(*words)
    assert (refused.returncode, sentence in refused.stderr, refused.stderr.count("\n")) == (1, True, 1)


def test_operators_read_all_namespaces(stage: Stage, opened: Reader) -> None:
    stage.apply(job("seen").build())
    stage.until_state("seen", State.COMPLETED)
    stage.until(
        "its end",
        lambda: [row for row in opened.rows("history", "-A") if row["namespace"] == stage.namespace],
    )
    assert stage.namespace in {row["namespace"] for row in opened.rows("report", "-A")}
