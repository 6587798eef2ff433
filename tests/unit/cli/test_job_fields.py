import argparse
from datetime import UTC, datetime

import pytest
from support.plugin_server import fluxjob

from fluxqueue.cli.job_fields import FIELDS, read_sort, read_template, sorted_jobs

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def test_a_template_is_a_line_of_fields() -> None:
    template = read_template("{object:<12} {state} {nodes} {wait}|{run}")
    job = fluxjob(
        state="Running",
        nodes="node-[4,4]",
        submittedAt="2026-03-02T11:50:00Z",
        startedAt="2026-03-02T11:59:00Z",
    )
    assert template.line(job, NOW) == "job/lammps   Running node-4 (2) 9m|60s"
    assert template.titles() == "OBJECT       STATE NODES WAIT|RUN"


def test_every_field_can_be_printed_of_a_new_job() -> None:
    assert read_template(" ".join(f"{{{name}}}" for name in FIELDS)).line(fluxjob(), NOW)


@pytest.mark.parametrize("text", ["{colour}", "plain", "{state", "{state:d}", "{}"])
def test_what_is_no_template_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="^--format"):
        read_template(text)


def test_sorts_by_fields_with_those_without_a_value_last() -> None:
    jobs = [
        fluxjob("a", pods=1, submittedAt="2026-03-02T11:00:00Z"),
        fluxjob("b", pods=3, submittedAt="2026-03-02T10:00:00Z", eta="2026-03-02T13:00:00Z"),
        fluxjob("c", pods=3, submittedAt="2026-03-02T09:00:00Z"),
    ]

    def order(text: str) -> str:
        return "".join(job.spec.object_ref.name for job in sorted_jobs(jobs, read_sort(text), NOW))

    assert [order(text) for text in ("pods", "-pods", "-wait", "-pods,wait", "eta", "-eta")] == [
        "acb",
        "cba",
        "cba",
        "bca",
        "bca",
        "bca",
    ]


def test_what_cannot_be_sorted_by_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'colour' is no field; there are namespace"):
        read_sort("state,colour")
