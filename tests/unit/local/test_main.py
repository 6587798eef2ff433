"""What `fluxqueue local up` says about its nodes, and what it remembers of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fluxqueue.local import main as local
from fluxqueue.local import node_kinds
from fluxqueue.local.binaries import Binaries
from fluxqueue.local.daemon import DaemonState, RunningProcess
from fluxqueue.local.localcluster import LocalCluster


class Machine:
    """The kind of nodes of the cluster that runs; empty if none does."""

    def __init__(self, folder: Path) -> None:
        self.kind = ""
        self.namespaces = True
        self.dashboard = False
        self.folder = folder

    def up(self, *words: str) -> int:
        """Run ``fluxqueue local up``."""
        return local.main(["up", "--dir", str(self.folder), *words])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path / "cluster")

    def spawn(cluster: LocalCluster, _: Binaries) -> subprocess.Popen[str]:
        machine.dashboard = (cluster.options.values or {})["dashboard"]["enabled"]
        machine.kind = "processes" if cluster.options.processes else "simulated"
        return subprocess.Popen(["echo", '{"ready": true}'], stdout=subprocess.PIPE, text=True)

    def state(_: LocalCluster) -> DaemonState:
        kubelet = RunningProcess(
            "node-agent" if machine.kind == "processes" else "kwok", 1, "running", None, 0, ""
        )
        dashboard = [RunningProcess("dashboard", 2, "running", 4443, 0, "")] if machine.dashboard else []
        return DaemonState(pid=1, ready=True, server="https://here", processes=[kubelet, *dashboard])

    monkeypatch.setattr(local, "_find", lambda *_: Binaries({}, kubernetes="1.36.3"))
    monkeypatch.setattr(node_kinds, "can_make_namespaces", lambda: machine.namespaces)
    monkeypatch.setattr(LocalCluster, "_spawn", spawn)
    monkeypatch.setattr(LocalCluster, "_wait_for_other_start", lambda *_: None)
    monkeypatch.setattr(LocalCluster, "running", property(lambda _: bool(machine.kind)))
    monkeypatch.setattr(LocalCluster, "state", property(state))
    monkeypatch.setattr(LocalCluster, "node_count", 8)
    return machine


def test_nodes_are_what_they_were_unless_it_is_said(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {
        (): "8 nodes of processes",
        ("--nodes", "4", "--nodes", "simulated"): "4 simulated nodes",
        ("--nodes", "2"): "2 simulated nodes",
        ("--nodes", "processes"): "8 nodes of processes",
        ("--nodes", "300"): "300 nodes of processes",
    }
    for words, nodes in said.items():
        assert machine.up(*words) == 0
        assert (
            f"fluxqueue is up: https://here, {nodes}, data in {machine.folder}\n" in capsys.readouterr().out
        )
        machine.kind = ""


def test_a_cluster_that_runs_keeps_its_nodes(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.up("--nodes", "processes") == 0
    for words in ((), ("--nodes", "8"), ("--nodes", "processes")):
        capsys.readouterr()
        assert machine.up(*words) == 0
        assert capsys.readouterr().out.startswith(
            "fluxqueue runs already: https://here, 8 nodes of processes, "
        )
    for others in ("simulated", "4"):
        assert machine.up("--nodes", others) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(
            "fluxqueue local: a cluster runs, with 8 nodes of processes: `fluxqueue local down --dir "
        )
    machine.kind = ""
    assert machine.up() == 0
    assert machine.kind == "processes"


def test_a_cluster_of_a_version_before_keeps_its_simulated_nodes(machine: Machine) -> None:
    (machine.folder / "controlplane" / "etcd").mkdir(parents=True)
    assert machine.up() == 0
    assert machine.kind == "simulated"


@pytest.mark.parametrize("nodes", ["lots", "0", "-1", "1000000"])
def test_a_number_of_nodes_that_is_none_is_refused(
    machine: Machine, capsys: pytest.CaptureFixture[str], nodes: str
) -> None:
    with pytest.raises(SystemExit):
        machine.up("--nodes", nodes)
    assert (
        f"'{nodes}' is neither a number from 1 to 100000 nor one of processes, simulated"
        in capsys.readouterr().err
    )


def test_many_nodes_are_simulated_at_first(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.up("--nodes", "65") == 0
    assert machine.kind == "simulated"
    note = (
        "note: more than 64 nodes are simulated, and nothing computes: "
        "`--nodes processes` in addition for others\n"
    )
    assert capsys.readouterr().err == note


def test_nodes_are_simulated_at_first_where_no_namespaces_can_be_made(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.namespaces = False
    assert machine.up() == 0
    assert machine.kind == "simulated"
    said = capsys.readouterr().err
    assert said.startswith(
        "note: no namespaces can be made here, so its nodes are simulated, and nothing computes: "
        "on Ubuntu `sudo "
    )
    machine.kind, machine.namespaces = "", True
    assert machine.up() == 0
    assert machine.kind == "simulated"  # its data is kept, and so is what its nodes are
    assert capsys.readouterr().err == ""


def test_a_start_says_once_that_pods_have_no_namespaces(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.namespaces = False
    assert machine.up("--nodes", "processes") == 0
    assert capsys.readouterr().err.startswith(
        "note: no namespaces can be made here, so pods have no names of Services"
    )
    assert machine.up() == 0  # it runs already
    machine.kind = ""
    assert machine.up("--nodes", "simulated") == 0
    machine.kind, machine.namespaces = "", True
    assert machine.up("--nodes", "processes") == 0
    assert capsys.readouterr().err == ""


def test_a_start_says_where_the_dashboard_is_and_how_to_sign_in(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in ("started", "runs already"):
        assert machine.up() == 0
        said = capsys.readouterr().out
        assert "  https://127.0.0.1:4443   the dashboard; " in said
        assert said.endswith(" && kubectl create token me\n")
    machine.kind = ""
    off = machine.folder / "off.yaml"
    off.write_text("dashboard: {enabled: false}\n")
    assert machine.up("--values", str(off)) == 0
    assert "dashboard" not in capsys.readouterr().out
