"""Rows are read into records."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from support.queue_builders import a_workload

from fluxqueue.queue.store.rows import workload_of

JSON = ("overrides", "requeue_state", "start_conditions")
SHARED = ("api_version", "kind", "namespace", "queue", "account", "submitted_by")


def a_row() -> dict[str, Any]:
    """A row with texts of its own, as each that is read from a connection."""
    workload = a_workload("w", id=7, uid="u", namespace="team-a", account="physics", submitted_by="ada@site")
    row = {each.name: getattr(workload, each.name) for each in fields(workload) if each.name not in JSON}
    return row | {name: "".join([*row[name]]) for name in SHARED}


def test_rows_share_the_texts_that_many_have_in_common() -> None:
    one, two = workload_of(a_row()), workload_of(a_row())
    assert one.namespace == "team-a"
    assert [name for name in SHARED if getattr(one, name) is not getattr(two, name)] == []
