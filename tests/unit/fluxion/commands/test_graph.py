from __future__ import annotations

import json
from pathlib import Path

import pytest

from fluxqueue.fluxion.main import main

READY = [{"type": "Ready", "status": "True"}]


@pytest.fixture
def node_list(tmp_path: Path) -> Path:
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"topology.kubernetes.io/zone": "eu-1", "example.com/rack": "r1"},
            },
            "spec": spec,
            "status": {
                "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"},
                "conditions": READY,
                "images": [{"names": ["x"]}],
            },
        }
        for name, spec in (("a", {}), ("b", {"unschedulable": True}))
    ]
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def test_nodes_become_a_graph_that_checks_and_shows(
    node_list: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graph", "from-nodes", str(node_list), "--cpu-vertex", "1000"]) == 0
    made = capsys.readouterr()
    assert made.err == "note: node b is down: it is cordoned\n"
    graph = tmp_path / "graph.json"
    graph.write_text(made.out)

    assert main(["graph", "check", str(graph)]) == 0
    assert capsys.readouterr().out == "the graph loads\n"

    assert main(["graph", "show", str(graph)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cluster0",
        "└── zone eu-1",
        "    ├── node a  cpu 2000 in 2 vertices  memory 1024 in 32 vertices  pods 10",
        "    └── node b  down  cpu 2000 in 2 vertices  memory 1024 in 32 vertices  pods 10",
    ]


def test_levels_are_named_on_the_command_line(node_list: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "from-nodes", str(node_list), "--levels", "rack=example.com/rack"]) == 0
    assert '"/cluster0/r1/a"' in capsys.readouterr().out


def test_a_single_node_is_a_list_of_one(node_list: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node_list.write_text(json.dumps(json.loads(node_list.read_text())["items"][0]))
    assert main(["graph", "from-nodes", str(node_list)]) == 0
    assert '"/cluster0/eu-1/a"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not a list of nodes"),
        ("{}", "items is missing"),
        ('{"items": [{"metadata": {"name": 4}}]}', "not a list of nodes"),
    ],
)
def test_what_is_no_list_of_nodes_is_refused(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(text)
    assert main(["graph", "from-nodes", str(path)]) == 1
    assert sentence in capsys.readouterr().err


def test_a_level_without_a_label_is_refused(node_list: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "from-nodes", str(node_list), "--levels", "rack"]) == 1
    assert "write TYPE=LABEL" in capsys.readouterr().err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "show", "/nowhere/graph.json"]) == 1
    assert capsys.readouterr().err == "/nowhere/graph.json: cannot be read: No such file or directory\n"


def test_check_fails_on_a_broken_graph_and_prints_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graph.json"
    path.write_text('{"graph": {"nodes": [], "edges": []}}')
    assert main(["graph", "check", str(path)]) == 1
    assert capsys.readouterr().out.startswith("error: a graph has one root")


@pytest.mark.parametrize(
    "words", [["--port", "65536"], ["graph"], ["graph", "from-nodes", "-", "--cpu-vertex", "0"], ["dance"]]
)
def test_a_command_line_that_is_not_understood_is_usage(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--tls-cert", "c.pem"], ["--tls-key", "k.pem"], ["--tls-client-ca", "ca.pem"]]
)
def test_half_a_certificate_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "both --tls-cert and --tls-key" in capsys.readouterr().err
