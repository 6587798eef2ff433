"""The commands where no cluster runs, and with one whose parts are given;
`tests/node` runs them on real nodes.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fluxqueue.local.binaries import Tool
from fluxqueue.local.main import main
from fluxqueue.local.nodes import commands
from fluxqueue.local.nodes.images import Image, ImageArchive
from fluxqueue.local.nodes.memory import ContainerMemory


class Cluster:
    """Records what is asked of it."""

    def __init__(self, folder: Path) -> None:
        self.layout = SimpleNamespace(folder=folder, kubeconfig=folder / "admin.kubeconfig")
        self.running = ["n1"]
        self.binaries = {tool: folder / tool.value for tool in Tool}
        self.loaded: list[Path] = []
        pod = {
            "metadata": {"namespace": "default", "name": "one"},
            "spec": {"nodeName": "n1"},
            "status": {
                "containerStatuses": [{"name": "main", "containerID": "containerd://abc"}, {"name": "other"}]
            },
        }
        self.client = SimpleNamespace(get=lambda path: {"items": [pod]})

    def load(self, archives: list[Path]) -> None:
        self.loaded = list(archives)

    def down(self, *, delete: bool) -> bool:
        return delete


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setattr(commands, "NodeCluster", lambda *_: made)
    return made


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["nodes", *words]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "env", "load"])
def test_without_a_cluster_a_command_says_how_to_start_one(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = (
        f"fluxqueue local nodes: no real nodes run in {tmp_path}: "
        "start them with `fluxqueue local nodes up`\n"
    )
    assert refused([command, "--dir", str(tmp_path)], capsys) == expected


def test_down_without_a_cluster_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "down", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no real nodes run in {tmp_path}\n"


def test_up_without_root_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "real nodes need root" in refused(["up", "--dir", str(tmp_path)], capsys)


@pytest.mark.parametrize("count", ["0", "10", "two"])
def test_a_wrong_number_of_nodes_is_refused(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nodes", "up", count])
    assert f"'{count}' is not a number of nodes from 1 to 9" in capsys.readouterr().err


def test_values_need_images(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(commands, "built_images", lambda build: None)
    assert "build them with `fluxqueue local nodes images`" in refused(["values"], capsys)
    monkeypatch.setattr(
        commands,
        "built_images",
        lambda build: {image: ImageArchive(image, "7", Path("a")) for image in Image},
    )
    assert main(["nodes", "values"]) == 0
    assert json.loads(capsys.readouterr().out)["webhook"]["image"]["tag"] == "7"


def test_status_shows_the_memory_of_each_container(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "container_memory", lambda: {"abc": ContainerMemory(51.4, 2)})
    assert main(["nodes", "status"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["n1", "default", "one", "main", "51"], ["n1", "default", "one", "other", "-"]]


def test_env_selects_the_cluster_and_its_clients(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodes", "env"]) == 0
    folder = cluster.layout.folder
    assert f"export KUBECONFIG={folder}/admin.kubeconfig\n" in capsys.readouterr().out
    assert (folder / "bin" / "kubectl").readlink() == folder / "kubectl"


def test_archives_that_are_given_are_loaded(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cluster.layout.folder
    (folder / "a.tar").touch()
    assert main(["nodes", "load", str(folder / "a.tar")]) == 0
    assert cluster.loaded == [folder / "a.tar"]
    capsys.readouterr()
    assert f"there is no archive {folder}/b.tar" in refused(["load", str(folder / "b.tar")], capsys)
