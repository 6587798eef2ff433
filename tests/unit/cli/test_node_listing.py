from support.node_work import node, one, work

from fluxqueue.api.topology import DEFAULT_LEVELS
from fluxqueue.cli.node_listing import TreeOptions, each_table, grouped_table, tree
from fluxqueue.cli.node_use import node_uses

ZONE, RACK = DEFAULT_LEVELS[0][1], DEFAULT_LEVELS[2][1]
NODES = [
    node("n1", labels={ZONE: "east", RACK: "r1"}),
    node("n2", labels={ZONE: "east", RACK: "r1"}, cordoned=True),
    node("n3", labels={ZONE: "east"}),
    node("n4"),
]
USES = node_uses(NODES, [work("a", "n[1,1]", one(2, 2)), work("b", "n1", one(1, gpus=1))])


def test_nodes_of_one_state_are_one_line() -> None:
    assert grouped_table(USES).splitlines() == [
        "STATE     NODES   CPU    GPU   REASON     NODELIST",
        "idle      2       0/16   0/4   -          n[3-4]",
        "mixed     1       5/8    1/2   -          n1",
        "drained   1       0/8    0/2   cordoned   n2",
    ]


def test_one_by_one_with_their_work() -> None:
    lines = each_table(USES[:2]).splitlines()
    assert lines[0].split() == ["NODE", "STATE", "CPU", "GPU", "REASON", "WORK"]
    assert lines[1].endswith("default/job/a (2), default/job/b")
    assert "3/32" in each_table(USES[:1], wide=True)
    assert max(map(len, each_table(USES, width=60).splitlines())) <= 60


def test_many_workloads_of_a_node_are_counted() -> None:
    (use,) = node_uses([node("n1")], [work(name, "n1", one(1)) for name in "abcde"])
    assert each_table([use]).rstrip().endswith("default/job/c and 2 more")
    assert each_table([use], wide=True).rstrip().endswith("default/job/e")


def test_a_tree_has_the_levels_that_nodes_have() -> None:
    lines = tree(USES, TreeOptions(DEFAULT_LEVELS, ascii_only=True)).splitlines()
    assert [line[:15].rstrip() for line in lines[1:]] == [
        "cluster",
        "|- zone east",
        "|  |- rack r1",
        "|  |  |- n1",
        "|  |  `- n2",
        "|  `- n3",
        "`- n4",
    ]
    assert lines[1].split()[1:4] == ["##........", "5/32", "1/8"]
    assert lines[1].endswith("4 (1 drained)   -")
    assert "├─ zone east" in tree(USES, TreeOptions(DEFAULT_LEVELS))


def test_a_tree_ends_at_a_level() -> None:
    text = tree(USES, TreeOptions(DEFAULT_LEVELS, deepest="zone", ascii_only=True))
    assert "rack" not in text
    assert "n1" not in text
