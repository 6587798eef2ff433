import msgspec
from support.dashboard_site import job, node

from fluxqueue.api.nodes import NodeSpec, Taint
from fluxqueue.dashboard.access import EVERYTHING, Visible
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.node_map import Cell, NodeMap, Use, node_map

BLUE = Visible(frozenset({"blue"}), nodes=True)
ZONE, RACK = "zone", "rack"
ROWS = [
    JobRow(job("wide", state="Running", nodes="node-[1-2]", cpu=4, spec={"pods": 2})),
    JobRow(job("small", state="Allocated", nodes="node-1", cpu=1)),
    JobRow(job("secret", "red", state="Running", nodes="node-1", cpu=2)),
    JobRow(job("waits", nodes="node-3")),
    JobRow(job("ended", state="Completed", nodes="node-3")),
]


def cells(found: NodeMap) -> dict[str, Cell]:
    return {cell.name: cell for group in found.groups for cell in group.cells}


def use(cell: Cell, name: str = "cpu") -> Use:
    return next(each for each in cell.uses if each.name == name)


def test_only_work_that_has_nodes_uses_them() -> None:
    found = cells(node_map([node("node-1"), node("node-3")], ROWS, EVERYTHING, ()))
    assert [row.title for row in found["node-1"].rows] == ["job/wide", "job/secret", "job/small"]
    assert found["node-3"].rows == ()
    assert use(found["node-1"]).text.startswith("7 of 8")


def test_work_that_is_not_seen_is_counted_without_a_name() -> None:
    cell = cells(node_map([node("node-1")], ROWS, BLUE, ()))["node-1"]
    assert [row.title for row in cell.rows] == ["job/wide", "job/small"]
    assert (cell.others, use(cell).seen, use(cell).others) == (1, 5_000, 2_000)
    assert "secret" not in cell.words
    assert "red" not in cell.words.replace("ready", "")
    assert "1 other job" in cell.words
    assert use(cell).parts[-1].job == ""


def test_parts_of_a_bar_follow_each_other_and_end_with_the_node() -> None:
    full = Use("cpu", 0, 9_000, 8_000, (("uid-of-a", 6_000),))
    assert [(part.at, part.width) for part in full.parts] == [(0.0, 75.0), (75.0, 25.0)]
    assert Use("cpu", 1, 1, 0).parts == []


def test_nodes_are_grouped_by_the_levels_in_a_natural_order() -> None:
    nodes = [node(f"node-{number}", zone="a", rack=f"r{number % 2}") for number in (10, 9, 2)] + [
        node("alone")
    ]
    found = node_map(nodes, [], EVERYTHING, (ZONE, RACK))
    assert [(group.path, [cell.name for cell in group.cells]) for group in found.groups] == [
        ((), ["alone"]),
        (("a", "r0"), ["node-2", "node-10"]),
        (("a", "r1"), ["node-9"]),
    ]


def test_states_and_sums_are_those_of_the_nodes() -> None:
    nodes = [node("node-1"), node("node-2", cordoned=True), node("node-3", ready=False)]
    found = node_map(nodes, ROWS, EVERYTHING, ())
    assert found.states == {"ready": 1, "cordoned": 1, "down": 1}
    totals = {each.name: each for each in found.totals}
    assert (totals["cpu"].seen, totals["cpu"].total) == (11_000, 24_000)
    assert [each.name for each in found.totals][:2] == ["cpu", "memory"]


def test_amounts_that_cannot_be_read_are_left_out() -> None:
    odd = node("odd")
    odd.status.allocatable["cpu"] = "many"  # type: ignore[index]
    assert "cpu" not in [each.name for each in cells(node_map([odd], [], EVERYTHING, ()))["odd"].uses]


def test_a_node_that_takes_no_work_says_why() -> None:
    cordoned, down = node("node-1", cordoned=True), node("node-2", ready=False)
    down.status.conditions[0] = msgspec.structs.replace(  # type: ignore[index]
        down.status.conditions[0],  # type: ignore[index]
        reason="KubeletNotReady",
        message="no runtime",
    )
    taints = [Taint(key="node.kubernetes.io/unschedulable"), Taint(key="disk", value="broken")]
    tainted = msgspec.structs.replace(cordoned, spec=NodeSpec(unschedulable=True, taints=taints))
    found = cells(node_map([tainted, down, node("node-3")], [], EVERYTHING, (), {"node-1": "cooling"}))
    assert {name: cell.why for name, cell in found.items()} == {
        "node-1": "FluxReservation cooling, taint disk=broken",
        "node-2": "KubeletNotReady: no runtime",
        "node-3": "",
    }
    assert found["node-2"].words.startswith("node-2, down (KubeletNotReady: no runtime): no work")


def test_figures_below_a_title_have_one_unit() -> None:
    assert Use("cpu", 660_000, 500, 1_024_000).figures == "660 of 1,024"
    assert Use("memory", 495 << 10, 0, 1 << 20).figures == "495 of 1,024 GiB"
    assert Use("nvidia.com:gpu", 14, 0, 128).figures == "14 of 128"
