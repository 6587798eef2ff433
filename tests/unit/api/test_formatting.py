from __future__ import annotations

from typing import Any

import pytest

from fluxqueue.api.formatting import (
    format_constraint,
    format_graph_amount,
    format_node_set,
    format_nodes,
    format_quantity,
    natural_order,
)


@pytest.mark.parametrize(
    ("kind", "amount", "message"),
    [
        ("cpu", 4000, "4 cpu"),
        ("cpu", 250, "0.25 cpu"),
        ("cpu", 10, "0.01 cpu"),
        ("memory", 2048, "2 GiB memory"),
        ("memory", 512, "512 MiB memory"),
        ("memory", 1536, "1.5 GiB memory"),
        ("memory", 0, "0 memory"),
        ("ephemeral-storage", 10 << 20, "10 TiB ephemeral-storage"),
        ("hugepages-2Mi", 64, "64 MiB hugepages-2Mi"),
        ("nvidia.com:gpu", 2, "2 nvidia.com/gpu"),
        ("pods", 1, "1 pod"),
        ("pods", 3, "3 pods"),
        ("core", 128, "128 core"),
        ("hostport:TCP:80", 1, "host port 80/TCP"),
        ("volumes:csi:ebs.csi.aws.com", 3, "3 volumes of ebs.csi.aws.com"),
    ],
)
def test_an_amount_of_the_graph_is_shown_in_cores_bytes_and_items(
    kind: str, amount: int, message: str
) -> None:
    assert format_graph_amount(kind, amount) == message


def test_an_amount_of_a_pod_has_the_same_form() -> None:
    assert [
        format_quantity("cpu", 1.5),
        format_quantity("memory", 4 << 30),
        format_quantity("memory", 100),
    ] == [
        "1.5 cpu",
        "4 GiB memory",
        "100 memory",
    ]


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (None, ""),
        ({}, ""),
        ({"properties": ["disk=ssd"]}, "disk=ssd"),
        ({"properties": ["disk=ssd", "^zone=a"]}, "disk=ssd, not zone=a"),
        ({"properties": ["gpu"]}, "with the label gpu"),
        ({"not": [{"properties": ["gpu"]}]}, "without the label gpu"),
        (
            {"not": [{"properties": ["taint:dedicated=ml:NoSchedule"]}]},
            "without the taint dedicated=ml:NoSchedule",
        ),
        (
            {"and": [{"properties": ["disk=ssd"]}, {"not": [{"hostlist": ["node-2"]}]}]},
            "disk=ssd, not on node-2",
        ),
        ({"or": [{"properties": ["zone=a"]}, {"properties": ["zone=b"]}]}, "zone=a or zone=b"),
        (
            {"and": [{"properties": ["x=1"]}, {"or": [{"properties": ["z=a"]}, {"properties": ["z=b"]}]}]},
            "x=1, (z=a or z=b)",
        ),
        ({"not": [{"or": [{"properties": ["z=a"]}, {"properties": ["z=b"]}]}]}, "not z=a, not z=b"),
        ({"not": [{"properties": ["z=a", "d=hdd"]}]}, "not z=a or not d=hdd"),
        ({"hostlist": [f"n{number}" for number in range(8)]}, "on n0, n1, n2, n3, n4 and 3 more"),
        ({"ranks": ["0-3"]}, "of rank 0-3"),
        ({"and": [{"properties": ["x=1"]}, {"in": ["z", "a", "b"]}]}, "x=1, (z=a or z=b)"),
        ({"not": [{"in": ["z", "a", "b"]}]}, "not z=a, not z=b"),
        ({"in": []}, ""),
        ({"and": [{"greater": ["cores", "4"]}, {"less": ["cores", "64"]}]}, "cores > 4, cores < 64"),
        ({"not": [{"greater": ["cores", "4"]}]}, "not cores > 4"),
    ],
)
def test_a_constraint_is_shown_without_json(constraint: dict[str, Any] | None, message: str) -> None:
    assert format_constraint(constraint) == message


def test_a_long_constraint_is_cut() -> None:
    assert len(format_constraint({"properties": [f"label-{number}=value" for number in range(500)]})) <= 400


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("", ""),
        ("node-[4,4]", "node-4 (2)"),
        ("node-[1-3]", "node-[1-3]"),
        ("node-[4,4,5-6]", "node-4 (2), node-[5-6]"),
        ("node-[1,1,2,2]", "node-[1-2] (2 each)"),
        ("node-1,none.invalid,node-1", "node-1 (2)"),
        ("node-[", "node-["),
    ],
)
def test_nodes_are_shown_once_with_the_number_of_their_pods(nodes: str, message: str) -> None:
    assert format_nodes(nodes) == message


@pytest.mark.parametrize(
    ("nodes", "shown"),
    [
        ("", ""),
        ("node-[10,9,9,3,3]", "node-[3,9-10]"),
        ("none.invalid,node-1,none.invalid", "node-1"),
        (",".join(f"node-[{number}]" for number in range(1, 200, 2)) + ",node-1", "100 nodes"),
        ("node-[1-102]," * 90 + "node-7", "node-[1-102]"),
        ("node-[", ""),
    ],
)
def test_a_column_shows_each_node_once_or_how_many_they_are(nodes: str, shown: str) -> None:
    assert format_node_set(nodes) == shown


def test_names_are_in_a_natural_order_however_long_their_numbers_are() -> None:
    names = ["node-10", "node", "node-9", "gpu2", f"node-{'9' * 5_000}"]
    assert sorted(names, key=natural_order) == ["gpu2", "node", "node-9", "node-10", f"node-{'9' * 5_000}"]
