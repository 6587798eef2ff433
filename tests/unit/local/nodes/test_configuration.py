"""The files that the programs of a machine read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from fluxqueue.local.nodes.configuration import NodeSize, write_configuration
from fluxqueue.local.nodes.layout import NodeLayout


def written(tmp_path: Path, size: NodeSize | None = None) -> Path:
    layout = NodeLayout(tmp_path)
    return write_configuration(layout.machine(2), layout.plane, Path("/cni"), size or NodeSize())


def test_each_machine_has_a_pod_network_and_a_control_group_of_its_own(tmp_path: Path) -> None:
    folder = written(tmp_path)
    network = json.loads((folder / "net.d" / "10-pods.conflist").read_text())
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert json.loads((folder / "kubelet.yaml").read_text())["cgroupRoot"] == "/fluxqueue-nodes/n2"
    assert json.loads((folder / "proxy.yaml").read_text())["hostnameOverride"] == "n2"


def test_no_folder_outside_the_machine_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path)
    containerd = tomllib.loads((folder / "containerd.toml").read_text())
    assert containerd["plugins"]["io.containerd.internal.v1.opt"]["path"] == str(tmp_path / "n2" / "opt")
    assert containerd["plugins"]["io.containerd.cri.v1.runtime"]["cni"] == {
        "bin_dirs": ["/cni"],
        "conf_dir": f"{folder}/net.d",
    }
    assert json.loads((folder / "kubelet.yaml").read_text())["volumePluginDir"] == str(
        tmp_path / "n2" / "volume-plugins"
    )


def test_memory_beyond_the_size_of_the_node_is_reserved(tmp_path: Path) -> None:
    reserved = [
        int(
            json.loads((written(tmp_path, NodeSize(memory_mib=mib)) / "kubelet.yaml").read_text())[
                "systemReserved"
            ]["memory"][:-2]
        )
        for mib in (64, 128)
    ]
    assert reserved[0] - reserved[1] == 64
    assert (
        json.loads((written(tmp_path, NodeSize(memory_mib=2**40)) / "kubelet.yaml").read_text())[
            "systemReserved"
        ]["memory"]
        == "0Mi"
    )
