import io

import msgspec
import pytest
from support.node_work import READY, node, one, work
from support.plugin_server import PluginServer, fluxjob, fluxjobs_path

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.metadata import ObjectCondition
from fluxqueue.api.nodes import Node, Taint
from fluxqueue.cli.api_client import ApiRefused, ClusterError
from fluxqueue.cli.node_use import NodeUse, chosen, node_uses, read_cluster


def by_name(uses: list[NodeUse]) -> dict[str, NodeUse]:
    return {use.name: use for use in uses}


def test_the_slots_of_live_work_count_where_they_are() -> None:
    jobs = [
        work("a", "n[1,1,2]", one(2, 3)),
        work("b", "n2", one(1, 1, gpus=2), state="Draining"),
        work("done", "n1", one(8), state="Completed"),
        work("elsewhere", "n9", one(8)),
    ]
    uses = by_name(node_uses([node("n1"), node("n2"), node("n10")], jobs))
    assert list(uses) == ["n1", "n2", "n10"]
    assert (uses["n1"].used.cpu, uses["n1"].used.memory_gib, uses["n1"].work) == (4, 2, {"default/job/a": 2})
    assert (uses["n2"].used.cpu, uses["n2"].used.gpus) == (3, 2)
    assert (uses["n1"].total.cpu, uses["n1"].total.memory_gib, uses["n1"].total.gpus) == (8, 32, 2)
    assert [use.state for use in uses.values()] == ["mixed", "allocated", "idle"]


def test_pods_of_several_sizes_count_by_their_rank() -> None:
    uses = by_name(node_uses([node("n1"), node("n2")], [work("a", "n[1,1,2]", one(1, 2), one(6, 1))]))
    assert (uses["n1"].used.cpu, uses["n2"].used.cpu) == (2, 6)


def test_a_fluxjob_that_cannot_be_read_uses_nothing() -> None:
    broken = msgspec.structs.replace(work("a", "n1", one(1)), spec=fluxjob("a").spec)
    (use,) = node_uses([node("n1")], [broken, work("b", "n[", one(1))])
    assert (use.used.cpu, use.work) == (0, {})


@pytest.mark.parametrize(
    ("shown", "busy", "state", "reason"),
    [
        pytest.param(node("n1"), False, "idle", "", id="idle"),
        pytest.param(node("n1", cordoned=True), False, "drained", "cordoned", id="cordoned"),
        pytest.param(node("n1", cordoned=True), True, "draining", "cordoned", id="cordoned with work"),
        pytest.param(node("n1", conditions=()), True, "down", "NoStatus", id="no status"),
        pytest.param(
            node(
                "n1",
                conditions=(ObjectCondition(type="Ready", status="Unknown", reason="NodeStatusUnknown"),),
            ),
            False,
            "down",
            "NodeStatusUnknown",
            id="lost",
        ),
        pytest.param(
            node("n1", cordoned=True, annotations={names.MAINTENANCE_ANNOTATION: "kernel"}),
            False,
            "drained",
            "maintenance kernel",
            id="maint",
        ),
        pytest.param(
            node("n1", taints=(Taint("gpu", "", "NoSchedule"), Taint("x", "", "PreferNoSchedule"))),
            True,
            "mixed",
            "taint gpu",
            id="taint",
        ),
        pytest.param(
            node("n1", conditions=(*READY, ObjectCondition(type="DiskPressure", status="True"))),
            False,
            "idle",
            "DiskPressure",
            id="pressure",
        ),
    ],
)
def test_state_and_reason_are_those_of_sinfo(shown: Node, busy: bool, state: str, reason: str) -> None:
    (use,) = node_uses([shown], [work("a", "n1", one(1))] if busy else [])
    assert (use.state, use.reason) == (state, reason)


def server(*jobs: FluxJob) -> PluginServer:
    known = PluginServer().has("/api/v1/nodes", node("n1")).has_jobs(*jobs)
    return known.has(fluxjobs_path(None), *jobs)


def test_reads_nodes_and_all_work() -> None:
    (use,) = read_cluster(server(work("a", "n1", one(3))).client, "default")
    assert use.used.cpu == 3


def test_who_may_not_see_all_work_sees_that_of_the_namespace() -> None:
    known = server(work("a", "n1", one(3)))
    known.refusals[fluxjobs_path(None)] = ApiRefused(403, "Forbidden", "no")
    notes = io.StringIO()
    (use,) = read_cluster(known.client, "default", notes=notes)
    assert use.used.cpu == 3
    assert notes.getvalue().startswith("Only the work of namespace default is shown")


def test_who_may_not_list_nodes_reads_how_to_get_the_right() -> None:
    known = server()
    known.refusals["/nodes"] = ApiRefused(403, "Forbidden", "no")
    with pytest.raises(
        ClusterError,
        match="you may not list nodes; an administrator gives you the right by: kubectl create clusterrole",
    ):
        read_cluster(known.client, "default")


def test_chooses_by_name_and_state() -> None:
    uses = node_uses([node("n1"), node("n2", cordoned=True)], [])
    assert [use.name for use in chosen(uses, [], ["drained"])] == ["n2"]
    assert [use.name for use in chosen(uses, ["n1"], [])] == ["n1"]
    with pytest.raises(ClusterError, match='nodes "n9" not found'):
        chosen(uses, ["n9"], [])
