import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.builders import make_queue
from support.node_work import one, work
from support.plugin_server import PluginServer, fluxjobs_path

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.cli.api_client import ApiRefused
from fluxqueue.cli.queue_listing import cores_by_queue, queue_rows, queues

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
PATH = f"/apis/{names.API_VERSION}/fluxqueues"


def a_queue(name: str, status: dict[str, Any] | None = None, **spec: Any) -> FluxQueue:
    made = make_queue(name, **spec)
    return msgspec.convert({**made, "status": status or {}}, FluxQueue)


NIGHT = a_queue(
    "night",
    {"pending": 3, "running": 2, "nodesInUse": 4},
    limits={
        "running": 10,
        "nodes": 16,
        "cores": 64,
        "perNamespace": {"nodes": 2},
        "perUser": {"running": 3},
        "perWorkload": {"cores": 8, "resources": {"nvidia.com/gpu": 4}},
    },
    policy="conservative",
    state="held",
)


def table(server: PluginServer, **options: bool) -> tuple[list[list[str]], str]:
    out, notes = io.StringIO(), io.StringIO()
    assert queues(server.client, out, NOW, notes=notes, **options) == 0
    return [line.split() for line in out.getvalue().splitlines()], notes.getvalue()


def test_what_is_used_stands_before_its_limit() -> None:
    server = PluginServer().has(PATH, NIGHT).has_jobs(namespace=None)
    server.has(
        fluxjobs_path(None), work("a", "n[1,1]", one(4, 2)), work("b", "n1", one(8), state="Completed")
    )
    (titles, default, night), notes = table(server)
    assert titles == ["NAME", "STATE", "POLICY", "PRIORITY", "PENDING", "RUNNING", "NODES", "CORES", "AGE"]
    assert default[:3] == ["default", "open", "easy"]
    assert default[7] == "8"
    assert night == ["night", "held", "conservative", "0", "3", "2/10", "4/16", "0/64", "-"]
    assert notes == ""


def test_who_may_not_list_all_work_sees_the_limits_and_why_not_the_cores() -> None:
    server = PluginServer().has(PATH, NIGHT)
    server.refusals[fluxjobs_path(None)] = ApiRefused(403, "Forbidden", "no")
    (_, _, night), notes = table(server)
    assert night[7] == "?/64"
    assert notes == "Cores in use are not shown: you may not list the FluxJobs of all namespaces.\n"


def test_another_refusal_is_an_error() -> None:
    server = PluginServer().has(PATH, NIGHT)
    server.refusals[fluxjobs_path(None)] = ApiRefused(500, "InternalError", "no")
    with pytest.raises(ApiRefused):
        table(server)


def test_the_default_queue_is_there_without_an_object_and_without_counts() -> None:
    (row,) = queue_rows([], None, NOW)
    assert row == ["default", "open", "easy", "0", "", "", "", "", ""]


def test_wide_has_limits_of_namespaces_users_and_workloads_and_durations() -> None:
    (_, row) = queue_rows([NIGHT], {}, NOW, wide=True)
    assert row[9:] == ["2 nodes", "3 running", "8 cores, 4 nvidia.com/gpu", "60m", "", ""]


def test_without_titles() -> None:
    lines, _ = table(PluginServer().has(PATH).has_jobs(namespace=None), titles=False)
    assert [line[0] for line in lines] == ["default"]


def test_a_fluxjob_that_cannot_be_read_counts_nothing() -> None:
    strange = work("a", "n1", one(4))
    strange = msgspec.structs.replace(
        strange, spec=msgspec.structs.replace(strange.spec, jobspec='{"resources": 1}')
    )
    assert cores_by_queue([strange]) == {}
